# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets and drafts as tables, for exact enumeration.

A law maps prefixes [N, n] to log-probabilities [N, V].
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from specjax import exact
from specjax import sampling as sampling_lib
from specjax.laws import drafts as drafts_lib

# Kinds of drafts from a law: what is drawn how, and what the rule is told.
KINDS: Mapping[str, Callable[[exact.Conditional], exact.Drafts]] = {
  "independent": exact.honest,
  "without replacement": lambda q: exact.honest(q, drafts_lib.distinct),
  "deterministic": lambda q: exact.honest(q, drafts_lib.ranked),
  "mixed": lambda q: exact.honest(q, drafts_lib.mixed),
  "as given": lambda q: exact.Drafts(q, None, drafts_lib.distinct),
}


def cases(vocab: int) -> Iterator[tuple[str, exact.Conditional, exact.Drafts]]:
  """Named pairs of a target and of what drafts for it."""
  target, other = random(1, vocab), random(2, vocab)
  low, high = only(target, even=True), only(other, even=False)
  greedy = best(target)
  yield "honest draft", target, exact.honest(other)
  yield "draft taken as given", target, exact.Drafts(other, None)
  yield "best tokens of a law", target, exact.honest(best(other))
  yield "best tokens taken as given", target, exact.Drafts(best(other), None)
  yield "the target drafts for itself", target, exact.honest(target)
  yield "draft with holes", target, exact.honest(high)
  yield "target with holes", low, exact.honest(other)
  yield "target and draft without overlap", low, exact.honest(high)
  yield "greedy target", greedy, exact.honest(other)
  yield "greedy target drafts for itself", greedy, exact.honest(greedy)


def tree_cases(
  vocab: int, kinds: Iterable[str]
) -> Iterator[tuple[str, exact.Conditional, exact.Drafts]]:
  """Named pairs for trees, siblings of each kind."""
  target, other = random(1, vocab), random(2, vocab)
  for kind in kinds:
    yield f"{kind} siblings", target, KINDS[kind](other)
  for kind in kinds:
    yield f"greedy target, {kind} siblings", best(target), KINDS[kind](other)
  for kind in kinds:
    greedy = KINDS[kind](best(other))
    yield f"greedy target, greedy {kind} siblings", best(target), greedy
  low, high = only(target, even=True), only(other, even=False)
  for kind in kinds:
    yield f"no overlap, {kind} siblings", low, KINDS[kind](high)


def constant(probabilities: npt.ArrayLike) -> exact.Conditional:
  """One law [V], whatever came before."""
  with np.errstate(divide="ignore"):
    law = np.log(np.asarray(probabilities, np.float64))
  return lambda prefix: np.tile(law, (len(prefix), 1))


def random(
  seed: int, vocab: int, memory: int | None = None
) -> exact.Conditional:
  """A law that depends on the last `memory` tokens, on all of them if None.

  Prefixes that it does not tell apart are enumerated once.
  """

  def law(prefix: np.ndarray) -> np.ndarray:
    if memory is not None:
      prefix = prefix[:, max(prefix.shape[1] - memory, 0) :]
    rng = np.random.default_rng([seed, prefix.shape[1]])
    table = rng.normal(scale=1.2, size=(vocab ** prefix.shape[1], vocab))
    return normalised(table[_index(prefix, vocab)])

  return law


def best(law: exact.Conditional) -> exact.Conditional:
  """All mass on the most likely token."""

  def one_hot(prefix: np.ndarray) -> np.ndarray:
    x = law(prefix)
    return np.where(np.arange(x.shape[1]) == x.argmax(1)[:, None], 0.0, -np.inf)

  return one_hot


def only(law: exact.Conditional, *, even: bool) -> exact.Conditional:
  """The law on the tokens with even ids, or with odd ones."""

  def half(prefix: np.ndarray) -> np.ndarray:
    x = law(prefix)
    kept = (np.arange(x.shape[1]) % 2 == 0) == even
    return normalised(np.where(kept, x, -np.inf))

  return half


def sampled(
  law: exact.Conditional,
  log_probs: Callable[..., jax.Array] = sampling_lib.log_probs,
  depth: int = 4,
  **settings: Any,
) -> exact.Conditional:
  """A law through the library's sampler, with the prefix as history.

  Args:
    law: taken for logits.
    log_probs: the sampler.
    depth: of the longest prefix; all of them are put into one table at once.
    **settings: of `Sampling`.
  """
  vocab = law(np.zeros((1, 0), int)).shape[1]
  prefixes = [drafts_lib.sequences(vocab, n) for n in range(depth + 1)]
  ids = np.arange(vocab)
  counts = [(p[:, :, None] == ids).sum(axis=1) for p in prefixes]
  history = sampling_lib.History(jnp.asarray(np.concatenate(counts), jnp.int32))
  logits = jnp.asarray(np.concatenate([law(p) for p in prefixes]), jnp.float32)
  rows = sampling_lib.per_row(sampling_lib.Sampling(**settings), len(logits))
  table = jax.jit(log_probs)(logits, rows, history)
  # float32 laws sum to 1 within 1e-7; proofs want a law.
  table = normalised(np.asarray(table, np.float64))

  def follow(prefix: np.ndarray) -> np.ndarray:
    first = sum(vocab**n for n in range(prefix.shape[1]))
    return table[first + _index(prefix, vocab)]

  return follow


def _index(prefix: np.ndarray, vocab: int) -> np.ndarray:
  """[N] number of each prefix [N, n] among all of its length."""
  index = np.zeros(len(prefix), int)
  for token in prefix.T:
    index = index * vocab + token
  return index


def normalised(x: np.ndarray) -> np.ndarray:
  return x - np.logaddexp.reduce(x, axis=1, keepdims=True)
