# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention of a block over the used part of a cache, and its gradient.

Key blocks of a fixed size go through an online softmax; how many is decided at
run time by the longest row. A further block is an exact no-op for a shorter row
(weights 0, scale 1), so neighbours change nothing, and the cost follows what is
used of the cache, not its capacity. The gradient walks the same blocks and
computes their weights again (arXiv 2205.14135), so decoding and training share
one attention and neither holds a [T, S] matrix.

Axis letters: B batch, T block width, U visible recent slots, S cache slots,
C slots of a key block, N query heads, K kv heads, G query heads a kv head,
H head size.
"""

import functools

import jax
import jax.numpy as jnp

from specjax.models import layers

KEY_BLOCK = 64  # cache slots an attention step reads; measured best on CPU
# A finite start for the running maximum: exp(-inf - -inf) would be NaN where a
# whole key block is masked.
LOWEST = -1e30


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _attend(q, k, v, lengths, positions, mask, scale, window):
  """See `attend`."""
  return _forward(q, k, v, lengths, positions, mask, scale, window)[0]


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
  """What a block's tokens read of a cache, [B, T, N, H] float32.

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
  return _attend(q, k, v, lengths, positions, mask, scale, window)


def _forward(q, k, v, lengths, positions, mask, scale, window):
  """The result, and what the gradient needs of it."""
  B, T, N, H = q.shape
  S, K = k.shape[1:3]
  q = q.reshape(B, T, K, N // K, H).astype(jnp.float32) * scale

  def body(j, carry):
    start, seen = _block(j, S, T, lengths, positions, mask, window)
    return _add_block(carry, q, _cut(k, start), _cut(v, start), seen)

  heads = (B, K, T, N // K)
  zeros = jnp.zeros((*heads, H))
  carry = (jnp.full(heads, LOWEST), zeros[..., 0], zeros)
  bounds = _bounds(S, T, lengths, window)
  top, total, acc = jax.lax.fori_loop(*bounds, body, carry)
  out = acc / total[..., None]
  kept = (k, v, lengths, positions, mask, q, out, top + jnp.log(total))
  return out.transpose(0, 2, 1, 3, 4).reshape(B, T, N, H), kept


def _backward(scale, window, kept, given):
  """Gradients of queries, keys and values."""
  k, v, lengths, positions, mask, q, out, log_total = kept
  B, T, K, G, H = q.shape
  given = given.reshape(B, T, K, G, H).transpose(0, 2, 1, 3, 4)
  inner = jnp.sum(given * out, axis=-1, keepdims=True)

  def body(j, carry):
    dq, dk, dv = carry
    start, seen = _block(j, k.shape[1], T, lengths, positions, mask, window)
    keys, values = _cut(k, start), _cut(v, start)
    scores = jnp.where(_over_heads(seen), _scores(q, keys), -jnp.inf)
    weights = jnp.exp(scores - log_total[..., None])
    dweights = jnp.einsum("bktgh,bckh->bktgc", given, values)
    dscores = weights * (dweights - inner)
    dq = dq + jnp.einsum("bktgc,bckh->btkgh", dscores, keys)
    dkeys = jnp.einsum("bktgc,btkgh->bckh", dscores, q)
    dvalues = jnp.einsum("bktgc,bktgh->bckh", weights, given)
    return dq, _add_at(dk, start, dkeys), _add_at(dv, start, dvalues)

  zeros = jnp.zeros(k.shape, jnp.float32)
  bounds = _bounds(k.shape[1], T, lengths, window)
  dq, dk, dv = jax.lax.fori_loop(
    *bounds, body, (jnp.zeros_like(q), zeros, zeros)
  )
  dq = (dq * scale).reshape(B, T, K * G, H)
  return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None, None


_attend.defvjp(_forward, _backward)


def _bounds(S, T, lengths, window):
  """The first key block that is read, and the one after the last."""
  C = min(KEY_BLOCK, S)
  first = 0
  if window is not None:
    first = jnp.maximum(jnp.min(lengths) + 1 - window, 0) // C
  return first, jnp.minimum((jnp.max(lengths) + T + C - 1) // C, -(-S // C))


def _block(j, S, T, lengths, positions, mask, window):
  """First slot of a key block, and what is seen of it, [B, T, C]."""
  C = min(KEY_BLOCK, S)
  # The last block would stick out of a capacity that C does not divide: it
  # starts earlier and skips the slots that were seen.
  start = jnp.minimum(j * C, S - C)
  slots = (start + jnp.arange(C))[None]
  seen = _visible(slots, lengths, T, mask) & (slots >= j * C)[None]
  if window is not None:
    seen = seen & _within(slots, lengths, T, positions, window)
  return start, seen


def _cut(x, start):
  """[B, C, K, H] of keys or values, in float32."""
  size = min(KEY_BLOCK, x.shape[1])
  return jax.lax.dynamic_slice_in_dim(x, start, size, 1).astype(jnp.float32)


def _add_at(x, start, block):
  """x with a key block [B, C, K, H] added."""
  block = block + jax.lax.dynamic_slice_in_dim(x, start, block.shape[1], 1)
  return jax.lax.dynamic_update_slice_in_dim(x, block, start, 1)


def _scores(q, keys):
  """[B, K, T, G, C] of q [B, T, K, G, H], scaled, and keys [B, C, K, H]."""
  # The order of axes matters: with t last but one, products of some widths add
  # in another order.
  return jnp.einsum("btkgh,bckh->bktgc", q, keys)


def _over_heads(seen):
  """[B, T, C] for all heads, [B, 1, T, 1, C]."""
  return seen[:, None, :, None]


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
  scores = jnp.where(_over_heads(seen), _scores(q, keys), -jnp.inf)
  new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
  weights = jnp.exp(scores - new_top[..., None])
  scale = jnp.exp(top - new_top)
  out = jnp.einsum("bktgc,bckh->bktgh", weights, values)
  total = total * scale + layers.pairwise_sum(weights)
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
