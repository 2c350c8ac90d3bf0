# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a safetensors file without trusting it.

The file is a u64 length, that many bytes of JSON (name -> dtype, shape and
the range of its bytes), and the data. The ranges must tile the data exactly:
no overlap, no hole, nothing after the last. All of it is compared with the
size of the file before anything of that size is allocated.
"""

from collections.abc import Mapping, Sequence
import fnmatch
import json
import math
import os
import pathlib
import struct
from typing import Any

import ml_dtypes
import numpy as np

from specjax.models import weights

_DTYPES = {
  "F32": np.dtype("<f4"),
  "F16": np.dtype("<f2"),
  "BF16": np.dtype(ml_dtypes.bfloat16),
}
# Of maps between vocabularies.
_INTEGERS = {
  "I64": np.dtype("<i8"),
  "I32": np.dtype("<i4"),
  "BOOL": np.dtype(np.bool_),
}
# The format's own limit on the JSON part.
_MAX_HEADER = 100_000_000
_MAX_DIMS = 8
_METADATA = "__metadata__"


def fits(name: str, patterns: Sequence[str]) -> bool:
  """Whether a tensor's name fits one of the patterns (`*` is any text)."""
  return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def read(
  path: str | os.PathLike[str],
  ignored: Sequence[str] = (),
  integers: Sequence[str] = (),
) -> dict[str, weights.Stored]:
  """Reads and checks the header; returns the tensors by name.

  Args:
    path: the file.
    ignored: patterns of tensors that are left out, whatever their dtype; only
      the range of their bytes is checked.
    integers: names of tensors that hold I64, I32 or BOOL instead.

  Raises:
    ValueError: not a safetensors file, a tensor of another dtype than F32,
      F16 and BF16, or numbers that do not fit the file.
  """
  path = pathlib.Path(path)
  size = path.stat().st_size
  with open(path, "rb") as file:
    prefix = file.read(8)
    if len(prefix) < 8:
      raise ValueError(f"{path.name}: {size} bytes, too short for safetensors")
    length = struct.unpack("<Q", prefix)[0]
    if length > min(size - 8, _MAX_HEADER):
      raise ValueError(
        f"{path.name}: a header of {length} bytes does not fit the file's "
        f"{size} bytes: it is truncated, damaged or not safetensors"
      )
    text = file.read(length)
  entries = _parse_json(text, path.name)
  entries.pop(_METADATA, None)
  start = 8 + length
  tensors, ranges = {}, []
  for name, entry in entries.items():
    what = f"{path.name}: tensor {weights.one_line(name)}"
    if not isinstance(entry, dict):
      raise ValueError(f"{what} has no description")
    if not fits(name, ignored):
      kinds = _INTEGERS if name in integers else _DTYPES
      tensors[name] = _check_tensor(path, entry, start, what, kinds)
    ranges.append((*_check_range(entry, what), name))
  _check_ranges(ranges, size - start, path.name)
  return tensors


def _parse_json(text: bytes, source: str) -> dict[str, Any]:
  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
      if name in result:
        raise ValueError(f"{weights.one_line(name)} appears twice")
      result[name] = value
    return result

  try:
    header = json.loads(text, object_pairs_hook=unique)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{source}: damaged header: {error}") from None
  if not isinstance(header, dict):
    raise ValueError(f"{source}: damaged header: not a JSON object")
  return header


def _check_range(entry: Mapping[str, Any], what: str) -> tuple[int, int]:
  offsets: Any = entry.get("data_offsets")
  if not _are_sizes(offsets) or len(offsets) != 2:
    raise ValueError(f"{what} has the range {weights.one_line(offsets)}")
  return offsets[0], offsets[1]


def _check_tensor(
  path: pathlib.Path,
  entry: Mapping[str, Any],
  start: int,
  what: str,
  kinds: Mapping[str, np.dtype],
) -> weights.Stored:
  """The tensor whose description is `entry`, of data from byte `start`."""
  kind: Any = entry.get("dtype")
  shape: Any = entry.get("shape")
  if not isinstance(kind, str) or kind not in kinds:
    raise ValueError(
      f"{what} has dtype {weights.one_line(kind)}, only "
      f"{', '.join(kinds)} are read"
    )
  if not _are_sizes(shape) or not 1 <= len(shape) <= _MAX_DIMS or 0 in shape:
    raise ValueError(f"{what} has the shape {weights.one_line(shape)}")
  dtype = kinds[kind]
  begin, end = _check_range(entry, what)
  if end - begin != math.prod(shape) * dtype.itemsize:
    raise ValueError(
      f"{what}: {kind} {tuple(shape)} takes "
      f"{math.prod(shape) * dtype.itemsize} bytes, its range has {end - begin}"
    )
  return weights.Stored(
    path=path,
    offset=start + begin,
    shape=tuple(shape),
    row_bytes=shape[-1] * dtype.itemsize,
    decode=lambda raw: raw.view(dtype),
  )


def _are_sizes(values: Any) -> bool:
  return isinstance(values, list) and all(
    isinstance(value, int) and not isinstance(value, bool) and value >= 0
    for value in values
  )


def _check_ranges(
  ranges: list[tuple[int, int, str]], size: int, source: str
) -> None:
  position = 0
  for begin, end, name in sorted(ranges):
    if begin != position:
      problem = "overlaps another" if begin < position else "leaves a hole"
      raise ValueError(
        f"{source}: tensor {weights.one_line(name)} {problem}: it starts at "
        f"{begin}, the data before it ends at {position}"
      )
    position = end
  if position != size:
    raise ValueError(
      f"{source}: the tensors take {position} bytes, the file has {size}: it "
      "is truncated or damaged"
    )
