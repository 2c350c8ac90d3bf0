# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Block verification of one path (arXiv 2403.10444).

The block is judged as a whole. With weights w_0 = 1 and

  w_i = min(1, w_{i-1} p(x_i) / q(x_i)),    R_i = sum_x (w_i p(x) - q(x))+

slot i passes its test with probability R_i / (R_i + 1 - w_i), the last slot
with w_i, and the deepest slot that passes is kept, whatever failed before it.
The next token has the law norm((w_i p - q)+), after the last slot p. Of all
rules on a chain this one keeps most tokens.

A test looks at laws behind the slot it decides on. Numbers that survive their
round would bias it, so they are keyed by the round.

Axis letters: B batch, T nodes, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax.trees import tree
from specjax.verifiers import ratio


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Block(ratio.RatioRule):
  """Block verification of one path (arXiv 2403.10444).

  Lossless on chains; with tokens taken as given no better than `Rejection`.
  """

  chain_only = True

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    q = jnp.exp(tree.draft_law(draft, log_p.shape[-1], log_p.dtype))
    leaf, law = keep(
      jnp.exp(log_p), q, draft.tokens, draft.count, uniforms.accept
    )
    return tree.accept(
      draft, leaf, sampling.inverse_cdf(law, uniforms.residual)
    )


def keep(p, q, tokens, count, accept):
  """The slot [B] that block verification keeps and the law [B, V] behind it.

  Args:
    p: [B, T + 1, V] the target's laws.
    q: [B, T, V] laws of the tokens.
    tokens: [B, T] a chain.
    count: [B] valid tokens.
    accept: [B, T] uniforms.
  """
  at = tokens[:, :, None]
  p_x = jnp.take_along_axis(p[:, :-1], at, axis=2)[:, :, 0]
  q_x = jnp.take_along_axis(q, at, axis=2)[:, :, 0]

  def below(weight, laws):
    weight = ratio.weigh(weight, *laws)
    return weight, weight

  start = jnp.ones_like(p[:, 0, 0])
  _, weights = jax.lax.scan(below, start, (p_x.T, q_x.T))
  weights = jnp.concatenate([start[None], weights]).T
  slots = jnp.arange(p.shape[1])[None]
  # Behind the last slot nothing was drawn: no mass of q, and the test is w.
  q = jnp.pad(q, ((0, 0), (0, 1), (0, 0)))
  q = jnp.where((slots < count[:, None])[:, :, None], q, 0)
  passes, laws = ratio.refuse(weights, p, q)
  # The root always passes, its weight being 1.
  hits = jnp.pad(accept, ((0, 0), (1, 0))) < passes
  leaf = jnp.max(jnp.where(hits & (slots <= count[:, None]), slots, 0), axis=1)
  return leaf, ratio.row(laws, leaf)
