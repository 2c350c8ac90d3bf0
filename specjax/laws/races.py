# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The law of a race, and that a race is all that a rule runs.

In a race the token with the largest sum of log-probability and Gumbel noise
wins. The noise t_ij(g) at which token j overtakes token i with noise g, all
others held back, is found by bisection on the rule's code. With F the
distribution of the noise,

  P(i wins) = integral of F'(g) prod_j F(t_ij(g)) dg,

by the trapezoid rule, which converges geometrically here. The product is
allowed because the winner of all wins every pair, which is checked on random
noise.

Axis letters: N rows, T nodes, W = T + 1 slots, P = max_depth + 1 depths,
V vocabulary, C races.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.laws import enumeration
from specjax.trees import tree

BISECTIONS = 64  # from [-REACH, REACH] down to neighbouring float64 numbers
REACH = 200.0  # thresholds further out are infinite
OUT = -1e30  # noise of a token that takes no part
# exp(-exp(4)) and exp(-40) are below the rounding of float64.
STEP = 0.25
CHUNK = 8192  # races a call
NODES = np.arange(-4, 40, STEP)


def law(verifier: types.Verifier, log_p: np.ndarray) -> np.ndarray:
  """P(token wins) [N, V] of single draws from laws [N, V], without a draft.

  Raises:
    ValueError: the winner does not win every pair: it is not a race.
  """
  vocab = log_p.shape[-1]
  cdf = lambda x: np.exp(-np.exp(-x))
  thresholds = functools.partial(_thresholds, verifier)
  with np.errstate(over="ignore"):
    below = cdf(enumeration.in_chunks(thresholds, log_p, 8))
  below[:, np.arange(vocab), np.arange(vocab)] = 1
  density = np.exp(-NODES - np.exp(-NODES))
  _check_tournament(verifier, log_p)
  return np.sum(density * np.prod(below, axis=2), axis=-1) * STEP


def _winners(verifier, log_p, noise):
  """Tokens [C] that single draws from laws [C, V] give with noise [C, V]."""
  winner = functools.partial(_winner, verifier)
  return enumeration.in_chunks(winner, (log_p, noise), CHUNK)


@functools.partial(jax.jit, static_argnums=0)
def _winner(verifier, races):
  log_p, noise = races
  rows = log_p.shape[0]
  draft = tree.chain(jnp.zeros((rows, 0), int), jnp.zeros((rows,), int))
  with jax.ensure_compile_time_eval():
    one = tree.chain(jnp.zeros((1, 0), int), jnp.zeros((1,), int))
  outcome = enumeration.Outcome(verifier, enumeration.read_draw(verifier, one))
  return outcome((log_p[:, None], draft), noise[:, None])[:, 0]


def _pair_noise(i, j, noise_i, noise_j, vocab):
  """Noise [C, V] that keeps all tokens but two out of the race."""
  ids = jnp.arange(vocab)[None]
  other = jnp.where(ids == j[:, None], noise_j[:, None], OUT)
  return jnp.where(ids == i[:, None], noise_i[:, None], other)


@functools.partial(jax.jit, static_argnums=0)
def _thresholds(verifier, log_p):
  """[N, V, V, nodes] noise of j below which it leaves the win to i.

  i has noise NODES; infinite where one of the two wins whatever j has.
  """
  rows, vocab = log_p.shape
  shape = (rows, vocab, vocab, len(NODES))
  row, i, j, node = (jnp.asarray(x.ravel()) for x in np.indices(shape))
  noise_i = jnp.asarray(NODES)[node]
  laws = log_p[row]

  def loses(noise_j):
    noise = _pair_noise(i, j, noise_i, noise_j, vocab)
    return _winner(verifier, (laws, noise)) != i

  def body(_, bounds):
    lo, hi = bounds
    middle = (lo + hi) / 2
    lost = loses(middle)
    return jnp.where(lost, lo, middle), jnp.where(lost, middle, hi)

  ends = jnp.full_like(noise_i, -REACH), jnp.full_like(noise_i, REACH)
  _, found = jax.lax.fori_loop(0, BISECTIONS, body, ends)
  found = jnp.where(loses(ends[0]), -jnp.inf, found)
  return jnp.where(loses(ends[1]), found, jnp.inf).reshape(shape)


def _check_tournament(verifier, log_p):
  """The winner of all tokens must win against each other one alone."""
  vocab = log_p.shape[-1]
  laws = log_p.repeat(64, axis=0)
  noise = np.random.default_rng(0).gumbel(size=laws.shape)
  best = _winners(verifier, laws, noise)
  top = np.take_along_axis(noise, best[:, None], 1)[:, 0]
  for j in range(vocab):
    rival = np.full_like(best, j)
    pair = _pair_noise(best, rival, top, noise[:, j], vocab)
    if np.any(_winners(verifier, laws, pair) != best):
      raise ValueError(
        "the emitted token loses to another one alone: its law is no product "
        "over pairs"
      )


def check_paths(
  verifier: types.Verifier,
  log_p: jax.Array,
  draft: types.Draft,
  follow: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> None:
  """Checks that each emitted token depends on its prefix and noise alone.

  The tokens emitted for every draft [N, T] must be what single draws without a
  draft give, one after the other, each with the noise of its own position. Then
  any drafts, cut into any rounds, emit the same text, even drafts made from the
  noise (children that are the best of it, say) and noise used again in a later
  round. Noise vectors: one for each way the tokens at all depths can win, and
  random ones.

  Args:
    verifier: the rule.
    log_p: [N, W, V].
    draft: N chains or trees.
    follow: (rows, tokens [C, d]) -> laws [C, V] after a row's prefix and them.

  Raises:
    ValueError: a draft changed what is emitted.
  """
  rows, _, vocab = log_p.shape
  depths = draft.max_depth + 1
  draw = enumeration.read_draw(verifier, draft)
  wins = np.indices((vocab,) * depths).reshape(depths, -1).T
  rng = np.random.default_rng(0)
  shape = (4, depths, vocab)
  noises = np.concatenate([50.0 * np.eye(vocab)[wins], rng.gumbel(size=shape)])
  owner = np.arange(rows).repeat(len(noises))
  noise = np.tile(noises, (rows, 1, 1))
  chosen = jax.tree.map(lambda x: np.asarray(x)[owner], (log_p, draft))
  run = functools.partial(_outcome, enumeration.Outcome(verifier, draw))
  tokens = enumeration.in_chunks(run, (chosen, noise), CHUNK)[:, :depths]
  for depth in range(depths):
    at = tokens[:, depth] < vocab
    laws = np.full((len(owner), vocab), -np.log(vocab))
    laws[at] = follow(owner[at], tokens[at, :depth])
    own = _winners(verifier, laws, noise[:, depth])
    if np.any((own != tokens[:, depth]) & at):
      raise ValueError(
        f"{type(verifier).__name__} emits at depth {depth} another token than "
        "a draw without a draft: its text depends on the draft"
      )


@functools.partial(jax.jit, static_argnums=0)
def _outcome(outcome, rows):
  return outcome(*rows)
