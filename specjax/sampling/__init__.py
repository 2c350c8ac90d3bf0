# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From logits to a law: the one sampler behind plain decoding, p and q.

The documented order is: penalties, bias, what is forbidden (allowed tokens, bad
words, minimum of tokens, constraint), temperature, top-k, top-p, min-p. All of
it is float32, per row and per slot. A setting that no row uses is None and
costs nothing.

Top-k and top-p keep everything at or above a threshold, ties included.

Axis letters: B batch, W slots, Q bad words, V vocabulary.
"""

import jax
import jax.numpy as jnp

from specjax.sampling import history as history_lib
from specjax.sampling import settings, thresholds, token_lists

GREEDY_BELOW = 1e-6  # a temperature under this is 0: logits would overflow

History = history_lib.History
Sampling = settings.Sampling
per_row = settings.per_row


def init_history(sampling: Sampling, batch: int, vocab: int) -> History | None:
  """Before the first token: what the settings need to know, None if nothing."""
  words = sampling.bad_words
  needed = History(
    counts=jnp.zeros((batch, vocab), jnp.int32) if sampling.penalises else None,
    recent=None
    if words is None
    else jnp.full(
      (batch, words.shape[-1] - 1), history_lib.NO_TOKEN, jnp.int32
    ),
    written=None
    if sampling.min_tokens is None
    else jnp.zeros((batch,), jnp.int32),
    constraint=sampling.constraint,
  )
  return needed if jax.tree.leaves(needed) else None


def log_probs(
  logits: jax.Array, sampling: Sampling, history: History | None = None
) -> jax.Array:
  """The law a token is drawn from, [B, ..., V] float32 log-probabilities.

  Args:
    logits: [B, ..., V] of a model.
    sampling: settings, [B] each.
    history: of the same slots [B, ...], needed where `init_history` gives one.
  """
  x = scores(logits, sampling, history)
  best = _one_hot_log(argmax(x), x.shape[-1])
  if sampling.is_greedy:
    return best
  temperature = _rows(sampling.temperature, x)
  greedy = temperature < GREEDY_BELOW
  x = x / jnp.where(greedy, 1.0, temperature)
  if sampling.top_k is not None:
    x = _keep(x, x >= thresholds.top_k(x, _rows(sampling.top_k, x)))
  if sampling.top_p is not None:
    x = _keep(x, x >= thresholds.top_p(x, _rows(sampling.top_p, x)))
  if sampling.min_p is not None:
    floor = jnp.log(_rows(sampling.min_p, x))  # -inf for 0 keeps all
    x = _keep(x, x >= jnp.max(x, -1, keepdims=True) + floor)
  return jnp.where(greedy, best, jax.nn.log_softmax(x, axis=-1))


def scores(
  logits: jax.Array, sampling: Sampling, history: History | None = None
) -> jax.Array:
  """Logits [B, ..., V] as temperature and filters find them.

  Where nothing at all is possible nothing is forbidden: `stuck` tells, and the
  row must end. Laws of slots below a forbidden draft stay finite that way.
  """
  x = _penalise(logits.astype(jnp.float32), sampling, history)
  if not sampling.forbids:
    return x
  possible = _restrict(x, sampling, history)
  return jnp.where(_is_nothing(possible), x, possible)


def stuck(
  logits: jax.Array, sampling: Sampling, history: History | None = None
) -> jax.Array:
  """[B, ...] bool: the settings forbid every token there."""
  x = _penalise(logits.astype(jnp.float32), sampling, history)
  return _is_nothing(_restrict(x, sampling, history))[..., 0]


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


def _is_nothing(x):
  """[..., 1]: no token is possible; NaN is another fault, not this one."""
  return jnp.max(x, axis=-1, keepdims=True) == -jnp.inf


def _known(history, part):
  """A part of the history that a setting needs."""
  known = None if history is None else getattr(history, part)
  if known is None:
    raise ValueError(
      f"these settings need a History with {part}: pass one to log_probs"
    )
  return known


def _penalise(x, sampling, history):
  if not sampling.penalises:
    return x
  counts = _known(history, "counts")
  if sampling.repetition is not None:
    factor = _rows(sampling.repetition, x)
    x = jnp.where(counts > 0, jnp.where(x > 0, x / factor, x * factor), x)
  if sampling.presence is not None:
    x = x - _rows(sampling.presence, x) * (counts > 0)
  if sampling.frequency is not None:
    x = x - _rows(sampling.frequency, x) * counts
  return x


def _restrict(x, sampling, history):
  """Bias, and -inf for every token that may not follow."""
  vocab = x.shape[-1]
  if sampling.bias is not None:
    x = x + _beside(sampling.bias.dense(vocab), x)
  if sampling.bad_words is not None:
    x = _without_bad_words(x, sampling.bad_words, _known(history, "recent"))
  if sampling.min_tokens is not None:
    early = _known(history, "written") < _rows(sampling.min_tokens, x)[..., 0]
    is_eos = jnp.any(jax.nn.one_hot(sampling.eos, vocab, dtype=bool), axis=1)
    x = _keep(x, ~(early[..., None] & _beside(is_eos, x)))
  if sampling.constraint is not None:
    x = _keep(x, _known(history, "constraint").allows(vocab))
  return x


def _without_bad_words(x, words, recent):
  """Forbids the last token of words [B, Q, L] whose others are `recent`."""
  words = _beside(words, x)
  before, last = words[..., :-1], words[..., -1]
  same = (before == token_lists.NO_ID) | (before == recent[..., None, :])
  hit = jnp.all(same, axis=-1) & (last != token_lists.NO_ID)
  at = jnp.where(hit, last, x.shape[-1])
  forbid = lambda row, i: row.at[i].set(-jnp.inf, mode="drop")
  for _ in x.shape[:-1]:
    forbid = jax.vmap(forbid)
  return forbid(x, at)


def _beside(rows, x):
  """[B, ...] for each slot of x [B, ..., V]: [B, 1, ..., 1, ...]."""
  return rows.reshape(rows.shape[:1] + (1,) * (x.ndim - 2) + rows.shape[1:])
