# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chained heads, which read the tokens drafted before: here those of the text.

  slot t      head 0          head 1                 head 2
  reads       h_t, x_{t+1}    h_t, x_{t+1}, x_{t+2}  h_t, x_{t+1}, ..., x_{t+3}
  draws       x_{t+2}         x_{t+3}                x_{t+4}

Cells are those of `models.chained_heads`: Hydra (arXiv 2402.05109), recurrent
(2403.09919), MLP (2404.19124).

Axis letters: B rows, S slots, n slots, K heads, D model width, Q columns.
"""

import os
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import tokenizers
from specjax.drafters import chained as chained_drafter
from specjax.models import model as model_lib
from specjax.models.heads import chained_heads, saved_heads
from specjax.trees import branching
from train import packing, teacher
from train.objectives import heads, objective


def chained(
  target: model_lib.Model,
  ids: jax.Array | None = None,
  cell: str = "hydra",
  num_heads: int = 4,
  num_layers: int = 1,
  own_output: bool = False,
) -> "Chained":
  """Chained heads to train.

  Args:
    target: frozen.
    ids: [Q] tokens that can be drafted; None is all.
    cell: "hydra", "recurrent" or "mlp".
    num_heads: K.
    num_layers: residual blocks before the output matrix.
    own_output: each head (a recurrent cell once) has an output matrix of its
      own, which begins as the target's; else they share the target's.

  Raises:
    ValueError: a size below 1; no such cell.
  """
  heads.check_sizes(num_heads=num_heads, num_layers=num_layers)
  config = chained_heads.ChainedConfig(
    cell,
    num_heads,
    num_layers,
    target.config.embed_dim,
    heads.columns(target, ids, own_output),
  )
  return Chained(target, ids, config)


class Chained(struct.PyTreeNode):
  """See the module and `objective.Objective`."""

  target: model_lib.Model
  ids: jax.Array | None
  config: chained_heads.ChainedConfig = struct.field(pytree_node=False)

  feature_layers = ()
  teacher_forced = False

  @property
  def depth(self) -> int:
    return self.config.num_heads

  def init(self, key: jax.Array) -> Any:
    params = chained_heads.ChainedHeads.init(self.config, key).params
    return {name: heads.begin(module, self) for name, module in params.items()}

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[tuple[jax.Array, jax.Array], objective.Extra]:
    """Hidden states [B, S, D] and the tokens that follow each, [B, S, K]."""
    del params
    tokens = [teacher.later(batch.tokens, 1 + k) for k in range(self.depth)]
    return (seen.hidden, jnp.stack(tokens, axis=-1)), {}

  def logits(
    self,
    params: Any,
    known: tuple[jax.Array, jax.Array],
    rows: jax.Array | None,
  ) -> jax.Array:
    chain = self._heads(params)
    hidden, tokens = known
    embedded = self.target.embed(tokens).astype(chain.dtype)
    state, found = chain.start(hidden.astype(chain.dtype)), []
    for k in range(self.depth):
      x, state = chain.read(k, state, embedded[..., k, :])
      found.append(x)
    x = jnp.stack(found, axis=-2)
    return heads.unembed(self.target, x, rows, self.config.draft_vocab)

  def drafter(self, params: Any, length: int) -> chained_drafter.Chained:
    plan = branching.chain(length)
    return chained_drafter.Chained(self._heads(params), self.target, plan)

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    del tokenizer  # A head speaks its target's tokens.
    saved_heads.save(self._heads(params), path, self.target)

  def _heads(self, params):
    return chained_heads.ChainedHeads(params, None, self.config).drafting(
      self.ids, self.target
    )
