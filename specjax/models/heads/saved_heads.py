# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our own folders of draft heads: every kind of head, as it is.

config.json names the kind of head and holds its configuration, and the weights
of the target that it was trained for; tensors have the names of their
parameters, with matrices as [outputs, inputs] like everywhere.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
import typing
from typing import Any, TypeVar

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.models import json_values, orbax, sources, weights
from specjax.models import model as model_lib
from specjax.models.heads import head as heads_lib
from specjax.models.heads import head_files
from specjax.models.heads.head_files import Folder
from specjax.models.transformer import TransformerConfig

_Head = TypeVar("_Head", bound=heads_lib.Head)
KIND, _TARGET, _COLUMNS = "specjax_head", "target_weights", "columns"
# Fields that say how many modules a network has.
_COUNTS = ("num_heads", "num_layers")


def save(
  head: heads_lib.Head,
  path: str | os.PathLike[str],
  target: model_lib.Model | None = None,
) -> None:
  """Saves a head in our own layout, which `load` reads.

  Args:
    head: of any kind.
    path: of a new folder.
    target: the model that it was trained for, if its weights are to be known
      again; takes a pass over them.

  Raises:
    ValueError: the folder exists.
  """
  path = pathlib.Path(path)
  if path.exists():
    raise ValueError(f"{path} exists already: name a new folder")
  leaves, _ = jax.tree_util.tree_flatten_with_path(head.params)
  tensors = {
    ".".join(key.key for key in keys): leaf.T
    if keys[-1].key == "kernel"
    else leaf
    for keys, leaf in leaves
  }
  if head.columns is not None:
    tensors[_COLUMNS] = head.columns
  raw = {KIND: type(head).__name__, **dataclasses.asdict(head.config)}
  if target is not None:
    raw[_TARGET] = sources.fingerprint(target)
  _write(path, tensors, raw)


def copy(
  name: str | os.PathLike[str],
  path: str | os.PathLike[str],
  dtype: str,
) -> None:
  """Saves heads that `save` wrote once more, rounded to another type.

  Args:
    name: of their folder.
    path: of a new folder.
    dtype: of their parameters there, such as "float16".

  Raises:
    FileNotFoundError, ValueError: see `head_files.open_folder`; a folder in
      another layout, or `path` exists.
  """
  from safetensors import flax as safetensors

  folder, path = head_files.open_folder(name), pathlib.Path(path)
  if not is_own(folder):
    raise ValueError(f"{folder.name} is not in the layout of specjax")
  found = safetensors.load_file(str(folder.path / head_files.SINGLE))
  tensors = {
    name: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
    for name, x in found.items()
  }
  _write(path, tensors, folder.raw)


def _write(path, tensors, raw) -> None:
  """A new folder; other users may read it like any file."""
  from safetensors import flax as safetensors

  path.mkdir(parents=True)
  weights_file = path / head_files.SINGLE
  safetensors.save_file(tensors, str(weights_file))
  # The last: a folder without it is not read.
  config = path / "config.json"
  config.write_text(json.dumps(raw, indent=2) + "\n")
  weights_file.chmod(config.stat().st_mode)


def is_own(folder: Folder) -> bool:
  """Whether `save` wrote it."""
  return KIND in folder.raw


def is_reduced(folder: Folder) -> bool:
  """Whether heads are seen to draft some of their target's tokens only.

  Those that draft the first ids may draft all: their target knows.
  """
  mapped = folder.tensors(integers=(_COLUMNS,)).get(_COLUMNS)
  if mapped is None:
    return False
  found = head_files.read_integers(mapped, f"{folder.name}: tensor {_COLUMNS}")
  first = np.arange(np.count_nonzero(found >= 0))
  return not np.array_equal(found[: len(first)], first)


