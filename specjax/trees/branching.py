# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains and trees from one callback, for drafters whose heads serve both.

Axis letters: B batch, F nodes of a level, E expanded places, D any width,
K heads, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.drafters import rollout
from specjax.trees import growth, plans, pool, tree


def plan(
  length: int,
  paths: Sequence[Any],
  nodes: int,
  width: int,
  branch: int,
  beta: float,
  ranks: int,
  siblings: str = plans.DISTINCT,
) -> plans.Plan:
  """What the settings of a config ask for.

  Args:
    length: depth of a chain or of a growing tree.
    paths: of a fixed tree, see `tree.from_config`; () is none.
    nodes: of a tree that grows; 0 is none.
    width: nodes that it expands a level.
    branch: children of each.
    beta: see `plans.Static`; a chain goes without.
    ranks: tokens that the drafter can tell apart.
    siblings: see `plans.Static`; a tree that grows takes the best.

  Raises:
    ValueError: no such draft or siblings, both kinds of tree, or more children
      than ranks.
  """
  if paths and nodes:
    raise ValueError(
      f"tree is {tuple(paths)} and nodes is {nodes}: give the paths of a fixed "
      "tree or the nodes of one that grows"
    )
  if nodes:
    if siblings != plans.DISTINCT:
      raise ValueError(
        f"siblings is {siblings!r} but a tree that grows takes the best: give "
        f"a fixed one, as in tree = (3, 1), in place of nodes = {nodes}"
      )
    if branch > ranks:
      raise ValueError(
        f"tree branch {branch} is more than the {ranks} tokens that the "
        "drafter ranks: use less"
      )
    return plans.Dynamic(length, width, branch, nodes, float(beta))
  shape = tree.from_config(paths) if paths else chain(length).shape
  shape.check(length, ranks)
  return plans.Static(shape, float(beta), siblings)


def chain(length: int) -> plans.Static:
  """The plan of a chain.

  Raises:
    ValueError: it drafts nothing.
  """
  if length < 1:
    raise ValueError(
      f"draft length {length} is no draft: use 1 or more, or none of this "
      "drafter"
    )
  return plans.Static(tree.from_widths((1,) * length))


def check_depth(wanted: plans.Plan, depth: int, heads: str) -> None:
  """Refuses a draft deeper than the heads can tell."""
  if wanted.max_depth > depth:
    raise ValueError(
      f"a draft of depth {wanted.max_depth} does not fit {depth} {heads}: use "
      f"1 to {depth}"
    )


def draft(
  wanted: plans.Plan,
  expand: growth.Expand,
  state: Any,
  logits: jax.Array,
  limit: jax.Array,
  context: types.Context,
  rules: sharding.Rules | None = None,
) -> tuple[types.Draft, Any]:
  """A draft as planned; see `growth.grow` for the arguments.

  A chain has one node a level and goes the shorter way of `rollout.chain`.
  """
  if wanted.max_depth != wanted.num_nodes:
    found, _, state = growth.grow(
      wanted, expand, state, logits, limit, context, rules
    )
    return found, state
  places = jnp.arange(plans.places(wanted))

  def next_logits(carry, token):
    place, state = carry
    seen = jnp.broadcast_to(places <= place, (len(token), 1, len(places)))
    parents = jnp.broadcast_to(place - 1, (len(token), 1))
    level = pool.Level(token[:, None], parents, seen, place)
    logits, state = expand(state, level)
    return logits[:, 0], (place + 1, state)

  found, (_, state) = rollout.chain(
    next_logits,
    (jnp.int32(1), state),
    logits,
    limit,
    context,
    wanted.num_nodes,
  )
  return found, state


def parallel(logits: jax.Array) -> growth.Expand:
  """Logits [B, K, V] by depth, whatever stands above; the state is a depth."""

  def expand(depth, level):
    logits_here = jax.lax.dynamic_index_in_dim(logits, depth, 1)
    shape = (*level.tokens.shape, logits.shape[-1])
    return jnp.broadcast_to(logits_here, shape), depth + 1

  return expand


def places_of(root: jax.Array, wanted: plans.Plan) -> jax.Array:
  """[B, E, D] what is kept of each expanded place; the root's [B, D] alone."""
  room = [(0, 0), (0, plans.places(wanted) - 1), (0, 0)]
  return jnp.pad(root[:, None], room)


def at_parents(kept: jax.Array, level: pool.Level) -> jax.Array:
  """[B, F, D] of what is kept, each node's parent's."""
  return jnp.take_along_axis(kept, level.parents[..., None], axis=1)


def keep(kept: jax.Array, new: jax.Array, level: pool.Level) -> jax.Array:
  """Keeps [B, F, D] of a level's nodes."""
  return pool.put(kept, new, level.first)
