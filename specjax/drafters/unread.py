# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Committed tokens that a head has not read yet, with their features.

Axis letters: B batch, T block width, N slots, F features width.
"""

from flax import struct
import jax
import jax.numpy as jnp

SLOTS = 64  # N


def is_long(tokens: jax.Array) -> bool:
  """Whether a block [B, T] is better read at once, as a prompt's part is."""
  return tokens.shape[1] > SLOTS // 2


class Unread(struct.PyTreeNode):
  """A block that grows; the first `count` [B] of its slots are filled."""

  tokens: jax.Array  # [B, N] int32
  features: jax.Array  # [B, N, F]
  count: jax.Array  # [B] int32

  def add(
    self, tokens: jax.Array, features: jax.Array, count: jax.Array
  ) -> "Unread":
    """With the first `count` [B] of a block [B, T] that is not long."""
    steps = jnp.arange(tokens.shape[1])[None]
    kept = steps < count[:, None]
    # SLOTS is none of them: what goes there is dropped.
    at = jnp.where(kept, self.count[:, None] + steps, SLOTS)
    put = jax.vmap(lambda x, at, new: x.at[at].set(new, mode="drop"))
    return Unread(
      put(self.tokens, at, tokens),
      put(self.features, at, features.astype(self.features.dtype)),
      self.count + count,
    )

  def is_full(self) -> jax.Array:
    """Whether a further block might not fit; a bool."""
    return jnp.any(self.count > SLOTS // 2)

  def first(self, width: int) -> "Unread":
    """The first slots alone."""
    return self.replace(
      tokens=self.tokens[:, :width], features=self.features[:, :width]
    )

  def none(self) -> "Unread":
    """All of it was read."""
    return self.replace(count=jnp.zeros_like(self.count))


def init(batch: int, features: int, dtype: jnp.dtype) -> Unread:
  """Nothing, for rows of F = `features`."""
  return Unread(
    jnp.zeros((batch, SLOTS), jnp.int32),
    jnp.zeros((batch, SLOTS, features), dtype),
    jnp.zeros((batch,), jnp.int32),
  )
