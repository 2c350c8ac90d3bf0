# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of draft heads for other engines: what their writers share.

Other engines check little: some pass over a tensor whose name they do not know,
and without the map of a reduced vocabulary every column is another token. So a
layout is also a contract: what config.json says decides which tensors there
are, of which kind and shape, and a folder that differs is not left behind. Nor
do they know heads that end in the target's output matrix: its rows are copied.

Axis letters: D the target's width, Q tokens that can be drafted, V vocabulary.
"""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import model as model_lib
from specjax.models import weights
from specjax.models.heads import head as heads_lib
from specjax.models.heads import head_files
from specjax.models.heads.head_files import Path

# Kind, as safetensors has it, and shape of each tensor.
Contract = Mapping[str, tuple[str, tuple[int, ...]]]

INTEGERS, SWITCHES = "I64", "BOOL"
_KINDS = {
  "float32": "F32",
  "bfloat16": "BF16",
  "float16": "F16",
  "int64": INTEGERS,
  "bool": SWITCHES,
}


def kind(dtype: Any) -> str:
  """How safetensors calls a type of numbers."""
  return _KINDS[np.dtype(dtype).name]


def tokens(head: heads_lib.Head, target: model_lib.Model) -> np.ndarray | None:
  """[Q] the target's id of each row of `rows`; None: all V, row i is id i."""
  if head.columns is None:
    return None
  columns = np.asarray(head.columns)
  ids = np.flatnonzero(columns >= 0)
  if np.array_equal(columns[: target.num_tokens], np.arange(target.num_tokens)):
    return None
  return ids[np.argsort(columns[ids])]


def rows(
  head: heads_lib.Head,
  target: model_lib.Model,
  matrix: np.ndarray | None = None,
) -> np.ndarray:
  """[Q, D] of an output matrix, one for each token that can be drafted.

  Args:
    head: says which.
    target: whose matrix is copied from where the head has none of its own.
    matrix: [columns, D] the head's own.
  """
  ids = tokens(head, target)
  if matrix is None:
    chosen = np.arange(target.vocab_size) if ids is None else ids
    found = target.output_rows(jnp.asarray(chosen))
    return np.asarray(found.astype(head.dtype))
  if ids is not None:
    return matrix[np.asarray(head.columns)[ids]]
  # It may have been padded to another size: such rows are of no token.
  missing = max(target.vocab_size - len(matrix), 0)
  return np.pad(matrix[: target.vocab_size], ((0, missing), (0, 0)))


def parameters(
  head: heads_lib.Head, names: Mapping[Path, str]
) -> dict[str, np.ndarray]:
  """A head's parameters by the names of a layout, matrices [outputs, inputs].

  One that the layout does not know keeps a name of ours, which no contract has.
  """
  leaves, _ = jax.tree_util.tree_flatten_with_path(head.params)
  found = {}
  for keys, leaf in leaves:
    path = tuple(key.key for key in keys)
    value = np.asarray(leaf)
    is_matrix = path[-1] == "kernel"
    found[names.get(path, ".".join(path))] = value.T if is_matrix else value
  return found


def write(
  path: str | os.PathLike[str],
  raw: Mapping[str, Any],
  tensors: Mapping[str, np.ndarray],
  contract: Contract,
  file: str = head_files.SINGLE,
) -> None:
  """Writes a new folder, if its tensors are those of the contract.

  Args:
    path: of the folder.
    raw: its config.json; written last: a folder without it is not read.
    tensors: by name.
    contract: what the layout asks for.
    file: name of the file with the tensors.

  Raises:
    ValueError: the folder exists, or a tensor is too many, missing or another;
      nothing is written then. Or the file that was written is another.
  """
  import safetensors
  from safetensors import numpy as safetensors_numpy

  path = pathlib.Path(path)
  if path.exists():
    raise ValueError(f"{path} exists already: name a new folder")
  given = {name: (kind(x.dtype), x.shape) for name, x in tensors.items()}
  _check(given, contract, path.name)
  path.mkdir(parents=True)
  whole = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
  # Transformers reads no file that does not say who wrote it.
  safetensors_numpy.save_file(whole, path / file, {"format": "pt"})
  with safetensors.safe_open(path / file, framework="numpy") as stored:
    names = stored.keys()
    slices = {name: stored.get_slice(name) for name in names}
    read = {
      name: (x.get_dtype(), tuple(x.get_shape())) for name, x in slices.items()
    }
  _check(read, contract, path.name)
  config = path / "config.json"
  config.write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
  # Who may read the one may read the other: safetensors allows its owner alone.
  (path / file).chmod(config.stat().st_mode)


def _check(found: Contract, wanted: Contract, source: str) -> None:
  for name in sorted({*found, *wanted}):
    if found.get(name) != wanted.get(name):
      has, asks = (
        "none" if one is None else f"{one[0]} {one[1]}"
        for one in (found.get(name), wanted.get(name))
      )
      raise ValueError(
        f"{source}: of tensor {weights.one_line(name)} the head has {has}, the "
        f"layout asks for {asks}: these heads cannot be written in it"
      )
