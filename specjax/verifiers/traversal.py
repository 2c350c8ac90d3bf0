# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traversal verification: trees from the leaves to the root (arXiv 2505.12398).

Every slot has a weight, the root 1, and the target's law. Going down to child x
of slot v gives it the weight min(1, w_v p_v(x) / q(x)). A slot without further
children is kept with the probability of its weight w, and then the next token
has its law. If it is refused, its parent takes

  p <- norm((w p - q)+),    w <- R / (R + 1 - w),    R = sum_x (w p(x) - q(x))+

and goes on with its next child, if there is one. A chain is block verification.

Axis letters: B batch, T nodes, W = T + 1 slots, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax.trees import tree
from specjax.verifiers import ratio


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Traversal(ratio.RatioRule):
  """Traversal verification, from the leaves up (arXiv 2505.12398).

  Lossless on chains and trees, for siblings of any honest law.
  """

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    q = jnp.exp(tree.draft_law(draft, log_p.shape[-1], log_p.dtype))
    leaf, law = _traverse(jnp.exp(log_p), q, draft, uniforms.accept)
    return tree.accept(
      draft, leaf, sampling.inverse_cdf(law, uniforms.residual)
    )


def _traverse(p, q, draft, accept):
  """The slot [B] that is kept and the law [B, V] behind it.

  A step takes each row one slot down or up, so there are at most 2 T of them,
  and a row that has arrived stays. Weights and laws are changed in place: only
  those of slots above a row are read again.
  """
  batch, slots = p.shape[:2]
  rows = jnp.arange(batch)
  # The root is its own parent, and is never refused.
  parents = jnp.pad(draft.parents, ((0, 0), (1, 0)))
  accept = jnp.pad(accept, ((0, 0), (1, 0)))

  def step(state):
    slot, _, left, weights, laws = state
    below = left & (draft.parents == slot[:, None])
    child, parent = jnp.argmax(below, axis=1), parents[rows, slot]
    down = jnp.any(below, axis=1)
    weight = weights[rows, slot]
    arrived = ~down & ((accept[rows, slot] < weight) | (slot == 0))
    up = ~down & ~arrived
    # A child gets its weight, or the parent of a refused slot another one.
    x = draft.tokens[rows, child]
    entered = ratio.weigh(weight, laws[rows, slot, x], q[rows, child, x])
    refused, rest = ratio.refuse(
      weights[rows, parent], laws[rows, parent], q[rows, slot - 1]
    )
    goal = jnp.select([down, up], [child + 1, parent], slot)
    weight = jnp.select([down, up], [entered, refused], weight)
    law = jnp.where(up[:, None], rest, laws[rows, goal])
    return (
      goal,
      arrived,
      left & ~(down[:, None] & (jnp.arange(slots - 1)[None] == child[:, None])),
      weights.at[rows, goal].set(weight),
      laws.at[rows, goal].set(law),
    )

  start = jnp.zeros((batch,), int), jnp.zeros((batch,), bool)
  state = *start, tree.valid_nodes(draft), jnp.ones_like(p[:, :, 0]), p
  going = lambda state: ~jnp.all(state[1])
  leaf, _, _, _, laws = jax.lax.while_loop(going, step, state)
  return leaf, laws[rows, leaf]
