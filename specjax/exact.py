# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The exact output law of a verification rule, found on its own code.

No formula of the rule enters. `verify` takes its random numbers as data and is
piecewise constant in them, so its law is a finite sum: over all drafts, each
with the probability that it is drawn, over all cells of the random numbers on
which the emitted tokens stay the same, each with its volume.

`cells.py` finds the cells of rules that compare uniforms with something. A rule
that adds noise to log-probabilities runs races, whose law `races.py` finds.

Rounds are chained: a round's law depends on the emitted prefix and the draft
length alone, provided that no random number serves two rounds. For uniforms
that is a property of their keys (tag, round, position, slot). Noise keyed by
position does serve several rounds, and drafts may even be made from it; there
`races.check_paths` shows on the code that every emitted token is a function of
its prefix and its own position's noise, so that the positions, whatever rounds
they fall in, are independent.

Axis letters: N rows, K draft length, V vocabulary, C cells.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import tree, types
from specjax.laws import cells, enumeration, races

# Prefixes [N, n] to log-probabilities [N, V] of the token that follows.
Conditional = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Drafts:
  """How the tokens of a chain come about and what the rule is told of it.

  Attributes:
    drawn: the law each token is really drawn from, given its prefix.
    reported: the law in `Draft.log_q`; None reports nothing, which means that
      the tokens are taken as given. Honest drafts report what they drew from.
  """

  drawn: Conditional
  reported: Conditional | None


def honest(drawn: Conditional) -> Drafts:
  """Drafts that report the law that they were drawn from."""
  return Drafts(drawn, drawn)


def law(
  verifier: types.Verifier,
  target: Conditional,
  drafts: Drafts,
  lengths: Sequence[int],
  tokens: int,
) -> np.ndarray:
  """Law of the first `tokens` tokens that decoding emits, [V] * tokens.

  Runs in float64 and in as many rounds as it takes.

  Args:
    verifier: the rule; its real `draw` and `verify` are run.
    target: the law that a lossless rule keeps.
    drafts: what proposes.
    lengths: draft length of each round, repeated from the start when they run
      out. Blocks are as wide as the longest; tokens past a length are garbage.
    tokens: how many to look at; cost grows as V ** (tokens + max(lengths)).

  Raises:
    ValueError: the cells do not describe `verify`: it is not piecewise constant
      in its uniforms, or its tokens depend on more than their own noise.
  """
  with jax.enable_x64(True):
    vocab = target(np.zeros((1, 0), int)).shape[-1]
    rows = _rows(target, drafts, sorted(set(lengths)), max(lengths), tokens)
    moves = _moves(verifier, target, rows, vocab, tokens)
    reached = [np.zeros(vocab**n) for n in range(tokens + 1)]
    reached[0][0] = 1
    # A round emits at least one token.
    for count in itertools.islice(itertools.cycle(lengths), tokens):
      after = [np.zeros_like(mass) for mass in reached]
      after[tokens] += reached[tokens]
      for move in moves:
        if move.count == count:
          mass = reached[move.before][move.source] * move.weight
          np.add.at(after[move.after], move.goal, mass)
      reached = after
  return reached[tokens].reshape((vocab,) * tokens)


def joint(target: Conditional, tokens: int) -> np.ndarray:
  """Law of the first `tokens` tokens of plain sampling, [V] * tokens."""
  vocab = target(np.zeros((1, 0), int)).shape[-1]
  mass = np.ones(())
  for n in range(tokens):
    step = np.exp(target(_sequences(vocab, n)), dtype=np.float64)
    mass = mass[..., None] * step.reshape((vocab,) * (n + 1))
  return mass


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
  """Half the summed distance: 0 for equal laws, 1 for laws without overlap."""
  return float(np.abs(a - b).sum() / 2)


@dataclasses.dataclass(frozen=True)
class _Rows:
  """Every draft of every length behind every prefix, if it can be drawn."""

  before: np.ndarray  # [N] tokens of the prefix
  source: np.ndarray  # [N] the prefix, as a number in base V
  count: np.ndarray  # [N] draft length
  weight: np.ndarray  # [N] probability of the draft
  log_p: jax.Array  # [N, K + 1, V]
  draft: types.Draft


