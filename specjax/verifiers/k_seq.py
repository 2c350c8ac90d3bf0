# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""k-SEQ: the same test for all siblings, which were drawn independently.

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
class KSeq(ratio.RatioRule):
  """k-SEQ of SpecTr (arXiv 2310.15141), for siblings drawn independently.

  Each of n siblings is taken with probability min(1, p(x) / (rho q(x))), the
  same for all, with the smallest rho that leaves no token with more than p:

    (1 - (1 - b)^n) / b <= rho,    b = sum_x min(q(x), p(x) / rho).

  Lossless. Siblings drawn without replacement have other laws: they need
  `MultiCandidate`, and so do those taken as given. A chain is `Rejection`.
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

    def go_down(_, slot):
      children, ours, theirs, rho, _ = _family(p, q, draft, slot)
      p_x = jnp.take_along_axis(ours, draft.tokens, axis=1)
      q_x = jnp.take_along_axis(theirs, draft.tokens, axis=1)
      hits = children & (uniforms.accept * rho * q_x < p_x)
      # A slot whose children were all refused is met with the same numbers.
      return jnp.where(jnp.any(hits, 1), jnp.argmax(hits, 1) + 1, slot)

    root = jnp.zeros(draft.count.shape, int)
    leaf = jax.lax.fori_loop(0, draft.max_depth, go_down, root)
    _, ours, theirs, rho, tried = _family(p, q, draft, leaf)
    taken = jnp.minimum(theirs, ours / rho) * tried
    law = sampling.residual(ours, taken)
    return tree.accept(
      draft, leaf, sampling.inverse_cdf(law, uniforms.residual)
    )


def _family(p, q, draft, slot):
  """Children [B, T] of a slot [B], its laws [B, V], rho and tests run [B, 1].

  Tests run are expected: (1 - (1 - b)^n) / b, so 0 for a slot without children.
  """
  children = tree.valid_nodes(draft) & (draft.parents == slot[:, None])
  ours = ratio.row(p, slot)
  theirs = ratio.row(q, jnp.argmax(children, axis=1))
  n = jnp.sum(children, axis=1, keepdims=True)
  tries = jnp.arange(children.shape[1])[None]

  def tests_run(rho):
    # 1 - b without cancellation: equal laws miss nothing at rho 1.
    missed = jnp.sum(jnp.maximum(theirs - ours / rho, 0), axis=1, keepdims=True)
    return jnp.sum(
      jnp.where(tries < n, missed**tries, 0), axis=1, keepdims=True
    )

  def halve(_, bounds):
    low, high = bounds
    middle = (low + high) / 2
    enough = tests_run(middle) <= middle
    return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

  one = jnp.ones_like(ours[:, :1])
  start = one, jnp.maximum(n, 1).astype(p.dtype)
  _, rho = jax.lax.fori_loop(0, jnp.finfo(p.dtype).nmant + 1, halve, start)
  rho = jnp.where(tests_run(one) <= one, one, rho)
  return children, ours, theirs, rho, tests_run(rho)
