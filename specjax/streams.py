# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random streams: which key serves which decision.

A row's key is a function of (seed, prompt index, sample index) and never of its
place in the batch. From it four streams are derived, named by a tag:

  SAMPLE(position)                 the token at an absolute position
  DRAFT(round, position, slot)     proposals of drafters under ratio rules
  ACCEPT(round, position, slot)    accept tests of ratio rules
  RESIDUAL(round, position, slot)  the token after a rejection

SAMPLE serves plain decoding and the coupled verifier alike, which is what makes
the text independent of the draft. The others carry the round, because a rule
whose acceptance looks ahead is biased when a number survives its round.

Axis letters: B batch, V vocabulary.
"""

from collections.abc import Sequence

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

SAMPLE, DRAFT, ACCEPT, RESIDUAL = range(4)
# Stated, not the process's default: others depend on what is drawn together.
PRNG = "threefry2x32"


def row_keys(
  seed: int | Sequence[int] | np.ndarray, indices: jax.Array, samples: jax.Array
) -> jax.Array:
  """Keys [B] of rows.

  Args:
    seed: from 0 to 2**32 - 1; one, or one a row.
    indices: [B] of the prompts in their file.
    samples: [B] which of several answers to a prompt.
  """

  def one(seed, index, sample):
    key = jax.random.fold_in(jax.random.key(seed, impl=PRNG), index)
    return jax.random.fold_in(key, sample)

  indices = jnp.asarray(indices)
  seeds = np.broadcast_to(np.asarray(seed), indices.shape)
  if np.any((seeds < 0) | (seeds >= 2**32)):
    raise ValueError(f"seed {seed} is out of range: use 0 to {2**32 - 1}")
  return jax.vmap(one)(seeds.astype(np.uint32), indices, jnp.asarray(samples))


class Streams(struct.PyTreeNode):
  """The random numbers of one round.

  Attributes:
    keys: one typed key a row.
    round: rounds a row has run; it stops with the row.
    silent: no row samples. Every law is then one-hot, whatever is drawn cannot
      matter, and constants are handed out at no cost.
  """

  keys: jax.Array  # [B]
  round: jax.Array  # [B] int32
  silent: bool = struct.field(pytree_node=False, default=False)

  def gumbel(
    self, tag: int, positions: jax.Array, slots: jax.Array, vocab: int
  ) -> jax.Array:
    """Gumbel noise [B, ..., V] float32, one vector for each position and slot.

    Args:
      tag: the stream.
      positions: [B, ...] absolute position of the token to draw.
      slots: [B, ...] slot of the parent; SAMPLE ignores it.
      vocab: V. A longer vector starts with the shorter one, so padding a
        vocabulary changes nothing.
    """
    if self.silent:
      return jnp.zeros((*positions.shape, vocab), jnp.float32)
    return self._draw(
      lambda key: jax.random.gumbel(key, (vocab,), jnp.float32),
      tag,
      positions,
      slots,
    )

  def uniform(
    self, tag: int, positions: jax.Array, slots: jax.Array
  ) -> jax.Array:
    """Uniforms [B, ...] float32 in [0, 1), one for each position and slot."""
    if self.silent:
      return jnp.full(positions.shape, 0.5, jnp.float32)
    return self._draw(
      lambda key: jax.random.uniform(key, (), jnp.float32),
      tag,
      positions,
      slots,
    )

  def _draw(self, draw, tag, positions, slots):
    def one(key, round_, position, slot):
      key = jax.random.fold_in(key, tag)
      if tag != SAMPLE:
        key = jax.random.fold_in(key, round_)
      key = jax.random.fold_in(key, position)
      if tag != SAMPLE:
        key = jax.random.fold_in(key, slot)
      return draw(key)

    def row(key, round_, positions, slots):
      flat = jax.vmap(one, (None, None, 0, 0))(
        key, round_, positions.ravel(), slots.ravel()
      )
      return flat.reshape((*positions.shape, *flat.shape[1:]))

    slots = jnp.broadcast_to(slots, positions.shape)
    return jax.vmap(row)(self.keys, self.round, positions, slots)


class Noise(struct.PyTreeNode):
  """Gumbel noise for the tokens a drafter proposes, one vector a parent.

  Attributes:
    streams: where the numbers come from.
    vocab: V.
    shared: the noise is the target's own (SAMPLE), so that adding it to a
      score finds the token that the target will draw.
  """

  streams: Streams
  vocab: int = struct.field(pytree_node=False)
  shared: bool = struct.field(pytree_node=False)

  def __call__(self, positions: jax.Array, slots: jax.Array) -> jax.Array:
    """[B, ..., V] for tokens at `positions` with parents in `slots`."""
    tag = SAMPLE if self.shared else DRAFT
    return self.streams.gumbel(tag, positions, slots, self.vocab)
