# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""An adapter between an early layer of the target and its output matrix.

The target's first layers draft on its own cache (arXiv 2404.16710) and stay as
they are, so its pass over the text has computed all that the adapter reads.
What is drafted at depth k from slot t is what slot t + 1 + k says.

Axis letters: B rows, S slots, n slots, D model width, Q columns.
"""

import os
from typing import Any

from flax import struct
import jax

from specjax import tokenizers
from specjax.drafters import early_exit as early_exit_drafter
from specjax.models import model as model_lib
from specjax.models.heads import exit_adapter, saved_heads
from specjax.models.heads import head as heads_lib
from train import packing, teacher
from train.objectives import heads, objective


def early_exit(
  target: model_lib.Model, layers: int, rank: int = 64
) -> "EarlyExit":
  """An adapter to train.

  Args:
    target: frozen.
    layers: how many of its layers draft.
    rank: hidden width of the adapter.

  Raises:
    ValueError: a size below 1; the target has no such layer.
  """
  target.truncate(layers)  # Refuses what it cannot do.
  heads.check_sizes(rank=rank)
  config = exit_adapter.ExitConfig(layers, rank, target.config.embed_dim)
  return EarlyExit(target, config)


class EarlyExit(struct.PyTreeNode):
  """See the module and `objective.Objective`."""

  target: model_lib.Model
  config: exit_adapter.ExitConfig = struct.field(pytree_node=False)

  ids = None
  depth = 1
  teacher_forced = True

  @property
  def feature_layers(self) -> tuple[int, ...]:
    return (self.config.exit_layer - 1,)

  def init(self, key: jax.Array) -> Any:
    return exit_adapter.ExitAdapter.init(self.config, key).params

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[jax.Array, objective.Extra]:
    """What the adapter reads, each at the slot before: the one that draws."""
    del params
    x = heads_lib.features_of(heads.block(batch, seen), self.feature_layers)
    return teacher.later(self.target.final_norm(x), 1), {}

  def logits(
    self, params: Any, known: jax.Array, rows: jax.Array | None
  ) -> jax.Array:
    del rows
    return self._adapter(params)(known, self.target)[:, None]

  def drafter(self, params: Any, length: int) -> early_exit_drafter.EarlyExit:
    model = self.target.truncate(self.config.exit_layer)
    return early_exit_drafter.EarlyExit(model, length, self._adapter(params))

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    del tokenizer  # It ends in the target's own tokens.
    saved_heads.save(self._adapter(params), path, self.target)

  def _adapter(self, params):
    return exit_adapter.ExitAdapter(params, None, self.config)
