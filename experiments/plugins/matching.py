# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A verifier: the target draws, drafts are kept while they are what it drew.

It accepts a token x with probability p(x), less often than rejection sampling
does, but asks for no law of the draft.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax import streams as streams_lib
from specjax.trees import tree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Matching:
  """Lossless on chains, for every draft that reads no ACCEPT stream."""

  lossless = True
  chain_only = True

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    """Noise of its own: a draft must not know what the target will draw."""
    return streams_lib.Noise(streams, vocab, shared=False)

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: types.Draft
  ) -> jax.Array:
    """A uniform [B, T + 1] for every slot."""
    slots = jnp.arange(draft.tokens.shape[1] + 1)[None]
    positions = lengths[:, None] + slots
    return streams.uniform(streams_lib.ACCEPT, positions, slots)

  def verify(
    self, log_p: jax.Array, draft: types.Draft, uniforms: jax.Array
  ) -> types.Acceptance:
    """See `types.Verifier`."""
    drawn = sampling.inverse_cdf(jnp.exp(log_p), uniforms.astype(log_p.dtype))
    hits = (draft.tokens == drawn[:, :-1]) & tree.valid_nodes(draft)
    leaf = jnp.sum(jnp.cumprod(hits, axis=1), axis=1)
    token = jnp.take_along_axis(drawn, leaf[:, None], axis=1)[:, 0]
    return tree.accept(draft, leaf, token)
