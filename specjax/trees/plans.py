# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: which nodes of a growing tree are expanded, and which are drafted.

`growth.grow` expands F nodes a level, the root alone at first, and gives each
of them K children. Every child stands in a pool. With K = 2 and F = 2:

  expanded    0 root    1, 2 of level 1       3, 4 of level 2
  pool        0 1       2 3  4 5              6 7  8 9
              level 1   level 2               level 3

Node i of the pool is child i % K of expanded place i // K. Places are in the
order of the pool, so the pool is in breadth-first order, and so is every sorted
choice of its nodes.

Axis letters: B batch, F expanded nodes a level, K children, E expanded places,
N pool, T drafted nodes.
"""

import dataclasses
import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from specjax.trees import tree

# How the children of a node come about under rules that test ratios of laws:
# drawn without replacement, drawn independently, or the best of the law. Under
# the coupled rule they always are the best of beta * log q + noise.
DISTINCT, INDEPENDENT, BEST = "distinct", "independent", "best"


class Plan(Protocol):
  """Chooses by scores [B, N], cumulative and -inf where there is no node.

  `siblings` is one of the three above. The laws of those that are drawn can be
  told. A plan that drops nodes by what was drawn makes them no draws any more:
  the best ones are taken as given, which is exact too.
  """

  @property
  def num_nodes(self) -> int: ...  # T
  @property
  def max_depth(self) -> int: ...
  @property
  def width(self) -> int: ...  # F
  @property
  def branch(self) -> int: ...  # K
  @property
  def siblings(self) -> str: ...
  @property
  def beta(self) -> float: ...

  def within(self, depth: int) -> int:
    """The most nodes of a draft that is cut to `depth`."""

  def expanded(self, scores: jax.Array, level: jax.Array) -> jax.Array:
    """[B, F] nodes of a level, ascending; N for none."""

  def drafted(
    self, scores: jax.Array, depth: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """[B, T] nodes down to `depth` [B], ascending, and how many [B] count."""


def places(plan: Plan) -> int:
  """E, of the root and all nodes that are ever expanded."""
  return 1 + (plan.max_depth - 1) * plan.width


def depths(plan: Plan) -> np.ndarray:
  """[N] of the pool's nodes."""
  place = np.repeat(np.arange(places(plan)), plan.branch)
  return 1 + -(-place // plan.width)


@dataclasses.dataclass(frozen=True)
class Static:
  """The same tree in every round; its choices are constants.

  Distinct siblings are the best K of log q + noise, each of which has an honest
  law given the earlier ones. Independent ones have noise of their own each and
  the law q itself; they may be equal, and at temperature 0 they all are.

  Attributes:
    shape: of the tree.
    beta: under the coupled rule children are the best of beta * log q + noise;
      more than 1 helps a drafter that is less sure than it could be.
    siblings: "distinct" or "independent".
  """

  shape: tree.Shape
  beta: float = 1.0
  siblings: str = DISTINCT

  def __post_init__(self):
    _check_beta(self.beta)
    if self.siblings not in (DISTINCT, INDEPENDENT):
      raise ValueError(
        f"siblings is {self.siblings!r}: use {DISTINCT!r} or {INDEPENDENT!r}"
      )

  @property
  def num_nodes(self) -> int:
    return len(self.shape.paths)

  @property
  def max_depth(self) -> int:
    return self.shape.depth

  @property
  def branch(self) -> int:
    return self.shape.width

  @functools.cached_property
  def width(self) -> int:
    return max(map(len, self._levels), default=1)

  def within(self, depth: int) -> int:
    return sum(d <= depth for d in self.shape.depths)

  def expanded(self, scores: jax.Array, level: jax.Array) -> jax.Array:
    table = np.full((len(self._levels), self.width), scores.shape[1])
    for row, nodes in zip(table, self._levels):
      row[: len(nodes)] = self._pool[nodes]
    return jnp.broadcast_to(
      jnp.asarray(table)[level - 1], (scores.shape[0], self.width)
    )

  def drafted(
    self, scores: jax.Array, depth: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    nodes = jnp.broadcast_to(self._pool, (scores.shape[0], self.num_nodes))
    count = jnp.asarray(self.shape.depths)[None] <= depth[:, None]
    return nodes, jnp.sum(count, axis=1)

  @functools.cached_property
  def _levels(self) -> list[list[int]]:
    """Nodes that have children, by level."""
    inner = [slot - 1 for slot in sorted({*self.shape.parents}) if slot]
    found: list[list[int]] = [[] for _ in range(self.max_depth - 1)]
    for node in inner:
      found[self.shape.depths[node] - 1].append(node)
    return found

  @functools.cached_property
  def _pool(self) -> np.ndarray:
    """[T] the node of the pool that each node of the tree is."""
    place = {0: 0}
    for level, nodes in enumerate(self._levels):
      for i, node in enumerate(nodes):
        place[node + 1] = 1 + level * self.width + i
    above = np.array([place[parent] for parent in self.shape.parents])
    return above * self.branch + np.array(self.shape.ranks)


@dataclasses.dataclass(frozen=True)
class Dynamic:
  """A tree for each row and round, as EAGLE-2 grows it (arXiv 2406.16858).

  The best `width` nodes of a level are expanded by `branch` children each; in
  the end the best `nodes` of all are drafted. A score is the sum of log q along
  the path, under the coupled rule of log softmax(beta * log q + noise). It
  never rises along a path, so with `width` = `nodes` this is the best tree of
  that many nodes: best first under a node budget.

  Attributes:
    depth: levels.
    width: nodes to expand a level.
    branch: children of a node.
    nodes: node budget, more than `depth`.
    beta: as for `Static`.
  """

  depth: int
  width: int
  branch: int
  nodes: int
  beta: float = 1.0
  siblings = BEST

  def __post_init__(self):
    _check_beta(self.beta)
    for name in ("depth", "width", "branch", "nodes"):
      if getattr(self, name) < 1:
        raise ValueError(f"tree {name} {getattr(self, name)} is not 1 or more")
    if self.nodes <= self.depth:
      raise ValueError(
        f"{self.nodes} nodes are a chain at depth {self.depth}: use more nodes "
        "than levels, or a draft without a tree"
      )
    pool = self.branch * places(self)
    if self.nodes > pool:
      raise ValueError(
        f"{self.nodes} nodes cannot be chosen of {pool}: raise width or branch"
      )

  @property
  def num_nodes(self) -> int:
    return self.nodes

  @property
  def max_depth(self) -> int:
    return self.depth

  def within(self, depth: int) -> int:
    level, total = 1, 0
    for _ in range(depth):
      level = self.branch * min(self.width, level)
      total += level
    return min(self.nodes, total)

  def expanded(self, scores: jax.Array, level: jax.Array) -> jax.Array:
    is_level = jnp.asarray(depths(self)) == level
    return _best(jnp.where(is_level[None], scores, -jnp.inf), self.width)

  def drafted(
    self, scores: jax.Array, depth: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    above = jnp.asarray(depths(self))[None] <= depth[:, None]
    nodes = _best(jnp.where(above, scores, -jnp.inf), self.nodes)
    return nodes, jnp.sum(nodes < scores.shape[1], axis=1)


def _best(scores: jax.Array, count: int) -> jax.Array:
  """[B, count] nodes of the best scores, ascending; N for those of -inf.

  Of equal nodes the first ones win. A parent comes before its children and
  scores no less, so it is never left out before them.
  """
  pool = scores.shape[1]
  order = jnp.argsort(-scores, axis=1)
  order = jnp.pad(order, ((0, 0), (0, max(count - pool, 0))))[:, :count]
  found = jnp.take_along_axis(scores, order, axis=1) > -jnp.inf
  found = found & (jnp.arange(count) < pool)[None]
  return jnp.sort(jnp.where(found, order, pool), axis=1)


def _check_beta(beta: float) -> None:
  if not 0 < beta < float("inf"):
    raise ValueError(f"tree beta {beta} is not above 0: 1 is the draft's law")
