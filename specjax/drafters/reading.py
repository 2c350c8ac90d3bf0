# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a draft model that learns tokens only keeps up with the text.

Axis letters: B batch, V vocabulary.
"""

import jax
import jax.numpy as jnp

from specjax import types

CATCH_UP = 64  # tokens a catch-up pass feeds: the prompt, or rounds slept over


def catch_up(
  model: types.Model, cache: types.KVCache, context: types.Context
) -> tuple[jax.Array, types.KVCache]:
  """Feeds committed tokens the cache lacks; logits [B, V] after the last.

  A row that lacks nothing steps back one token: its logits are needed, and a
  fed token cannot be asked again.
  """
  end = jnp.minimum(context.lengths, model.max_position)
  cache = cache.replace(lengths=jnp.minimum(cache.lengths, end - 1))

  def feed(cache, width):
    index = cache.lengths[:, None] + jnp.arange(width)[None]
    tokens = jnp.take_along_axis(
      context.tokens, index, axis=1, mode="fill", fill_value=0
    )
    return model(tokens, cache)

  def behind(cache):
    return end - cache.lengths > 2

  def body(cache):
    count = jnp.minimum(end - 1 - cache.lengths, CATCH_UP)
    count = jnp.where(behind(cache), count, 0)
    return feed(cache, CATCH_UP).cache.commit(None, count)

  cache = jax.lax.while_loop(lambda c: jnp.any(behind(c)), body, cache)
  missing = end - cache.lengths  # 1 or 2
  output = feed(cache, 2)
  last = jnp.take_along_axis(
    output.logits, (missing - 1)[:, None, None], axis=1
  )[:, 0]
  return last, output.cache.commit(None, missing)


def positions_left(model: types.Model, context: types.Context) -> jax.Array:
  """[B] depth that fits: the first token needs position lengths - 1."""
  return jnp.maximum(model.max_position - context.lengths + 1, 0)


def fit(logits: jax.Array, vocab: int) -> jax.Array:
  """Cuts or pads logits [B, ..., V'] to width V."""
  logits = logits[..., :vocab]
  missing = [(0, 0)] * (logits.ndim - 1) + [(0, vocab - logits.shape[-1])]
  return jnp.pad(logits, missing, constant_values=-jnp.inf)
