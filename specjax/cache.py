# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The key-value cache: append a block, commit what was kept of it.

Axis letters: B batch, T block width, P path length, S cache slots, K kv heads,
H head size.

`lengths` counts the committed slots of a row. A block is written after them and
stays invisible to `lengths` until it is committed, so nothing is ever rolled
back: what was not kept is overwritten by the next block.

  before          k k k . . . . .    lengths 3
  append T=4      k k k a b c d .    lengths 3
  commit [0,2] 2  k k k a c c d .    lengths 5   (slots 5, 6 are stale)
"""

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np


class KVCache(struct.PyTreeNode):
  """Keys and values of every layer, per-row lengths.

  Attributes:
    layers: a pair (keys, values) a layer, each [B, S, K, H].
    lengths: committed slots of each row.
  """

  layers: tuple[tuple[jax.Array, jax.Array], ...]
  lengths: jax.Array  # [B] int32

  @property
  def capacity(self) -> int:
    return self.layers[0][0].shape[1]

  def append(self, layer: int, k: jax.Array, v: jax.Array) -> "KVCache":
    """Writes a block [B, T, K, H] after `lengths`, which stay as they are.

    Slots past the capacity are dropped. Non-finite values are stored as 0:
    a masked key still meets its value with weight 0, and 0 * NaN would spoil
    the whole row for a token that was never kept.
    """
    old_k, old_v = self.layers[layer]
    pair = (_write(old_k, k, self.lengths), _write(old_v, v, self.lengths))
    layers = (*self.layers[:layer], pair, *self.layers[layer + 1 :])
    return self.replace(layers=layers)

  def commit(self, path: jax.Array | None, count: jax.Array) -> "KVCache":
    """Keeps `count` [B] slots of the block and advances past them.

    Args:
      path: [B, P] block slots to keep, in order; None keeps the first ones,
        which moves nothing (chains, prompts).
      count: [B] how many of them; 0 leaves the row untouched.
    """
    layers = self.layers
    if path is not None:
      layers = jax.tree.map(
        lambda x: _move(x, self.lengths, path, count), layers
      )
    return self.replace(layers=layers, lengths=self.lengths + count)


def init(
  batch: int, capacity: int, layers: int, kv_heads: int, head_dim: int, dtype
) -> KVCache:
  """An empty cache. Every layer gets arrays of its own."""
  shape = (batch, capacity, kv_heads, head_dim)
  return KVCache(
    layers=tuple(
      (jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(layers)
    ),
    lengths=jnp.zeros((batch,), jnp.int32),
  )


def check_capacity(
  prompt_lengths: np.ndarray,
  limits: np.ndarray,
  block: int,
  capacity: int,
  max_position: int,
) -> None:
  """Refuses rows that would not fit, before anything is traced.

  Args:
    prompt_lengths: [B].
    limits: [B] new tokens.
    block: the largest block, root included.
    capacity: slots.
    max_position: positions the model has.

  Raises:
    ValueError: one line that names the numbers and the fix.
  """
  if prompt_lengths.size == 0:
    raise ValueError("there is no prompt: give at least one")
  if prompt_lengths.min() < 1:
    raise ValueError(
      f"prompt {int(prompt_lengths.argmin())} is empty: give at least one token"
    )
  longest = int((prompt_lengths + limits).max())
  if longest > max_position:
    raise ValueError(
      f"prompt and answer need {longest} positions but the model has "
      f"{max_position}: shorten the prompt or lower max_new_tokens"
    )
  if longest + block > capacity:
    raise ValueError(
      f"capacity {capacity} cannot hold {longest} tokens of prompt and answer "
      f"and a block of {block}: use at least {longest + block}"
    )


def _write(slots, block, start):
  """Writes block [B, T, ...] at `start` [B]; positions past S are dropped."""
  block = jnp.where(jnp.isfinite(block), block, 0).astype(slots.dtype)

  def row(slots, block, start):
    index = start + jnp.arange(block.shape[0])
    return slots.at[index].set(block, mode="drop", unique_indices=True)

  return jax.vmap(row)(slots, block, start)


def _move(slots, start, path, count):
  """Moves slot start + path[d] to start + d, for d < count."""
  capacity = slots.shape[1]

  def row(slots, start, path, count):
    depth = jnp.arange(path.shape[0])
    kept = slots.at[start + path].get(mode="fill", fill_value=0)
    # A negative index would wrap, so dropped writes go to S.
    target = jnp.where(depth < count, start + depth, capacity)
    return slots.at[target].set(kept, mode="drop")

  return jax.vmap(row)(slots, start, path, count)
