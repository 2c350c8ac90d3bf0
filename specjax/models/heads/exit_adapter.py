# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained step between the target's first layers and its output.

The output matrix was trained for what the last layer gives. A small residual
network turns what an early layer gives into something it reads better, at a
price far below a layer's: 2 * rank * D products a token.

Axis letters: D model width, V vocabulary.
"""

import dataclasses
from typing import Any, Self

from flax import struct
import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import types
from specjax.models import layers
from specjax.models.heads import head as heads_lib


@dataclasses.dataclass(frozen=True)
class ExitConfig:
  """Sizes of an adapter.

  Attributes:
    exit_layer: how many of the target's layers run before it.
    rank: of what is added, its hidden width.
    embed_dim: D, the target's.
  """

  exit_layer: int
  rank: int
  embed_dim: int

  @property
  def draft_vocab(self) -> None:
    """It ends in the target's output matrix."""

  def network(self) -> nn.Module:
    return _Adapter(self)


class ExitAdapter(heads_lib.Head):
  """x + B silu(A x), on the hidden state behind the final norm."""

  config: ExitConfig = struct.field(pytree_node=False)

  @classmethod
  def init(cls, config: Any, key: jax.Array, dtype: Any = "float32") -> Self:
    """An adapter that changes nothing yet: B is zero, A is random."""
    made = super().init(config, key, dtype)
    nothing = jax.tree.map(jnp.zeros_like, made.params["up"])
    return made.replace(params={**made.params, "up": nothing})

  def __call__(self, hidden: jax.Array, target: types.Model) -> jax.Array:
    """Logits [..., V] of hidden states [..., D] of the target cut short."""
    return self.on_target(self.apply("__call__", hidden), target)


class _Adapter(nn.Module):
  config: ExitConfig

  @nn.compact
  def __call__(self, x):
    y = nn.silu(layers.Linear(self.config.rank, name="down")(x))
    return x + layers.Linear(self.config.embed_dim, name="up")(y)

  def init_parameters(self):
    return self(jnp.zeros((1, self.config.embed_dim)))
