# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From matrices in a file to the parameter tree, one tensor at a time.

The file formats only say where a matrix lies and how its bytes become
numbers (`Stored`); how they are read is shared and lives here.

Loading is bounded in memory. Each parameter is allocated once, in its final
layout and dtype, and filled from a few megabytes of file at a time; nothing
is mapped, so no page of the file stays resident. What was read never exists
twice in full.
"""

from collections.abc import Callable, Iterator
import dataclasses
import hashlib
import math
import pathlib
from typing import Any

import jax
import ml_dtypes
import numpy as np

DTYPES = {
  "float32": np.dtype(np.float32),
  "bfloat16": np.dtype(ml_dtypes.bfloat16),
  "float16": np.dtype(np.float16),
}

# Numbers decoded at once: 4 MB in float32, which fits a core's cache and is
# large enough that the interpreter's share of the time is small.
_CHUNK = 1 << 20
# The CPU backend adopts a buffer instead of copying it when it starts here.
_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True)
class Stored:
  """A tensor as it lies in a file.

  Attributes:
    path: the file.
    offset: first byte, counted from the start of the file.
    shape: (outputs, inputs) of a matrix, (size,) of a vector.
    row_bytes: bytes of one row; a vector is one row.
    decode: bytes [rows, row_bytes] to numbers [rows, columns].
    groups: (period, first, count) when the tensor is a part of what lies
      there: of every `period` rows, the `count` ones from `first`.
  """

  path: pathlib.Path
  offset: int
  shape: tuple[int, ...]
  row_bytes: int
  decode: Callable[[np.ndarray], np.ndarray]
  groups: tuple[int, int, int] | None = None

  @property
  def columns(self) -> int:
    return math.prod(self.shape) // self.rows

  @property
  def rows(self) -> int:
    """Rows that are read; a vector is one, a part of a vector is many."""
    is_row = len(self.shape) == 1 and self.groups is None
    return 1 if is_row else self.shape[0]

  def part(self, period: int, first: int, count: int) -> "Stored":
    """Of every `period` rows (entries of a vector) those from `first`."""
    rows = self.shape[0]
    size = self.row_bytes // rows if len(self.shape) == 1 else self.row_bytes
    return dataclasses.replace(
      self,
      shape=(rows // period * count, *self.shape[1:]),
      row_bytes=size,
      groups=(period, first, count),
    )


def parse_dtype(name: Any) -> np.dtype:
  """The dtype of parameters that a user named."""
  label = name if isinstance(name, str) else np.dtype(name).name
  if label not in DTYPES:
    raise ValueError(
      f"dtype {label!r} is not one of {', '.join(DTYPES)}: choose one of them"
    )
  return DTYPES[label]


def one_line(value: object, limit: int = 80) -> str:
  """A value found in a file, safe to show in a one-line message."""
  text = repr(value)
  return text if len(text) <= limit else text[:limit] + "..."


def read_tensor(
  stored: Stored,
  dtype: np.dtype,
  *,
  transpose: bool,
  paired_head: int | None = None,
  label: str = "tensor",
) -> np.ndarray:
  """Reads one tensor, at most `_CHUNK` numbers (or one row) at a time.

  Args:
    stored: where it lies.
    dtype: of the result.
    transpose: [outputs, inputs] in the file to [inputs, outputs].
    paired_head: head size, when the rows of a head come in interleaved pairs.
    label: what error messages call the tensor.

  Returns:
    A fresh array whose memory a CPU device can adopt without a copy.
  """
  columns, rows = stored.columns, stored.rows
  shape = (columns, rows) if transpose else (rows, columns)
  result = _aligned_empty(shape, dtype)
  target = result.T if transpose else result
  for start, values in _read_chunks(stored, paired_head or 1, label):
    if paired_head is not None:
      values = _unpair(values, paired_head)
    with np.errstate(all="ignore"):
      values = values.astype(dtype, copy=False)
    if not np.isfinite(values).all():
      raise ValueError(
        f"{label} holds a value that is not finite in {dtype.name}: load it "
        "in a wider dtype, or fetch the file again"
      )
    target[start : start + len(values)] = values
  return result if len(stored.shape) > 1 else result.reshape(-1)


def are_equal(first: Stored, second: Stored) -> bool:
  """Whether two stored tensors hold the same numbers."""
  if first.shape != second.shape:
    return False
  pairs = zip(_read_chunks(first), _read_chunks(second))
  return all(np.array_equal(one, other) for (_, one), (_, other) in pairs)


def fingerprint(params: Any) -> str:
  """sha256 over name, dtype, shape and every byte of every parameter.

  Half a second a gigabyte. The same weights loaded in another dtype are other
  weights and get another fingerprint.
  """
  digest = hashlib.sha256()
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  for path, leaf in leaves:
    array = np.ascontiguousarray(leaf)
    name = "/".join(str(getattr(part, "key", part)) for part in path)
    digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
    # bfloat16 has no buffer interface; its bytes do.
    digest.update(array.reshape(-1).view(np.uint8).data)
  return digest.hexdigest()


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  size = math.prod(shape) * dtype.itemsize
  memory = np.empty(size + _ALIGNMENT, np.uint8)
  start = -memory.ctypes.data % _ALIGNMENT
  return memory[start : start + size].view(dtype).reshape(shape)


def _read_chunks(
  stored: Stored, multiple: int = 1, label: str = "tensor"
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (first row, rows), the number of rows a multiple of `multiple`."""
  step = max(1, _CHUNK // stored.columns // multiple) * multiple
  period, first, length = stored.groups or (stored.rows, 0, stored.rows)
  with open(stored.path, "rb") as file:
    for group in range(stored.rows // length):
      file.seek(stored.offset + (group * period + first) * stored.row_bytes)
      for start in range(0, length, step):
        count = min(step, length - start)
        raw = file.read(count * stored.row_bytes)
        if len(raw) != count * stored.row_bytes:
          raise ValueError(
            f"{label} ends early: the file shrank, fetch it again"
          )
        blocks = np.frombuffer(raw, np.uint8).reshape(count, stored.row_bytes)
        with np.errstate(all="ignore"):
          values = stored.decode(blocks)
        yield group * length + start, values


def _unpair(values: np.ndarray, head_dim: int) -> np.ndarray:
  """Rows (0, 1), (2, 3), ... of each head to the half-split order."""
  heads = values.reshape(-1, head_dim // 2, 2, values.shape[-1])
  return heads.swapaxes(1, 2).reshape(values.shape)
