# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the frozen target says about packed rows, in one pass.

Alignment, everywhere in training: slot t has read tokens 0 to t. hidden[t]
predicts the root, token t + 1. A draft that starts from slot t guesses token
t + 2 + k at depth k, and the law it is compared with is the target's at slot
t + 1 + k:

  slot       t        t + 1            t + 2
  has read   x_t      x_{t+1}, root    x_{t+2}
  hidden     -> root  law of depth 0   law of depth 1

Axis letters: B rows, S slots, N = B * S, D model width, F features width,
K depths, Q columns of a draft's output, V vocabulary.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax import types
from train import packing, slots

CHUNK = 256  # slots whose logits exist at a time


class Teacher(struct.PyTreeNode):
  """The target's side of a batch; nothing here is differentiated."""

  hidden: jax.Array  # [B, S, D]
  features: jax.Array | None  # [B, S, F] of the layers that are read
  log_total: jax.Array  # [B, S] float32 logsumexp of logits / temperature
  best: jax.Array  # [B, S] int32 the likeliest token


def read(
  target: types.Model, batch: packing.Batch, temperature: float = 1.0
) -> Teacher:
  """Runs the target over a batch.

  Args:
    target: gives the feature layers that it was asked for.
    batch: packed rows.
    temperature: of `log_total`; above 0.
  """
  B, S = batch.tokens.shape
  cache = target.init_cache(B, S, S)
  output = target(batch.tokens, cache, batch.positions, mask(batch))

  def summary(hidden):
    logits = target.unembed(hidden)
    total = jax.nn.logsumexp(logits / temperature, axis=-1)
    return total, sampling_lib.argmax(logits)

  # A law is asked for where the token after the slot is of an answer.
  needed = jnp.pad(batch.loss[:, 1:], ((0, 0), (0, 1)))
  log_total, best = slots.each(
    summary, flat(output.hidden), needed.reshape(-1), CHUNK
  )
  return jax.lax.stop_gradient(
    Teacher(
      output.hidden,
      output.features,
      log_total.reshape(B, S),
      best.reshape(B, S),
    )
  )


def mask(batch: packing.Batch) -> jax.Array:
  """[B, S, S] which slots each slot sees: earlier ones of its conversation."""
  segments = jnp.asarray(batch.segments)
  same = segments[:, :, None] == segments[:, None]
  return same & jnp.tril(jnp.ones(same.shape[1:], bool))[None]


def counted(batch: packing.Batch, depth: int) -> jax.Array:
  """[B, S, K] bool: a draft from slot t is judged at depth k.

  All tokens it guesses up to there are of an answer, and of one conversation.
  The root may be the prompt's last token: that is where decoding starts.
  """
  segments = jnp.asarray(batch.segments)
  alive = segments > 0
  found = []
  for k in range(depth):
    shift = 2 + k
    here = later(segments, shift) == segments
    alive = alive & here & later(jnp.asarray(batch.loss), shift)
    found.append(alive)
  return jnp.stack(found, axis=-1)


def flat(tree: Any) -> Any:
  """pytree of [B, S, ...] as [N, ...]."""
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def later(x: jax.Array, slots: int) -> jax.Array:
  """x [B, S, ...] of so many slots later; past the end it is 0."""
  room = [(0, 0)] * x.ndim
  room[1] = (0, min(slots, x.shape[1]))
  return jnp.pad(x[:, slots:], room)
