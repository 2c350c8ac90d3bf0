# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several candidates a position, tried one after the other, top down."""

import dataclasses

import jax

from specjax import types
from specjax.verifiers import ratio


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class MultiCandidate(ratio.RatioRule):
  """Recursive rejection (arXiv 2305.09781, 2402.14160, 2401.06706).

  A child x drawn from q is taken with probability min(1, p(x) / q(x)); if it is
  not, norm((p - q)+) takes the place of p for its next sibling. q is the law of
  x given its earlier siblings, so siblings drawn independently, without
  replacement, taken as given or mixed are one rule. A chain is `Rejection`.

  Lossless on chains and trees.
  """

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    return ratio.recursive(log_p, draft, uniforms)
