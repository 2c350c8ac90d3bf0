# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One decoder; a model family is a set of values of its config.

Axis letters: B batch, T block width, U visible recent slots, D model width,
V vocabulary.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import cache as cache_lib
from specjax.models import layers


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """Sizes and switches of a decoder.

  Attributes:
    vocab_size: V, rows of the embedding, padding included.
    embed_dim: D.
    num_layers: blocks.
    num_heads: query heads.
    num_kv_heads: key and value heads; divides num_heads.
    head_dim: stated, not derived: some models have heads wider than
      embed_dim / num_heads.
    mlp_dim: width of the gated MLP.
    max_position: positions the model was trained for.
    norm_eps: of every RMS norm.
    rope_theta: base of the rotary frequencies.
    rope_factors: divisor of each pair's frequency, head_dim / 2 of them (llama3
      scaling), or None.
    tie_embeddings: the output matrix is the embedding.
  """

  vocab_size: int
  embed_dim: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_dim: int
  max_position: int
  norm_eps: float
  rope_theta: float
  rope_factors: tuple[float, ...] | None
  tie_embeddings: bool


class Layer(nn.Module):
  """Attention and MLP, each behind a norm and beside a residual."""

  config: TransformerConfig
  layer: int

  @nn.compact
  def __call__(self, x, angles, cache, mask):
    c = self.config
    norm = layers.RMSNorm(c.norm_eps, name="attention_norm")
    attention = layers.Attention(
      c.num_heads, c.num_kv_heads, c.head_dim, self.layer, name="attention"
    )
    y, cache = attention(norm(x), angles, cache, mask)
    x = x + y
    norm = layers.RMSNorm(c.norm_eps, name="mlp_norm")
    return x + layers.MLP(c.mlp_dim, name="mlp")(norm(x)), cache


class Transformer(nn.Module):
  """The decoder network. Applied only through `Model`."""

  config: TransformerConfig

  def setup(self):
    c = self.config
    self.embedding = nn.Embed(c.vocab_size, c.embed_dim, name="embed")
    self.blocks = [Layer(c, i, name=f"layer_{i}") for i in range(c.num_layers)]
    self.final_norm = layers.RMSNorm(c.norm_eps)
    if not c.tie_embeddings:
      self.output = layers.Linear(c.vocab_size, name="unembed")

  def __call__(
    self,
    tokens: jax.Array,
    cache: cache_lib.KVCache,
    positions: jax.Array,
    mask: jax.Array | None,
    feature_layers: tuple[int, ...] = (),
  ):
    """Hidden [B, T, D], features [B, T, F] or None, the cache appended to."""
    c = self.config
    angles = layers.rope_angles(
      positions, c.head_dim, c.rope_theta, c.rope_factors
    )
    x = self.embed(tokens)
    features = []
    for i, block in enumerate(self.blocks):
      with jax.named_scope(f"layer_{i}"):
        x, cache = block(x, angles, cache, mask)
      if i in feature_layers:
        features.append(x)
    joined = jnp.concatenate(features, axis=-1) if features else None
    return self.final_norm(x), joined, cache

  def embed(self, tokens):
    return self.embedding(tokens)

  def unembed(self, hidden):
    """Logits in float32 whatever the parameters' type."""
    if self.config.tie_embeddings:
      logits = jnp.einsum(
        "...d,vd->...v",
        hidden,
        self.embedding.embedding,
        preferred_element_type=jnp.float32,
      )
    else:
      logits = self.output(hidden, jnp.float32)
    return logits.astype(jnp.float32)

  def init_parameters(self, tokens, cache):
    """Touches every parameter once, for `init`."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _, _ = self(tokens, cache, positions, None)
    return self.unembed(hidden)
