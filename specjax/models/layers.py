# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers of a decoder: norms, matrices, rotary positions, cached attention.

Axis letters: B batch, T block width, U visible recent slots, S cache slots,
C slots of a key block, N query heads, K kv heads, G query heads a kv head,
H head size.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

KEY_BLOCK = 64  # cache slots an attention step reads; measured best on CPU
ACTIVATIONS = {
  "silu": nn.silu,
  "gelu": lambda x: nn.gelu(x, approximate=False),
  "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
}
# A finite start for the running maximum: exp(-inf - -inf) would be NaN where a
# whole key block is masked.
LOWEST = -1e30


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


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  lengths: jax.Array,
  positions: jax.Array,
  mask: jax.Array | None,
  *,
  scale: float,
  window: int | None = None,
) -> jax.Array:
  """Attention of a block over the used part of a cache, [B, T, N, H].

  Key blocks of a fixed size go through an online softmax; how many is decided
  at run time by the longest row. A further block is an exact no-op for a
  shorter row (weights 0, scale 1), so neighbours change nothing, and the cost
  follows what is used of the cache, not its capacity.

  Args:
    q: [B, T, N, H].
    k: [B, S, K, H] with the block already written at `lengths`.
    v: the same shape.
    lengths: [B] committed slots.
    positions: [B, U] of the last U slots; earlier slots have their index.
    mask: [B, T, U] which of the last U slots a token sees; None is causal.
    scale: factor of the scores.
    window: positions a token sees, itself counted; None is all. Key blocks
      that lie before the window of every row are not read.
  """
  B, T, N, H = q.shape
  S, K = k.shape[1:3]
  C = min(KEY_BLOCK, S)
  q = q.reshape(B, T, K, N // K, H).astype(jnp.float32) * scale

  def body(j, carry):
    # The last block would stick out of a capacity that C does not divide: it
    # starts earlier and skips the slots that were seen.
    start = jnp.minimum(j * C, S - C)
    slots = (start + jnp.arange(C))[None]
    seen = _visible(slots, lengths, T, mask) & (slots >= j * C)[None]
    if window is not None:
      seen = seen & _within(slots, lengths, T, positions, window)
    keys = jax.lax.dynamic_slice_in_dim(k, start, C, axis=1)
    values = jax.lax.dynamic_slice_in_dim(v, start, C, axis=1)
    return _add_block(carry, q, keys, values, seen)

  heads = (B, K, T, N // K)
  zeros = jnp.zeros((*heads, H))
  carry = (jnp.full(heads, LOWEST), zeros[..., 0], zeros)
  first = 0
  if window is not None:
    first = jnp.maximum(jnp.min(lengths) + 1 - window, 0) // C
  last = jnp.minimum((jnp.max(lengths) + T + C - 1) // C, -(-S // C))
  _, total, acc = jax.lax.fori_loop(first, last, body, carry)
  out = acc / total[..., None]
  return out.transpose(0, 2, 1, 3, 4).reshape(B, T, N, H)


def _add_block(carry, q, keys, values, seen):
  """One step of the online softmax.

  Args:
    carry: largest score, sum of weights and weighted values so far.
    q: [B, T, K, G, H], scaled.
    keys: [B, C, K, H].
    values: the same shape.
    seen: [B, T, C].
  """
  top, total, acc = carry
  # The order of axes matters: with t last but one, products of some widths add
  # in another order.
  scores = jnp.einsum("btkgh,bckh->bktgc", q, keys.astype(jnp.float32))
  scores = jnp.where(seen[:, None, :, None], scores, -jnp.inf)
  new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
  weights = jnp.exp(scores - new_top[..., None])
  scale = jnp.exp(top - new_top)
  out = jnp.einsum("bktgc,bckh->bktgh", weights, values.astype(jnp.float32))
  total = total * scale + pairwise_sum(weights)
  return new_top, total, acc * scale[..., None] + out


def _visible(slots, lengths, block, mask):
  """[B, T, C]: what each block token sees of cache `slots` [1, C]."""
  if mask is None:
    last = lengths[:, None] + jnp.arange(block)[None]
    return slots[None] <= last[:, :, None]
  recent = mask.shape[-1]
  first = lengths + block - recent  # [B] slot of the mask's first column
  column = (slots - first[:, None])[:, None]  # [B, 1, C]
  inside = jnp.take_along_axis(mask, jnp.clip(column, 0, recent - 1), axis=2)
  return (column < 0) | (inside & (column < recent))


def _within(slots, lengths, block, positions, window):
  """[B, T, C]: whether cache `slots` [1, C] are near enough in position."""
  recent = positions.shape[-1]
  column = slots - (lengths + block - recent)[:, None]  # [B, C]
  near = jnp.take_along_axis(positions, jnp.clip(column, 0, recent - 1), axis=1)
  keys = jnp.where(column < 0, slots, near)
  return keys[:, None] > positions[:, -block:, None] - window
