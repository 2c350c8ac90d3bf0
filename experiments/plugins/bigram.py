# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drafter: repeat what followed the latest occurrence of the last token.

Axis letters: B batch, W block width, T drafted tokens, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types
from specjax.trees import tree


class State(struct.PyTreeNode):
  """What was committed, as far as it matters."""

  after: jax.Array  # [B, V] int32 position behind each token, 0 for none
  last: jax.Array  # [B] int32 the newest token
  count: jax.Array  # [B] int32 tokens seen


class Bigram(struct.PyTreeNode):
  """Drafts a chain from pairs of tokens; deterministic, so it has no laws.

  Attributes:
    vocab: V.
    length: T.
  """

  vocab: int = struct.field(pytree_node=False)
  length: int = struct.field(pytree_node=False)

  @classmethod
  def for_target(cls, target: types.Model, length: int) -> "Bigram":
    return cls(target.vocab_size, length)

  @property
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def init(self, batch: int, capacity: int) -> State:
    del capacity
    none = jnp.zeros((batch,), jnp.int32)
    return State(jnp.zeros((batch, self.vocab), jnp.int32), none, none)

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Pairs of the block; only its first `count` tokens were committed."""
    del view
    steps = jnp.arange(block.tokens.shape[1])[None]
    text = jnp.concatenate([state.last[:, None], block.tokens], axis=1)
    position = state.count[:, None] + steps
    known = (steps < block.count[:, None]) & (position > 0)
    token = jnp.where(known, text[:, :-1], self.vocab)  # beyond V: dropped
    # The latest of equal tokens wins, in whatever order they are written.
    write = jax.vmap(lambda after, at, new: after.at[at].max(new, mode="drop"))
    last = jnp.take_along_axis(text, block.count[:, None], axis=1)[:, 0]
    return State(
      write(state.after, token, position), last, state.count + block.count
    )

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    pick = lambda table, at: jnp.take_along_axis(table, at[:, None], 1)[:, 0]
    token, tokens, known = context.last_token, [], []
    for _ in range(self.length):
      position = pick(state.after, token)
      token = pick(context.tokens, position)
      tokens.append(token)
      known.append(position > 0)
    run = jnp.cumprod(jnp.stack(known, axis=1), axis=1)
    draft = tree.chain(jnp.stack(tokens, axis=1), jnp.sum(run, axis=1))
    return draft, state, context.cache
