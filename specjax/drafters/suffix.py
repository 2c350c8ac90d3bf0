# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Suffix decoding: continue as the same words were continued before.

Every place where the newest tokens stand already, in the row's own text or in a
store of past answers, votes for what followed it there. Long matches draft
further than short ones (arXiv 2411.04975). Searched on the device in every
round: no tree is kept, so nothing has to be updated or rolled back.

Axis letters: B batch, S token slots, N stored tokens, C candidates, M match
lengths, T drafted tokens.

  text       1 2 8 5   1 2 9   1 2 9   1 2     newest tokens "1 2"
  votes      8 once, 9 twice: draft 9 with estimated probability 2/3
"""

from collections.abc import Sequence
import math

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.drafters import recorded
from specjax.trees import tree

_NONE = -1  # No token: a gap between texts, or a slot without one.


def suffix(
  length: int,
  *,
  min_match: int = 1,
  max_match: int = 16,
  factor: float = 1.0,
  offset: float = 0.0,
  min_probability: float = 0.1,
  candidates: int = 32,
  store: int = 0,
  warm: str = "",
  warm_method: str = "plain",
) -> "Suffix":
  """A `Suffix` with a store that is empty, or warm when that is asked for.

  Args:
    length: tokens to draft at most.
    min_match: fewest newest tokens that must stand elsewhere.
    max_match: most that are looked at.
    factor: a match of m tokens drafts at most factor * m + offset tokens.
    offset: see `factor`.
    min_probability: a draft ends before a token whose path is less likely.
    candidates: places that vote, those with the longest matches.
    store: tokens of past answers to keep; 0 keeps none. In a comparison, the
      method's own answers of the same run get there, batch by batch; a
      `specjax.Session` remembers nothing by itself, see `Suffix.remember`.
    warm: a results.jsonl whose answers fill the store before the first prompt.
    warm_method: whose answers these are.

  Raises:
    ValueError: a value out of range, or `warm` without a store.
    FileNotFoundError: there is no such results.jsonl.
  """
  if store < 0:
    raise ValueError(f"store is {store}: use 0 (none) or a number of tokens")
  if warm and not store:
    raise ValueError(
      f"warm is {warm!r} but store is 0 tokens: give the store some"
    )
  drafter = Suffix(
    store=jnp.full((store,), _NONE, jnp.int32),
    length=length,
    min_match=min_match,
    max_match=max_match,
    factor=float(factor),
    offset=float(offset),
    min_probability=float(min_probability),
    candidates=candidates,
  )
  if not warm:
    return drafter
  answers = recorded.read(warm, warm_method)
  return drafter.remember([answer.tokens for answer in answers])


class Suffix(struct.PyTreeNode):
  """Suffix decoding: the most frequent continuation (arXiv 2411.04975).

  For each match length the continuation is grown by majority, and the product
  of its shares estimates how likely it is. The match length with the largest
  expected number of accepted tokens wins, the longer one on ties; among equal
  shares the place with the longer match, then the later one.

  Attributes:
    store: [N] past answers, apart by gaps; a leaf, so that a fuller store runs
      in the same program.
    Others: see `suffix`.
  """

  store: jax.Array
  length: int = struct.field(pytree_node=False)
  min_match: int = struct.field(pytree_node=False)
  max_match: int = struct.field(pytree_node=False)
  factor: float = struct.field(pytree_node=False)
  offset: float = struct.field(pytree_node=False)
  min_probability: float = struct.field(pytree_node=False)
  candidates: int = struct.field(pytree_node=False)

  def __post_init__(self):
    if self.length < 0:
      raise ValueError(f"draft length {self.length} is negative: use 0 or more")
    if not 1 <= self.min_match <= self.max_match:
      raise ValueError(
        f"match lengths {self.min_match} to {self.max_match} are not a range: "
        "use 1 <= min_match <= max_match"
      )
    if self.candidates < 1:
      raise ValueError(f"candidates is {self.candidates}: use 1 or more")
    if not 0 <= self.min_probability <= 1:
      raise ValueError(f"min_probability is {self.min_probability}: use 0 to 1")
    if not 0 <= self.factor < math.inf:
      raise ValueError(f"factor is {self.factor}: use a number of 0 or more")
    # Not `longest < 1`: NaN drafts nothing.
    longest = self.factor * self.max_match + self.offset
    if not longest >= 1:
      raise ValueError(
        f"factor {self.factor} and offset {self.offset} draft {longest:g} "
        f"tokens after a match of {self.max_match}, the longest: use more"
      )

  @property
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def remember(self, answers: Sequence[Sequence[int]]) -> "Suffix":
    """The drafter with further answers in its store; the oldest give way.

    Give the next session the drafter that is returned; programs are shared.

    Args:
      answers: token ids of each.
    """
    parts = [np.asarray(self.store)]
    for answer in answers:
      parts += [np.array([_NONE]), np.asarray(answer)]
    size = len(self.store)
    kept = np.concatenate(parts)[-size:] if size else parts[0]
    return self.replace(store=jnp.asarray(kept, jnp.int32))

  def init(self, batch: int, capacity: int) -> None:
    del batch, capacity

  def observe(
    self, state: None, block: types.Block, view: types.View | None
  ) -> None:
    del state, block, view

  def propose(
    self, state: None, context: types.Context
  ) -> tuple[types.Draft, None, types.KVCache]:
    """A chain [B, T]; rows whose newest token is new draft nothing."""
    tokens, count = jax.vmap(self._row)(context.tokens, context.lengths)
    return tree.chain(tokens, count), state, context.cache

  def _row(
    self, tokens: jax.Array, length: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Draft [T] and count for a row's tokens [S]."""
    own = jnp.where(jnp.arange(tokens.shape[0]) < length, tokens, _NONE)
    text = jnp.concatenate([self.store, jnp.full((1,), _NONE, jnp.int32), own])
    place, run = self._matches(text, tokens, length)
    follow = place[:, None] + 1 + jnp.arange(self.length)[None]
    follow = text.at[follow].get(mode="fill", fill_value=_NONE)
    drafts, counts, gain = self._grow(follow, run)
    # Match lengths ascend, so the last of equal gains is the longest match.
    best = len(gain) - 1 - jnp.argmax(gain[::-1])
    return jnp.maximum(drafts[best], 0), counts[best]

  def _matches(self, text, tokens, length):
    """The C best places [C]: index of the last matching token, match length."""
    size = text.shape[0]
    index = jnp.arange(size)
    # The newest token itself is followed by nothing, so it is no place.
    alive = jnp.append(text[1:], _NONE) != _NONE
    run = jnp.zeros((size,), jnp.int32)
    for n in range(self.max_match):
      wanted = jnp.take(tokens, length - 1 - n, mode="clip")
      alive &= (jnp.roll(text, n) == wanted) & (index >= n) & (length > n)
      run += alive
    # Longest match first, then the latest place; one number for both.
    order = jnp.sort(run * size + index)[::-1][: self.candidates]
    return order % size, order // size

  def _grow(self, follow, run):
    """Continuations by majority, one for each match length.

    Args:
      follow: [C, T] what followed at each place, the preferred place first.
      run: [C] match lengths.

    Returns:
      Tokens [M, T], counts [M], expected accepted tokens [M].
    """
    match = jnp.arange(self.min_match, self.max_match + 1)
    limit = jnp.floor(self.factor * match + self.offset)

    def deeper(carry, column):
      alive, share, growing = carry
      depth, token = column
      alive &= (token != _NONE)[None]
      same = (token[:, None] == token[None, :]).astype(jnp.float32)
      votes = jnp.where(alive, alive.astype(jnp.float32) @ same, 0.0)
      best = jnp.argmax(votes, axis=1)
      most = jnp.max(votes, axis=1)
      share = share * most / jnp.maximum(jnp.sum(alive, axis=1), 1)
      growing &= (most > 0) & (share >= self.min_probability) & (depth < limit)
      alive &= token[None] == token[best][:, None]
      return (alive, share, growing), (token[best], share, growing)

    start = (
      run[None, :] >= match[:, None],
      jnp.ones(match.shape, jnp.float32),
      jnp.ones(match.shape, bool),
    )
    columns = (jnp.arange(self.length), follow.T)
    _, (tokens, share, grown) = jax.lax.scan(deeper, start, columns)
    gain = jnp.sum(jnp.where(grown, share, 0.0), axis=0)
    return tokens.T, jnp.sum(grown, axis=0, dtype=jnp.int32), gain
