# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target that costs nothing: logits depend on the last token alone.

Axis letters: B batch, T block width, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import cache as cache_lib
from specjax import types


class Table(struct.PyTreeNode):
  """A `types.Model` whose logits after a token are that row of its table.

  The cache keeps the ids that were fed, so that it can be compared with the
  text.
  """

  table: jax.Array  # [V, V] float32
  max_position: int = struct.field(pytree_node=False, default=4096)

  @property
  def vocab_size(self) -> int:
    return self.table.shape[-1]

  @property
  def num_tokens(self) -> int:
    return self.vocab_size

  def __call__(
    self,
    tokens: jax.Array,
    cache: types.KVCache,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
    features: jax.Array | None = None,
  ) -> types.Output:
    del positions, mask, features
    hidden = self.embed(tokens)
    slots = hidden[..., None]
    cache = cache.append(0, slots, slots)
    return types.Output(self.unembed(hidden), hidden, None, cache)

  def init_cache(self, batch: int, capacity: int, block: int) -> types.KVCache:
    del block
    return cache_lib.init(batch, capacity, 1, 1, 1, jnp.float32)

  def embed(self, tokens: jax.Array) -> jax.Array:
    """[..., 1] float32: the id itself."""
    return tokens[..., None].astype(jnp.float32)

  def unembed(self, hidden: jax.Array) -> jax.Array:
    return self.table[hidden[..., 0].astype(jnp.int32)]

  def truncate(self, layers: int) -> "Table":
    del layers
    return self


def random(vocab: int = 12, seed: int = 0) -> Table:
  """Some tokens follow others nearly always, so that drafts have a chance."""
  rng = np.random.default_rng(seed)
  table = 2 * rng.normal(size=(vocab, vocab))
  return Table(jnp.asarray(table, jnp.float32))
