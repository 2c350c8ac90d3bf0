# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers of policies, kept with the answers that they decided.

A policy may hold seconds that were measured when it was made. Measured again
they differ a little, and so would the drafts of a run that goes on: it takes
the numbers that it began with.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from specjax import session as session_lib
from specjax.bench import workdir


def keep(
  path: epath.Path, methods: Mapping[str, session_lib.Method]
) -> dict[str, session_lib.Method]:
  """The methods with the numbers that a run's folder has for their policies.

  Args:
    path: of the folder; what it has no numbers for is written there.
    methods: by name, with numbers measured now.

  Raises:
    ValueError: the numbers are of other policies.
  """
  known = workdir.read_json(path / workdir.POLICIES)
  if known is None:
    now = {name: _numbers(method) for name, method in methods.items()}
    workdir.write_json(path / workdir.POLICIES, now)
    return dict(methods)
  return {
    name: _with(method, known.get(name), path)
    for name, method in methods.items()
  }


def _numbers(method: session_lib.Method) -> list[Any]:
  leaves = jax.tree.leaves(method.active_policy)
  return [np.asarray(leaf).tolist() for leaf in leaves]


def _with(method, numbers, path) -> session_lib.Method:
  leaves, tree = jax.tree.flatten(method.active_policy)
  shapes = [np.shape(leaf) for leaf in leaves]
  if numbers is None or [np.shape(number) for number in numbers] != shapes:
    raise ValueError(
      f"{path / workdir.POLICIES} is of other policies: choose another workdir "
      "or add --overwrite"
    )
  if not leaves:
    return method
  # A number of Python stays one: an array would compile every program anew.
  kept = [
    number
    if isinstance(leaf, int | float)
    else jnp.asarray(number, jnp.asarray(leaf).dtype)
    for number, leaf in zip(numbers, leaves)
  ]
  return dataclasses.replace(method, policy=jax.tree.unflatten(tree, kept))
