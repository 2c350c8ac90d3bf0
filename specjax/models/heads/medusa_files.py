# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Medusa heads as others publish them.

FasterDecoding/Medusa   config.json with medusa_num_heads and
                        medusa_num_layers, medusa_lm_head.safetensors
vLLM                    config.json with model_type medusa, model.safetensors;
                        with original_lm_head the target's output matrix
                        stands at the end of every head; token_map names the
                        tokens of a reduced vocabulary

Axis letters: D the target's width, Q columns of a head, V vocabulary.
"""

from collections.abc import Mapping
import os
from typing import Any

import jax.numpy as jnp

from specjax import types
from specjax.models import huggingface, json_values
from specjax.models.heads import head as heads_lib
from specjax.models.heads import head_files, saved_heads
from specjax.models.heads.head_files import Folder, Path

PREFIX = "medusa_heads."
MAP, SHARED = "token_map", "lm_head.weight"
# vLLM takes the first head's matrix for that of all, too.
_COPIES = (SHARED, "lm_heads.0.weight")


def load(
  name: str | os.PathLike[str], target: types.Model
) -> heads_lib.MedusaHeads:
  """Reads heads in one of the layouts above, or in ours.

  Args:
    name: a local folder or hf:owner/name@revision.
    target: the model that they were trained for.

  Raises:
    FileNotFoundError: there is no such folder, or a file is missing.
    ValueError: no such heads, of another target, or damaged.
  """
  folder = head_files.open_folder(name)
  if saved_heads.is_own(folder):
    return saved_heads.load(folder, target, heads_lib.MedusaHeads)
  if _is_original(folder.raw):
    return _load_original(folder, target)
  if _is_vllm(folder.raw):
    return _load_vllm(folder, target)
  raise ValueError(
    f"{folder.name}: config.json is not that of Medusa heads, which has "
    "medusa_num_heads or model_type medusa: name another folder"
  )


def is_published(raw: Mapping[str, Any]) -> bool:
  """Whether a config.json is that of Medusa heads in a layout of others."""
  return _is_original(raw) or _is_vllm(raw)


def _is_original(raw: Mapping[str, Any]) -> bool:
  return "medusa_num_heads" in raw


def _is_vllm(raw: Mapping[str, Any]) -> bool:
  return raw.get("model_type") == "medusa"


def original_names(number: int, depth: int) -> dict[Path, str]:
  """Tensor of each parameter in the original layout."""
  names: dict[Path, str] = {}
  for i in range(number):
    for j in range(depth):
      for leaf, word in (("kernel", "weight"), ("bias", "bias")):
        path = (f"head_{i}", f"block_{j}", "linear", leaf)
        names[path] = f"{i}.{j}.linear.{word}"
    names[f"head_{i}", "output", "kernel"] = f"{i}.{depth}.weight"
  return names


def vllm_names(
  number: int, depth: int, shares: bool, has_bias: bool = True
) -> dict[Path, str]:
  """The same of vLLM's; heads may share an output matrix, or have no biases."""
  names: dict[Path, str] = {}
  for i in range(number):
    for j in range(depth):
      path = (f"head_{i}", f"block_{j}", "linear")
      names[(*path, "kernel")] = f"blocks.{i}.layers.{j}.weight"
      if has_bias:
        names[(*path, "bias")] = f"blocks.{i}.layers.{j}.bias"
    if not shares:
      names[f"head_{i}", "output", "kernel"] = f"lm_heads.{i}.weight"
  return names


def _load_original(
  folder: Folder, target: types.Model
) -> heads_lib.MedusaHeads:
  number = json_values.read(folder.raw, "medusa_num_heads", int, least=1)
  depth = json_values.read(folder.raw, "medusa_num_layers", int, least=0)
  tensors = folder.tensors(huggingface.MEDUSA)
  _check_count(number, depth, len(tensors), folder)
  names = original_names(number, depth)
  # The file alone knows the sizes.
  size, width = _matrix(tensors, f"0.{depth}.weight", folder)
  config = heads_lib.MedusaConfig(number, depth, width, size)
  return _finish(config, size, tensors, names, None, folder, target)


def _load_vllm(folder: Folder, target: types.Model) -> heads_lib.MedusaHeads:
  read = lambda *entry, **rest: json_values.read(folder.raw, *entry, **rest)
  number = read("num_heads", int, least=1)
  depth = read("num_hidden_layers", int, least=0)
  width = read("hidden_size", int, least=1)
  vocab = read("vocab_size", int, least=1)
  size = read("truncated_vocab_size", int, vocab, least=1)
  shared = read("original_lm_head", bool, False)
  tensors = {
    name.removeprefix(PREFIX): stored
    for name, stored in folder.tensors(integers=(MAP, PREFIX + MAP)).items()
  }
  _check_count(number, depth, len(tensors), folder)
  bias = read("medusa_fc_bias", bool, False)
  names = vllm_names(number, depth, shared, bias)
  mapped = tensors.pop(MAP, None)
  if shared:
    for name in _COPIES:
      tensors.pop(name, None)  # Of the target's.
  ids = None
  if mapped is not None:
    ids = head_files.read_integers(mapped, f"{folder.name}: tensor {MAP}")
  config = heads_lib.MedusaConfig(
    number, depth, width, None if shared else size
  )
  return _finish(config, size, tensors, names, ids, folder, target)


def _finish(
  config: heads_lib.MedusaConfig,
  size: int,
  tensors: Any,
  names: dict[Path, str],
  ids: Any,
  folder: Folder,
  target: types.Model,
) -> heads_lib.MedusaHeads:
  head_files.check_width(config.embed_dim, target, folder)
  columns = head_files.columns(target, size, ids, folder)
  head = head_files.read_head(
    heads_lib.MedusaHeads, config, tensors, names, folder, target
  )
  if config.draft_vocab is None:
    # The target's own matrix gives its padding no probability.
    columns = None if ids is None else columns
    chosen = None if ids is None else jnp.asarray(ids, jnp.int32)
    head = head.drafting(chosen, target)
  return head.replace(columns=columns).beside(target)


def _check_count(number: int, depth: int, tensors: int, folder: Folder) -> None:
  if number * (depth + 1) > 2 * tensors:
    raise ValueError(
      f"{folder.name}: {tensors} tensors are too few for {number} heads of "
      f"{depth} layers: fetch the file again"
    )


def _matrix(tensors: Any, name: str, folder: Folder) -> tuple[int, int]:
  if name not in tensors or len(tensors[name].shape) != 2:
    raise ValueError(f"{folder.name} lacks the matrix '{name}'")
  return tensors[name].shape
