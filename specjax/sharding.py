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

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

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


def constrain(
  x: jax.Array, rules: Rules | None, *axes: str | None
) -> jax.Array:
  """Tells the compiler where a value lies; without rules it does nothing."""
  if rules is None:
    return x
  return jax.lax.with_sharding_constraint(x, rules.place(*axes))


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
