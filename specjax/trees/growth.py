# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Growing draft trees level by level, around a callback that gives logits.

What is expanded and what is drafted is decided by a plan (`plans.py`, which
explains pool and places). Draft models feed the nodes to their model, trained
heads need less: growth does not care.

Axis letters: B batch, F nodes of a level (1 for the root), K children,
E expanded places, U = E - 1 fed slots, N pool, T drafted nodes, V vocabulary.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax import sharding, types
from specjax.trees import plans
from specjax.trees import pool as pool_lib

Expand = Callable[[Any, pool_lib.Level], tuple[jax.Array, Any]]


def grow(
  plan: plans.Plan,
  expand: Expand,
  state: Any,
  logits: jax.Array,
  limit: jax.Array,
  context: types.Context,
  rules: sharding.Rules | None = None,
) -> tuple[types.Draft, jax.Array, Any]:
  """Grows a tree below the newest token; stops when no row wants more.

  The law q comes from the one sampler with the target's settings and history.
  Under ratio rules children are drawn from it as the plan says. Under the
  coupled rule they are the best of beta * log q and the position's own noise.
  Of distinct children, tokens that the law excludes come last, in the order of
  their scores before temperature and filters: at temperature 0 all but one.

  Args:
    plan: of the tree.
    expand: (state, level) -> (logits [B, F, V], state); feeds nodes.
    state: of `expand`.
    logits: [B, V] of the root's children.
    limit: [B] depth each row may reach.
    context: of the round.
    rules: where rows lie, on a mesh.

  Returns:
    The draft; the fed slot [B, T] of each of its nodes, U where it was not fed;
    the state.
  """
  limit = jnp.minimum(jnp.minimum(limit, context.draft_length), plan.max_depth)
  growth = _Growth(plan, limit, context, rules)

  def unfinished(carry):
    depth, pool, _ = carry
    return jnp.any(pool.wants & (depth < limit))

  def body(carry):
    depth, pool, state = carry
    chosen = plan.expanded(pool.scores, depth)
    pool, level = pool_lib.expand(plan, pool, chosen, depth)
    logits, state = expand(state, level)
    scores = pool_lib.take(pool.scores, chosen, -jnp.inf)
    return depth + 1, growth.add(pool, level, scores, depth, logits), state

  pool, root = pool_lib.start(
    plan, context.last_token[:, None], logits.shape[1]
  )
  depth, certain = jnp.int32(0), jnp.zeros(root.tokens.shape)
  pool = growth.add(pool, root, certain, depth, logits[:, None])
  if plan.max_depth > 1:
    _, pool, state = jax.lax.while_loop(
      unfinished, body, (depth + 1, pool, state)
    )
  draft, slots = pool_lib.draft(plan, pool)
  return draft, slots, state


@dataclasses.dataclass(frozen=True)
class _Growth:
  """What all levels share."""

  plan: plans.Plan
  limit: jax.Array  # [B]
  context: types.Context
  rules: sharding.Rules | None

  def add(
    self,
    pool: pool_lib.Pool,
    level: pool_lib.Level,
    scores: jax.Array,
    depth: jax.Array,
    logits: jax.Array,
  ) -> pool_lib.Pool:
    """Adds the best children of each node.

    Args:
      pool: the pool.
      level: its nodes.
      scores: [B, F] of the nodes.
      depth: [] of the nodes.
      logits: [B, F, V] of their children.
    """
    history = self.context.history
    if history is not None:
      history = history.on_tree(pool.block, level.ancestors)
    sampling = self.context.sampling
    law = sampling_lib.log_probs(logits, sampling, history)
    unfiltered = sampling_lib.scores(logits, sampling, history)
    tokens, gains = self._children(level, depth, law, unfiltered)
    below = scores[..., None] + jnp.minimum(gains, 0)
    below = jnp.where(jnp.isnan(below), -jnp.inf, below)
    wants = pool.wants & self._keep(logits, scores) & (depth < self.limit)
    flat = lambda x: x.reshape(x.shape[0], -1)
    first = level.first * self.plan.branch
    return pool.replace(
      tokens=pool_lib.put(pool.tokens, flat(tokens), first),
      scores=pool_lib.put(pool.scores, flat(below), first),
      laws=pool_lib.put(pool.laws, law, level.first),
      depth=pool.depth + wants,
      wants=wants,
    )

  def _children(self, level, depth, law, unfiltered):
    """Tokens [B, F, K] and what each adds to the score of its parent."""
    shared, branch = self.context.noise.shared, self.plan.branch
    if not shared and self.plan.siblings == plans.INDEPENDENT:
      noise = self._own_noise(level, depth, branch)
      tokens = sampling_lib.argmax(law[:, :, None] + noise)
      return tokens, jnp.take_along_axis(law, tokens, axis=-1)
    if shared:
      # One vector for all nodes of a depth.
      position = (self.context.lengths + depth)[:, None]
      noise = self.context.noise(position, jnp.zeros_like(position))
    elif self.plan.siblings == plans.DISTINCT:
      noise = self._own_noise(level, depth, 1)[:, :, 0]
    else:
      noise = jnp.float32(0)
    # Honest draws are of the law itself.
    beta = self.plan.beta if shared else 1
    ranking = _ranking(beta * law, noise, unfiltered)
    top, tokens = sharding.largest(ranking, branch, self.rules)
    return tokens, top - jax.nn.logsumexp(ranking, axis=-1, keepdims=True)

  def _own_noise(self, level, depth, count):
    """[B, F, count, V]: each node's own, for `count` draws from its law."""
    slots = level.places[:, None] * count + jnp.arange(count)[None]
    slots = jnp.broadcast_to(slots, (len(level.tokens), *slots.shape))
    positions = (self.context.lengths + depth)[:, None, None]
    return self.context.noise(jnp.broadcast_to(positions, slots.shape), slots)

  def _keep(self, logits, scores):
    """[B] asked before any child exists, about the level's best node."""
    best = jnp.argmax(scores, axis=1)[:, None, None]
    best = jnp.take_along_axis(logits, best, axis=1)[:, 0]
    law = jax.nn.log_softmax(best.astype(jnp.float32))
    return self.context.policy.keep_drafting(self.context.policy_state, law)


def _ranking(law, noise, unfiltered):
  """[..., V]: the larger, the earlier a token becomes a child.

  Tokens without probability follow those that have some, as far behind the
  last of them as their scores are behind the best.
  """
  allowed = law > -jnp.inf
  ranking = law + noise
  lowest = jnp.min(jnp.where(allowed, ranking, jnp.inf), axis=-1, keepdims=True)
  top = jnp.max(unfiltered, axis=-1, keepdims=True)
  # Strictly below, or equal scores could put one of them first.
  behind = jnp.minimum(
    lowest + (unfiltered - top), jnp.nextafter(lowest, -jnp.inf)
  )
  return jnp.where(allowed, ranking, behind)
