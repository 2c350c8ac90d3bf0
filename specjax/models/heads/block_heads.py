# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A block-parallel head: all tokens of a draft from one pass.

The block is the root and one learned mask vector, over and over. Its slots see
each other, both ways, and the text: the target's features of every token but
the root are put into each layer's keys and values (block diffusion drafting,
arXiv 2602.06036).
The mask of the i-th drafted token gives that token's law, whatever the other
drafted tokens will be.

  cache     f0  f1  f2                text x0 x1 x2 x3, features of all but x3
  block                 x3  m   m     positions 3, 4, 5
  draws                     x4  x5

Axis letters: B batch, R blocks of a row, T block width, U visible recent slots,
D width of the head, F features width, V vocabulary.
"""

import dataclasses

from flax import struct
import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import cache as cache_lib
from specjax import types
from specjax.models import layers, transformer
from specjax.models.heads import head as heads_lib


@dataclasses.dataclass(frozen=True)
class BlockConfig:
  """Sizes of a block-parallel head.

  Attributes:
    layers: of its decoder layers; the width is the target's.
    num_masks: tokens of the longest draft.
    feature_dim: F, or the target's D where the last hidden state is read.
    feature_layers: the target's layers whose outputs are read, from 0; empty is
      the last hidden state.
    draft_vocab: columns of an own output matrix; None ends in the target's.
  """

  layers: transformer.TransformerConfig
  num_masks: int
  feature_dim: int
  feature_layers: tuple[int, ...] = ()
  draft_vocab: int | None = None

  def network(self) -> nn.Module:
    return _BlockParallel(self)


class BlockHead(heads_lib.Head):
  """Drafts a block at once; see the module."""

  config: BlockConfig = struct.field(pytree_node=False)

  def init_cache(self, batch: int, capacity: int) -> cache_lib.KVCache:
    return _init_cache(self.config, batch, capacity, self.dtype)

  def read(
    self,
    block: types.Block,
    cache: cache_lib.KVCache,
    positions: jax.Array | None = None,
  ) -> cache_lib.KVCache:
    """Appends the features of a block to every layer, not committed.

    `positions` [B, T] count on from the cache's lengths where they are None.
    """
    x = heads_lib.features_of(block, self.config.feature_layers)
    if positions is None:
      positions = _following(cache, x.shape[1])
    return self.apply("read", x.astype(self.dtype), cache, positions)

  def __call__(
    self,
    root: jax.Array,
    length: int,
    cache: cache_lib.KVCache,
    target: types.Model,
  ) -> tuple[jax.Array, cache_lib.KVCache]:
    """Logits [B, length, V] of the tokens after `root` [B], and the cache.

    The block is written past the cache's lengths, which stay.
    """
    size = length + 1
    everything = jnp.ones((len(root), size, size), bool)
    positions = _following(cache, size)
    x, cache = self.blocks(
      root[:, None], length, cache, target, positions, everything
    )
    return self.logits(x[:, 0], target), cache

  def blocks(
    self,
    roots: jax.Array,
    length: int,
    cache: cache_lib.KVCache,
    target: types.Model,
    positions: jax.Array,
    mask: jax.Array,
  ) -> tuple[jax.Array, cache_lib.KVCache]:
    """Runs several blocks of a row at once, one behind the other.

    Args:
      roots: [B, R], each the first of a block of T = length + 1 slots.
      length: tokens that a block drafts.
      cache: features of the text.
      target: embeds the roots.
      positions: [B, U] of the last U slots, which end with the blocks.
      mask: [B, R * T, U] which of them a slot sees; all before are visible.

    Returns:
      What `logits` takes, [B, R, length, D], and the cache.
    """
    embedded = target.embed(roots).astype(self.dtype)
    return self.apply("__call__", embedded, length, cache, positions, mask)

  def logits(self, x: jax.Array, target: types.Model) -> jax.Array:
    """[..., V] of what `blocks` gave [..., D]."""
    return self.on_target(self.apply("output", x), target)


class _BlockParallel(nn.Module):
  config: BlockConfig

  def setup(self):
    c = self.config
    width = c.layers.embed_dim
    self.fuse = layers.Linear(width)
    self.feature_norm = transformer.make_norm(c.layers)
    self.masks = self.param("masks", nn.initializers.normal(0.02), (1, width))
    self.layers = [
      _Layer(c.layers, i, name=f"layer_{i}") for i in range(c.layers.num_layers)
    ]
    self.final_norm = transformer.make_norm(c.layers)
    self.final = heads_lib.output(c.draft_vocab)

  def read(self, features, cache, positions):
    x = self.feature_norm(self.fuse(features))
    for layer in self.layers:
      cache = layer.read(x, cache, positions)
    return cache

  def __call__(self, roots, length, cache, positions, mask):
    B, R, D = roots.shape
    masks = jnp.broadcast_to(self.masks, (B, R, length, D))
    x = jnp.concatenate([roots[:, :, None], masks.astype(roots.dtype)], axis=2)
    x = x.reshape(B, R * (length + 1), D)
    for layer in self.layers:
      x, cache = layer(x, cache, positions, mask)
    return x.reshape(B, R, length + 1, D)[:, :, 1:], cache

  def output(self, x):
    return self.final(self.final_norm(x))

  def init_parameters(self):
    c = self.config
    cache = _init_cache(c, 1, 2, jnp.float32)
    positions = jnp.zeros((1, 1), jnp.int32)
    cache = self.read(jnp.zeros((1, 1, c.feature_dim)), cache, positions)
    root = jnp.zeros((1, 1, c.layers.embed_dim))
    self.output(self(root, 1, cache, jnp.zeros((1, 2), jnp.int32), None)[0])


class _Layer(nn.Module):
  """A decoder layer whose keys and values are of the text's features too."""

  config: transformer.TransformerConfig
  layer: int

  def setup(self):
    norm = lambda: transformer.make_norm(self.config)
    self.attention_norm, self.mlp_norm = norm(), norm()
    self.attention = transformer.Attention(self.config, None, self.layer)
    self.mlp = transformer.MLP(self.config, None)

  def read(self, features, cache, positions):
    # Only its keys and values are used; the compiler drops the rest.
    return self._attend(features, cache, positions, None)[1]

  def __call__(self, x, cache, positions, mask):
    y, cache = self._attend(self.attention_norm(x), cache, positions, mask)
    x = x + y
    return x + self.mlp(self.mlp_norm(x)), cache

  def _attend(self, x, cache, positions, mask):
    c = self.config
    angles = layers.rope_angles(
      positions[:, -x.shape[1] :], c.num_rotated, c.rope_theta, c.rope_factors
    )
    return self.attention(x, angles, cache, positions, mask)


def _following(cache, width):
  """[B, T] positions of a block that follows a cache."""
  return cache.lengths[:, None] + jnp.arange(width)[None]


def _init_cache(config, batch, capacity, dtype):
  c = config.layers
  return cache_lib.init(
    batch, capacity, c.num_layers, c.num_kv_heads, c.head_dim, dtype
  )
