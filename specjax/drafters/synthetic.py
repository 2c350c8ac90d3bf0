# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drafter whose acceptance is set by hand, for studies of cost.

It replays a recorded answer and spoils tokens at random, so that the token at
depth d is kept with a given probability, whatever a drafter of that quality
would have cost or known. The record must be one of the same target, prompts and
settings, such as `plain` of an earlier run.

Axis letters: B batch, R records, L tokens of the longest, T drafted tokens.
"""

from collections.abc import Sequence

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import streams, types
from specjax.drafters import recorded
from specjax.trees import tree

_NONE = -1  # Past the end of a record.


def synthetic(
  answers: str,
  length: int,
  acceptance: float | tuple,
  *,
  method: str = "plain",
  seed: int = 0,
) -> "Synthetic":
  """A `Synthetic` of the answers in a results.jsonl.

  Args:
    answers: the results.jsonl.
    length: tokens to draft.
    acceptance: probability that a token is right when all before it are; one
      number, or one a depth.
    method: whose answers are replayed.
    seed: of what is spoiled.

  Raises:
    ValueError: not one probability a depth.
    FileNotFoundError: there is no such results.jsonl.
  """
  if isinstance(acceptance, int | float):
    profile = (float(acceptance),) * length
  else:
    profile = tuple(acceptance)
  if length < 0 or len(profile) != length:
    raise ValueError(
      f"acceptance has {len(profile)} numbers for length {length}: give one, "
      "or one a token"
    )
  wrong = [x for x in profile if not 0 <= x <= 1]
  if wrong:
    raise ValueError(f"acceptance {wrong[0]} is no probability: use 0 to 1")
  return Synthetic.of(recorded.read(answers, method), profile, seed)


class State(struct.PyTreeNode):
  """Where a row's answer begins."""

  seen: jax.Array  # [B] committed tokens
  start: jax.Array  # [B] those of the prompt


class Synthetic(struct.PyTreeNode):
  """Recorded answers, spoiled to a given acceptance: for studies of cost.

  A row follows the record whose prompt had as many tokens and whose answer
  began as the row's own. Prompts of equal length are therefore told apart once
  their answers differ; until then the first of them is replayed. A row that
  follows no record, or has come to its end, drafts nothing. Tokens are taken as
  given.

  Attributes:
    answers: [R, L] recorded ids, padded with -1.
    prompt_tokens: [R] of each record's prompt.
    profile: [T] probability of a right token at each depth; a leaf, so that all
      profiles of one length share a trace.
    seed: of what is spoiled, which depends on record and position alone.
  """

  answers: jax.Array
  prompt_tokens: jax.Array
  profile: jax.Array
  seed: jax.Array

  @classmethod
  def of(
    cls,
    answers: Sequence[recorded.Answer],
    profile: Sequence[float],
    seed: int = 0,
  ) -> "Synthetic":
    """From records that are in memory.

    Raises:
      ValueError: there are none.
    """
    if not answers:
      raise ValueError("no recorded answers to replay: give at least one")
    longest = max(1, *(len(answer.tokens) for answer in answers))
    table = np.full((len(answers), longest), _NONE, np.int32)
    for row, answer in zip(table, answers):
      row[: len(answer.tokens)] = answer.tokens
    return cls(
      jnp.asarray(table),
      jnp.asarray([answer.prompt_tokens for answer in answers], jnp.int32),
      jnp.asarray(profile, jnp.float32),
      jnp.uint32(seed),
    )

  @property
  def num_nodes(self) -> int:
    return self.profile.shape[0]

  @property
  def max_depth(self) -> int:
    return self.profile.shape[0]

  def init(self, batch: int, capacity: int) -> State:
    del capacity
    zeros = jnp.zeros((batch,), jnp.int32)
    return State(zeros, zeros)

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    seen = state.seen + block.count
    return State(seen, seen if view is None else state.start)

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A chain [B, T] that continues the record."""
    tokens, count = jax.vmap(self._row)(
      context.tokens, context.lengths, state.start
    )
    return tree.chain(tokens, count), state, context.cache

  def _row(self, tokens, length, start):
    """Draft [T] and count for a row's tokens [S]."""
    index = jnp.arange(self.answers.shape[1])
    text = tokens.at[start + index].get(mode="fill", fill_value=_NONE)
    ahead = index >= length - start
    same = (self.answers == text[None]) | ahead[None]
    follows = jnp.all(same, axis=1) & (self.prompt_tokens == start)
    record = jnp.argmax(follows)
    next_ = length - start + jnp.arange(self.num_nodes)
    right = self.answers[record].at[next_].get(mode="fill", fill_value=_NONE)
    key = jax.random.key(self.seed, impl=streams.PRNG)
    key = jax.random.fold_in(jax.random.fold_in(key, record), length)
    kept = jax.random.uniform(key, right.shape) < self.profile
    wrong = jnp.where(right > 0, right - 1, 1)
    known = (right != _NONE) & follows[record]
    drafted = jnp.where(known, jnp.where(kept, right, wrong), 0)
    return drafted, jnp.sum(jnp.cumprod(known), dtype=jnp.int32)
