# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Llama-family weights from a Hugging Face folder (safetensors only).

One file or several with an index; pickle files are never opened.
"""

import os
import pathlib
from typing import Any

from absl import logging

from specjax.models import (
  huggingface_config,
  parameters,
  safetensors_header,
  weights,
)
from specjax.models.transformer import TransformerConfig
from specjax.text import untrusted

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Suffixes of files that could run code when they are read.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_UNEMBEDDING = "lm_head.weight"

_NAMES: dict[parameters.Path, str] = {
  ("embed", "embedding"): "model.embed_tokens.weight",
  ("final_norm", "scale"): "model.norm.weight",
  ("unembed", "kernel"): _UNEMBEDDING,
  ("attention_norm", "scale"): "model.layers.{layer}.input_layernorm.weight",
  ("attention", "query", "kernel"): (
    "model.layers.{layer}.self_attn.q_proj.weight"
  ),
  ("attention", "key", "kernel"): (
    "model.layers.{layer}.self_attn.k_proj.weight"
  ),
  ("attention", "value", "kernel"): (
    "model.layers.{layer}.self_attn.v_proj.weight"
  ),
  ("attention", "output", "kernel"): (
    "model.layers.{layer}.self_attn.o_proj.weight"
  ),
  ("mlp_norm", "scale"): (
    "model.layers.{layer}.post_attention_layernorm.weight"
  ),
  ("mlp", "gate", "kernel"): "model.layers.{layer}.mlp.gate_proj.weight",
  ("mlp", "up", "kernel"): "model.layers.{layer}.mlp.up_proj.weight",
  ("mlp", "down", "kernel"): "model.layers.{layer}.mlp.down_proj.weight",
}
# Old checkpoints store the rotary frequencies, which follow from the
# configuration.
_DERIVED = ".self_attn.rotary_emb.inv_freq"


def load(
  folder: str | os.PathLike[str], dtype: Any = "float32"
) -> tuple[TransformerConfig, dict[str, Any]]:
  """Loads a folder with `config.json` and safetensors.

  Args:
    folder: the folder.
    dtype: of the parameters, see `weights.DTYPES`.

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
  config = huggingface_config.read_config(untrusted.read_object(config_file))
  tensors = {
    name: stored
    for name, stored in _find_tensors(folder).items()
    if not name.endswith(_DERIVED)
  }
  if config.tie_embeddings:
    _drop_copy_of_embedding(tensors)
  elif _UNEMBEDDING not in tensors:
    raise ValueError(
      f"{folder.name} lacks tensor '{_UNEMBEDDING}', and config.json says "
      "tie_word_embeddings = false: get the complete weights"
    )
  params = parameters.load_params(
    config, tensors, _NAMES, parameter_dtype, folder.name
  )
  return config, params


def _find_tensors(folder: pathlib.Path) -> dict[str, weights.Stored]:
  """The tensors of the single file, or of all files that the index names."""
  if (folder / _SINGLE).is_file():
    return safetensors_header.read(folder / _SINGLE)
  if (folder / _INDEX).is_file():
    return _read_index(folder)
  for path in sorted(folder.iterdir()):
    if path.suffix in PICKLES:
      raise ValueError(
        f"{path.name} is a pickle, which could run code and is never read: "
        f"convert the model to {_SINGLE}"
      )
  raise FileNotFoundError(f"{folder} has neither {_SINGLE} nor {_INDEX}")


def _read_index(folder: pathlib.Path) -> dict[str, weights.Stored]:
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
  tensors: dict[str, weights.Stored] = {}
  for name in sorted(set(places.values())):
    if not (folder / name).is_file():
      raise FileNotFoundError(f"{folder / name}, named by {_INDEX}, is missing")
    found = safetensors_header.read(folder / name)
    wanted = {tensor for tensor, place in places.items() if place == name}
    if set(found) != wanted:
      odd = min(set(found) ^ wanted)
      raise ValueError(
        f"{_INDEX} and {name} disagree about tensor {weights.one_line(odd)}"
      )
    tensors.update(found)
  return tensors


def _drop_copy_of_embedding(tensors: dict[str, weights.Stored]) -> None:
  """Removes the unembedding of a tied model; the embedding is used."""
  copy = tensors.pop(_UNEMBEDDING, None)
  original = tensors.get(_NAMES[("embed", "embedding")])
  if copy is None or original is None:
    return
  if not weights.are_equal(copy, original):
    logging.warning(
      "tie_word_embeddings is true but %s differs from the embedding; the "
      "embedding is used for both",
      _UNEMBEDDING,
    )
