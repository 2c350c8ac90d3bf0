# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small independent model as drafter.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types
from specjax.drafters import reading, rollout


class State(struct.PyTreeNode):
  """The draft model's cache and how many drafted tokens it was fed."""

  cache: types.KVCache
  fed: jax.Array  # [B] int32 slots written past the cache's lengths


class DraftModel(struct.PyTreeNode):
  """Drafts a chain with any model of the target's vocabulary.

  It learns tokens only, so it reads the prompt when first asked and catches up
  after rounds without a draft: `observe` merely keeps what was accepted. Padded
  vocabularies of another width are cut or filled with -inf. Past the draft
  model's own last position nothing is drafted.

  Attributes:
    model: the draft model; its parameters are leaves.
    length: T, tokens to draft at most; at least 1.
  """

  model: types.Model
  length: int = struct.field(pytree_node=False)

  def __post_init__(self):
    if self.length < 1:
      raise ValueError(
        f"draft length {self.length} is no draft: use 1 or more, or none of "
        "this drafter"
      )

  @property
  def models(self) -> tuple[types.Model, ...]:
    """What must know the target's tokens and lie where it lies."""
    return (self.model,)

  @property
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def init(self, batch: int, capacity: int) -> State:
    slots = capacity + self.length + 1
    cache = self.model.init_cache(batch, slots, reading.CATCH_UP)
    return State(cache, jnp.zeros((batch,), jnp.int32))

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Keeps the accepted tokens' keys; the newest token is never fed yet."""
    del view
    kept = jnp.clip(block.count - 1, 0, state.fed)
    return State(state.cache.commit(None, kept), jnp.zeros_like(state.fed))

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A chain [B, T] with its laws; free when no row wants a draft."""
    draft, state = rollout.when_wanted(
      lambda state: self._draft(state.cache, context), state, context
    )
    return draft, state, context.cache

  def _draft(
    self, cache: types.KVCache, context: types.Context
  ) -> tuple[types.Draft, State]:
    """Reads what is new, then drafts."""
    logits, cache = reading.catch_up(self.model, cache, context)
    vocab = context.noise.vocab
    logits = reading.fit(logits, vocab)
    limit = reading.positions_left(self.model, context)

    def next_logits(cache, token):
      output = self.model(token[:, None], cache)
      cache = output.cache.commit(None, jnp.ones_like(token))
      return reading.fit(output.logits[:, 0], vocab), cache

    draft, fed_cache = rollout.chain(
      next_logits,
      cache,
      reading.fit(logits, vocab),
      limit,
      context,
      self.length,
    )
    # Fed slots stay written but uncommitted: `observe` says which were kept.
    fed_cache = fed_cache.replace(lengths=cache.lengths)
    return draft, State(fed_cache, jnp.maximum(draft.count - 1, 0))
