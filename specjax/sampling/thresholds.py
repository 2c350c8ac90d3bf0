# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Thresholds of top-k and top-p, without a sort of the vocabulary.

They are found by bisection on the ordered integers of the floats, so the result
does not depend on the order of equal values, and all ties at it stay.
"""

import jax
import jax.numpy as jnp


def top_k(x: jax.Array, k: jax.Array) -> jax.Array:
  """The k-th largest value of x [..., V], [..., 1]; -inf where k is 0."""
  k = jnp.where(k <= 0, x.shape[-1], jnp.minimum(k, x.shape[-1]))

  def too_high(threshold):
    return jnp.sum(x >= threshold, -1, keepdims=True) < k

  # Largest threshold that still keeps k values = one below the first too high.
  return _bisect(too_high, x, first=False)


def top_p(x: jax.Array, p: jax.Array) -> jax.Array:
  """Smallest value whose strictly larger values weigh less than p, [..., 1].

  Args:
    x: logits [..., V].
    p: [..., 1]; 1 keeps all.
  """
  prob = jax.nn.softmax(x, axis=-1)

  def enough(threshold):
    above = jnp.sum(jnp.where(x > threshold, prob, 0), -1, keepdims=True)
    return above < p

  threshold = _bisect(enough, x, first=True)
  # The rounded sum of all masses may pass 1, so 1 is "all" by definition.
  return jnp.where(p >= 1, -jnp.inf, threshold)


def _bisect(predicate, x, first):
  """The float where a monotone predicate turns true (or the one before).

  Works on the order-preserving integers of float32: 32 steps end exactly.
  """
  shape = (*x.shape[:-1], 1)
  lo = jnp.full(shape, _ordered(jnp.float32(-jnp.inf)), jnp.int32)
  hi = jnp.full(shape, _ordered(jnp.float32(jnp.inf)), jnp.int32)

  # Invariant: the predicate is false at lo - 1 and true at hi.
  def body(_, bounds):
    lo, hi = bounds
    mid = (lo & hi) + ((lo ^ hi) >> 1)  # the floor of the mean, no overflow
    true = predicate(_from_ordered(mid))
    return jnp.where(true, lo, mid + 1), jnp.where(true, mid, hi)

  lo, hi = jax.lax.fori_loop(0, 32, body, (lo, hi))
  return _from_ordered(hi if first else hi - 1)


def _ordered(x):
  bits = jax.lax.bitcast_convert_type(x, jnp.int32)
  return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _from_ordered(i):
  return jax.lax.bitcast_convert_type(i ^ ((i >> 31) & 0x7FFFFFFF), jnp.float32)
