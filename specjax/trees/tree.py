# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draft trees: shapes known in advance, and drafts from parent slots.

Axis letters: B batch, T nodes, W = T + 1 slots, P = max_depth + 1,
V vocabulary.

  slot     0   1   2   3          0 root
  parents      0   0   1         1   2
  depth    0   1   1   2         3
  ranks        0   1   0
"""

from collections.abc import Iterable, Sequence
import dataclasses
import heapq
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import types


@dataclasses.dataclass(frozen=True)
class Shape:
  """A tree known in advance: its nodes as paths of ranks below the root.

  (0,), (1,), (0, 0) are the best token, the second best, and the best after
  the best. Breadth first; a node's earlier siblings are nodes too, so its rank
  is its place in draw order.
  """

  paths: tuple[tuple[int, ...], ...]

  @property
  def parents(self) -> tuple[int, ...]:
    """Slot of each node's parent."""
    slots = {path: slot for slot, path in enumerate(((), *self.paths))}
    return tuple(slots[path[:-1]] for path in self.paths)

  @property
  def ranks(self) -> tuple[int, ...]:
    return tuple(path[-1] for path in self.paths)

  @property
  def depths(self) -> tuple[int, ...]:
    return tuple(map(len, self.paths))

  @property
  def depth(self) -> int:
    return max(self.depths)

  @property
  def width(self) -> int:
    """Siblings at most."""
    return max(self.ranks) + 1

  def check(self, depth: int, width: int) -> None:
    """Refuses a tree that a drafter has no tokens for.

    Raises:
      ValueError: a path is longer than `depth`, or has a rank of `width` or
        more.
    """
    for path in self.paths:
      if len(path) > depth:
        raise ValueError(
          f"tree path {path} is {len(path)} deep but the drafter drafts "
          f"{depth} tokens ahead: cut the tree to depth {depth}"
        )
      if path[-1] >= width:
        raise ValueError(
          f"tree path {path} asks for rank {path[-1]} but the drafter ranks "
          f"{width} tokens: use ranks below {width}"
        )


def from_ranks(paths: Iterable[Sequence[int]]) -> Shape:
  """A shape from paths in any order.

  Raises:
    ValueError: there is none, one is no path, comes twice, or lacks its parent
      or its earlier sibling.
  """
  for path in (paths := list(paths)):
    if not isinstance(path, Sequence) or not all(map(_is_count, path)):
      raise ValueError(
        f"tree path {path!r:.40} is no list of ranks: write one as (0, 1)"
      )
  ordered = sorted(map(tuple, paths), key=lambda path: (len(path), path))
  if not ordered:
    raise ValueError("the tree has no node: give it one path of ranks or more")
  known = {(), *ordered}
  if len(known) != len(ordered) + 1:
    twice = next(p for i, p in enumerate(ordered) if not p or p in ordered[:i])
    raise ValueError(
      f"tree path {twice} stands twice, the root included: name it once"
    )
  for path in ordered:
    *above, rank = path
    needed = [tuple(above)] if rank == 0 else [tuple(above), (*above, rank - 1)]
    for other in needed:
      if other not in known:
        raise ValueError(f"tree path {path} needs path {other}: add it")
  return Shape(tuple(ordered))


def from_widths(widths: Sequence[int]) -> Shape:
  """Every node at depth d has widths[d] children: (1, 1, 1) is a chain."""
  if not widths or not all(_is_count(width) and width for width in widths):
    raise ValueError(
      f"tree widths {tuple(widths)} draft nothing: use whole numbers from 1"
    )
  levels = [range(width) for width in widths]
  depths = range(1, len(levels) + 1)
  return from_ranks(
    path for depth in depths for path in itertools.product(*levels[:depth])
  )


def from_acceptance(table: Sequence[Sequence[float]], nodes: int) -> Shape:
  """The tree of so many nodes with the longest expected accepted path.

  A node is worth the product along its path, and the values of all nodes add up
  to the expected length. Best first is optimal where no row of the table rises.

  Args:
    table: table[depth][rank], how often a child of this rank is the target's
      token, given that its parent is.
    nodes: fewer if the table has no more paths.

  Raises:
    ValueError: there is no row, an empty one, or one of other things.
  """
  _check_acceptance(table)
  taken: list[tuple[int, ...]] = []
  # The smallest comes out first: minus its value, a path, its parent's value.
  queue: list[tuple[float, tuple[int, ...], float]] = [(-table[0][0], (0,), 1)]
  while queue and len(taken) < nodes:
    negative, path, above = heapq.heappop(queue)
    taken.append(path)
    depth, rank = len(path), path[-1] + 1
    if rank < len(table[depth - 1]):
      sibling = (*path[:-1], rank)
      heapq.heappush(queue, (-above * table[depth - 1][rank], sibling, above))
    if depth < len(table):
      child = (*path, 0)
      heapq.heappush(queue, (negative * table[depth][0], child, -negative))
  return from_ranks(taken)


def from_config(tree: Sequence[Any]) -> Shape:
  """Numbers are the widths of levels, sequences are paths of ranks."""
  if isinstance(tree, str) or not isinstance(tree, Sequence):
    raise ValueError(
      f"tree is {tree!r:.40}: give widths, as (3, 1), or paths, as ((0,), (1,))"
    )
  if any(isinstance(item, Sequence) for item in tree):
    return from_ranks(tree)
  return from_widths(tree)


def _is_count(value):
  whole = isinstance(value, int | np.integer) and type(value) is not bool
  return whole and value >= 0


def _check_acceptance(table):
  for row in map(np.asarray, table if len(table) else [()]):
    listed = row.ndim == 1 and row.size and row.dtype.kind in "iuf"
    if not listed or not np.all((row >= 0) & (row <= 1)):
      raise ValueError(
        f"acceptance has {row.tolist()!r:.40}: give shares from 0 to 1 by rank"
      )


