# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays on disk (Orbax), with a note about what they are.

A checkpoint is one folder, local or remote (gs://...). It appears under its
name when it is complete and not before, so a save that is killed leaves
nothing that loads.

What comes back is decided by the reader alone: the target says which
containers, dtypes and devices it wants. Nothing is taken from the machine that
wrote the checkpoint, which may have had other devices. Integer keys, tuples
and optimiser states come back as what they are, because they are the target's.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import os
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

# Keys from the root to an array; indices of lists and tuples as text.
Names = tuple[str, ...]
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Description:
  """What a checkpoint holds, read without its arrays.

  Attributes:
    metadata: the note that was saved with it.
    arrays: shape and dtype of every array.
  """

  metadata: dict[str, Any]
  arrays: dict[Names, jax.ShapeDtypeStruct]


def save(
  path: str | os.PathLike[str], tree: Any, metadata: Mapping[str, Any]
) -> None:
  """Writes a tree of arrays; every process of a run must call it.

  Args:
    path: a folder that does not exist yet.
    tree: any pytree of arrays.
    metadata: whatever JSON can hold.

  Raises:
    ValueError: the folder exists, cannot be written, the metadata is no JSON
      or a leaf no array.
  """
  from orbax.checkpoint import v1 as ocp

  folder = _absolute(path)
  if folder.exists():
    raise ValueError(f"{folder} exists already: name a new folder")
  try:
    note = json.loads(json.dumps(dict(metadata), allow_nan=False))
  except (TypeError, ValueError) as error:
    raise ValueError(f"metadata of {folder} is no JSON: {error}") from None
  tree = _attempt(
    f"cannot save {folder}", lambda: jax.tree.map(_as_array, tree)
  )
  context = ocp.Context()
  # Weights hardly shrink, and sizes on disk then say what loading will take.
  context.array.saving.use_compression = False
  with context:
    _attempt(
      f"cannot write {folder}",
      lambda: ocp.save(folder, tree, custom_metadata=note),
    )


def load(
  path: str | os.PathLike[str], target: Any, *, partial: bool = False
) -> Any:
  """Reads a tree of arrays.

  Args:
    path: the checkpoint.
    target: the tree that is wanted; leaves have shape and dtype, as
      `jax.eval_shape` gives them, and may have a sharding. Without one an
      array goes to this process's first device; where the target has a numpy
      array there will be one. Floating-point numbers are converted to the
      dtype asked for.
    partial: leave what the target does not name unread.

  Returns:
    A tree like the target.

  Raises:
    FileNotFoundError: there is no such folder.
    ValueError: no checkpoint, a damaged one, or one of another tree.
  """
  from orbax.checkpoint import v1 as ocp

  folder = _absolute(path)
  leaves, _ = jax.tree_util.tree_flatten_with_path(target)
  wanted = {_names(keys): leaf for keys, leaf in leaves}
  _check_same(folder, describe(folder).arrays, wanted, partial)
  context = ocp.Context()
  context.pytree.loading.partial_load = partial
  placed = jax.tree.map(_placed, target)
  with context:
    return _attempt(f"{folder} is damaged", lambda: ocp.load(folder, placed))


def describe(path: str | os.PathLike[str]) -> Description:
  """What a checkpoint holds.

  Raises:
    FileNotFoundError: there is no such folder.
    ValueError: no checkpoint of a tree, or a damaged one.
  """
  from orbax.checkpoint import v1 as ocp

  folder = _absolute(path)
  if not folder.exists():
    raise FileNotFoundError(f"checkpoint {folder} does not exist")
  found = _attempt(
    f"{folder} is no complete Orbax checkpoint", lambda: ocp.metadata(folder)
  )
  if found.metadata is None:
    raise ValueError(f"{folder} is damaged: its arrays cannot be found")
  leaves, _ = jax.tree_util.tree_flatten_with_path(found.metadata)
  for keys, leaf in leaves:
    if not hasattr(leaf, "shape"):
      raise ValueError(f"{folder} holds {'/'.join(_names(keys))}, no array")
  note = found.custom_metadata
  return Description(
    metadata=note if isinstance(note, dict) else {},
    arrays={
      _names(keys): jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
      for keys, leaf in leaves
    },
  )


def size(path: str | os.PathLike[str]) -> int:
  """Bytes of all files of a checkpoint.

  Arrays lie there uncompressed, so this bounds what an honest one loads to.
  """
  return sum(
    size(child) if child.is_dir() else child.stat().length
    for child in _absolute(path).iterdir()
  )


def _absolute(path: str | os.PathLike[str]) -> Any:
  from etils import epath

  folder = epath.Path(path).expanduser()
  return folder if folder.is_absolute() else epath.Path(os.getcwd()) / folder


def _attempt(problem: str, action: Callable[[], _T]) -> _T:
  """Runs a part of the library, whose errors have many kinds and lines."""
  try:
    return action()
  except Exception as error:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise ValueError(f"{problem}: {reason:.200}") from None


def _names(keys: tuple[Any, ...]) -> Names:
  """Keys as the checkpoint spells them: it knows texts only."""
  named = []
  for key in keys:
    parts = (getattr(key, name, None) for name in ("key", "idx", "name"))
    named.append(str(next(part for part in parts if part is not None)))
  return tuple(named)


def _as_array(leaf: Any) -> Any:
  """Scalars become arrays, so that every leaf has a shape and a dtype."""
  if not hasattr(leaf, "dtype"):
    return jnp.asarray(leaf)
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    raise ValueError("a random key is no array: use jax.random.key_data(key)")
  return leaf


def _placed(leaf: Any) -> Any:
  if isinstance(leaf, np.ndarray):
    return leaf
  sharding = getattr(leaf, "sharding", None)
  if sharding is None:
    # Else the library takes the device that the array was saved from.
    device = jax.local_devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _check_same(
  folder: Any,
  stored: Mapping[Names, jax.ShapeDtypeStruct],
  wanted: Mapping[Names, Any],
  partial: bool,
) -> None:
  """Refuses a target that the checkpoint does not fit, by the first array."""
  unknown = set() if partial else set(stored) - set(wanted)
  for problem, names in (
    ("lacks", set(wanted) - set(stored)),
    ("has the unknown", unknown),
  ):
    if names:
      raise ValueError(
        f"{folder} {problem} array {'/'.join(min(names))} ({len(names)} in "
        "all): it was saved from another tree"
      )
  for names, leaf in wanted.items():
    found = stored[names]
    floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in (found, leaf)]
    if found.shape != leaf.shape or (
      found.dtype != leaf.dtype and not all(floats)
    ):
      raise ValueError(
        f"{folder} has array {'/'.join(names)} as {_kind(found)}, but "
        f"{_kind(leaf)} is asked for: it was saved from another tree"
      )


def _kind(leaf: Any) -> str:
  return f"{jnp.dtype(leaf.dtype).name}{list(leaf.shape)}"
