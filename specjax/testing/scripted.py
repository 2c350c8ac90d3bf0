# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A rule that keeps what a test wants, whatever the draft.

Axis letters: B batch, T nodes, V vocabulary.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax import streams as streams_lib
from specjax.testing import recording
from specjax.trees import tree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Scripted:
  """Keeps no node, one or all by turns, then emits the most likely token.

  It shows a drafter every outcome, however good or bad its drafts are.

  Attributes:
    note: told of every number that the drafter reads.
  """

  note: Callable[[recording.Read], Any] | None = None
  lossless = False
  chain_only = False

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    if self.note is not None:
      streams = recording.Recorder(
        streams.keys, streams.round, streams.silent, self.note
      )
    return streams_lib.Noise(streams, vocab, shared=False)

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: types.Draft
  ) -> jax.Array:
    del streams, draft
    return lengths

  def verify(
    self, log_p: jax.Array, draft: types.Draft, uniforms: jax.Array
  ) -> types.Acceptance:
    """Turns follow the position, so all rows take part in all of them."""
    kept = jnp.take(jnp.array([0, 1, draft.tokens.shape[1]]), uniforms % 3)
    leaf = jnp.minimum(kept, draft.count)
    law = jnp.take_along_axis(log_p, leaf[:, None, None], axis=1)[:, 0]
    return tree.accept(draft, leaf, sampling.argmax(law))
