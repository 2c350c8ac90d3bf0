# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that have their embedding and output matrix of another model.

A small draft is mostly vocabulary: its target's matrices, which it was trained
with and which stay as they are. Its folder holds its layers alone; config.json
states its configuration and names the other model, whose tokenizer is its own
too.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
from jax.sharding import Mesh

from specjax.models import (
  layout,
  orbax,
  parameters,
  placement,
  safetensors_header,
  weights,
)
from specjax.models.model import Model
from specjax.models.transformer import TransformerConfig
from specjax.text import untrusted

BORROWED = ("embed", "unembed")  # names of parameters
_CONFIG, _LENDER = "specjax_layers", "vocabulary_of"
_FILE = "model.safetensors"


def is_model(folder: pathlib.Path) -> bool:
  """Whether `save` wrote a folder, by its config.json."""
  config = folder / "config.json"
  return config.is_file() and _CONFIG in untrusted.read_object(config)


def save(
  model: Model, lender: str, path: str | os.PathLike[str], dtype: Any
) -> None:
  """Saves a model's own layers.

  Args:
    model: on one device.
    lender: name of the model that has its embedding and output matrix, such as
      a preset.
    path: of a new folder.
    dtype: of the parameters there.

  Raises:
    ValueError: the folder exists.
  """
  from safetensors import flax as safetensors

  path = pathlib.Path(path)
  if path.exists():
    raise ValueError(f"{path} exists already: name a new folder")
  own = {k: x for k, x in model.params.items() if k not in BORROWED}
  leaves, _ = jax.tree_util.tree_flatten_with_path(own)
  tensors = {
    ".".join(key.key for key in keys): (
      leaf.T if keys[-1].key == "kernel" else leaf
    ).astype(dtype)
    for keys, leaf in leaves
  }
  raw = {_LENDER: lender, _CONFIG: dataclasses.asdict(model.config)}
  path.mkdir(parents=True)
  file, config = path / _FILE, path / "config.json"
  safetensors.save_file(tensors, str(file))
  # The last: a folder without it is not read.
  config.write_text(json.dumps(raw, indent=2) + "\n")
  file.chmod(config.stat().st_mode)


def lender(folder: pathlib.Path) -> str:
  """Name of the model that lends its vocabulary.

  Raises:
    ValueError: the folder names none.
  """
  found = untrusted.read_object(folder / "config.json").get(_LENDER)
  if not isinstance(found, str) or not found:
    raise ValueError(
      f"{folder.name} is damaged: {_LENDER} = {weights.one_line(found)} names "
      "no model"
    )
  return found


def load(
  folder: pathlib.Path, other: Model, dtype: Any, mesh: Mesh | None
) -> Model:
  """The model, with what another one lends.

  Args:
    folder: that `save` wrote.
    other: the lender, of 32 or 16 bits a weight.
    dtype: of its own parameters.
    mesh: devices that share them; None is one.

  Raises:
    ValueError: damaged, or the other model has another width or vocabulary.
  """
  raw = untrusted.read_object(folder / "config.json")
  config = orbax.read_config(raw.get(_CONFIG), folder.name)
  _check_lender(config, other, folder)
  tensors = safetensors_header.read(folder / _FILE)
  if config.num_layers > len(tensors):
    raise ValueError(
      f"{folder.name} has {len(tensors)} tensors, too few for "
      f"{config.num_layers} layers"
    )
  shapes = {
    path: shape
    for path, shape in layout.parameter_shapes(config).items()
    if path[0] not in BORROWED
  }
  names = {path: ".".join(path) for path in shapes}
  parameters.check_names({*names.values()}, {*tensors}, folder.name)
  for path, shape in shapes.items():
    parameters.check_shape(
      path, shape, names[path], tensors[names[path]], folder.name
    )
  plan = placement.plan(config, mesh)
  params: dict[str, Any] = {}
  for path, name in names.items():
    array = weights.read_tensor(
      tensors[name],
      weights.parse_dtype(dtype),
      transpose=path[-1] == "kernel",
      label=f"{folder.name}: tensor {name}",
    )
    parameters.put(params, path, plan.put(path, array))
  lent = {key: other.params[key] for key in BORROWED if key in other.params}
  return Model.from_params(config, params | lent, other.num_tokens, mesh)


def _check_lender(
  config: TransformerConfig, other: Model, folder: pathlib.Path
) -> None:
  if other.config.quantization is not None:
    raise ValueError(
      f"{folder.name} has an embedding in full precision: it cannot be loaded "
      f"as {other.config.quantization}, use quantization = 'none'"
    )
  mine, theirs = (
    (c.embed_dim, c.vocab_size, c.tie_embeddings)
    for c in (config, other.config)
  )
  if mine != theirs:
    raise ValueError(
      f"{folder.name} was trained with an embedding of {mine[1]} tokens and "
      f"width {mine[0]}, {_LENDER} has {theirs[1]} and {theirs[0]}: "
      "name the model that it was trained with"
    )
