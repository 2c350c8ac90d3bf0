# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From logits to a law: the one sampler behind plain decoding, p and q.

The documented order is: penalties, temperature, top-k, top-p, min-p. All of it
is float32 and per row. A setting that no row uses is None and costs nothing.

Top-k and top-p keep everything at or above a threshold, found by bisection on
the ordered integers of the floats: no sort of the vocabulary, and the result
does not depend on the order of equal values. All ties at the threshold stay.

Axis letters: B batch, W slots, V vocabulary.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

GREEDY_BELOW = 1e-6  # a temperature under this is 0: logits would overflow


# An array [B] in decoding; a number, or one a row, for `per_row`; None is off.
Setting = Any


class Sampling(struct.PyTreeNode):
  """Settings of each row; None where no row uses one.

  Attributes:
    temperature: 0 takes the most likely token, the lowest id on ties. None
      means that every row is greedy, and then no noise is drawn at all.
    top_k: keep the k most likely; 0 keeps all.
    top_p: keep the smallest set of at least this mass; 1 keeps all.
    min_p: keep what has at least this fraction of the largest probability.
    repetition: divides (multiplies) positive (negative) logits of seen tokens;
      1 is off.
    presence: is taken from logits of seen tokens; 0 is off.
    frequency: the same, times how often they were seen.
  """

  temperature: Setting = None  # [B] float32
  top_k: Setting = None  # [B] int32
  top_p: Setting = None  # [B] float32
  min_p: Setting = None  # [B] float32
  repetition: Setting = None  # [B] float32
  presence: Setting = None  # [B] float32
  frequency: Setting = None  # [B] float32

  @property
  def is_greedy(self) -> bool:
    return self.temperature is None

  @property
  def needs_history(self) -> bool:
    return any(
      x is not None for x in (self.repetition, self.presence, self.frequency)
    )


# Per setting: its type, the value that switches it off, what it may be.
_SETTINGS = {
  "temperature": (jnp.float32, 0.0, lambda x: x >= 0, "0 or more"),
  "top_k": (jnp.int32, 0, lambda x: x >= 0, "0 (off) or more"),
  "top_p": (jnp.float32, 1.0, lambda x: (x > 0) & (x <= 1), "in (0, 1]"),
  "min_p": (jnp.float32, 0.0, lambda x: (x >= 0) & (x <= 1), "in [0, 1]"),
  "repetition": (jnp.float32, 1.0, lambda x: x > 0, "above 0"),
  "presence": (jnp.float32, 0.0, np.isfinite, "finite"),
  "frequency": (jnp.float32, 0.0, np.isfinite, "finite"),
}


def per_row(sampling: Sampling, batch: int) -> Sampling:
  """Settings given as numbers or one a row, as arrays [B] or None if unused.

  Raises:
    ValueError: a value out of range, or not one a row.
  """
  arrays = {}
  for name, (dtype, off, allowed, words) in _SETTINGS.items():
    value = getattr(sampling, name)
    value = np.asarray(off if value is None else value, np.float64)
    if value.ndim > 1 or (value.ndim and value.shape[0] != batch):
      raise ValueError(
        f"sampling.{name} has shape {value.shape}: give one number, or one for "
        f"each of {batch} rows"
      )
    if not np.all(np.isfinite(value) & allowed(value)):
      wrong = value.ravel()[~(np.isfinite(value) & allowed(value)).ravel()][0]
      raise ValueError(f"sampling.{name} is {wrong:g}: it must be {words}")
    used = np.any(value != off)
    arrays[name] = (
      jnp.broadcast_to(jnp.asarray(value, dtype), (batch,)) if used else None
    )
  return Sampling(**arrays)


class History(struct.PyTreeNode):
  """How often each token stands in prompt and answer, the root included."""

  counts: jax.Array  # [B, ..., V] int32

  def extend(self, tokens: jax.Array, valid: jax.Array) -> "History":
    """Counts tokens [B, W] where `valid` [B, W], for counts [B, V]."""
    vocab = self.counts.shape[-1]

    def row(counts, tokens, valid):
      return counts.at[jnp.where(valid, tokens, vocab)].add(1, mode="drop")

    return self.replace(counts=jax.vmap(row)(self.counts, tokens, valid))

  def on_tree(self, tokens: jax.Array, ancestors: jax.Array) -> "History":
    """What each slot has seen: counts [B, W, V].

    Args:
      tokens: [B, W] the block.
      ancestors: [B, W, W] ancestor-or-self; the root is counted already.
    """
    vocab = self.counts.shape[-1]

    def slot(counts, tokens, seen):
      return counts.at[jnp.where(seen, tokens, vocab)].add(1, mode="drop")

    seen = ancestors.at[:, :, 0].set(False)
    per_slot = jax.vmap(jax.vmap(slot, (None, None, 0)))
    return self.replace(counts=per_slot(self.counts, tokens, seen))


