# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Block verification on several paths: at each depth the best one goes on.

Axis letters: B batch, T nodes, W = T + 1 slots, D = max_depth, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax.trees import tree
from specjax.verifiers import block, ratio


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class MultiPath(ratio.RatioRule):
  """Block verification of the best of several paths, drawn independently.

  For trees whose siblings were drawn independently from one law, which depends
  on the text alone: several paths from the root, or a trunk that splits. At
  each depth the first m nodes that continue the text so far compete, and the
  one with the largest p / q goes on, with all nodes of its token. Its law is

    F(x)^m - F(x-)^m,    F = mass of q in ascending order of p / q,

  and block verification sees the winners as a chain of these laws. How many
  compete depends on the laws alone. A chain is `Block`.

  Lossless. Siblings drawn without replacement have other laws: `Traversal`.
  """

  independent_siblings = True

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`.

    Raises:
      ValueError: see `ratio.drawn_law`.
    """
    p, q = jnp.exp(log_p), jnp.exp(ratio.drawn_law(self, log_p, draft))
    slot, at, tokens, laws, count = _compete(p, q, draft)
    leaf, law = block.keep(
      jnp.take_along_axis(p, at[:, :, None], axis=1),
      laws,
      tokens,
      count,
      uniforms.accept[:, : draft.max_depth],
    )
    # Nodes of equal text compete as one; a node at the end has its own path.
    depth, ancestors = tree.layout(draft)
    path = jnp.take_along_axis(ancestors, slot[:, None, None], axis=1)[:, 0]
    leaf = jnp.argmax(path & (depth == leaf[:, None]), axis=1)
    return tree.accept(
      draft, leaf, sampling.inverse_cdf(law, uniforms.residual)
    )


def _compete(p, q, draft):
  """The winners of all depths as a chain, and the law that each one has.

  Args:
    p: [B, W, V] the target's laws.
    q: [B, T, V] laws of the nodes.
    draft: the nodes.

  Returns:
    The last winner's slot [B], winners' slots [B, D + 1] from the root on,
    their tokens [B, D] and laws [B, D, V], and how many there are, [B].
  """
  valid = tree.valid_nodes(draft)

  def level(state, _):
    slot, alive = state  # [B] a node of the text so far; [B, W] all of them
    rivals = valid & jnp.take_along_axis(alive, draft.parents, axis=1)
    law = ratio.row(q, jnp.argmax(rivals, axis=1))
    place = jnp.cumsum(rivals, axis=1)
    rank, law, most = _race(ratio.row(p, slot), law, place[:, -1])
    strength = jnp.take_along_axis(rank, draft.tokens, axis=1)
    races = rivals & (place <= most[:, None])
    best = jnp.argmax(jnp.where(races, strength, -1), axis=1)
    token = jnp.take_along_axis(draft.tokens, best[:, None], axis=1)
    goes_on = jnp.any(rivals, axis=1)
    same = rivals & (draft.tokens == token)
    slot = jnp.where(goes_on, best + 1, slot)
    alive = jnp.pad(same, ((0, 0), (1, 0)))
    return (slot, alive), (slot, token[:, 0], law, goes_on)

  root = jnp.zeros(draft.count.shape, int)
  alive = jnp.broadcast_to(jnp.arange(p.shape[1]) == 0, p.shape[:2])
  (last, _), found = jax.lax.scan(
    level, (root, alive), None, length=draft.max_depth
  )
  at, tokens, laws, goes_on = (jnp.swapaxes(x, 0, 1) for x in found)
  at = jnp.pad(at, ((0, 0), (1, 0)))
  return last, at, tokens, laws, jnp.sum(goes_on, axis=1)


def _race(p, q, n):
  """Who wins among draws from q [B, V], and how many of n [B] compete.

  The best of m draws has the law F^m - (F - q)^m, which is q times a sum of
  positive terms: nothing cancels. More draws do not always help, since they
  may crowd on what p has little of, so m is what makes min(p, law) largest.

  Returns:
    Ranks [B, V] of tokens by p / q, the winner's law [B, V], and m [B].
  """
  order = jnp.argsort(jnp.where(q > 0, p / jnp.where(q > 0, q, 1), 0), axis=1)
  rank = jnp.argsort(order, axis=1)
  upper = jnp.cumsum(jnp.take_along_axis(q, order, axis=1), axis=1)
  lower = jnp.pad(upper[:, :-1], ((0, 0), (1, 0)))
  upper, lower = (jnp.take_along_axis(x, rank, axis=1) for x in (upper, lower))
  overlap = lambda law: jnp.sum(jnp.minimum(p, law), axis=1)

  def one_more(m, state):
    total, power, law, best = state
    power = power * lower
    total = upper * total + power
    better = (m < n) & (overlap(q * total) > overlap(law))
    law = jnp.where(better[:, None], q * total, law)
    return total, power, law, jnp.where(better, m + 1, best)

  start = jnp.ones_like(q), jnp.ones_like(q), q, jnp.ones_like(n)
  *_, law, best = jax.lax.fori_loop(1, jnp.max(n), one_more, start)
  return rank, law, best
