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

Axis letters: B batch, T block width, D width of the head, F features width,
V vocabulary.
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
    self, block: types.Block, cache: cache_lib.KVCache
  ) -> cache_lib.KVCache:
    """Appends the features of a block to every layer, not committed."""
    x = heads_lib.features_of(block, self.config.feature_layers)
    return self.apply("read", x.astype(self.dtype), cache)

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
    embedded = target.embed(root[:, None]).astype(self.dtype)
    x, cache = self.apply("__call__", embedded, length, cache)
    return self.on_target(x, target), cache


class _BlockParallel(nn.Module):
  config: BlockConfig

  def setup(self):
    c = self.config
    width = c.layers.embed_dim
    self.fuse = layers.Linear(width)
    self.feature_norm = transformer.make_norm(c.layers)
    self.masks = self.param("masks", nn.initializers.normal(0.02), (1, width))
    self.blocks = [
      _Layer(c.layers, i, name=f"layer_{i}") for i in range(c.layers.num_layers)
    ]
    self.final_norm = transformer.make_norm(c.layers)
    self.final = heads_lib.output(c.draft_vocab)

  def read(self, features, cache):
    x = self.feature_norm(self.fuse(features))
    for block in self.blocks:
      cache = block.read(x, cache)
    return cache

  def __call__(self, root, length, cache):
    masks = jnp.broadcast_to(self.masks, (len(root), length, root.shape[-1]))
    x = jnp.concatenate([root, masks.astype(root.dtype)], axis=1)
    for block in self.blocks:
      x, cache = block(x, cache)
    return self.final(self.final_norm(x[:, 1:])), cache

  def init_parameters(self):
    c = self.config
    cache = _init_cache(c, 1, 2, jnp.float32)
    cache = self.read(jnp.zeros((1, 1, c.feature_dim)), cache)
    self(jnp.zeros((1, 1, c.layers.embed_dim)), 1, cache)


class _Layer(nn.Module):
  """A decoder layer whose keys and values are of the text's features too."""

  config: transformer.TransformerConfig
  layer: int

  def setup(self):
    norm = lambda: transformer.make_norm(self.config)
    self.attention_norm, self.mlp_norm = norm(), norm()
    self.attention = transformer.Attention(self.config, None, self.layer)
    self.mlp = transformer.MLP(self.config, None)

  def read(self, features, cache):
    # Only its keys and values are used; the compiler drops the rest.
    return self._attend(features, cache, None)[1]

  def __call__(self, x, cache):
    everything = jnp.ones((*x.shape[:2], x.shape[1]), bool)
    y, cache = self._attend(self.attention_norm(x), cache, everything)
    x = x + y
    return x + self.mlp(self.mlp_norm(x)), cache

  def _attend(self, x, cache, mask):
    c = self.config
    positions = cache.lengths[:, None] + jnp.arange(x.shape[1])[None]
    angles = layers.rope_angles(
      positions, c.num_rotated, c.rope_theta, c.rope_factors
    )
    return self.attention(x, angles, cache, positions, mask)


def _init_cache(config, batch, capacity, dtype):
  c = config.layers
  return cache_lib.init(
    batch, capacity, c.num_layers, c.num_kv_heads, c.head_dim, dtype
  )
