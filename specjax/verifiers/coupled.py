# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The coupled rule: the target draws every token itself, drafts only save time.

y_t = argmax(log p_t + G_t), with Gumbel noise G_t keyed by the absolute
position t alone. A draft is accepted while it equals y, and y is always what is
emitted, so the text is a function of (target, prompt, settings, seed): no
drafter, draft length, tree or policy can change it. Drafters that add the same
noise agree with the target most often ("drafter-invariant speculative
decoding", arXiv 2408.07978).

Axis letters: B batch, T nodes, W = T + 1 slots, P = max_depth + 1,
V vocabulary.
"""

import dataclasses

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax import streams as streams_lib
from specjax.trees import tree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Coupled:
  """The target draws every token itself, drafts only save time.

  Lossless for every draft, chain or tree.
  """

  lossless = True
  chain_only = False

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    """The target's own noise, so that a draft finds the same token."""
    return streams_lib.Noise(streams, vocab, shared=True)

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: types.Draft
  ) -> "DepthNoise":
    del draft  # Slots of one depth share a vector, whatever the tree.
    return DepthNoise(streams, lengths)

  def verify(
    self, log_p: jax.Array, draft: types.Draft, uniforms: "DepthNoise"
  ) -> types.Acceptance:
    """See `types.Verifier`."""
    depths = jnp.arange(draft.max_depth + 1)
    noise = uniforms(depths, log_p.shape[-1]).astype(log_p.dtype)
    return match(log_p, noise, draft)


class DepthNoise(struct.PyTreeNode):
  """Gumbel noise of a round, one vector a depth.

  A function of keys until `verify` says how long the vectors are.
  """

  streams: streams_lib.Streams
  lengths: jax.Array  # [B] position of the token that the root predicts

  def __call__(self, depths: jax.Array, vocab: int) -> jax.Array:
    """[B, P, V] for depths [P]."""
    positions = self.lengths[:, None] + depths[None]
    return self.streams.gumbel(
      streams_lib.SAMPLE, positions, jnp.zeros_like(positions), vocab
    )


def match(
  log_p: jax.Array, noise: jax.Array, draft: types.Draft
) -> types.Acceptance:
  """Keeps the longest path of nodes that equal the target's own draw.

  Args:
    log_p: [B, W, V] the target's law at each slot.
    noise: [B, P, V] Gumbel noise by depth.
    draft: the nodes.
  """
  if draft.is_chain:
    drawn = sampling.argmax(log_p + noise)
    hits = draft.tokens == drawn[:, :-1]
    hits = hits & tree.valid_nodes(draft)
    leaf = jnp.sum(jnp.cumprod(hits, axis=1), axis=1)
  else:
    depth, ancestors = tree.layout(draft)
    noise = jnp.take_along_axis(noise, depth[:, :, None], axis=1)
    drawn = sampling.argmax(log_p + noise)
    wanted = jnp.take_along_axis(drawn, draft.parents, axis=1)
    hits = (draft.tokens == wanted) & tree.valid_nodes(draft)
    hits = jnp.pad(hits, ((0, 0), (1, 0)), constant_values=True)
    kept = ~jnp.any(ancestors & ~hits[:, None, :], axis=2)
    # Of equal siblings, the first keeps the path.
    leaf = jnp.argmax(jnp.where(kept, depth, -1), axis=1)
  token = jnp.take_along_axis(drawn, leaf[:, None], axis=1)[:, 0]
  return tree.accept(draft, leaf, token)
