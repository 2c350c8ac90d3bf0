# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The empty draft: every round emits the target's own token.

With it the decoding loop is plain decoding. `nodes` widens the block with slots
that are never valid, which makes a baseline of the same width as a method.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import types
from specjax.trees import tree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Empty:
  """Proposes nothing: plain decoding."""

  nodes: int = 0

  @property
  def num_nodes(self) -> int:
    return self.nodes

  @property
  def max_depth(self) -> int:
    return self.nodes

  def init(self, batch: int, capacity: int) -> None:
    del batch, capacity

  def observe(
    self, state: None, block: types.Block, view: types.View | None
  ) -> None:
    del state, block, view

  def propose(
    self, state: None, context: types.Context
  ) -> tuple[types.Draft, None, types.KVCache]:
    batch = context.lengths.shape[0]
    tokens = jnp.zeros((batch, self.nodes), jnp.int32)
    count = jnp.zeros((batch,), jnp.int32)
    return tree.chain(tokens, count), state, context.cache
