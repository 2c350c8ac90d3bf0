# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Laws of rules whose random numbers serve two decisions, or two rows.

Such numbers join what is independent in decoding: the draft and its test, two
rounds, two rows of a batch. The real `verify` is run on both sides at once, and
the cells of all numbers together give the law.

Targets and drafts are laws that depend on nothing, so that a round's rows are
known before the round ahead of it is over.

Axis letters: N rows, T drafted tokens, V vocabulary, U numbers of a round.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import exact, sampling, types
from specjax.laws import cells, enumeration
from specjax.laws import drafts as drafts_lib
from specjax.testing import cases

TARGET, DRAFT = np.array([0.5, 0.2, 0.3]), np.array([0.2, 0.3, 0.5])


@dataclasses.dataclass(frozen=True)
class FromOneNumber:
  """A rule whose accept tests know the numbers that drew the tokens."""

  rule: types.Verifier
  lossless = False
  chain_only = True

  def noise(self, streams, vocab):
    return self.rule.noise(streams, vocab)

  def draw(self, streams, lengths, draft):
    return self.rule.draw(streams, lengths, draft)

  def verify(self, log_p, draft, uniforms) -> types.Acceptance:
    """Draws the tokens again, from the numbers of the tests."""
    tokens = sampling.inverse_cdf(jnp.exp(draft.log_q), uniforms.accept)
    return self.rule.verify(log_p, draft.replace(tokens=tokens), uniforms)


def shared_noise(rule: types.Verifier) -> float:
  """Total variation where one number draws a token and tests it."""
  target, draft = cases.constant(TARGET), cases.constant(DRAFT)
  law = exact.law(FromOneNumber(rule), target, exact.honest(draft), (1,), 2)
  return exact.total_variation(law, exact.joint(target, 2))


@dataclasses.dataclass(frozen=True)
class _TwoRounds:
  """Two rounds of two drafts; accept numbers belong to positions, or do not."""

  outcome: enumeration.Outcome
  kept: bool

  def __call__(self, rows, numbers):
    first, second = rows
    accept, residual = numbers[:, :5], numbers[:, 5:]
    one = self.outcome(first, jnp.c_[accept[:, :2], residual[:, :1]])[:, :3]
    emitted = jnp.sum(one < len(TARGET), axis=1, keepdims=True)
    start = emitted if self.kept else jnp.full_like(emitted, 3)
    later = jnp.take_along_axis(accept, start + jnp.arange(2)[None], axis=1)
    two = self.outcome(second, jnp.c_[later, residual[:, 1:]])[:, :1]
    return jnp.c_[one[:, :1], jnp.where(emitted > 1, one[:, 1:2], two)]


def kept_streams(rule: types.Verifier, *, kept: bool = True) -> float:
  """Total variation of two tokens where accept numbers outlive their round.

  Args:
    rule: of chains; reads an accept number a draft, then one for the residual.
    kept: keyed by position alone; else by the round too, as is right.
  """
  drafts, weight = _drafts(4)
  halves = _rows(drafts[:, :2]), _rows(drafts[:, 2:])
  function = lambda outcome: _TwoRounds(outcome, kept)
  found = _law(rule, function, halves, weight, (len(TARGET),) * 2, size=7)
  return exact.total_variation(found, np.multiply.outer(TARGET, TARGET))


@dataclasses.dataclass(frozen=True)
class _Pair:
  """A batch of two rows, of which the first is looked at."""

  outcome: enumeration.Outcome

  def __call__(self, rows, numbers):
    def batch(rows, numbers):
      return self.outcome(rows, numbers.reshape(2, -1))[0, :1]

    pairs = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *rows)
    return jax.vmap(batch)(pairs, numbers)


def batch_of_two(rule: types.Verifier) -> float:
  """Total variation of the first token, one draft a row, rows in pairs."""
  drafts, weight = _drafts(2)
  pair = _rows(drafts[:, :1]), _rows(drafts[:, 1:])
  found = _law(rule, _Pair, pair, weight, TARGET.shape, size=4)
  return exact.total_variation(found, TARGET)


def _drafts(tokens):
  """All sequences of drafted tokens [N, T], and how likely they are."""
  drafts = drafts_lib.sequences(len(DRAFT), tokens)
  return drafts, DRAFT[drafts].prod(axis=1)


def _rows(tokens):
  """Laws and a chain of these tokens [N, T]."""
  rows, width = tokens.shape
  repeat = lambda law, n: np.tile(np.log(law), (rows, n, 1))
  parents = np.tile(np.arange(width), (rows, 1))
  arrays: Any = tokens, parents, repeat(DRAFT, width), np.full(rows, width)
  return repeat(TARGET, width + 1), types.Draft(*arrays, max_depth=width)


def _law(rule, function, rows, weight, shape, size):
  """Law of the tokens that a function of two rounds or rows gives."""
  with jax.enable_x64(True):
    draw = enumeration.read_draw(rule, rows[0][1])
    outcome = function(enumeration.Outcome(rule, draw))
    owner, volume, tokens = cells.split(outcome, rows, size)
  law = np.zeros(shape)
  np.add.at(law, tuple(tokens.T), weight[owner] * volume)
  return law
