# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A model's parameters on a mesh, and back to what files hold."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh
import numpy as np

from specjax import sharding
from specjax.models import layout
from specjax.models.transformer import TransformerConfig


@dataclasses.dataclass(frozen=True)
class Plan:
  """Where the parameters of one model go.

  Attributes:
    config: of the model as it will run: `kv_copies` says how often each kv head
      is held.
    rules: which mesh axis holds what; None is one device.
  """

  config: TransformerConfig
  rules: sharding.Rules | None

  def put(self, path: layout.Path, array: np.ndarray) -> jax.Array:
    """A parameter of the host on its devices, kv heads repeated."""
    return self.move(path, repeat(self.config, path, np.asarray(array)))

  def move(self, path: layout.Path, array: np.ndarray) -> jax.Array:
    """A parameter whose kv heads are repeated already, on its devices."""
    if self.rules is None:
      return jax.device_put(array)
    return sharding.put(array, self.rules.place(*layout.logical_axes(path)))


def plan(config: TransformerConfig, mesh: Mesh | None) -> Plan:
  """The plan of a model.

  Raises:
    ValueError: the mesh divides nothing of it.
  """
  if mesh is None:
    return Plan(config, None)
  rules, copies = sharding.rules_for(
    mesh,
    heads=config.num_heads,
    kv_heads=config.num_kv_heads,
    mlp=config.mlp_dim,
    vocab=config.vocab_size,
    name=f"the {config.family} model",
  )
  return Plan(dataclasses.replace(config, kv_copies=copies), rules)


def stored(config: TransformerConfig, params: Any) -> Any:
  """The parameters as a file holds them: every kv head once."""
  if config.kv_copies == 1:
    return params

  def once(keys, leaf):
    path = tuple(key.key for key in keys)
    if not _is_kv(path):
      return leaf
    heads = np.asarray(leaf).reshape(
      *leaf.shape[:-1], -1, config.kv_copies, config.head_dim
    )
    return heads[..., 0, :].reshape(*leaf.shape[:-1], -1)

  return jax.tree.map_with_path(once, params)


def _is_kv(path: layout.Path) -> bool:
  return path[-2] in ("key", "value")


def repeat(
  config: TransformerConfig, path: layout.Path, array: np.ndarray
) -> np.ndarray:
  """Each kv head of the last axis, as often as it is held."""
  if config.kv_copies == 1 or not _is_kv(path):
    return array
  heads = array.reshape(*array.shape[:-1], -1, config.head_dim)
  heads = np.repeat(heads, config.kv_copies, axis=-2)
  return heads.reshape(*array.shape[:-1], -1)
