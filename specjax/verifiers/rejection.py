# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculative sampling (arXiv 2211.17192, 2302.01318).

Draft token x_i is accepted with probability min(1, p_i(x_i) / q_i(x_i)); after
the first rejection the token is drawn from norm((p_i - q_i)+), after a full
acceptance from p. Lossless when q is the law x_i was really drawn from.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax.trees import tree
from specjax.verifiers import ratio


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Rejection(ratio.RatioRule):
  """Token-level speculative sampling (arXiv 2211.17192, 2302.01318).

  Lossless on chains; needs the draft's laws, or takes tokens as given.
  """

  chain_only = True

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    vocab = log_p.shape[-1]
    nodes = draft.tokens.shape[1]
    log_q = tree.draft_law(draft, vocab, log_p.dtype)
    at = draft.tokens[..., None]
    p_x = jnp.exp(jnp.take_along_axis(log_p[:, :nodes], at, axis=-1)[..., 0])
    q_x = jnp.exp(jnp.take_along_axis(log_q, at, axis=-1)[..., 0])
    # u * q < p rather than u < p / q: no division, and p = 0 never passes.
    # An equality would accept u = 0 with p = 0.
    hits = (uniforms.accept * q_x < p_x) & tree.valid_nodes(draft)
    leaf = jnp.sum(jnp.cumprod(hits, axis=1), axis=1)
    p = jnp.exp(ratio.row(log_p, leaf))
    # A row whose drafts were all kept draws from p: nothing is taken away.
    padded = jnp.pad(log_q, ((0, 0), (0, 1), (0, 0)), constant_values=-jnp.inf)
    q = jnp.where(
      (leaf < draft.count)[:, None], jnp.exp(ratio.row(padded, leaf)), 0
    )
    mass = sampling.residual(p, q)
    token = sampling.inverse_cdf(mass, uniforms.residual.astype(log_p.dtype))
    return tree.accept(draft, leaf, token)
