# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Meshes: which device holds which part of an array.

A mesh has two axes. `data` splits the rows of a batch, `model` splits what is
wide in a model: query heads, key and value heads, the MLP, the vocabulary. A
model's `Rules` say which of its logical axes are split; what does not divide
is held whole by every device.

Arrays get their places twice: parameters when they are loaded, and activations
and caches by constraints inside the compiled programs, from which the compiler
derives the rest.
"""

import dataclasses
import math
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from specjax import cache as cache_lib

DATA, MODEL = "data", "model"


@dataclasses.dataclass(frozen=True)
class Rules:
  """Where the logical axes of one model and its caches lie.

  Attributes:
    mesh: the devices.
    batch: mesh axis of the rows, or None: held whole by every device.
    heads: of the query heads.
    kv_heads: of the key and value heads.
    mlp: of the MLP's hidden values.
    vocab: of the vocabulary, in both token matrices.
  """

  mesh: Mesh
  batch: str | None = DATA
  heads: str | None = None
  kv_heads: str | None = None
  mlp: str | None = None
  vocab: str | None = None

  def place(self, *axes: str | None) -> NamedSharding:
    """Sharding of an array whose dimensions are these logical axes."""
    names = (None if axis is None else getattr(self, axis) for axis in axes)
    return NamedSharding(self.mesh, PartitionSpec(*names))


def rules_for(
  mesh: Mesh, *, heads: int, kv_heads: int, mlp: int, vocab: int, name: str
) -> tuple[Rules, int]:
  """The rules of a model of these sizes, and copies of each kv head.

  What the `model` axis does not divide is held whole by each device: attention
  as one piece, the MLP, the vocabulary. Fewer kv heads than the axis is long
  are no reason for that: each is repeated, by the smallest factor that lets
  them divide.

  Args:
    mesh: see `make_mesh`.
    heads: query heads.
    kv_heads: key and value heads; divides `heads`.
    mlp: hidden values.
    vocab: rows of the token matrices.
    name: what an error calls the model.

  Raises:
    ValueError: the axis divides nothing of this model.
  """
  parts = mesh.shape[MODEL]
  split = lambda size: MODEL if parts > 1 and size % parts == 0 else None
  rules = Rules(
    mesh,
    batch=DATA if mesh.shape[DATA] > 1 else None,
    heads=split(heads),
    kv_heads=split(heads),
    mlp=split(mlp),
    vocab=split(vocab),
  )
  if parts > 1 and not (rules.heads or rules.mlp or rules.vocab):
    raise ValueError(
      f"mesh.model {parts} divides nothing of {name}: neither {heads} heads "
      f"nor mlp {mlp} nor vocabulary {vocab}; use a divisor of one of them"
    )
  copies = parts // math.gcd(parts, kv_heads) if rules.heads else 1
  return rules, copies


def rules_of(model: Any) -> Rules | None:
  """Where a model lies; one that does not say so lies on one device."""
  return getattr(model, "rules", None)


def check_rows(rules: Rules | None, rows: int) -> None:
  """Whether a batch of so many rows can be split.

  Raises:
    ValueError: one line that names the numbers and the fix.
  """
  parts = 1 if rules is None else rules.mesh.shape[DATA]
  if rows % parts:
    raise ValueError(
      f"{rows} rows do not divide by mesh.data {parts}: use a batch_size that "
      "is a multiple of it"
    )


def place_rows(tree: Any, rules: Rules | None) -> Any:
  """Puts arrays [B, ...] on the mesh, split by rows; None: as they are."""
  if rules is None:
    return tree
  return jax.tree.map(
    lambda x: put(x, rules.place("batch", *(None,) * (x.ndim - 1))), tree
  )


def put(array: Any, sharding: NamedSharding) -> jax.Array:
  """An array of the host on its devices; each process fills its own.

  Never on one device as a whole before.
  """
  if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
    return jax.device_put(array, sharding)
  return jax.make_array_from_callback(
    array.shape, sharding, lambda index: array[index]
  )


def constrain(
  x: jax.Array, rules: Rules | None, *axes: str | None
) -> jax.Array:
  """Tells the compiler where a value lies; without rules it does nothing."""
  if rules is None:
    return x
  return jax.lax.with_sharding_constraint(x, rules.place(*axes))


def largest(
  x: jax.Array, count: int, rules: Rules | None
) -> tuple[jax.Array, jax.Array]:
  """The largest values of x [B, ..., V] in order, and where they stand.

  Of equal ones the first comes first. Each device ranks its own rows: left to
  the compiler, `top_k` would gather all rows on each of them.
  """
  rank = lambda x: tuple(jax.lax.top_k(x, count))
  if rules is None or rules.batch is None:
    return rank(x)
  rows = PartitionSpec(rules.batch)
  return jax.shard_map(
    rank, mesh=rules.mesh, in_specs=rows, out_specs=(rows, rows)
  )(x)


def constrain_rows(tree: Any, rules: Rules | None, rows: int) -> Any:
  """Tells the compiler that a tree's arrays [B, ...] are split by rows.

  Caches say for themselves where they lie, and arrays without rows stay where
  the compiler puts them.
  """
  if rules is None:
    return tree

  def split(leaf):
    if isinstance(leaf, cache_lib.KVCache) or leaf.shape[:1] != (rows,):
      return leaf
    return constrain(leaf, rules, "batch", *(None,) * (leaf.ndim - 1))

  is_cache = lambda node: isinstance(node, cache_lib.KVCache)
  return jax.tree.map(split, tree, is_leaf=is_cache)


def make_mesh(data: int, model: int) -> Mesh | None:
  """A mesh of the first data * model devices; None for a single one.

  Raises:
    ValueError: there are not as many devices.
  """
  count = jax.device_count()
  if data * model > count:
    raise ValueError(
      f"mesh data {data} x model {model} needs {data * model} devices and "
      f"there are {count}: choose a smaller mesh"
    )
  if data * model == 1:
    return None
  return jax.make_mesh(
    (data, model),
    (DATA, MODEL),
    axis_types=(AxisType.Auto, AxisType.Auto),
    devices=jax.devices()[: data * model],
  )
