# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes Medusa heads in the layouts that `medusa_files` reads.

The contracts are what an engine builds from config.json, spelled out once more:
a mistake in the names that reading and writing share does not pass them.

Axis letters: D the target's width, Q tokens that can be drafted, V vocabulary.
"""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np

from specjax.models import huggingface
from specjax.models import model as model_lib
from specjax.models.heads import exported_heads, medusa_files
from specjax.models.heads import head as heads_lib


def save_original(
  head: heads_lib.MedusaHeads,
  target: model_lib.Model,
  path: str | os.PathLike[str],
  base: str,
) -> None:
  """Writes a new folder in the layout of FasterDecoding/Medusa.

  Every head has an output matrix there: those that share the target's get a
  copy each.

  Args:
    head: of any size.
    target: the model that it was trained for.
    path: of the folder.
    base: how engines find the target.

  Raises:
    ValueError: the folder exists, or the heads cannot draft every token.
  """
  ids = exported_heads.tokens(head, target)
  if ids is not None:
    raise ValueError(
      f"the heads draft {len(ids)} of the target's {target.num_tokens} tokens, "
      "and the original layout of Medusa has no map: use medusa-vllm"
    )
  c = head.config
  names = medusa_files.original_names(c.num_heads, c.num_layers)
  tensors = exported_heads.parameters(head, names)
  for i in range(c.num_heads):
    name = names[f"head_{i}", "output", "kernel"]
    tensors[name] = exported_heads.rows(head, target, tensors.get(name))
  raw = {
    "medusa_num_heads": c.num_heads,
    "medusa_num_layers": c.num_layers,
    "base_model_name_or_path": base,
    "torch_dtype": head.dtype.name,
  }
  contract = _original_contract(raw, c.embed_dim, target.vocab_size)
  exported_heads.write(path, raw, tensors, contract, huggingface.MEDUSA)


def save_vllm(
  head: heads_lib.MedusaHeads,
  target: model_lib.Model,
  path: str | os.PathLike[str],
) -> None:
  """Writes a new folder in the layout of vLLM.

  Heads that share the target's output matrix share one copy of it there, of the
  rows that they read.

  Args:
    head: of any size.
    target: the model that it was trained for.
    path: of the folder.

  Raises:
    ValueError: the folder exists.
  """
  c, ids = head.config, exported_heads.tokens(head, target)
  shares = c.draft_vocab is None
  found = medusa_files.vllm_names(c.num_heads, c.num_layers, shares)
  names = {path: medusa_files.PREFIX + name for path, name in found.items()}
  tensors = exported_heads.parameters(head, names)
  outputs = [name for path, name in names.items() if "output" in path]
  if shares:
    outputs = [medusa_files.PREFIX + medusa_files.SHARED]
  for name in outputs:
    tensors[name] = exported_heads.rows(head, target, tensors.get(name))
  if ids is not None:
    tensors[medusa_files.MAP] = ids.astype(np.int64)
  # vLLM takes any other entry with "num" and "heads" or "layers" for these.
  raw = {
    "architectures": ["MedusaModel"],
    "model_type": "medusa",
    "hidden_size": c.embed_dim,
    "vocab_size": target.vocab_size,
    "truncated_vocab_size": target.vocab_size if ids is None else len(ids),
    "num_heads": c.num_heads,
    "num_hidden_layers": c.num_layers,
    "medusa_fc_bias": True,
    "original_lm_head": shares,
    "torch_dtype": head.dtype.name,
  }
  contract = _vllm_contract(raw, ids is not None)
  exported_heads.write(path, raw, tensors, contract)


def _original_contract(
  raw: Mapping[str, Any], width: int, vocab: int
) -> exported_heads.Contract:
  """Tensors of the original layout, whose config.json has no sizes."""
  kind, layers = (
    exported_heads.kind(raw["torch_dtype"]),
    raw["medusa_num_layers"],
  )
  shapes: dict[str, tuple[int, ...]] = {}
  for i in range(raw["medusa_num_heads"]):
    for j in range(layers):
      shapes[f"{i}.{j}.linear.weight"] = (width, width)
      shapes[f"{i}.{j}.linear.bias"] = (width,)
    shapes[f"{i}.{layers}.weight"] = (vocab, width)
  return {name: (kind, shape) for name, shape in shapes.items()}


def _vllm_contract(
  raw: Mapping[str, Any], is_mapped: bool
) -> exported_heads.Contract:
  """Tensors that the layout of vLLM has for a config.json."""
  kind = exported_heads.kind(raw["torch_dtype"])
  width, size = raw["hidden_size"], raw["truncated_vocab_size"]
  shapes: dict[str, tuple[int, ...]] = {}
  for i in range(raw["num_heads"]):
    for j in range(raw["num_hidden_layers"]):
      layer = f"medusa_heads.blocks.{i}.layers.{j}"
      shapes[f"{layer}.weight"] = (width, width)
      shapes[f"{layer}.bias"] = (width,)
    if not raw["original_lm_head"]:
      shapes[f"medusa_heads.lm_heads.{i}.weight"] = (size, width)
  if raw["original_lm_head"]:
    shapes["medusa_heads.lm_head.weight"] = (size, width)
  found = {name: (kind, shape) for name, shape in shapes.items()}
  if is_mapped:
    found["token_map"] = (exported_heads.INTEGERS, (size,))
  return found
