# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Medusa heads, and what all draft heads share.

A head is small, reads what the target computed, and is applied like a model:
parameters and a static config in one pytree. It may end in the target's own
output matrix, in one of its own, or in one of fewer tokens than the target
knows; `on_target` makes logits over the target's ids of all three.

Axis letters: B batch, K heads, D model width, Q columns of a head's own output
matrix, V vocabulary.
"""

import dataclasses
from typing import Any, Self

from flax import struct
import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import types
from specjax.models import layers


class ResBlock(nn.Module):
  """x + silu(Wx + b)."""

  @nn.compact
  def __call__(self, x):
    return x + nn.silu(layers.Linear(x.shape[-1], bias=True, name="linear")(x))


class Head(struct.PyTreeNode):
  """A draft network with its parameters; the network follows from `config`.

  Attributes:
    params: nested dict of arrays.
    columns: for each of the target's ids the column of the head's own output
      matrix, -1 for ids that the head cannot draft. None: column i is id i.
    config: sizes; static.
  """

  params: Any
  columns: jax.Array | None  # [V] int32
  config: Any = struct.field(pytree_node=False)

  @classmethod
  def init(cls, config: Any, key: jax.Array, dtype: Any = "float32") -> Self:
    """A head of random parameters."""
    variables = config.network().init(key, method="init_parameters")
    params = jax.tree.map(lambda x: x.astype(dtype), variables["params"])
    return cls(params, None, config)

  @property
  def dtype(self) -> jnp.dtype:
    """Of parameters and activations."""
    return jax.tree.leaves(self.params)[0].dtype

  def apply(self, method: str, *args) -> Any:
    """Runs a method of the network."""
    # As in `Model`: a width must not decide between close tokens.
    with jax.default_matmul_precision("highest"):
      return self.config.network().apply(
        {"params": self.params}, *args, method=method
      )

  def on_target(self, x: jax.Array, target: types.Model) -> jax.Array:
    """Logits [..., V] float32 of what the network gave.

    Args:
      x: [..., D] for the target's output matrix, or logits [..., Q].
      target: the model that is drafted for.
    """
    if self.config.draft_vocab is None:
      return target.unembed(x)
    if self.columns is None:
      return x
    known = jnp.take(x, jnp.maximum(self.columns, 0), axis=-1)
    can = (self.columns >= 0).reshape((1,) * (x.ndim - 1) + (-1,))
    return jnp.where(can, known, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class MedusaConfig:
  """Sizes of Medusa heads.

  Attributes:
    num_heads: K.
    num_layers: residual blocks of a head.
    embed_dim: D, the target's.
    draft_vocab: Q; None ends in the target's output matrix.
  """

  num_heads: int
  num_layers: int
  embed_dim: int
  draft_vocab: int | None = None

  def network(self) -> nn.Module:
    return _Medusa(self)


class MedusaHeads(Head):
  """Heads that each guess one later token from one hidden state.

  From the hidden state that predicts token t, head k predicts token t + 1 + k,
  without knowing what lies between (arXiv 2401.10774).
  """

  config: MedusaConfig = struct.field(pytree_node=False)

  def __call__(self, hidden: jax.Array, target: types.Model) -> jax.Array:
    """Logits [..., K, V] of hidden states [..., D]."""
    return self.on_target(self.apply("__call__", hidden), target)


class _Medusa(nn.Module):
  config: MedusaConfig

  def setup(self):
    self.heads = [
      _MedusaHead(self.config, name=f"head_{k}")
      for k in range(self.config.num_heads)
    ]

  def __call__(self, hidden):
    return jnp.stack([head(hidden) for head in self.heads], axis=-2)

  def init_parameters(self):
    return self(jnp.zeros((1, self.config.embed_dim)))


class _MedusaHead(nn.Module):
  config: MedusaConfig

  @nn.compact
  def __call__(self, x):
    for i in range(self.config.num_layers):
      x = ResBlock(name=f"block_{i}")(x)
    return output(self.config.draft_vocab)(x)


def features_of(block: types.Block, layers_read: tuple[int, ...]) -> jax.Array:
  """[B, T, F] what a head reads of a block: some layers, or the last hidden.

  Raises:
    ValueError: the target did not give its layers.
  """
  found = block.features if layers_read else block.hidden
  if found is None:
    raise ValueError(
      f"the head reads the target's layers {layers_read}, which it does not "
      "give: use decode.with_features"
    )
  return found


def output(draft_vocab: int | None) -> Any:
  """The last matrix of a network, to logits in float32; none if it has none."""
  if draft_vocab is None:
    return lambda x: x
  matrix = layers.Linear(draft_vocab, name="output")
  return lambda x: matrix(x, jnp.float32)
