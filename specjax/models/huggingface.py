# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights from a Hugging Face folder (safetensors only).

One file or several with an index; pickle files are never opened.
"""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any

from absl import logging
from jax.sharding import Mesh

from specjax.models import (
  huggingface_config,
  parameters,
  safetensors_header,
  weights,
)
from specjax.models.families import Family
from specjax.models.transformer import TransformerConfig
from specjax.text import untrusted

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
MEDUSA = "medusa_lm_head.safetensors"  # Draft heads, see `medusa_files`.
# Suffixes of files that could run code when they are read.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def load(
  folder: str | os.PathLike[str],
  dtype: Any = "float32",
  quantization: str | None = None,
  mesh: Mesh | None = None,
) -> tuple[TransformerConfig, dict[str, Any]]:
  """Loads a folder with `config.json` and safetensors.

  Args:
    folder: the folder.
    dtype: of the parameters, see `weights.DTYPES`.
    quantization: "int8" makes 8-bit matrices of what is read.
    mesh: devices that share the parameters; None is one device.

  Returns:
    Configuration and parameter tree.

  Raises:
    FileNotFoundError: no configuration or no weights.
    ValueError: damaged, or not a model that can be computed exactly.
  """
  folder = pathlib.Path(folder)
  parameter_dtype = weights.parse_dtype(dtype)
  config_file = folder / "config.json"
  if not config_file.is_file():
    raise FileNotFoundError(
      f"{config_file} is missing: name a folder with config.json and "
      f"{_SINGLE}, or a .gguf file"
    )
  raw = untrusted.read_object(config_file)
  row = huggingface_config.find_family(raw)
  config = dataclasses.replace(
    huggingface_config.read_config(raw), quantization=quantization
  )
  tensors = _rename(_find_tensors(folder, row), row)
  _settle_unembedding(tensors, row, config.tie_embeddings, folder.name)
  params = parameters.load_params(
    config, tensors, row.tensors, parameter_dtype, folder.name, mesh=mesh
  )
  return config, params


def _find_tensors(
  folder: pathlib.Path, row: Family
) -> dict[str, weights.Stored]:
  """The tensors of the single file, or of all files that the index names."""
  if (folder / _SINGLE).is_file():
    return safetensors_header.read(folder / _SINGLE, row.ignored)
  if (folder / _INDEX).is_file():
    return _read_index(folder, row)
  for path in sorted(folder.iterdir()):
    if path.suffix in PICKLES:
      raise ValueError(
        f"{path.name} is a pickle, which could run code and is never read: "
        f"convert the model to {_SINGLE}"
      )
  raise FileNotFoundError(f"{folder} has neither {_SINGLE} nor {_INDEX}")


def weight_files(folder: pathlib.Path) -> list[str]:
  """Names of the files with the weights, as far as an index tells them."""
  has_index = (folder / _INDEX).is_file()
  if not has_index:
    return [_SINGLE, MEDUSA]
  return sorted(set(_read_places(folder).values()))


def _read_places(folder: pathlib.Path) -> dict[str, str]:
  """The file of each tensor, which lies beside the index that names it."""
  places = untrusted.read_object(folder / _INDEX).get("weight_map")
  if not isinstance(places, dict):
    raise ValueError(f"{_INDEX}: weight_map is missing")
  for name in places.values():
    plain = isinstance(name, str) and pathlib.PurePath(name).name == name
    if not plain or "\\" in name or not name.endswith(".safetensors"):
      raise ValueError(
        f"{_INDEX} names {weights.one_line(name)}: only .safetensors files "
        "beside it are read"
      )
  return places


def _read_index(folder: pathlib.Path, row: Family) -> dict[str, weights.Stored]:
  places = _read_places(folder)
  tensors: dict[str, weights.Stored] = {}
  for name in sorted(set(places.values())):
    if not (folder / name).is_file():
      raise FileNotFoundError(f"{folder / name}, named by {_INDEX}, is missing")
    found = safetensors_header.read(folder / name, row.ignored)
    wanted = {
      tensor
      for tensor, place in places.items()
      if place == name and not safetensors_header.fits(tensor, row.ignored)
    }
    if set(found) != wanted:
      odd = min(set(found) ^ wanted)
      raise ValueError(
        f"{_INDEX} and {name} disagree about tensor {weights.one_line(odd)}"
      )
    tensors.update(found)
  return tensors


def _rename(
  tensors: Mapping[str, weights.Stored], row: Family
) -> dict[str, weights.Stored]:
  """The tensors under the names of the family's table."""
  renamed: dict[str, weights.Stored] = {}
  for name, stored in tensors.items():
    for old, new in row.renamed.items():
      if name.startswith(old):
        name = new + name.removeprefix(old)
        break
    if name in renamed:
      raise ValueError(
        f"{stored.path.name}: tensor {weights.one_line(name)} is stored under "
        "two names: remove one"
      )
    renamed[name] = stored
  return renamed


def _settle_unembedding(
  tensors: dict[str, weights.Stored], row: Family, tied: bool, source: str
) -> None:
  """Removes the unembedding of a tied model; the embedding is used."""
  paths = (("embed", "embedding"), ("unembed", "kernel"))
  embedding, unembedding = (str(row.tensors[path]) for path in paths)
  if not tied:
    if unembedding not in tensors:
      raise ValueError(
        f"{source} lacks tensor '{unembedding}', and config.json says "
        "tie_word_embeddings = false: get the complete weights"
      )
    return
  copy, original = tensors.pop(unembedding, None), tensors.get(embedding)
  if copy is None or original is None:
    return
  if not weights.are_equal(copy, original):
    logging.warning(
      "tie_word_embeddings is true but %s differs from the embedding; the "
      "embedding is used for both",
      unembedding,
    )