def init_history(tokens: jax.Array, lengths: jax.Array, vocab: int) -> History:
  """Counts the first `lengths` [B] of tokens [B, S]."""
  counts = jnp.zeros((tokens.shape[0], vocab), jnp.int32)
  valid = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
  return History(counts).extend(tokens, valid)


def log_probs(
  logits: jax.Array, sampling: Sampling, history: History | None = None
) -> jax.Array:
  """The law a token is drawn from, [B, ..., V] float32 log-probabilities.

  Args:
    logits: [B, ..., V] of a model.
    sampling: settings, [B] each.
    history: counts [B, ..., V], needed with penalties.
  """
  x = _penalise(logits.astype(jnp.float32), sampling, history)
  best = _one_hot_log(argmax(x), x.shape[-1])
  if sampling.is_greedy:
    return best
  temperature = _rows(sampling.temperature, x)
  greedy = temperature < GREEDY_BELOW
  x = x / jnp.where(greedy, 1.0, temperature)
  if sampling.top_k is not None:
    x = _keep(x, x >= _top_k_threshold(x, _rows(sampling.top_k, x)))
  if sampling.top_p is not None:
    x = _keep(x, x >= _top_p_threshold(x, _rows(sampling.top_p, x)))
  if sampling.min_p is not None:
    floor = jnp.log(_rows(sampling.min_p, x))  # -inf for 0 keeps all
    x = _keep(x, x >= jnp.max(x, -1, keepdims=True) + floor)
  return jnp.where(greedy, best, jax.nn.log_softmax(x, axis=-1))


def argmax(x: jax.Array) -> jax.Array:
  """Index of the largest value, the lowest on ties; [..., V] to int32 [...].

  Two plain reductions: one over (value, index) pairs does not vectorise on CPU.
  A NaN in the row gives V - 1 at most, never an id out of range.
  """
  top = jnp.max(x, axis=-1, keepdims=True)
  index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
  found = jnp.where(x == top, index, x.shape[-1] - 1)
  return jnp.min(found, axis=-1)


def residual(p: jax.Array, q: jax.Array) -> jax.Array:
  """The law after a rejection, norm((p - q)+), over the last axis.

  Where nothing is left, p equals q and a rejection was a rounding event: then
  it is p itself, never a uniform draw.
  """
  mass = jnp.maximum(p - q, 0)
  total = jnp.sum(mass, axis=-1, keepdims=True)
  return jnp.where(total > 0, mass / jnp.where(total > 0, total, 1), p)


def inverse_cdf(mass: jax.Array, u: jax.Array) -> jax.Array:
  """The token that a uniform picks: [..., V] masses, [...] u in [0, 1).

  Piecewise constant in u and monotone, so that laws can be enumerated. A token
  without mass is never picked, whatever the rounding of the sum.
  """
  vocab = mass.shape[-1]
  cumulative = jnp.cumsum(mass, axis=-1)
  above = cumulative > u[..., None] * cumulative[..., -1:]
  index = jax.lax.broadcasted_iota(jnp.int32, mass.shape, mass.ndim - 1)
  last = jnp.max(jnp.where(mass > 0, index, 0), axis=-1)
  first = jnp.min(jnp.where(above & (mass > 0), index, vocab), axis=-1)
  return jnp.minimum(first, last)


def _rows(setting, x):
  """[B] to [B, 1, ..., 1] beside x."""
  return setting.reshape(setting.shape + (1,) * (x.ndim - 1))


def _keep(x, mask):
  return jnp.where(mask, x, -jnp.inf)


def _one_hot_log(token, vocab):
  hit = jax.nn.one_hot(token, vocab, dtype=bool)
  return jnp.where(hit, 0.0, -jnp.inf)


def _penalise(x, sampling, history):
  if not sampling.needs_history:
    return x
  if history is None:
    raise ValueError("penalties need a History: pass one to log_probs")
  counts = history.counts
  if sampling.repetition is not None:
    factor = _rows(sampling.repetition, x)
    x = jnp.where(counts > 0, jnp.where(x > 0, x / factor, x * factor), x)
  if sampling.presence is not None:
    x = x - _rows(sampling.presence, x) * (counts > 0)
  if sampling.frequency is not None:
    x = x - _rows(sampling.frequency, x) * counts
  return x


def _top_k_threshold(x, k):
  """The k-th largest value [..., 1]; -inf where k is 0."""
  k = jnp.where(k <= 0, x.shape[-1], jnp.minimum(k, x.shape[-1]))

  def too_high(threshold):
    return jnp.sum(x >= threshold, -1, keepdims=True) < k

  # Largest threshold that still keeps k values = one below the first too high.
  return _bisect(too_high, x, first=False)


def _top_p_threshold(x, p):
  """Smallest value whose strictly larger values weigh less than p, [..., 1]."""
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