def load(
  name: str | os.PathLike[str] | Folder, target: types.Model, kind: type[_Head]
) -> _Head:
  """A head that `save` wrote.

  One that was trained for other weights is no mistake, and a warning: it may
  still draft well for weights that were tuned or rounded since.

  Raises:
    FileNotFoundError: see `head_files.open_folder`.
    ValueError: a head of another kind or target, or damaged.
  """
  folder = name if isinstance(name, Folder) else head_files.open_folder(name)
  found = folder.raw.get(KIND)
  if found != kind.__name__:
    raise ValueError(
      f"{folder.name} holds {weights.one_line(found or 'no head of specjax')}, "
      f"{kind.__name__} was expected: name another folder or drafter"
    )
  own = (KIND, _TARGET)
  raw = {key: value for key, value in folder.raw.items() if key not in own}
  config = _read_config(typing.get_type_hints(kind)["config"], raw, folder)
  head_files.check_width(_width(config), target, folder)
  _compare_target(folder, target)
  tensors = folder.tensors(integers=(_COLUMNS,))
  mapped = tensors.pop(_COLUMNS, None)
  _check_sizes(config, len(tensors), folder)
  shapes = jax.eval_shape(lambda: kind.init(config, jax.random.key(0)).params)
  paths, _ = jax.tree_util.tree_flatten_with_path(shapes)
  names = {
    tuple(key.key for key in keys): ".".join(key.key for key in keys)
    for keys, _ in paths
  }
  head = head_files.read_head(kind, config, tensors, names, folder, target)
  columns = _own_columns(config, mapped, target, folder)
  if columns is not None and config.draft_vocab is None:
    head = head.drafting(
      jnp.argsort(columns)[-int(columns.max()) - 1 :], target
    )
  return head.replace(columns=columns).beside(target)


def _compare_target(folder, target):
  """Warns where a head was trained for other weights, as far as it is known."""
  stated = folder.raw.get(_TARGET)
  if stated is None or not isinstance(target, model_lib.Model):
    return
  found = sources.fingerprint(target)
  if stated != found:
    logging.warning(
      "%s has heads for the weights %.12s, the target's are %.12s: expect "
      "fewer accepted tokens",
      folder.name,
      weights.one_line(stated),
      found,
    )


def _own_columns(config, mapped, target, folder):
  if mapped is None and config.draft_vocab is None:
    return None
  if mapped is None:
    return head_files.columns(target, config.draft_vocab, None, folder)
  found = head_files.read_integers(mapped, f"{folder.name}: tensor {_COLUMNS}")
  ids = np.flatnonzero(found >= 0)
  fits = len(found) == target.vocab_size and len(ids) > 0
  # Rows of the target's own matrix: a permutation of their numbers.
  most = config.draft_vocab or len(ids)
  if config.draft_vocab is None and fits:
    fits = np.array_equal(np.sort(found[ids]), np.arange(len(ids)))
  if not fits or found.max() >= most:
    raise ValueError(
      f"{folder.name}: the map of its vocabulary is not the target's: use "
      "heads that were trained for it"
    )
  return jnp.asarray(found, jnp.int32)


def _width(config: Any) -> int:
  inner = getattr(config, "layer", getattr(config, "layers", config))
  return inner.embed_dim


def _read_config(kind: Any, raw: Mapping[str, Any], folder: Folder) -> Any:
  """The configuration of a config.json; nothing in it is trusted."""
  fields = {}
  hints = typing.get_type_hints(kind)
  for name, value in raw.items():
    wanted = hints.get(name)
    if wanted is TransformerConfig:
      value = orbax.read_config(value, folder.name)
    value = tuple(value) if isinstance(value, list) else value
    if wanted is None or not json_values.is_of(value, wanted):
      raise ValueError(
        f"{folder.name}: {weights.one_line(name)} = {weights.one_line(value)} "
        "is not part of a head's configuration"
      )
    fields[name] = value
  try:
    return kind(**fields)
  except TypeError as error:  # It names what is missing.
    raise ValueError(f"{folder.name} is damaged: {error}") from None


def _check_sizes(config: Any, tensors: int, folder: Folder) -> None:
  """Refuses sizes below 1, and more modules than tensors, before building."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if dataclasses.is_dataclass(value):
      _check_sizes(value, tensors, folder)
    elif type(value) is int:
      most = tensors if field.name in _COUNTS else 1 << 31
      least = 0 if field.name == "num_layers" else 1
      if not least <= value <= most:
        raise ValueError(
          f"{folder.name}: {field.name} is {value}, with {tensors} tensors it "
          f"must be {least} to {most}"
        )
