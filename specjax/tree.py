# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draft trees from parent slots: layout, truncation, acceptance.

Axis letters: B batch, T nodes, W = T + 1 slots, P = max_depth + 1,
V vocabulary.

  slot     0   1   2   3          0 root
  parents      0   0   1         1   2
  depth    0   1   1   2         3
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from specjax import types


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

  A chain stays a chain; of a tree only its first node is one, whose parent is
  the root, so a tree is cut to one node or none, or not at all.
  """
  if nodes == draft.tokens.shape[1]:
    return draft
  log_q = None if draft.log_q is None else draft.log_q[:, :nodes]
  return types.Draft(
    draft.tokens[:, :nodes],
    draft.parents[:, :nodes],
    log_q,
    draft.count,
    max_depth=nodes,
  )


def widths(draft: types.Draft, wanted: Sequence[int]) -> list[int]:
  """Node counts to compile a round for, ascending; T is the last."""
  nodes = draft.tokens.shape[1]
  narrower = [
    w for w in sorted(wanted) if w < nodes and (draft.is_chain or w <= 1)
  ]
  return [*narrower, nodes]


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
