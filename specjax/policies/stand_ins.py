# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts that take the place of real ones while rounds are timed.

Axis letters: B batch, S token slots, T block width, D model width, F features
width.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.trees import tree

_SURE = 10.0  # logit of the token that is said, the others have 0


class Script(struct.PyTreeNode):
  """A `types.Model` that says a given text and takes no time for it.

  A round with it costs what a round costs outside the target's pass. Its cache
  is the target's and is committed as such, but nothing is ever written to it.

  Attributes:
    target: the model whose place it takes.
    text: each row's tokens by position, those of the prompt included.
    hidden, features: what every slot gives to drafters that read them.
  """

  target: types.Model
  text: jax.Array  # [B, S] int32
  hidden: jax.Array  # [B, 1, D]
  features: jax.Array | None  # [B, 1, F]

  @property
  def rules(self) -> sharding.Rules | None:
    return sharding.rules_of(self.target)

  @property
  def vocab_size(self) -> int:
    return self.target.vocab_size

  @property
  def num_tokens(self) -> int:
    return self.target.num_tokens

  @property
  def max_position(self) -> int:
    return self.target.max_position

  def __call__(
    self,
    tokens: jax.Array,
    cache: types.KVCache,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
    features: jax.Array | None = None,
  ) -> types.Output:
    """See `types.Model`; after position i comes the token of i + 1."""
    del mask, features
    width = tokens.shape[1]
    if positions is None:
      positions = cache.lengths[:, None] + jnp.arange(width)[None]
    after = positions[:, -width:] + 1
    said = jnp.take_along_axis(self.text, after, axis=1, mode="clip")
    wide = lambda x: jnp.broadcast_to(x, (*said.shape, x.shape[-1]))
    return types.Output(
      logits=_SURE * jax.nn.one_hot(said, self.vocab_size),
      hidden=wide(self.hidden),
      features=None if self.features is None else wide(self.features),
      cache=cache,
    )

  def init_cache(self, batch: int, capacity: int, block: int) -> types.KVCache:
    return self.target.init_cache(batch, capacity, block)

  def embed(self, tokens: jax.Array) -> jax.Array:
    return self.target.embed(tokens)

  def unembed(self, hidden: jax.Array) -> jax.Array:
    return self.target.unembed(hidden)

  def truncate(self, layers: int) -> types.Model:
    return self.target.truncate(layers)


class Lucky(struct.PyTreeNode):
  """A drafter whose chains, if they are copies, are as long as was asked.

  A search takes as long whether it finds much or nothing, and a round must be
  as wide as a find would make it. Chains with laws, and trees, are as long as
  the drafter makes them.

  Attributes:
    drafter: the one that is timed.
  """

  drafter: types.Drafter

  @property
  def num_nodes(self) -> int:
    return self.drafter.num_nodes

  @property
  def max_depth(self) -> int:
    return self.drafter.max_depth

  def init(self, batch: int, capacity: int) -> Any:
    return self.drafter.init(batch, capacity)

  def observe(
    self, state: Any, block: types.Block, view: types.View | None
  ) -> Any:
    return self.drafter.observe(state, block, view)

  def propose(
    self, state: Any, context: types.Context
  ) -> tuple[types.Draft, Any, types.KVCache]:
    """The drafter's own draft; of a copy all tokens count."""
    draft, state, cache = self.drafter.propose(state, context)
    if draft.is_chain and draft.log_q is None:
      draft = tree.chain(
        draft.tokens, jnp.minimum(context.draft_length, draft.max_depth)
      )
    return draft, state, cache
