# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup: copy what followed an earlier occurrence of the last n-gram.

No parameters and no state: the committed tokens are searched on the device in
every round. Axis letters: B batch, S token slots, T drafted tokens.

  tokens   1 2 8 1 2 9 1 2      n-gram "1 2" stands at 0 and 3
  latest   9 1 2                what follows the later one
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import types
from specjax.trees import tree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class NGram:
  """Prompt lookup: copies what followed the newest n-gram before.

  The longest matching n-gram wins, from `max_n` down to `min_n`. Among equally
  long matches the tie rule decides: the latest occurrence, or the earliest.
  Rows without a match draft nothing. Tokens are taken as given.

  Attributes:
    length: tokens to copy at most.
    min_n: shortest n-gram that counts as a match.
    max_n: longest n-gram that is looked at.
    tie: "latest" or "earliest".
  """

  length: int
  min_n: int = 1
  max_n: int = 3
  tie: str = "latest"

  def __post_init__(self):
    if self.length < 0:
      raise ValueError(f"draft length {self.length} is negative: use 0 or more")
    if not 1 <= self.min_n <= self.max_n:
      raise ValueError(
        f"n-gram sizes {self.min_n} to {self.max_n} are not a range: "
        "use 1 <= min_n <= max_n"
      )
    if self.tie not in ("latest", "earliest"):
      raise ValueError(
        f"tie rule {self.tie!r} is unknown: use 'latest' or 'earliest'"
      )

  @property
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def init(self, batch: int, capacity: int) -> None:
    del batch, capacity

  def observe(
    self, state: None, block: types.Block, view: types.View | None
  ) -> None:
    del state, block, view

  def propose(
    self, state: None, context: types.Context
  ) -> tuple[types.Draft, None, types.KVCache]:
    """A chain [B, T] copied from the row's own tokens."""
    follow = jax.vmap(self._follow)(context.tokens, context.lengths)
    index = follow[:, None] + jnp.arange(self.length)[None]
    tokens = jnp.take_along_axis(
      context.tokens, index, axis=1, mode="fill", fill_value=0
    )
    known = context.lengths - follow
    count = jnp.where(follow > 0, jnp.clip(known, 0, self.length), 0)
    return tree.chain(tokens, count), state, context.cache

  def _follow(self, tokens: jax.Array, length: jax.Array) -> jax.Array:
    """Index after the best match in tokens [S], 0 when there is none."""
    capacity = tokens.shape[0]
    ends = jnp.arange(capacity)  # index of an occurrence's last token
    run = jnp.zeros((capacity,), jnp.int32)
    alive = ends < length - 1  # the suffix itself is not an occurrence
    for n in range(self.max_n):
      last = jnp.take(tokens, length - 1 - n, mode="clip")
      same = jnp.roll(tokens, n) == last
      alive = alive & same & (ends >= n) & (length - 1 >= n)
      run = run + alive
    order = ends if self.tie == "latest" else capacity - 1 - ends
    score = jnp.where(run >= self.min_n, run * capacity + order, -1)
    best = jnp.argmax(score)
    return jnp.where(score[best] >= 0, ends[best] + 1, 0)
