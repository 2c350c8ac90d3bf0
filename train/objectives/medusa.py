# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Medusa heads: head k guesses token t + 2 + k from hidden[t] alone.

The target stays as it is (arXiv 2401.10774, its first variant). A head begins
as the identity, so at first all of them guess what the target's own output
matrix says of token t + 1.

Axis letters: n slots, K heads, D model width, Q columns, V vocabulary.
"""

import os
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import tokenizers
from specjax.drafters import medusa as medusa_drafter
from specjax.models import model as model_lib
from specjax.models.heads import head as heads_lib
from specjax.models.heads import saved_heads
from specjax.trees import branching
from train import packing, teacher
from train.objectives import heads, objective


def medusa(
  target: model_lib.Model,
  ids: jax.Array | None = None,
  num_heads: int = 4,
  num_layers: int = 1,
  own_output: bool = False,
) -> "Medusa":
  """Medusa heads to train.

  Args:
    target: frozen.
    ids: [Q] tokens that can be drafted; None is all.
    num_heads: K.
    num_layers: residual blocks of a head.
    own_output: each head has an output matrix of its own, which begins as the
      target's; else they share the target's.

  Raises:
    ValueError: a size below 1.
  """
  heads.check_sizes(num_heads=num_heads, num_layers=num_layers)
  config = heads_lib.MedusaConfig(
    num_heads,
    num_layers,
    target.config.embed_dim,
    heads.columns(target, ids, own_output),
  )
  return Medusa(target, ids, config)


class Medusa(struct.PyTreeNode):
  """See the module and `objective.Objective`."""

  target: model_lib.Model
  ids: jax.Array | None
  config: heads_lib.MedusaConfig = struct.field(pytree_node=False)

  feature_layers = ()
  teacher_forced = False

  @property
  def depth(self) -> int:
    return self.config.num_heads

  def init(self, key: jax.Array) -> Any:
    params = heads_lib.MedusaHeads.init(self.config, key).params
    return {name: heads.begin(module, self) for name, module in params.items()}

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[jax.Array, objective.Extra]:
    del params, batch
    return seen.hidden, {}

  def logits(
    self, params: Any, known: jax.Array, rows: jax.Array | None
  ) -> jax.Array:
    x = self._heads(params).apply("__call__", known.astype(jnp.float32))
    return heads.unembed(self.target, x, rows, self.config.draft_vocab)

  def drafter(self, params: Any, length: int) -> medusa_drafter.Medusa:
    plan = branching.chain(length)
    return medusa_drafter.Medusa(self._heads(params), self.target, plan)

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    del tokenizer  # A head speaks its target's tokens.
    saved_heads.save(self._heads(params), path, self.target)

  def _heads(self, params):
    return heads_lib.MedusaHeads(params, None, self.config).drafting(
      self.ids, self.target
    )
