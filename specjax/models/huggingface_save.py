# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Saves a model as a Hugging Face folder, which Transformers loads.

Tensors are written a few megabytes at a time, so nothing exists twice. The
folder is written beside its place and renamed: it is whole or not there.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
import struct
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import tokenizers
from specjax.models import (
  families,
  huggingface_config,
  layout,
  parameters,
  placement,
)
from specjax.models.model import Model
from specjax.models.transformer import TransformerConfig

# Bytes of a file with weights, as the hub likes them.
MAX_FILE_BYTES = 5_000_000_000
# Numbers written at once.
_CHUNK = 1 << 20
_KINDS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclasses.dataclass(frozen=True)
class _Tensor:
  """A tensor to be written: rows of `parts` in turn, `size` of each at a time.

  Attributes:
    name: in the file.
    parts: parameters; matrices are [inputs, outputs], their rows the outputs.
    is_matrix: whether they are.
    size: rows taken from a part before the next part's turn.
  """

  name: str
  parts: tuple[jax.Array, ...]
  is_matrix: bool
  size: int

  @property
  def shape(self) -> tuple[int, ...]:
    first = self.parts[0].shape
    *rest, rows = first if self.is_matrix else first[::-1]
    return (rows * len(self.parts), *rest)

  @property
  def dtype(self) -> np.dtype:
    return np.dtype(self.parts[0].dtype)

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

  def blocks(self) -> Iterator[np.ndarray]:
    """The rows, a few at a time."""
    # Of copies: an array keeps for good what it once gave to the host.
    arrays = [np.asarray(jnp.copy(part)) for part in self.parts]
    arrays = [array.T if self.is_matrix else array for array in arrays]
    step = max(1, _CHUNK // math.prod(self.shape[1:]))
    for turn in range(0, len(arrays[0]), self.size):
      for array in arrays:
        rows = array[turn : turn + self.size]
        for first in range(0, len(rows), step):
          yield np.ascontiguousarray(rows[first : first + step])


def save(
  model: Model,
  tokenizer: tokenizers.Tokenizer | None,
  path: str | os.PathLike[str],
) -> None:
  """Saves config.json, safetensors and the tokenizer's files.

  Parameters keep their dtype. `huggingface.load` makes an equal model of the
  folder.

  Args:
    model: the model.
    tokenizer: its own; None saves the model alone.
    path: a folder that is empty or does not exist.

  Raises:
    ValueError: the folder is not empty, the tokenizer is another model's, or
      config.json cannot state the configuration (8-bit matrices, say).
  """
  path = pathlib.Path(path).expanduser()
  if path.exists() and not (path.is_dir() and not any(path.iterdir())):
    raise ValueError(f"{path} exists and is not empty: name a new folder")
  if tokenizer is not None and tokenizer.num_tokens != model.num_tokens:
    raise ValueError(
      f"the tokenizer has {tokenizer.num_tokens} ids and the model "
      f"{model.num_tokens}: use the tokenizer that belongs to it"
    )
  config = dataclasses.replace(model.config, kv_copies=1)
  raw = huggingface_config.write_config(config)
  raw["torch_dtype"] = np.dtype(model.dtype).name
  if tokenizer is not None:
    # Without them Transformers would end answers at its class's own ids.
    raw["bos_token_id"] = tokenizer.bos_id
    raw["eos_token_id"] = list(tokenizer.eos_ids)
  tensors = _tensors(config, placement.stored(model.config, model.params))
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    dir=path.parent, prefix=f".{path.name}-"
  ) as scratch:
    folder = pathlib.Path(scratch) / "model"
    folder.mkdir()
    if tokenizer is not None:
      tokenizer.save(folder)
    _write_json(folder / "config.json", raw)
    _write_files(folder, tensors)
    folder.rename(path)


def _tensors(config: TransformerConfig, params: Any) -> list[_Tensor]:
  """What the files hold, in the order of the parameters."""
  table = families.FAMILIES[config.family].tensors
  found, _ = jax.tree_util.tree_flatten_with_path(params)
  flat = {tuple(key.key for key in keys): leaf for keys, leaf in found}
  paths = layout.parameter_shapes(config)
  grouped: dict[str, list[parameters.Path]] = {}
  for path, name in parameters.stored_names(paths, table).items():
    grouped.setdefault(name, []).append(path)
  tensors = []
  for name, group in grouped.items():
    parts = tuple(flat[path] for path in group)
    entry = parameters.table_entry(table, group[0])
    by_head = isinstance(entry, parameters.Fused) and entry.by_head
    size = config.head_dim if by_head else parts[0].size
    tensors.append(_Tensor(name, parts, group[0][-1] == "kernel", size))
  return tensors


def _write_files(folder: pathlib.Path, tensors: Sequence[_Tensor]) -> None:
  files = _share_out(tensors)
  places = {}
  for number, share in enumerate(files, 1):
    name = "model.safetensors"
    if len(files) > 1:
      name = f"model-{number:05}-of-{len(files):05}.safetensors"
    _write_file(folder / name, share)
    places.update({tensor.name: name for tensor in share})
  if len(files) > 1:
    size = sum(tensor.num_bytes for tensor in tensors)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    _write_json(folder / "model.safetensors.index.json", index)


def _share_out(tensors: Sequence[_Tensor]) -> list[list[_Tensor]]:
  """Tensors by file; a file is over the limit only with a single tensor."""
  files: list[list[_Tensor]] = [[]]
  room = MAX_FILE_BYTES
  for tensor in tensors:
    if tensor.num_bytes > room and files[-1]:
      files.append([])
      room = MAX_FILE_BYTES
    files[-1].append(tensor)
    room -= tensor.num_bytes
  return files


def _write_file(path: pathlib.Path, tensors: Sequence[_Tensor]) -> None:
  header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
  end = 0
  for tensor in tensors:
    start, end = end, end + tensor.num_bytes
    header[tensor.name] = {
      "dtype": _KINDS[tensor.dtype.name],
      "shape": list(tensor.shape),
      "data_offsets": [start, end],
    }
  text = json.dumps(header, separators=(",", ":")).encode()
  # The data starts at a multiple of 8, so that readers can map it.
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for tensor in tensors:
      for block in tensor.blocks():
        # bfloat16 has no buffer interface; its bytes do.
        file.write(block.reshape(-1).view(np.uint8).data)


def _write_json(path: pathlib.Path, content: Mapping[str, Any]) -> None:
  path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
