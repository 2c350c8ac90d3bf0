# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The exact output law of a verification rule, found on its own code.

No formula of the rule enters. `verify` takes its random numbers as data and is
piecewise constant in them, so its law is a finite sum: over all drafts, each
with the probability that it is drawn, over all cells of the random numbers on
which the emitted tokens stay the same, each with its volume.

`cells.py` finds the cells of rules that compare uniforms with something. A rule
that adds noise to log-probabilities runs races, whose law `races.py` finds.
`drafts.py` lists the drafts, of chains and trees.

Rounds are chained: a round's law depends on the emitted prefix and the draft
length alone, provided that no random number serves two rounds. For uniforms
that is a property of their keys (tag, round, position, slot). Noise keyed by
position does serve several rounds, and drafts may even be made from it; there
`races.check_paths` shows on the code that every emitted token is a function of
its prefix and its own position's noise, so that the positions, whatever rounds
they fall in, are independent.

Axis letters: N rows, T nodes, W = T + 1 slots, V vocabulary, C cells.
"""

from collections.abc import Sequence
import dataclasses
import itertools

import jax
import numpy as np

from specjax import types
from specjax.laws import cells, enumeration, races
from specjax.laws import drafts as drafts_lib

Conditional = drafts_lib.Conditional
Drafts = drafts_lib.Drafts
honest = drafts_lib.honest


def law(
  verifier: types.Verifier,
  target: Conditional,
  drafts: Drafts,
  lengths: Sequence[int],
  tokens: int,
  parents: Sequence[int] | None = None,
) -> np.ndarray:
  """Law of the first `tokens` tokens that decoding emits, [V] * tokens.

  Runs in float64 and in as many rounds as it takes.

  Args:
    verifier: the rule; its real `draw` and `verify` are run.
    target: the law that a lossless rule keeps.
    drafts: what proposes.
    lengths: depth of the draft of each round, repeated from the start when they
      run out. What is deeper is garbage.
    tokens: how many to look at; cost grows as V ** (tokens + nodes).
    parents: slots of the nodes' parents, breadth first, one tree for all
      rounds; None is a chain of the greatest length.

  Raises:
    ValueError: the cells do not describe `verify`: it is not piecewise constant
      in its uniforms, or its tokens depend on more than their own noise.
  """
  parents = range(max(lengths)) if parents is None else parents
  vocab = target(np.zeros((1, 0), int)).shape[-1]
  with jax.enable_x64(True):
    moves = {
      length: _moves(verifier, target, drafts, parents, length, tokens)
      for length in sorted(set(lengths))
    }
  reached = [np.zeros(vocab**n) for n in range(tokens + 1)]
  reached[0][0] = 1
  # A round emits at least one token.
  for length in itertools.islice(itertools.cycle(lengths), tokens):
    after = [np.zeros_like(mass) for mass in reached]
    after[tokens] += reached[tokens]
    for move in moves[length]:
      mass = reached[move.before][move.source] * move.weight
      np.add.at(after[move.after], move.goal, mass)
    reached = after
  return reached[tokens].reshape((vocab,) * tokens)


def joint(target: Conditional, tokens: int) -> np.ndarray:
  """Law of the first `tokens` tokens of plain sampling, [V] * tokens."""
  vocab = target(np.zeros((1, 0), int)).shape[-1]
  mass = np.ones(())
  for n in range(tokens):
    step = np.exp(target(drafts_lib.sequences(vocab, n)), dtype=np.float64)
    mass = mass[..., None] * step.reshape((vocab,) * (n + 1))
  return mass


def expected_accepted(
  verifier: types.Verifier,
  target: Conditional,
  drafts: Drafts,
  length: int,
  parents: Sequence[int] | None = None,
) -> float:
  """Mean of the drafted tokens that the first round keeps.

  Args:
    verifier: a rule that compares uniforms.
    target, drafts, parents: as of `law`.
    length: depth of the draft.

  Raises:
    ValueError: a race, where it depends on how drafts use the noise.
  """
  parents = range(length) if parents is None else parents
  start = np.zeros((1, 0), int)
  with jax.enable_x64(True):
    rows = drafts_lib.enumerate_all(target, drafts, parents, length, start)
    draw = enumeration.read_draw(verifier, rows.draft)
    if draw.is_race:
      raise ValueError("what a race keeps depends on its drafter's noise")
    owner, volume, emitted = _cells(verifier, draw, rows)
  kept = (emitted < rows.log_p.shape[-1]).sum(axis=1) - 1
  return float(np.sum(rows.weight[owner] * volume * kept))


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
  """Half the summed distance: 0 for equal laws, 1 for laws without overlap."""
  return float(np.abs(a - b).sum() / 2)


@dataclasses.dataclass(frozen=True)
class _Move:
  """What a round does to prefixes of `before` tokens."""

  before: int
  after: int
  source: np.ndarray  # [C]
  goal: np.ndarray  # [C] the longer prefix
  weight: np.ndarray  # [C]


def _moves(verifier, target, drafts, parents, length, tokens):
  """Cells as moves, one for each (before, after)."""
  vocab = target(np.zeros((1, 0), int)).shape[-1]
  prefixes = [drafts_lib.sequences(vocab, n) for n in range(tokens)]
  groups = [
    drafts_lib.enumerate_all(target, drafts, parents, length, prefix)
    for prefix in prefixes
  ]
  rows = drafts_lib.merge(groups)
  before = np.arange(tokens).repeat([len(group.source) for group in groups])
  draw = enumeration.read_draw(verifier, rows.draft)
  if draw.is_race:
    owner, weight, emitted = _races(verifier, target, rows, before, prefixes)
  else:
    owner, weight, emitted = _cells(verifier, draw, rows)
  before, weight = before[owner], weight * rows.weight[owner]
  after = np.minimum(before + (emitted < vocab).sum(axis=1), tokens)
  moves = []
  for n, m in np.unique(np.stack([before, after]), axis=1).T.tolist():
    at = (before == n) & (after == m)
    source = goal = rows.source[owner[at]]
    for i in range(m - n):
      goal = goal * vocab + emitted[at, i]
    moves.append(_Move(n, m, source, goal, weight[at]))
  return moves


def _cells(verifier, draw, rows):
  """Row, volume and emitted tokens of each cell; equal rows are split once."""
  data = rows.log_p, rows.draft
  flat = [x.reshape(len(x), -1) for x in jax.tree.leaves(data)]
  _, first, same = np.unique(
    np.concatenate(flat, axis=1), axis=0, return_index=True, return_inverse=True
  )
  own, volume, outcome = cells.split(
    enumeration.Outcome(verifier, draw),
    jax.tree.map(lambda x: x[first], data),
    max(draw.size, 1),
  )
  ends = np.cumsum(np.bincount(own, minlength=len(first)))
  members = np.split(np.argsort(own, kind="stable"), ends[:-1])
  found = [members[i] for i in same]
  owner = np.arange(len(same)).repeat([len(x) for x in found])
  cell = np.concatenate(found)
  # The other half of an outcome are the kept slots.
  return owner, volume[cell], outcome[cell, : outcome.shape[1] // 2]


def _races(verifier, target, rows, before, prefixes):
  """A race emits what single draws do, so a round may stop after one token."""
  vocab = rows.log_p.shape[-1]

  def follow(owner, tokens):
    laws = np.empty((len(owner), vocab))
    for n, prefix in enumerate(prefixes):
      at = before[owner] == n
      known = prefix[rows.source[owner[at]]]
      laws[at] = target(np.concatenate([known, tokens[at]], axis=1))
    return laws

  races.check_paths(verifier, rows.log_p, rows.draft, follow)
  won = races.law(verifier, np.concatenate([target(x) for x in prefixes]))
  first = np.cumsum([0, *map(len, prefixes)])
  at = first[before] + rows.source
  owner, token = np.indices((len(at), vocab)).reshape(2, -1)
  return owner, won[at].ravel(), token[:, None]