@dataclasses.dataclass(frozen=True)
class _Move:
  """What a round with `count` drafts does to prefixes of `before` tokens."""

  count: int
  before: int
  after: int
  source: np.ndarray  # [C]
  goal: np.ndarray  # [C] the longer prefix
  weight: np.ndarray  # [C]


def _sequences(vocab: int, n: int) -> np.ndarray:
  """All [V ** n, n] sequences, in the order of their numbers in base V."""
  return np.indices((vocab,) * n).reshape(n, vocab**n).T


def _rows(target, drafts, counts, width, tokens):
  """Drafted tokens past a length are all garbage there is, equally likely."""
  groups = []
  vocab = target(np.zeros((1, 0), int)).shape[-1]
  for n in range(tokens):
    prefix = np.repeat(_sequences(vocab, n), vocab**width, axis=0)
    chain = np.tile(_sequences(vocab, width), (vocab**n, 1))
    seen = [np.concatenate([prefix, chain[:, :i]], 1) for i in range(width + 1)]
    log_p = np.stack([target(x) for x in seen], axis=1)
    log_q = np.zeros((len(chain), width, vocab))
    if drafts.reported is not None and width:
      log_q = np.stack([drafts.reported(x) for x in seen[:width]], axis=1)
    drawn = np.ones((len(chain), width))
    for i in range(width):
      law = np.exp(drafts.drawn(seen[i]), dtype=np.float64)
      drawn[:, i] = np.take_along_axis(law, chain[:, i : i + 1], axis=1)[:, 0]
    source = np.arange(vocab**n).repeat(vocab**width)
    for count in counts:
      weight = drawn[:, :count].prod(1) * float(vocab) ** (count - width)
      rest = np.full(len(chain), n), source, np.full(len(chain), count)
      group = *rest, weight, log_p, chain, log_q
      groups.append([x[weight > 0] for x in group])
  *rest, log_p, chain, log_q = (np.concatenate(x) for x in zip(*groups))
  log_q = None if drafts.reported is None else jnp.asarray(log_q)
  chain = jnp.asarray(chain, jnp.int32)
  draft = tree.chain(chain, jnp.asarray(rest[2], jnp.int32), log_q)
  before, source, count, weight = rest
  return _Rows(before, source, count, weight, jnp.asarray(log_p), draft)


def _moves(verifier, target, rows, vocab, tokens):
  """Cells as moves, one for each (count, before, after)."""
  draw = enumeration.read_draw(verifier, rows.draft)
  if draw.is_race:
    owner, weight, emitted = _races(verifier, target, rows, vocab)
  else:
    cell = cells.split(verifier, draw, rows.log_p, rows.draft)
    owner, weight, emitted = cell
  before, count = rows.before[owner], rows.count[owner]
  weight = weight * rows.weight[owner]
  after = np.minimum(before + (emitted < vocab).sum(axis=1), tokens)
  moves = []
  for c, n, m in np.unique(np.stack([count, before, after]), axis=1).T.tolist():
    at = (count == c) & (before == n) & (after == m)
    source = goal = rows.source[owner[at]]
    for i in range(m - n):
      goal = goal * vocab + emitted[at, i]
    moves.append(_Move(c, n, m, source, goal, weight[at]))
  return moves


def _races(verifier, target, rows, vocab):
  """A race emits what single draws do, so a round may stop after one token."""
  lookup = {n: _sequences(vocab, n) for n in np.unique(rows.before)}

  def follow(owner, tokens):
    laws = np.empty((len(owner), vocab))
    for n, prefixes in lookup.items():
      at = rows.before[owner] == n
      prefix = prefixes[rows.source[owner[at]]]
      laws[at] = target(np.concatenate([prefix, tokens[at]], axis=1))
    return laws

  races.check_paths(verifier, rows.log_p, rows.draft, follow)
  prefixes = lookup.values()
  won = races.law(verifier, np.concatenate([target(x) for x in prefixes]))
  first = dict(zip(lookup, np.cumsum([0, *map(len, prefixes)])))
  at = np.array([first[n] for n in rows.before]) + rows.source
  owner, token = np.indices((len(at), vocab)).reshape(2, -1)
  return owner, won[at].ravel(), token[:, None]
