# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Heads that attend to the text: one decoder layer over features and tokens.

They run over pairs: a token, and the feature of the token before it, which is
what predicted it. The output stands in for the feature of the token itself, so
that a drafted token can follow without the target. Real features exist for all
pairs of committed tokens but the first, whose token was predicted by nothing.

  feature   f0   f1   f2  |  g3   g4      g: what the head gave, not the target
  token     x1   x2   x3  |  x4   x5      x3 the root, x4 and x5 drafted
  draws     x2   x3   x4  |  x5   x6

  eagle   feature = last hidden state; both go through a matrix into the layer,
          whose output ends in the target's output matrix (arXiv 2401.15077)
  eagle3  feature = three layers of the target through a matrix; both are
          normalised and go into the attention side by side; own norm, own
          output matrix, often of fewer tokens (arXiv 2503.01840)
  mtp     multi-token prediction: as eagle, with norms before the matrix, in
          the layer and before the output matrix (arXiv 2412.19437)

Axis letters: B batch, T block width, U visible recent slots, S cache slots,
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

KINDS = ("eagle", "eagle3", "mtp")


@dataclasses.dataclass(frozen=True)
class EagleConfig:
  """Sizes and kind of a head.

  Attributes:
    kind: one of KINDS.
    layer: of the decoder layer; its vocabulary is the target's.
    feature_dim: F, or the target's D where the last hidden state is read.
    feature_layers: the target's layers whose outputs are read, from 0; empty is
      the last hidden state.
    draft_vocab: columns of an own output matrix; None ends in the target's.
    own_embedding: tokens have an embedding of their own, not the target's.
  """

  kind: str
  layer: transformer.TransformerConfig
  feature_dim: int
  feature_layers: tuple[int, ...] = ()
  draft_vocab: int | None = None
  own_embedding: bool = False

  def __post_init__(self):
    if self.kind not in KINDS:
      raise ValueError(
        f"head {self.kind!r} is unknown: choose one of {', '.join(KINDS)}"
      )

  def network(self) -> nn.Module:
    return _Eagle(self)


class EagleHead(heads_lib.Head):
  """One decoder layer that drafts; see the module."""

  config: EagleConfig = struct.field(pytree_node=False)

  def init_cache(self, batch: int, capacity: int) -> cache_lib.KVCache:
    """An empty cache of S = capacity slots, one for each pair."""
    c = self.config.layer
    return cache_lib.init(
      batch, capacity, 1, c.num_kv_heads, c.head_dim, self.dtype
    )

  def features(self, block: types.Block) -> jax.Array:
    """[B, T, D] what the layer reads of the target."""
    return self.project(
      heads_lib.features_of(block, self.config.feature_layers)
    )

  def project(self, features: jax.Array) -> jax.Array:
    """[B, T, D] of what the target gave [B, T, F]."""
    return self.apply("project", features.astype(self.dtype))

  def __call__(
    self,
    tokens: jax.Array,
    features: jax.Array,
    cache: cache_lib.KVCache,
    target: types.Model,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
  ) -> tuple[jax.Array, cache_lib.KVCache]:
    """Runs a block of pairs; appended to the cache, not committed.

    Args:
      tokens: [B, T].
      features: [B, T, D] of `features`, or what this function gave.
      cache: earlier pairs.
      target: embeds the tokens.
      positions: [B, U], see `types.Model`.
      mask: [B, T, U], see `types.Model`.

    Returns:
      What stands in for the tokens' features, [B, T, D], and the cache.
    """
    if positions is None:
      width = tokens.shape[1]
      positions = cache.lengths[:, None] + jnp.arange(width)[None]
    if self.config.own_embedding:
      embedded = self.apply("embed", tokens)
    else:
      embedded = target.embed(tokens).astype(self.dtype)
    return self.apply("__call__", embedded, features, cache, positions, mask)

  def logits(self, features: jax.Array, target: types.Model) -> jax.Array:
    """[..., V] of the token after, from what the layer gave [..., D]."""
    return self.on_target(self.apply("output", features), target)


class _Eagle(nn.Module):
  config: EagleConfig

  def setup(self):
    c = self.config
    width = c.layer.embed_dim
    norm = lambda: transformer.make_norm(c.layer)
    self.fuse = layers.Linear(width, bias=c.kind == "eagle")
    if c.kind != "eagle":
      self.embedding_norm, self.feature_norm = norm(), norm()
      self.final_norm = norm()
    if c.kind == "mtp":
      self.attention_norm = norm()
    self.attention = transformer.Attention(c.layer, None, 0)
    self.mlp_norm, self.mlp = norm(), transformer.MLP(c.layer, None)
    self.final = heads_lib.output(c.draft_vocab)
    if c.own_embedding:
      self.embedding = layers.Embedding(c.layer.vocab_size, width, name="embed")

  def project(self, features):
    return self.fuse(features) if self.config.kind == "eagle3" else features

  def embed(self, tokens):
    return self.embedding(tokens)

  def output(self, features):
    if self.config.kind != "eagle":
      features = self.final_norm(features)
    return self.final(features)

  def __call__(self, embedded, features, cache, positions, mask):
    c = self.config.layer
    angles = layers.rope_angles(
      positions[:, -embedded.shape[1] :],
      c.num_rotated,
      c.rope_theta,
      c.rope_factors,
    )
    read, x = self._entry(embedded, features)
    y, cache = self.attention(read, angles, cache, positions, mask)
    x = x + y
    return x + self.mlp(self.mlp_norm(x)), cache

  def _entry(self, embedded, features):
    """What the attention reads, and what it is added to."""
    kind, x = self.config.kind, features
    if kind != "eagle":
      embedded = self.embedding_norm(embedded)
      features = self.feature_norm(features)
    both = jnp.concatenate([embedded, features], axis=-1)
    if kind == "eagle3":
      return both, x
    x = self.fuse(both)
    return (self.attention_norm(x) if kind == "mtp" else x), x

  def init_parameters(self):
    c = self.config
    one = lambda size: jnp.zeros((1, 1, size))
    cache = cache_lib.init(
      1, 1, 1, c.layer.num_kv_heads, c.layer.head_dim, jnp.float32
    )
    tokens = jnp.zeros((1, 1), jnp.int32)
    embedded = one(c.layer.embed_dim)
    if c.own_embedding:
      embedded = self.embed(tokens)
    features = self.project(one(c.feature_dim))
    features, _ = self(embedded, features, cache, tokens, None)
    self.output(features)