def chain(
  tokens: jax.Array, count: jax.Array, log_q: jax.Array | None = None
) -> types.Draft:
  """A draft without branches from tokens [B, T]."""
  length = tokens.shape[1]
  parents = jnp.broadcast_to(jnp.arange(length), tokens.shape)
  return types.Draft(tokens, parents, log_q, count, max_depth=length)


def layout(draft: types.Draft) -> tuple[jax.Array, jax.Array]:
  """Depth [B, W] of each slot and ancestor-or-self [B, W, W]."""
  batch, nodes = draft.tokens.shape
  if draft.is_chain:
    depth = jnp.arange(nodes + 1)
    ancestors = depth[:, None] >= depth[None, :]
    shape = (batch, nodes + 1)
    return (
      jnp.broadcast_to(depth, shape),
      jnp.broadcast_to(ancestors, (*shape, nodes + 1)),
    )
  root = jnp.zeros((batch, 1), jnp.int32)
  parents = jnp.concatenate([root, draft.parents], axis=1)
  slots = jnp.arange(nodes + 1)
  ancestors = jnp.broadcast_to(
    slots[:, None] == slots[None, :], (batch, nodes + 1, nodes + 1)
  )
  # After i steps a slot knows its i nearest ancestors; the root's own parent is
  # the root, so further steps change nothing.
  hop = parents
  for _ in range(draft.max_depth):
    ancestors = ancestors | jax.nn.one_hot(hop, nodes + 1, dtype=bool)
    hop = jnp.take_along_axis(parents, hop, axis=1)
  return jnp.sum(ancestors, axis=-1) - 1, ancestors


def truncate(draft: types.Draft, length: jax.Array) -> types.Draft:
  """Keeps nodes of depth at most `length` [B]; breadth first, so a count."""
  if draft.is_chain:
    return draft.replace(count=jnp.minimum(draft.count, length))
  depth, _ = layout(draft)
  keep = (depth[:, 1:] <= length[:, None]) & valid_nodes(draft)
  return draft.replace(count=jnp.sum(keep, axis=1))


def narrow(draft: types.Draft, nodes: int) -> types.Draft:
  """The first `nodes` slots alone, for rounds whose count fits them.

  What is left may be as deep as before, so a tree is cut to more nodes than its
  depth, where it is a tree still, to one, which is a chain, or to none.
  """
  if nodes == draft.tokens.shape[1]:
    return draft
  log_q = None if draft.log_q is None else draft.log_q[:, :nodes]
  return draft.replace(
    tokens=draft.tokens[:, :nodes],
    parents=draft.parents[:, :nodes],
    log_q=log_q,
    max_depth=min(nodes, draft.max_depth),
  )


def widths(draft: types.Draft, wanted: Sequence[int]) -> list[int]:
  """Node counts to compile a round for, ascending; T is the last."""
  nodes = draft.tokens.shape[1]
  fits = lambda w: draft.is_chain or w <= 1 or w > draft.max_depth
  return [*(w for w in sorted(wanted) if w < nodes and fits(w)), nodes]


def valid_nodes(draft: types.Draft) -> jax.Array:
  """[B, T] bool: the first `count` nodes."""
  return jnp.arange(draft.tokens.shape[1])[None] < draft.count[:, None]


def drafted_depth(draft: types.Draft) -> jax.Array:
  """[B] depth of the deepest valid node, 0 for an empty draft."""
  if draft.is_chain:
    return draft.count
  depth, _ = layout(draft)
  return jnp.max(
    jnp.where(valid_nodes(draft), depth[:, 1:], 0), axis=1, initial=0
  )


def draft_law(draft: types.Draft, vocab: int, dtype) -> jax.Array:
  """log q [B, T, V]: as recorded, or all mass on the tokens as given."""
  if draft.log_q is not None:
    return draft.log_q.astype(dtype)
  hit = jax.nn.one_hot(draft.tokens, vocab, dtype=bool)
  return jnp.where(hit, 0.0, -jnp.inf).astype(dtype)


def accept(
  draft: types.Draft, leaf: jax.Array, token: jax.Array
) -> types.Acceptance:
  """Keeps the path from the root to slot `leaf` [B], then emits `token` [B]."""
  batch, nodes = draft.tokens.shape
  steps = jnp.arange(draft.max_depth + 1)
  if draft.is_chain:
    accepted = leaf
    path = jnp.broadcast_to(steps, (batch, nodes + 1))
    rejected = leaf < draft.count
  else:
    depth, ancestors = layout(draft)
    on_path = jnp.take_along_axis(ancestors, leaf[:, None, None], axis=1)[:, 0]
    accepted = jnp.take_along_axis(depth, leaf[:, None], axis=1)[:, 0]
    at = on_path[:, None, :] & (depth[:, None, :] == steps[None, :, None])
    path = jnp.sum(jnp.where(at, jnp.arange(nodes + 1)[None, None], 0), axis=-1)
    children = (draft.parents == leaf[:, None]) & valid_nodes(draft)
    rejected = jnp.any(children, axis=1)
  padded = jnp.concatenate([draft.tokens, token[:, None]], axis=1)
  # The node on path[d] sits at index path[d] - 1; the emitted token is last.
  following = jnp.concatenate(
    [path[:, 1:], jnp.zeros((batch, 1), path.dtype)], axis=1
  )
  index = jnp.where(steps[None] < accepted[:, None], following - 1, nodes)
  tokens = jnp.take_along_axis(padded, index, axis=1)
  return types.Acceptance(path, tokens, accepted + 1, accepted, rejected)
