# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Laws of all prefixes as tables, for exact enumeration.

A conditional takes prefixes [N, n] and gives log-probabilities [N, V].
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib

VOCAB = 4


def logits(seed: int, scale: float = 1.2, vocab: int = VOCAB):
  """Random logits that depend on the whole prefix."""

  def follow(prefix):
    rng = np.random.default_rng([seed, prefix.shape[1]])
    table = rng.normal(size=(vocab ** prefix.shape[1], vocab)) * scale
    index = np.zeros(len(prefix), int)
    for token in prefix.T:
      index = index * vocab + token
    return table[index]

  return follow


def softmax(follow):
  """The law of logits, in float64."""

  def law(prefix):
    x = follow(prefix)
    return x - np.logaddexp.reduce(x, axis=1, keepdims=True)

  return law


def constant(probabilities):
  """One law whatever came before."""
  with np.errstate(divide="ignore"):
    row = np.log(np.asarray(probabilities, np.float64))
  return lambda prefix: np.tile(row, (len(prefix), 1))


def best(law):
  """All mass on the most likely token."""

  def one_hot(prefix):
    x = law(prefix)
    return np.where(np.arange(x.shape[1]) == x.argmax(1)[:, None], 0.0, -np.inf)

  return one_hot


def sampled(follow, log_probs=sampling_lib.log_probs, depth=4, **settings):
  """Logits through the library's sampler, the prefix as history.

  Prefixes of up to `depth` tokens are put into one table at once.
  """
  vocab = follow(np.zeros((1, 0), int)).shape[1]
  prefixes = [
    np.indices((vocab,) * n).reshape(n, -1).T for n in range(1, depth + 1)
  ]
  prefixes = [np.zeros((1, 0), int), *prefixes]
  x = np.concatenate([follow(p) for p in prefixes])
  ids = np.arange(vocab)
  counts = [(p[:, :, None] == ids).sum(axis=1) for p in prefixes]
  history = sampling_lib.History(jnp.asarray(np.concatenate(counts), jnp.int32))
  rows = sampling_lib.per_row(sampling_lib.Sampling(**settings), len(x))
  table = jax.jit(log_probs)(jnp.asarray(x, jnp.float32), rows, history)
  # float32 laws sum to 1 within 1e-7; proofs want a law.
  table = np.asarray(table, np.float64)
  table = table - np.logaddexp.reduce(table, axis=1, keepdims=True)

  def law(prefix):
    index = np.zeros(len(prefix), int)
    for token in prefix.T:
      index = index * vocab + token
    first = sum(vocab**n for n in range(prefix.shape[1]))
    return table[first + index]

  return law
