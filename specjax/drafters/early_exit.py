# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Early exit: the target's first layers draft, on the target's own cache.

No second model and no second cache: keys and values of the first layers are
those that the target would compute, so the draft reads the committed ones and
writes its own past the cache's lengths, where the verify pass overwrites them
(arXiv 2404.16710).

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

from flax import struct
import jax.numpy as jnp

from specjax import types
from specjax.drafters import rollout


def early_exit(target: types.Model, layers: int, length: int) -> "EarlyExit":
  """An `EarlyExit` after the target's first `layers` layers.

  Raises:
    ValueError: the target has no such layer, or length is no draft.
  """
  return EarlyExit(target.truncate(layers), length)


class EarlyExit(struct.PyTreeNode):
  """Early exit: the target's first layers draft (arXiv 2404.16710).

  A chain with laws, at the price of those layers and the output.

  Attributes:
    model: the target cut short (`Model.truncate`), which shares its arrays.
    length: T, tokens to draft at most; at least 1.
  """

  model: types.Model
  length: int = struct.field(pytree_node=False)

  def __post_init__(self):
    if self.length < 1:
      raise ValueError(
        f"draft length {self.length} is no draft: use 1 or more, or none of "
        "this drafter"
      )

  @property
  def num_nodes(self) -> int:
    return self.length

  @property
  def max_depth(self) -> int:
    return self.length

  def init(self, batch: int, capacity: int) -> None:
    del batch, capacity

  def observe(
    self, state: None, block: types.Block, view: types.View | None
  ) -> None:
    del state, block, view

  def propose(
    self, state: None, context: types.Context
  ) -> tuple[types.Draft, None, types.KVCache]:
    """A chain [B, T] with its laws; free when no row wants a draft."""
    draft, layers = rollout.when_wanted(
      lambda layers: self._draft(layers, context), context.cache.layers, context
    )
    return draft, state, context.cache.replace(layers=layers)

  def _draft(self, layers, context):
    """The draft, and the target's layers with what it wrote."""

    def next_logits(cache, token):
      output = self.model(token[:, None], cache)
      cache = output.cache.commit(None, jnp.ones_like(token))
      return output.logits[:, 0], cache

    # A model walks the layers it has and leaves the others as they are.
    cache = context.cache.replace(layers=layers)
    logits, cache = next_logits(cache, context.last_token)
    draft, cache = rollout.chain(
      next_logits,
      cache,
      logits,
      jnp.full_like(context.lengths, self.length),
      context,
      self.length,
    )
    return draft, cache.layers
