# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What rules that test uniforms against ratios of laws have in common.

Such a rule is lossless when `Draft.log_q` is honest and every number serves one
decision in one round.

Axis letters: B batch, T nodes, W = T + 1 slots, V vocabulary.
"""

import abc

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax import streams as streams_lib
from specjax.trees import tree


class Uniforms(struct.PyTreeNode):
  """Numbers of one round; none is used twice."""

  accept: jax.Array  # [B, T] one a node
  residual: jax.Array  # [B]


class RatioRule(abc.ABC):
  """The randomness of a rule; `verify` makes it one."""

  lossless = True
  chain_only = False

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    """Noise of its own: an accept test must not know what drew the token."""
    return streams_lib.Noise(streams, vocab, shared=False)

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: types.Draft
  ) -> Uniforms:
    """See `types.Verifier`."""
    nodes = jnp.arange(draft.tokens.shape[1])
    depth, _ = tree.layout(draft)
    positions = lengths[:, None] + depth[:, 1:] - 1
    return Uniforms(
      streams.uniform(
        streams_lib.ACCEPT, positions, jnp.broadcast_to(nodes, positions.shape)
      ),
      streams.uniform(streams_lib.RESIDUAL, lengths, jnp.zeros_like(lengths)),
    )

  def verify(
    self, log_p: jax.Array, draft: types.Draft, uniforms: Uniforms
  ) -> types.Acceptance:
    """See `types.Verifier`; rounds without nodes need no rule."""
    if draft.tokens.shape[1]:
      return self.decide(log_p, draft, uniforms)
    token = sampling.inverse_cdf(
      jnp.exp(log_p[:, 0]), uniforms.residual.astype(log_p.dtype)
    )
    return tree.accept(draft, jnp.zeros_like(draft.count), token)

  @abc.abstractmethod
  def decide(
    self, log_p: jax.Array, draft: types.Draft, uniforms: Uniforms
  ) -> types.Acceptance:
    """The rule itself, for drafts of one node or more."""


def recursive(
  log_p: jax.Array,
  draft: types.Draft,
  uniforms: Uniforms,
  *,
  scale: float = 1.0,
  sure: jax.Array | None = None,
) -> types.Acceptance:
  """Recursive rejection from the root down.

  A child x of law q is taken with probability min(1, p(x) / q(x)). If it is
  not, norm((p - q)+) takes the place of p for its next sibling.

  Args:
    log_p: [B, W, V] the target's law at each slot.
    draft: the nodes.
    uniforms: the round's numbers.
    scale: of q; anything but 1 is lossy.
    sure: [B, T] nodes that are taken without a test, which is lossy.
  """
  p = jnp.exp(log_p)
  q = scale * jnp.exp(tree.draft_law(draft, log_p.shape[-1], log_p.dtype))
  valid = tree.valid_nodes(draft)
  sure = jnp.zeros_like(valid) if sure is None else sure

  # Nodes stand breadth first and siblings in draw order, so one pass over them
  # tries each child of a slot before any of its grandchildren.
  def visit(node, state):
    slot, law = state
    is_child = valid[:, node] & (draft.parents[:, node] == slot)
    at = draft.tokens[:, node, None]
    p_x = jnp.take_along_axis(law, at, axis=1)[:, 0]
    q_x = jnp.take_along_axis(q[:, node], at, axis=1)[:, 0]
    hit = sure[:, node] | (uniforms.accept[:, node] * q_x < p_x)
    taken = is_child & hit
    refused = sampling.residual(law, q[:, node])
    law = jnp.where(is_child[:, None], refused, law)
    law = jnp.where(taken[:, None], p[:, node + 1], law)
    return jnp.where(taken, node + 1, slot), law

  start = jnp.zeros_like(draft.count), p[:, 0]
  leaf, law = jax.lax.fori_loop(0, draft.tokens.shape[1], visit, start)
  return tree.accept(draft, leaf, sampling.inverse_cdf(law, uniforms.residual))


def drawn_law(
  rule: RatioRule, log_p: jax.Array, draft: types.Draft
) -> jax.Array:
  """log q [B, T, V] for a rule of siblings that were drawn independently.

  A chain has no siblings, and may be taken as given like everywhere.

  Raises:
    ValueError: a tree that does not report the laws of its tokens.
  """
  if draft.log_q is None and not draft.is_chain:
    raise ValueError(
      f"{type(rule).__name__} needs the law that siblings were drawn from, and "
      "this tree reports none: use multi_candidate or traversal"
    )
  return tree.draft_law(draft, log_p.shape[-1], log_p.dtype)


def row(x: jax.Array, slot: jax.Array) -> jax.Array:
  """[B, W, V] at slot [B]."""
  return jnp.take_along_axis(x, slot[:, None, None], axis=1)[:, 0]


def weigh(weight: jax.Array, p_x: jax.Array, q_x: jax.Array) -> jax.Array:
  """Weight min(1, weight p / q) of a child, 0 where the target excludes it.

  What underflows to 0 stays there; the odds that it would have come back to w
  are under 1e-38 / w, since p / q has mean 1 at most.
  """
  mass = weight * p_x
  return jnp.where(mass > 0, jnp.minimum(mass / q_x, 1), 0)


def refuse(
  weight: jax.Array, p: jax.Array, q: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Weight [...] and law [..., V] of a slot whose child of law q was refused.

  With R the mass of (weight p - q)+, the weight becomes R / (R + 1 - weight).
  A weight of 1 stays 1: its slot is sure to be kept.
  """
  mass = weight[..., None] * p
  left = jnp.sum(jnp.maximum(mass - q, 0), axis=-1)
  total = left + 1 - weight
  kept = jnp.where(total > 0, left / jnp.where(total > 0, total, 1), 1)
  return kept, sampling.residual(mass, q)
