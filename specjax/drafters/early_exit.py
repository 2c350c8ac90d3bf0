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
from specjax.models.heads import exit_adapter, saved_heads


def early_exit(
  target: types.Model, layers: int, length: int, adapter: str = ""
) -> "EarlyExit":
  """An `EarlyExit` after the target's first `layers` layers.

  Args:
    target: the model that answers.
    layers: how many of its layers draft; 0 is what the adapter was trained
      behind.
    length: tokens to draft at most.
    adapter: a folder with an `exit_adapter.ExitAdapter` that was trained for
      them, which `saved_heads.save` wrote; "" is none.

  Raises:
    ValueError: the target has no such layer, length is no draft, or the adapter
      is none, or belongs to other layers or another target.
    FileNotFoundError: a file of the adapter is missing.
  """
  if not adapter:
    return EarlyExit(target.truncate(layers), length)
  loaded = saved_heads.load(adapter, target, exit_adapter.ExitAdapter)
  layers = layers or loaded.config.exit_layer
  if loaded.config.exit_layer != layers:
    raise ValueError(
      f"adapter {adapter!r} was trained behind {loaded.config.exit_layer} "
      f"layers, not {layers}: use these, or another adapter"
    )
  return EarlyExit(target.truncate(layers), length, loaded)


class EarlyExit(struct.PyTreeNode):
  """Early exit: the target's first layers draft (arXiv 2404.16710).

  A chain with laws, at the price of those layers and the output.

  Attributes:
    model: the target cut short (`Model.truncate`), which shares its arrays.
    length: T, tokens to draft at most; at least 1.
    adapter: what stands between these layers and the output, if anything.
  """

  model: types.Model
  length: int = struct.field(pytree_node=False)
  adapter: exit_adapter.ExitAdapter | None = None

  def __post_init__(self):
    if self.length < 1:
      raise ValueError(
        f"draft length {self.length} is no draft: use 1 or more, or none of "
        "this drafter"
      )

  @property
  def models(self) -> tuple[types.Model, ...]:
    """What must know the target's tokens and lie where it lies."""
    return (self.model,)

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
      if self.adapter is None:
        return output.logits[:, 0], cache
      return self.adapter(output.hidden[:, 0], self.model), cache

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
