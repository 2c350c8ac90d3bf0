# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models in folders of our own: what `save` writes, `load` reads back equal.

  params/             a checkpoint; its note holds the configuration
  tokenizer.json      and its neighbours, as in a Hugging Face folder

The folder is written beside its place and renamed, so it is whole or not there.
It is local, as all models are: the checks of untrusted files read here and
there in them. (Checkpoints alone may be remote, see `checkpoints`.)
"""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
import tempfile
import typing
from typing import Any

import jax
import numpy as np

from specjax import checkpoints, tokenizers
from specjax.models import (
  families,
  int8,
  json_values,
  layers,
  layout,
  placement,
  weights,
)
from specjax.models.model import Model
from specjax.models.transformer import TransformerConfig

FORMAT = "specjax model"
VERSION = 1
_PARAMS = "params"
# Files by which an Orbax folder is known, of this format or an older one.
_MARKS = ("_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt", "checkpoint")
# The library packs what is small with its index, and packed zeros take no
# room; beyond this an honest checkpoint is as large as its arrays.
_PACKED = 64 << 20
# What a field may say, where its kind allows more.
_WORDS = {
  "family": tuple(families.FAMILIES),
  "norm": ("rms", "layer"),
  "activation": tuple(layers.ACTIVATIONS),
  "quantization": (None, "int8"),
  "kv_copies": (1,),
}


def save(
  model: Model,
  tokenizer: tokenizers.Tokenizer,
  path: str | os.PathLike[str],
  *,
  description: str = "",
) -> None:
  """Saves a model with its tokenizer; `specjax.load(path)` reads it.

  Parameters keep their dtype in the folder.

  Args:
    model: the model.
    tokenizer: its own.
    path: a folder that does not exist yet.
    description: where the weights came from, for whoever asks later.

  Raises:
    ValueError: the folder exists, or the tokenizer is another model's.
  """
  path = pathlib.Path(path).expanduser()
  if path.exists():
    raise ValueError(f"{path} exists already: name a new folder")
  if model.num_tokens != tokenizer.num_tokens:
    raise ValueError(
      f"the tokenizer has {tokenizer.num_tokens} ids and the model "
      f"{model.num_tokens}: use the tokenizer that belongs to it"
    )
  config = dataclasses.replace(model.config, kv_copies=1)
  params = placement.stored(model.config, model.params)
  note = {
    "format": FORMAT,
    "version": VERSION,
    "config": dataclasses.asdict(config),
    "num_tokens": model.num_tokens,
    "tokenizer": tokenizer.fingerprint(),
    "fingerprint": weights.fingerprint(params),
    "description": description,
  }
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    dir=path.parent, prefix=f".{path.name}-"
  ) as scratch:
    folder = pathlib.Path(scratch) / "model"
    folder.mkdir()
    tokenizer.save(folder)
    checkpoints.save(folder / _PARAMS, params, note)
    folder.rename(path)


def is_model(folder: pathlib.Path) -> bool:
  """Whether a folder is one of ours, by its looks.

  Raises:
    ValueError: another program's checkpoint.
  """
  if (folder / _PARAMS / _MARKS[0]).is_file():
    return True
  if any((folder / mark).is_file() for mark in _MARKS):
    raise ValueError(
      f"{folder} is an Orbax checkpoint and no model: only folders that "
      "specjax.save wrote are read"
    )
  return False


def load(
  path: pathlib.Path,
  dtype: Any = "float32",
  quantization: str | None = None,
  mesh: jax.sharding.Mesh | None = None,
) -> tuple[Model, tokenizers.Tokenizer]:
  """Loads a folder that `save` wrote.

  Args:
    path: the folder.
    dtype: of the parameters, 8-bit matrices apart.
    quantization: "int8" makes 8-bit matrices of others; what was saved with
      8 bits has them in any case.
    mesh: the devices; None is the first one.

  Raises:
    ValueError: not such a folder, a damaged one, or numbers that are not
      finite in the dtype.
  """
  parameter_dtype = weights.parse_dtype(dtype)
  found = checkpoints.describe(path / _PARAMS)
  note = _check_note(found.metadata, path.name)
  config = read_config(note.get("config"), path.name)
  target = _target(config, found.arrays, path)
  tokenizer = tokenizers.from_folder(path)
  if tokenizer.fingerprint() != note.get("tokenizer"):
    raise ValueError(
      f"{path.name}: its tokenizer is not the one that it was saved with"
    )
  flat = _flat(checkpoints.load(path / _PARAMS, _nested(target)))
  if weights.fingerprint(_nested(flat)) != note.get("fingerprint"):
    raise ValueError(
      f"{path.name} is damaged: its parameters are not those that were saved"
    )
  made = dataclasses.replace(
    config, quantization=config.quantization or quantization
  )
  plan = placement.plan(made, mesh)
  params = {}
  for name in list(flat):
    # Let go one by one: what is read never exists twice in full.
    array = _converted(flat.pop(name), parameter_dtype, path.name, name)
    parts = {name: array}
    if config.quantization is None:
      parts = int8.leaves(made, name, array)
    for leaf, value in parts.items():
      params[leaf] = plan.put(leaf, value)
  model = Model.from_params(made, _nested(params), tokenizer.num_tokens, mesh)
  return model, tokenizer


def _check_note(note: dict[str, Any], source: str) -> dict[str, Any]:
  if note.get("format") != FORMAT:
    raise ValueError(
      f"{source} holds an Orbax checkpoint that specjax.save did not write: "
      "only its folders are read"
    )
  if note.get("version") != VERSION:
    raise ValueError(
      f"{source} is of format {weights.one_line(note.get('version'))}, this "
      f"program reads {VERSION}: save the model again"
    )
  return note


def read_config(stated: Any, source: str) -> TransformerConfig:
  """The configuration of a note; nothing in it is trusted."""
  if not isinstance(stated, dict):
    raise ValueError(f"{source} is damaged: it has no configuration")
  kinds = typing.get_type_hints(TransformerConfig)
  values: dict[str, Any] = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in stated.items()
  }
  for name, value in values.items():
    fits = name in kinds and json_values.is_of(value, kinds[name])
    if not fits or value not in _WORDS.get(name, (value,)):
      raise ValueError(
        f"{source}: {weights.one_line(name)} = {weights.one_line(value)} is "
        "not part of a configuration"
      )
  try:
    config = TransformerConfig(**values)
  except TypeError as error:  # It names what is missing.
    raise ValueError(f"{source} is damaged: {error}") from None
  layout.check_config(config, source)
  return config


def _target(
  config: TransformerConfig,
  stored: Mapping[layout.Path, jax.ShapeDtypeStruct],
  path: pathlib.Path,
) -> dict[layout.Path, np.ndarray]:
  """What the checkpoint must hold; arrays of the host that take no room."""
  least = config.num_layers * len(layout.layer_shapes(config))
  if least > len(stored):
    raise ValueError(
      f"{path.name}: {config.num_layers} layers need {least} arrays, it holds "
      f"{len(stored)}"
    )
  needed = sum(x.size * x.dtype.itemsize for x in stored.values())
  there = checkpoints.size(path / _PARAMS)
  if needed > 2 * there + _PACKED:
    raise ValueError(
      f"{path.name}: its arrays take {needed} bytes, its files have {there}: "
      "it is truncated or damaged"
    )
  target = {}
  for name, shape in layout.parameter_shapes(config).items():
    parts = int8.shapes(config, name, shape)
    for part, size in parts.items():
      kind = stored[part].dtype if part in stored else np.dtype(np.float32)
      if kind not in weights.DTYPES.values():
        kind = np.dtype(np.float32)
      if len(parts) > 1 and part == name:
        kind = np.dtype(np.int8)
      target[part] = np.broadcast_to(np.zeros((), kind), size)
  return target


def _converted(
  array: np.ndarray, dtype: np.dtype, source: str, path: layout.Path
) -> np.ndarray:
  if array.dtype == np.int8:
    return array
  with np.errstate(all="ignore"):
    array = array.astype(dtype, copy=False)
  if not np.isfinite(array).all():
    raise ValueError(
      f"{source}: array {'/'.join(path)} holds a value that is not finite in "
      f"{dtype.name}: load it in a wider dtype"
    )
  return array


def _nested(flat: Mapping[layout.Path, Any]) -> dict[str, Any]:
  tree: dict[str, Any] = {}
  for path, leaf in flat.items():
    node = tree
    for part in path[:-1]:
      node = node.setdefault(part, {})
    node[path[-1]] = leaf
  return tree


def _flat(tree: Any) -> dict[layout.Path, Any]:
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {tuple(key.key for key in keys): leaf for keys, leaf in leaves}
