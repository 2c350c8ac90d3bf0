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

from specjax import sharding, types
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
    rows: of the target's output matrix, those of the ids that the head drafts,
      if it uses this part of it alone.
  """

  params: Any
  columns: jax.Array | None  # [V] int32
  config: Any = struct.field(pytree_node=False)
  rows: jax.Array | None = None  # [Q, D]

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

  def num_drafted(self, target: types.Model) -> int:
    """How many of the target's ids it can draft."""
    if self.columns is None:
      return target.num_tokens
    return int((self.columns >= 0).sum())

  def beside(self, target: types.Model) -> Self:
    """The head on the devices of its target, which would else copy it at calls.

    It is small, so each device holds it whole; but an own output matrix is
    split over the vocabulary where the target's is, if that divides it.
    """
    rules = sharding.rules_of(target)
    if rules is None:
      return self
    whole = lambda x: sharding.put(x, rules.place(*(None,) * x.ndim))

    def place(keys, leaf):
      names = [key.key for key in keys]
      is_output = names[-2:-1] == ["output"] and "attention" not in names
      if is_output and _divides(rules, leaf.shape[-1]):
        return sharding.put(leaf, rules.place(None, "vocab"))
      return whole(leaf)

    head = jax.device_get(self)
    return self.replace(
      params=jax.tree.map_with_path(place, head.params),
      columns=jax.tree.map(whole, head.columns),
      rows=jax.tree.map(whole, head.rows),
    )

  def drafting(self, ids: jax.Array | None, target: Any) -> Self:
    """The head whose columns are these tokens [Q] of its target; None is all.

    One without an output matrix of its own reads these rows of the target's,
    which costs Q / V of the whole.
    """
    if ids is None:
      return self.replace(columns=None, rows=None)
    columns = jnp.full((target.vocab_size,), -1, jnp.int32)
    columns = columns.at[ids].set(jnp.arange(len(ids), dtype=jnp.int32))
    is_own = self.config.draft_vocab is not None
    rows = None if is_own else target.output_rows(ids)
    return self.replace(columns=columns, rows=rows)

  def on_target(self, x: jax.Array, target: types.Model) -> jax.Array:
    """Logits [..., V] float32 of what the network gave.

    Args:
      x: [..., D] for the target's output matrix, or logits [..., Q].
      target: the model that is drafted for.
    """
    if self.rows is not None:
      x = jnp.einsum(
        "...d,qd->...q",
        x,
        self.rows.astype(x.dtype),
        preferred_element_type=jnp.float32,
      )
    elif self.config.draft_vocab is None:
      return target.unembed(x)
    rules = sharding.rules_of(target)
    # Split first, as in `Transformer.unembed`: logits travel, no matrix.
    splits = (None,)
    if rules is not None and _divides(rules, x.shape[-1]):
      splits = ("vocab", None)
    for vocab in splits:
      axes = ("batch", *(None,) * (x.ndim - 2), vocab)
      x = sharding.constrain(x, rules, *axes)
    if self.columns is None:
      return x
    known = jnp.take(x, jnp.maximum(self.columns, 0), axis=-1)
    can = (self.columns >= 0).reshape((1,) * (x.ndim - 1) + (-1,))
    return jnp.where(can, known, -jnp.inf)


def _divides(rules: sharding.Rules, size: int) -> bool:
  """Whether the axis of the vocabulary divides an own output matrix."""
  return rules.vocab is not None and size % rules.mesh.shape[rules.vocab] == 0


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
