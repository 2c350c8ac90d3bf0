# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every draft there is: chains and trees, how likely they are drawn.

A node is drawn from a law given the path to its parent, as its earlier siblings
leave it. Nodes deeper than a round's draft length are garbage that no rule may
look at; all garbage is equally likely.

Axis letters: N rows, T nodes, W = T + 1 slots, V vocabulary.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from specjax import types

# Prefixes [N, n] to log-probabilities [N, V] of the token that follows.
Conditional = Callable[[np.ndarray], np.ndarray]
# Laws [N, V] and earlier siblings [N, k] to the laws [N, V] that they leave.
Siblings = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Prefixes [N, n] and chains after them [N, T] to drafted tokens kept [N].
Cut = Callable[[np.ndarray, np.ndarray], np.ndarray]


def independent(law: np.ndarray, siblings: np.ndarray) -> np.ndarray:
  """Siblings are drawn alike, and may be equal."""
  del siblings
  return law


def distinct(law: np.ndarray, siblings: np.ndarray) -> np.ndarray:
  """Siblings are drawn without replacement.

  Where no mass is left, the law is one-hot on the first token not taken.
  """
  left = np.where(_taken(law, siblings), -np.inf, law)
  mass = np.logaddexp.reduce(left, axis=1, keepdims=True)
  some = np.isfinite(mass)
  return np.where(some, left - np.where(some, mass, 0), ranked(law, siblings))


def ranked(law: np.ndarray, siblings: np.ndarray) -> np.ndarray:
  """Siblings are the best tokens of the law, best first."""
  score = np.where(np.isfinite(law), law, -1e30)
  score = np.where(_taken(law, siblings), -np.inf, score)
  best = score.argmax(axis=1)[:, None]
  return np.where(np.arange(law.shape[1]) == best, 0.0, -np.inf)


def mixed(law: np.ndarray, siblings: np.ndarray) -> np.ndarray:
  """The first sibling is the best token, the others are drawn."""
  return (distinct if siblings.shape[1] else ranked)(law, siblings)


@dataclasses.dataclass(frozen=True)
class Drafts:
  """How the nodes of a draft come about and what the rule is told of it.

  Attributes:
    drawn: the law each node is really drawn from, given the path to its parent.
    reported: the law in `Draft.log_q`; None reports nothing, which means that
      the tokens are taken as given. Honest drafts report what they drew from.
    siblings: what earlier siblings leave of `drawn`.
    reported_siblings: and of `reported`; None is the same.
    cut: of chains, how many of the drafted tokens are kept; a rule must not
      depend on the tokens it cuts. None keeps all.
  """

  drawn: Conditional
  reported: Conditional | None
  siblings: Siblings = independent
  reported_siblings: Siblings | None = None
  cut: Cut | None = None


def honest(drawn: Conditional, siblings: Siblings = independent) -> Drafts:
  """Drafts that report the law that they were drawn from."""
  return Drafts(drawn, drawn, siblings)


@dataclasses.dataclass(frozen=True)
class Rows:
  """Every draft behind every prefix of some length, if it can be drawn."""

  source: np.ndarray  # [N] the prefix, as a number in base V
  weight: np.ndarray  # [N] probability of the draft, given the prefix
  log_p: np.ndarray  # [N, W, V]
  draft: types.Draft


def sequences(vocab: int, n: int) -> np.ndarray:
  """All [V ** n, n] sequences, in the order of their numbers in base V."""
  return np.indices((vocab,) * n).reshape(n, vocab**n).T


def enumerate_all(
  target: Conditional,
  drafts: Drafts,
  parents: Sequence[int],
  length: int,
  prefix: np.ndarray,
) -> Rows:
  """Rows for all drafts after prefixes [M, n].

  Args:
    target: the law that a lossless rule keeps.
    drafts: what proposes.
    parents: slot of each node's parent, breadth first.
    length: depth that is drafted; what lies deeper is garbage.
    prefix: the prefixes, in the order of their numbers.
  """
  paths = _paths(parents)
  depth = np.array([len(path) for path in paths])
  vocab = target(prefix).shape[1]
  source, weight = np.arange(len(prefix)), np.ones(len(prefix))
  tokens = np.zeros((len(prefix), 0), int)

  def behind(slot):
    return np.concatenate([prefix[source], tokens[:, paths[slot]]], axis=1)

  def law(node, conditional, siblings):
    parent = parents[node]
    earlier = [j for j in range(node) if parents[j] == parent]
    return siblings(conditional(behind(parent)), tokens[:, earlier])

  for node in range(len(parents)):
    chance = np.full((len(source), vocab), 1 / vocab)
    if depth[node + 1] <= length:
      chance = np.exp(law(node, drafts.drawn, drafts.siblings))
    at, token = np.nonzero(chance)
    source, weight = source[at], weight[at] * chance[at, token]
    tokens = np.concatenate([tokens[at], token[:, None]], axis=1)
  log_q = None
  if drafts.reported is not None:
    told = drafts.reported, drafts.reported_siblings or drafts.siblings
    laws = [law(node, *told) for node in range(len(parents))]
    log_q = np.stack(laws, 1) if laws else np.zeros((len(source), 0, vocab))
  count = np.full(len(source), np.count_nonzero(depth[1:] <= length))
  if drafts.cut is not None:
    count = np.minimum(count, drafts.cut(prefix[source], tokens))
  log_p = np.stack([target(behind(slot)) for slot in range(len(paths))], axis=1)
  parent = np.broadcast_to(np.array(parents, np.int32), tokens.shape)
  draft: Any = tokens.astype(np.int32), parent, log_q, count, int(max(depth))
  return Rows(source, weight, log_p, types.Draft(*draft))


def merge(rows: Sequence[Rows]) -> Rows:
  """Rows one after the other."""
  join = lambda *x: np.concatenate(x)
  return Rows(
    join(*[row.source for row in rows]),
    join(*[row.weight for row in rows]),
    join(*[row.log_p for row in rows]),
    jax.tree.map(join, *[row.draft for row in rows]),
  )


def _paths(parents: Sequence[int]) -> list[list[int]]:
  """Nodes from the root down to each slot."""
  paths: list[list[int]] = [[]]
  for node, parent in enumerate(parents):
    paths.append([*paths[parent], node])
  return paths


def _taken(law: np.ndarray, siblings: np.ndarray) -> np.ndarray:
  """[N, V] bool: the token stands among the siblings."""
  return np.any(siblings[:, :, None] == np.arange(law.shape[1]), axis=1)
