# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules that keep more than the target's law allows. None of them is lossless.

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
class Typical(ratio.RatioRule):
  """Typical acceptance (Medusa, arXiv 2401.10774); reads no law of the draft.

  A node is acceptable if p(x) > min(epsilon, delta exp(-H(p))), H the entropy
  of p in nats. The longest path of acceptable nodes is kept, of equally long
  ones the most likely, and the next token is drawn from p behind it. Greedy
  targets stay greedy.

  Attributes:
    epsilon: what is always enough, above 0 and at most 1.
    delta: share of the typical probability exp(-H) that is enough, the same.
  """

  epsilon: float = 0.09
  delta: float = 0.3

  lossless = False

  def __post_init__(self):
    _within("typical.epsilon", self.epsilon, 0, 1)
    _within("typical.delta", self.delta, 0, 1)

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    p = jnp.exp(log_p)
    entropy = -jnp.sum(jnp.where(p > 0, p * log_p, 0), axis=-1)
    enough = jnp.minimum(self.epsilon, self.delta * jnp.exp(-entropy))
    log_x = _node_values(log_p, draft)
    enough = jnp.take_along_axis(enough, draft.parents, axis=1)
    hits = (jnp.exp(log_x) > enough) & tree.valid_nodes(draft)
    hits = jnp.pad(hits, ((0, 0), (1, 0)), constant_values=True)
    depth, ancestors = tree.layout(draft)
    kept = ~jnp.any(ancestors & ~hits[:, None], axis=2)
    depth = jnp.where(kept, depth, -1)
    longest = depth == jnp.max(depth, axis=1, keepdims=True)
    log_x = jnp.pad(log_x, ((0, 0), (1, 0)))
    likely = jnp.sum(jnp.where(ancestors, log_x[:, None], 0), axis=2)
    leaf = jnp.argmax(jnp.where(longest, likely, -jnp.inf), axis=1)
    law = ratio.row(p, leaf)
    return tree.accept(
      draft, leaf, sampling.inverse_cdf(law, uniforms.residual)
    )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Lenient(ratio.RatioRule):
  """Recursive rejection with q made smaller (appendix of arXiv 2211.17192).

  A node is taken with probability min(1, p(x) / (l q(x))), a refusal leaves
  norm((p - l q)+). With one draft no token is emitted more often than p / l.

  Attributes:
    lenience: l, above 0 and at most 1, where it would be lossless.
  """

  lenience: float

  lossless = False

  def __post_init__(self):
    _within("lenient.lenience", self.lenience, 0, 1)

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    return ratio.recursive(log_p, draft, uniforms, scale=self.lenience)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Threshold(ratio.RatioRule):
  """Recursive rejection that takes what the target finds likely without a test.

  Attributes:
    probability: p(x) from which a node is taken, above 0 and at most 1, where
      it would be lossless.
  """

  probability: float

  lossless = False

  def __post_init__(self):
    _within("threshold.probability", self.probability, 0, 1)

  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: ratio.Uniforms
  ) -> types.Acceptance:
    """See `ratio.RatioRule`."""
    likely = jnp.exp(_node_values(log_p, draft)) >= self.probability
    return ratio.recursive(log_p, draft, uniforms, sure=likely)


def _node_values(log_p, draft):
  """log p [B, T] of each node at its parent's slot."""
  at = jax.vmap(lambda law, slots, tokens: law[slots, tokens])
  return at(log_p, draft.parents, draft.tokens)


def _within(name, value, low, high):
  if not low < value <= high:
    raise ValueError(
      f"{name} is {value}: it must be above {low} and at most {high}"
    )
