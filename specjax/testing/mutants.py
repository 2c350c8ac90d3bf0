# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Broken rules, for which the proofs must find out what is wrong.

A text mutant is a module of the library with one place of its text replaced,
run as a module of its own. A replaced text must occur exactly once, so a mutant
that no longer fits the code fails loudly. The others are right rules that are
told something wrong, or get numbers that they should not.

Axis letters: N rows, T nodes, V vocabulary.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import inspect
import types as python_types
from typing import NamedTuple

import numpy as np

from specjax import exact, sampling, types
from specjax.laws import drafts as drafts_lib
from specjax.testing import cases, reuse
from specjax.verifiers import block, multi_candidate, rejection

STRUCTURAL, NUMERICAL = "structural", "numerical"
LEAST = 1e-3  # what a structural mutant is off at least
TIMES = 100  # and a numerical one, in distances of the right rule
VOCAB = 4
LENGTHS, TOKENS = (2, 1), 3
Replacement = tuple[str, str]


class Mutant(NamedTuple):
  """One broken rule and how far off its law is."""

  name: str
  kind: str
  tv: float
  caught: bool


RUN = "jnp.cumprod(hits, axis=1)"
LEAF = f"leaf = jnp.sum({RUN}, axis=1)"
RESIDUAL = "mass = sampling.residual(p, q)"
ACCEPT = "uniforms.accept * q_x < p_x"


class Text(NamedTuple):
  """A rule on chains, and what is replaced in its module."""

  kind: str
  module: python_types.ModuleType
  rule: str
  replacements: tuple[Replacement, ...]


def _rejection(kind: str, *replacements: Replacement) -> Text:
  return Text(kind, rejection, "Rejection", replacements)


def _block(*replacements: Replacement) -> Text:
  return Text(STRUCTURAL, block, "Block", replacements)


TEXTS: Mapping[str, Text] = {
  "accept count instead of leading run": _rejection(STRUCTURAL, (RUN, "hits")),
  "residual without the draft's law": _rejection(
    STRUCTURAL, (RESIDUAL, "mass = p")
  ),
  "unweighted residual under block verification": _block(
    (
      "  passes, laws = ratio.refuse(weights, p, q)\n",
      "  passes, _ = ratio.refuse(weights, p, q)\n"
      "  laws = sampling.residual(p, q)\n",
    )
  ),
  "first failure ends the block": _block(
    (
      "jnp.where(hits & (slots <= count[:, None]), slots, 0)",
      "jnp.cumsum(jnp.cumprod(hits & (slots <= count[:, None]), 1), 1) - 1",
    )
  ),
  "epsilon 1e-7 in the ratio": _rejection(
    NUMERICAL, (ACCEPT, "uniforms.accept * (q_x + 1e-7) < p_x")
  ),
  "epsilon 1e-7 in the residual": _rejection(
    NUMERICAL, (RESIDUAL, "mass = jnp.maximum(p - q, 1e-7)")
  ),
}
# Filters see logits that the temperature has not touched.
FILTERS_FIRST = (
  (
    "x = x / jnp.where(greedy, 1.0, temperature)",
    "scale = jnp.where(greedy, 1.0, temperature)",
  ),
  (
    "jax.nn.log_softmax(x, axis=-1))",
    "jax.nn.log_softmax(x / scale, axis=-1))",
  ),
)


def mutate(
  module: python_types.ModuleType, *replacements: Replacement
) -> python_types.ModuleType:
  """A module like `module` but for pairs (old text, new text).

  Raises:
    ValueError: a text that does not occur once.
  """
  source = inspect.getsource(module)
  for old, new in replacements:
    if source.count(old) != 1:
      raise ValueError(f"{old!r} must occur once in {module.__name__}")
    source = source.replace(old, new)
  mutant = python_types.ModuleType(f"mutant_{module.__name__}")
  exec(compile(source, mutant.__name__, "exec"), mutant.__dict__)
  return mutant


def broken(name: str) -> types.Verifier:
  """A rule of `TEXTS`."""
  text = TEXTS[name]
  return getattr(mutate(text.module, *text.replacements), text.rule)()


def measure() -> Iterator[Mutant]:
  """Every mutant and its total variation from the target's law."""
  drafts = exact.honest(cases.random(2, VOCAB))
  rules = rejection.Rejection(), block.Block()
  right = max(distance(rule, drafts) for rule in rules)
  for name, text in TEXTS.items():
    least = TIMES * right if text.kind == NUMERICAL else LEAST
    off = distance(broken(name), drafts)
    yield Mutant(name, text.kind, off, off > least)
  for name, off in _told_wrong():
    yield Mutant(name, STRUCTURAL, off, off > LEAST)


def distance(rule, drafts, target=None, lengths=LENGTHS, **shape) -> float:
  """Total variation of a rule from the law that it should keep."""
  target = target or cases.random(1, VOCAB)
  law = exact.law(rule, target, drafts, lengths, TOKENS, **shape)
  return exact.total_variation(law, exact.joint(target, TOKENS))


def _told_wrong() -> Iterator[tuple[str, float]]:
  """Right rules with drafts, laws or numbers that are wrong."""
  q = cases.random(2, VOCAB)
  rule = rejection.Rejection()
  yield (
    "softmax scored argmax",
    distance(rule, exact.Drafts(cases.best(q), q)),
  )
  yield "anticipating stop", distance(rule, anticipating(q))
  yield (
    "siblings without renormalising",
    distance(
      multi_candidate.MultiCandidate(),
      exact.Drafts(q, q, drafts_lib.distinct, drafts_lib.independent),
      lengths=(1,),
      parents=(0, 0),
    ),
  )
  yield "filters before temperature", filters_first()
  yield "noise shared by accept and draft", reuse.shared_noise(rule)
  yield "streams kept across rounds", reuse.kept_streams(block.Block())
  cut = LEAF + "\n    leaf = jnp.full_like(leaf, jnp.min(leaf))"
  batch = mutate(rejection, (LEAF, cut)).Rejection()
  yield "batch minimum with overwrite", reuse.batch_of_two(batch)


def anticipating(q: exact.Conditional, *, seen: bool = True) -> exact.Drafts:
  """Drafts that end before the first token that q finds unlikely.

  Args:
    q: their law.
    seen: whether the drawn token is looked at; else it is the likeliest one,
      which is known before, and nothing is wrong.
  """

  def kept(prefix, chain):
    runs = []
    for i in range(chain.shape[1]):
      law = q(np.concatenate([prefix, chain[:, :i]], axis=1))
      drawn = np.take_along_axis(law, chain[:, i : i + 1], axis=1)[:, 0]
      runs.append(np.exp(drawn if seen else law.max(axis=1)) > 0.5)
    return np.cumprod(runs, axis=0).sum(axis=0).astype(int)

  return dataclasses.replace(exact.honest(q), cut=kept)


def filters_first() -> float:
  """A nucleus of untempered logits, where one of tempered ones is meant."""
  mutant = mutate(sampling, *FILTERS_FIRST)
  # Tempered, two tokens hold 0.8 of the mass; untempered it takes three.
  law = cases.constant([0.48, 0.3, 0.16, 0.06])
  temper = lambda log_probs: cases.sampled(
    law, log_probs, temperature=0.6, top_p=0.8
  )
  right, wrong = temper(sampling.log_probs), temper(mutant.log_probs)
  drafts = exact.honest(right)
  found = exact.law(rejection.Rejection(), wrong, drafts, LENGTHS, TOKENS)
  return exact.total_variation(found, exact.joint(right, TOKENS))
