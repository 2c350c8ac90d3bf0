# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small independent model as drafter.

Axis letters: B batch, C catch-up width, T drafted tokens, V vocabulary.
"""

from absl import logging
from flax import struct
import jax
import jax.numpy as jnp

from specjax import tree, types
from specjax.drafters import rollout

CATCH_UP = 64  # tokens a catch-up pass feeds: the prompt, or rounds slept over


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
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def init(self, batch: int, capacity: int) -> State:
    if self.model.max_position < capacity:
      logging.info(
        "the draft model has %d positions: beyond them nothing is drafted",
        self.model.max_position,
      )
    slots = capacity + self.length + 1
    cache = self.model.init_cache(batch, slots, CATCH_UP)
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
    batch, vocab = len(context.lengths), context.noise.vocab
    nothing = tree.chain(
      jnp.zeros((batch, self.length), jnp.int32),
      jnp.zeros((batch,), jnp.int32),
      jnp.zeros((batch, self.length, vocab), jnp.float32),
    )

    def draw(carry):
      _, _, state = carry
      return jnp.bool_(False), *self._draft(state.cache, context)

    # A loop that runs once or not at all: `lax.cond` would copy the cache.
    wanted = jnp.any(context.draft_length > 0)
    _, draft, state = jax.lax.while_loop(
      lambda carry: carry[0], draw, (wanted, nothing, state)
    )
    return draft, state, context.cache

  def _draft(
    self, cache: types.KVCache, context: types.Context
  ) -> tuple[types.Draft, State]:
    """Reads what is new, then drafts."""
    logits, cache = self._catch_up(cache, context)
    vocab = context.noise.vocab
    # The first token needs position lengths - 1, each further one the next.
    limit = jnp.maximum(self.model.max_position - context.lengths + 1, 0)

    def next_logits(cache, token):
      output = self.model(token[:, None], cache)
      cache = output.cache.commit(None, jnp.ones_like(token))
      return _fit(output.logits[:, 0], vocab), cache

    draft, fed_cache = rollout.chain(
      next_logits, cache, _fit(logits, vocab), limit, context, self.length
    )
    # Fed slots stay written but uncommitted: `observe` says which were kept.
    fed_cache = fed_cache.replace(lengths=cache.lengths)
    return draft, State(fed_cache, jnp.maximum(draft.count - 1, 0))

  def _catch_up(
    self, cache: types.KVCache, context: types.Context
  ) -> tuple[jax.Array, types.KVCache]:
    """Feeds committed tokens the cache lacks; logits [B, V] after the last.

    A row that lacks nothing steps back one token: its logits are needed, and a
    fed token cannot be asked again.
    """
    end = jnp.minimum(context.lengths, self.model.max_position)
    cache = cache.replace(lengths=jnp.minimum(cache.lengths, end - 1))

    def feed(cache, width):
      index = cache.lengths[:, None] + jnp.arange(width)[None]
      tokens = jnp.take_along_axis(
        context.tokens, index, axis=1, mode="fill", fill_value=0
      )
      return self.model(tokens, cache)

    def behind(cache):
      return end - cache.lengths > 2

    def body(cache):
      count = jnp.minimum(end - 1 - cache.lengths, CATCH_UP)
      count = jnp.where(behind(cache), count, 0)
      return feed(cache, CATCH_UP).cache.commit(None, count)

    cache = jax.lax.while_loop(lambda c: jnp.any(behind(c)), body, cache)
    missing = end - cache.lengths  # 1 or 2
    output = feed(cache, 2)
    last = jnp.take_along_axis(
      output.logits, (missing - 1)[:, None, None], axis=1
    )[:, 0]
    return last, output.cache.commit(None, missing)


def _fit(logits: jax.Array, vocab: int) -> jax.Array:
  """Cuts or pads logits [B, V'] to width V."""
  logits = logits[:, :vocab]
  missing = vocab - logits.shape[1]
  return jnp.pad(logits, ((0, 0), (0, missing)), constant_values=-jnp.inf)


def check(target: types.Model, draft: types.Model) -> None:
  """Refuses a draft model of another vocabulary.

  Raises:
    ValueError: the models know different numbers of tokens. Equal numbers do
      not prove equal tokens: compare the tokenizers too.
  """
  if target.num_tokens != draft.num_tokens:
    raise ValueError(
      f"the draft model knows {draft.num_tokens} tokens, the target "
      f"{target.num_tokens}: choose a draft of the target's tokenizer"
    )
