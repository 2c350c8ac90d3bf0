# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the sampler must know of the path to a slot, beyond the logits.

Each part is None unless a row asks for it. On a draft tree every node has a
history of its own: prompt, committed tokens and its ancestors.

Axis letters: B batch, W slots, n tokens read, R recent tokens, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax.sampling import constraints

NO_TOKEN = -2  # stands in `recent` before a text's first token


class History(struct.PyTreeNode):
  """Of each row [B], or of each slot [B, W]; the root is included.

  Attributes:
    counts: how often each token stands in prompt and answer.
    recent: the last tokens of prompt and answer, the newest last.
    written: tokens of the answer so far.
    constraint: the state that the answer has led to.
  """

  counts: jax.Array | None = None  # [B, ..., V] int32
  recent: jax.Array | None = None  # [B, ..., R] int32
  written: jax.Array | None = None  # [B, ...] int32
  constraint: constraints.Track | None = None  # [B, ...]

  def extend(self, tokens: jax.Array, valid: jax.Array) -> "History":
    """After tokens [B, ..., n] of an answer, those that are `valid`."""
    history = self._read(tokens, valid)
    if self.written is not None:
      history = history.replace(written=self.written + jnp.sum(valid, axis=-1))
    if self.constraint is not None:
      constraint = self.constraint.extend(tokens, valid)
      history = history.replace(constraint=constraint)
    return history

  def read_prompt(self, tokens: jax.Array, valid: jax.Array) -> "History":
    """After tokens [B, n] of a prompt, which a new answer follows."""
    history = self._read(tokens, valid)
    if self.written is not None:
      history = history.replace(written=jnp.zeros_like(self.written))
    if self.constraint is not None:
      history = history.replace(constraint=self.constraint.restart())
    return history

  def reread(
    self, tokens: jax.Array, prompt_lengths: jax.Array, lengths: jax.Array
  ) -> "History":
    """Of the first `lengths` [B] of tokens [B, S] alone, whatever was read."""
    blank = self.replace(
      counts=_filled(self.counts, 0), recent=_filled(self.recent, NO_TOKEN)
    )
    at = jnp.arange(tokens.shape[1])[None]
    is_prompt = at < prompt_lengths[:, None]
    is_answer = ~is_prompt & (at < lengths[:, None])
    return blank.read_prompt(tokens, is_prompt).extend(tokens, is_answer)

  def spread(self, slots: int) -> "History":
    """The same history [B, W] at each of several slots."""

    def repeat(x):
      if x is None:
        return None
      return jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))

    track = self.constraint
    return History(
      repeat(self.counts),
      repeat(self.recent),
      repeat(self.written),
      None if track is None else track.spread(slots),
    )

  def on_tree(self, tokens: jax.Array, ancestors: jax.Array) -> "History":
    """What each of N slots [B, N] has seen; all of a block, or some of it.

    Args:
      tokens: [B, W] the block, parents before their children.
      ancestors: [B, N, W] ancestor-or-self; the root has been read already.
    """
    seen = ancestors.at[:, :, 0].set(False)
    paths = jnp.broadcast_to(tokens[:, None], seen.shape)
    return self.spread(seen.shape[1]).extend(paths, seen)

  def _read(self, tokens, valid):
    history = self
    if self.counts is not None:
      history = history.replace(counts=_count(self.counts, tokens, valid))
    if self.recent is not None:
      history = history.replace(recent=_newest(self.recent, tokens, valid))
    return history


def _filled(x, value):
  return None if x is None else jnp.full_like(x, value)


def _count(counts, tokens, valid):
  """Adds tokens [..., n] to counts [..., V]."""
  vocab = counts.shape[-1]

  def add(counts, tokens, valid):
    return counts.at[jnp.where(valid, tokens, vocab)].add(1, mode="drop")

  for _ in counts.shape[:-1]:
    add = jax.vmap(add)
  return add(counts, tokens, valid)


def _newest(recent, tokens, valid):
  """The last R of recent [..., R] and the valid ones of tokens [..., n]."""
  size = recent.shape[-1]
  text = jnp.concatenate([recent, tokens], axis=-1)
  real = jnp.concatenate([jnp.ones(recent.shape, bool), valid], axis=-1)
  # How many stand at or behind a token: its place from the end.
  place = jax.lax.cumsum(real.astype(jnp.int32), real.ndim - 1, reverse=True)
  wanted = size - jax.lax.broadcasted_iota(
    jnp.int32, (*recent.shape, 1), recent.ndim - 1
  )
  found = real[..., None, :] & (place[..., None, :] == wanted)
  return jnp.sum(jnp.where(found, text[..., None, :], 0), axis=-1)
