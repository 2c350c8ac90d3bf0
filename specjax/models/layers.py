# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers of a decoder: norms, matrices, embeddings, rotary positions.

Axis letters: B batch, T block width, H head size, R rotated channels,
V vocabulary.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

ACTIVATIONS = {
  "silu": nn.silu,
  "gelu": lambda x: nn.gelu(x, approximate=False),
  "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
}


def pairwise_sum(x: jax.Array) -> jax.Array:
  """Sum over the last axis, in one order whatever the other axes are.

  A reduction may split its work by the size of the whole array. A token's
  logits would then depend, in their last bits, on the width of its block.
  """
  while x.shape[-1] > 1:
    half = x.shape[-1] // 2
    left = x[..., 2 * half :]
    x = x[..., :half] + x[..., half : 2 * half]
    if left.shape[-1]:
      x = jnp.concatenate([x, left], axis=-1)
  return x[..., 0]


class RMSNorm(nn.Module):
  """Root mean square norm of the last axis, computed in float32.

  The factor is `offset` plus the stored scale.
  """

  eps: float
  offset: float = 0.0

  @nn.compact
  def __call__(self, x):
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
    y = x.astype(jnp.float32)
    mean = pairwise_sum(y * y)[..., None] / y.shape[-1]
    y = y * jax.lax.rsqrt(mean + self.eps)
    scale = scale.astype(jnp.float32)
    if self.offset:
      scale = self.offset + scale
    return (y * _at_last(scale, y.ndim)).astype(x.dtype)


class LayerNorm(nn.Module):
  """Norm of mean 0 and variance 1 with scale and bias, in float32."""

  eps: float

  @nn.compact
  def __call__(self, x):
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
    bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
    y = x.astype(jnp.float32)
    y = y - pairwise_sum(y)[..., None] / y.shape[-1]
    variance = pairwise_sum(y * y)[..., None] / y.shape[-1]
    y = y * jax.lax.rsqrt(variance + self.eps)
    scale = _at_last(scale.astype(jnp.float32), y.ndim)
    bias = _at_last(bias.astype(jnp.float32), y.ndim)
    return (y * scale + bias).astype(x.dtype)


def _at_last(vector, ndim):
  """A vector as the last of `ndim` axes."""
  return vector.reshape((1,) * (ndim - 1) + (-1,))


class Linear(nn.Module):
  """x @ kernel with kernel [in, out]: the faster order for few rows on CPU.

  An 8-bit kernel is multiplied as it is; its scales [out] follow the product.
  """

  features: int
  bias: bool = False
  int8: bool = False

  @nn.compact
  def __call__(self, x, dtype=None):
    shape = (x.shape[-1], self.features)
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
    # Rows of all sequences go through one product, so weights are read once.
    flat = x.reshape(-1, shape[0])
    wide = jnp.float32 if self.int8 else dtype
    y = jnp.matmul(flat, kernel.astype(x.dtype), preferred_element_type=wide)
    if self.int8:
      # In float32: products with integers pass the range of float16.
      scale = self.param("int8_scale", nn.initializers.ones, (self.features,))
      y = (y * scale.astype(y.dtype)[None]).astype(dtype or x.dtype)
    if self.bias:
      bias = self.param("bias", nn.initializers.zeros, (self.features,))
      y = y + bias.astype(y.dtype)[None]
    return y.reshape(*x.shape[:-1], self.features)

  def columns(self, ids):
    """[Q, in] the columns of these outputs, without the bias."""
    columns = jnp.take(self.get_variable("params", "kernel"), ids, axis=1).T
    if not self.int8:
      return columns
    scale = jnp.take(self.get_variable("params", "int8_scale"), ids)[:, None]
    return columns.astype(scale.dtype) * scale


class Embedding(nn.Module):
  """Rows of tokens, and the output matrix of tied models."""

  vocab_size: int
  embed_dim: int
  int8: bool = False

  def setup(self):
    shape = (self.vocab_size, self.embed_dim)
    self.embedding = self.param(
      "embedding",
      nn.initializers.variance_scaling(1, "fan_in", "normal"),
      shape,
    )
    if self.int8:
      ones = nn.initializers.ones
      self.int8_scale = self.param("int8_scale", ones, (self.vocab_size,))

  def __call__(self, tokens):
    rows = jnp.take(self.embedding, tokens, axis=0)
    if not self.int8:
      return rows
    scale = jnp.take(self.int8_scale, tokens, axis=0)[..., None]
    return rows.astype(scale.dtype) * scale

  def unembed(self, hidden):
    """Logits [..., V] float32."""
    logits = jnp.einsum(
      "...d,vd->...v",
      hidden,
      self.embedding.astype(hidden.dtype),
      preferred_element_type=jnp.float32,
    )
    if self.int8:
      scale = self.int8_scale.astype(jnp.float32)
      logits = logits * _at_last(scale, logits.ndim)
    return logits


def rope_angles(
  positions: jax.Array, channels: int, theta: float, factors: tuple | None
) -> jax.Array:
  """Rotation angles [B, T, R/2] float32 of positions [B, T], R channels.

  `factors` divide the frequency of each pair (llama3 and linear scaling).
  """
  exponent = jnp.arange(0, channels, 2, dtype=jnp.float32) / channels
  frequency = 1.0 / theta**exponent
  if factors is not None:
    frequency = frequency / jnp.asarray(factors, jnp.float32)
  return positions[..., None].astype(jnp.float32) * frequency[None, None]


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
  """Rotates channels of x [B, T, heads, H] by angles [B, T, R/2].

  The first R channels turn, in pairs (i, i + R/2).
  """
  cos = jnp.cos(angles)[:, :, None]
  sin = jnp.sin(angles)[:, :, None]
  half = angles.shape[-1]
  a, b, rest = jnp.split(x.astype(jnp.float32), [half, 2 * half], axis=-1)
  parts = [a * cos - b * sin, b * cos + a * sin, rest]
  return jnp.concatenate(parts, axis=-1).astype(x.dtype)
