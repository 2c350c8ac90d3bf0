# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers of a decoder: norm, rotary positions, cached attention, gated MLP.

Axis letters: B batch, T block width, U visible recent slots, S cache slots,
C slots of a key block, N query heads, K kv heads, G query heads a kv head,
H head size, D model width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import cache as cache_lib

KEY_BLOCK = 64  # cache slots an attention step reads; measured best on CPU
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
  """Root mean square norm with a scale, computed in float32."""

  eps: float

  @nn.compact
  def __call__(self, x):
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
    y = x.astype(jnp.float32)
    mean = pairwise_sum(y * y)[..., None] / y.shape[-1]
    y = y * jax.lax.rsqrt(mean + self.eps)
    return (y * scale.astype(jnp.float32)[None, None]).astype(x.dtype)


class Linear(nn.Module):
  """x @ kernel with kernel [in, out]: the faster order for few rows on CPU."""

  features: int

  @nn.compact
  def __call__(self, x, dtype=None):
    shape = (x.shape[-1], self.features)
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
    # Rows of all sequences go through one product, so weights are read once.
    flat = x.reshape(-1, shape[0])
    y = jnp.matmul(flat, kernel, preferred_element_type=dtype)
    return y.reshape(*x.shape[:-1], self.features)


def rope_angles(
  positions: jax.Array, head_dim: int, theta: float, factors: tuple | None
) -> jax.Array:
  """Rotation angles [B, T, H/2] float32 of positions [B, T].

  `factors` divide the frequency of each pair (llama3 scaling).
  """
  exponent = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  frequency = 1.0 / theta**exponent
  if factors is not None:
    frequency = frequency / jnp.asarray(factors, jnp.float32)
  return positions[..., None].astype(jnp.float32) * frequency[None, None]


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
  """Rotates x [B, T, heads, H]; pair i is (i, i + H/2)."""
  cos = jnp.cos(angles)[:, :, None]
  sin = jnp.sin(angles)[:, :, None]
  a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
  return turned.astype(x.dtype)


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  lengths: jax.Array,
  mask: jax.Array | None,
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
    mask: [B, T, U] which of the last U slots a token sees; None is causal.
  """
  B, T, N, H = q.shape
  S, K = k.shape[1:3]
  C = min(KEY_BLOCK, S)
  q = q.reshape(B, T, K, N // K, H).astype(jnp.float32) * H**-0.5
  blocks = jnp.minimum((jnp.max(lengths) + T + C - 1) // C, -(-S // C))

  def body(j, carry):
    top, total, acc = carry
    # The last block would stick out of a capacity that C does not divide: it
    # starts earlier and skips the slots that were seen.
    start = jnp.minimum(j * C, S - C)
    slots = start + jnp.arange(C)
    keys = jax.lax.dynamic_slice_in_dim(k, start, C, axis=1)
    values = jax.lax.dynamic_slice_in_dim(v, start, C, axis=1)
    # The order of axes matters: with t last but one, products of some widths
    # add in another order.
    scores = jnp.einsum("btkgh,bckh->bktgc", q, keys.astype(jnp.float32))
    seen = _visible(slots[None, None], lengths, T, mask)
    seen = seen & (slots >= j * C)[None, None]
    scores = jnp.where(seen[:, None, :, None], scores, -jnp.inf)
    new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
    weights = jnp.exp(scores - new_top[..., None])
    scale = jnp.exp(top - new_top)
    out = jnp.einsum("bktgc,bckh->bktgh", weights, values.astype(jnp.float32))
    total = total * scale + pairwise_sum(weights)
    return new_top, total, acc * scale[..., None] + out

  heads = (B, K, T, N // K)
  zeros = jnp.zeros((*heads, H))
  carry = (jnp.full(heads, LOWEST), zeros[..., 0], zeros)
  _, total, acc = jax.lax.fori_loop(0, blocks, body, carry)
  out = acc / total[..., None]
  return out.transpose(0, 2, 1, 3, 4).reshape(B, T, N, H)


def _visible(slots, lengths, block, mask):
  """[B, T, C]: what each block token sees of cache `slots` [1, 1, C]."""
  if mask is None:
    last = lengths[:, None] + jnp.arange(block)[None]
    return slots <= last[:, :, None]
  recent = mask.shape[-1]
  first = lengths + block - recent  # [B] slot of the mask's first column
  column = slots - first[:, None, None]  # [B, 1, C]
  inside = jnp.take_along_axis(mask, jnp.clip(column, 0, recent - 1), axis=2)
  return (column < 0) | (inside & (column < recent))


class Attention(nn.Module):
  """Grouped-query attention that appends its block to one layer of a cache."""

  num_heads: int
  num_kv_heads: int
  head_dim: int
  layer: int

  @nn.compact
  def __call__(self, x, angles, cache: cache_lib.KVCache, mask):
    N, K, H = self.num_heads, self.num_kv_heads, self.head_dim
    B, T, D = x.shape
    q = Linear(N * H, name="query")(x).reshape(B, T, N, H)
    k = Linear(K * H, name="key")(x).reshape(B, T, K, H)
    v = Linear(K * H, name="value")(x).reshape(B, T, K, H)
    cache = cache.append(self.layer, rotate(k, angles), v)
    keys, values = cache.layers[self.layer]
    out = attend(rotate(q, angles), keys, values, cache.lengths, mask)
    out = out.reshape(B, T, N * H).astype(x.dtype)
    return Linear(D, name="output")(out), cache


class MLP(nn.Module):
  """SiLU-gated MLP."""

  mlp_dim: int

  @nn.compact
  def __call__(self, x):
    gate = Linear(self.mlp_dim, name="gate")(x)
    up = Linear(self.mlp_dim, name="up")(x)
    return Linear(x.shape[-1], name="down")(nn.silu(gate) * up)
