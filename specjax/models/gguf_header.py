# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a GGUF file without trusting it.

Every count, length and offset is compared with the size of the file before
anything of that size is allocated. The layout (little endian, versions 2 and
3): "GGUF", version u32, number of tensors u64, number of keys u64; the keys
(name, type u32, value); for each tensor its name, number of dimensions u32,
dimensions u64 (fastest first), type u32, offset u64 from the start of the
data; padding; data. Strings are a u64 length and UTF-8.
"""

import dataclasses
import itertools
import math
import os
import pathlib
import struct
from typing import Any, BinaryIO, NoReturn

import numpy as np

from specjax.models import weights

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4
# Longest list in a header. Vocabularies have a few hundred thousand entries;
# the bound keeps one-byte numbers from becoming Python objects without end.
_MAX_ARRAY = 1 << 24
_SCALARS = {
  0: np.dtype("u1"),
  1: np.dtype("i1"),
  2: np.dtype("<u2"),
  3: np.dtype("<i2"),
  4: np.dtype("<u4"),
  5: np.dtype("<i4"),
  6: np.dtype("<f4"),
  7: np.dtype("?"),
  10: np.dtype("<u8"),
  11: np.dtype("<i8"),
  12: np.dtype("<f8"),
}
_STRING, _ARRAY = 8, 9
# The least that a key (length, one-byte value) and a tensor (length, number
# of dimensions, type, offset) occupy.
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8


@dataclasses.dataclass(frozen=True)
class TensorInfo:
  """One tensor: shape slowest axis first, offset from the file's start."""

  name: str
  shape: tuple[int, ...]
  type_name: str
  offset: int
  num_bytes: int
  row_bytes: int


@dataclasses.dataclass(frozen=True)
class Header:
  """Keys and values (lists for arrays) and the tensors by name."""

  metadata: dict[str, Any]
  tensors: dict[str, TensorInfo]


def read(path: str | os.PathLike[str]) -> Header:
  """Reads and checks the header.

  Raises:
    ValueError: not a GGUF file of a supported version, or any number in it
      does not fit the file.
  """
  path = pathlib.Path(path)
  with open(path, "rb", buffering=1 << 20) as file:
    return _parse(_Cursor(file, path.name, path.stat().st_size))


class _Cursor:
  """Reads forward and never past the end of the file."""

  def __init__(self, file: BinaryIO, name: str, size: int):
    self.file = file
    self.name = name
    self.size = size
    self.position = 0

  def fail(self, problem: str) -> NoReturn:
    raise ValueError(f"{self.name}: {problem}")

  @property
  def remaining(self) -> int:
    return self.size - self.position

  def take(self, count: int, what: str) -> bytes:
    """The next bytes; `what` is named when the file is too short."""
    if count > self.remaining:
      self.fail(
        f"{what} needs {count} bytes at {self.position}, only "
        f"{self.remaining} are left: the file is truncated or damaged"
      )
    data = self.file.read(count)
    if len(data) != count:
      self.fail(f"{what}: the file shrank while it was read")
    self.position += count
    return data

  def u32(self, what: str) -> int:
    return struct.unpack("<I", self.take(4, what))[0]

  def u64(self, what: str) -> int:
    return struct.unpack("<Q", self.take(8, what))[0]

  def string(self, what: str) -> str:
    data = self.take(self.u64(what), what)
    try:
      return str(data, "utf-8")
    except UnicodeDecodeError:
      self.fail(f"{what} is not valid UTF-8")


def _parse(cursor: _Cursor) -> Header:
  if cursor.take(4, "the magic number") != _MAGIC:
    cursor.fail("not a GGUF file (it does not start with 'GGUF')")
  version = cursor.u32("the version")
  if version not in _VERSIONS:
    if version & 0xFFFF == 0 and version:
      cursor.fail("a big-endian GGUF file: convert it to little endian")
    cursor.fail(f"GGUF version {version}: only versions 2 and 3 are read")
  num_tensors = cursor.u64("the number of tensors")
  num_keys = cursor.u64("the number of keys")
  least = num_tensors * _MIN_TENSOR_BYTES + num_keys * _MIN_KEY_BYTES
  if least > cursor.remaining:
    cursor.fail(
      f"{num_tensors} tensors and {num_keys} keys do not fit "
      f"{cursor.size} bytes: the file is truncated or damaged"
    )
  metadata = _read_metadata(cursor, num_keys)
  alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
  # Powers of two, which 1 is as well; `bool` is an int and no alignment.
  if (
    isinstance(alignment, bool)
    or not isinstance(alignment, int)
    or alignment < 1
    or alignment & (alignment - 1)
  ):
    cursor.fail(
      f"general.alignment {weights.one_line(alignment)} is not a power of two"
    )
  tensors = _read_tensors(cursor, num_tensors, alignment)
  _check_overlaps(cursor, tensors)
  return Header(metadata, {tensor.name: tensor for tensor in tensors})


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
  metadata: dict[str, Any] = {}
  for _ in range(count):
    key = cursor.string("the name of a key")
    shown = f"key {weights.one_line(key)}"
    if key in metadata:
      cursor.fail(f"{shown} appears twice")
    kind = cursor.u32(shown)
    if kind == _ARRAY:
      metadata[key] = _read_array(cursor, shown)
    elif kind == _STRING:
      metadata[key] = cursor.string(shown)
    elif kind in _SCALARS:
      metadata[key] = _read_scalars(cursor, _SCALARS[kind], 1, shown)[0]
    else:
      cursor.fail(f"{shown} has the unknown type {kind}")
  return metadata


def _read_array(cursor: _Cursor, what: str) -> list[Any]:
  kind = cursor.u32(what)
  count = cursor.u64(what)
  if count > _MAX_ARRAY:
    cursor.fail(f"{what} has {count} values, at most {_MAX_ARRAY} are read")
  if kind in _SCALARS:
    return _read_scalars(cursor, _SCALARS[kind], count, what)
  if kind == _ARRAY:
    cursor.fail(f"{what} is an array of arrays, which is not supported")
  if kind != _STRING:
    cursor.fail(f"{what} has values of the unknown type {kind}")
  if count * 8 > cursor.remaining:
    cursor.fail(
      f"{what} has {count} strings, which do not fit the file: it is "
      "truncated or damaged"
    )
  return [cursor.string(what) for _ in range(count)]


def _read_scalars(
  cursor: _Cursor, dtype: np.dtype, count: int, what: str
) -> list[Any]:
  data = cursor.take(count * dtype.itemsize, what)
  if dtype == np.bool_ and data.strip(b"\0\1"):
    cursor.fail(f"{what} is a truth value other than 0 and 1")
  return np.frombuffer(data, dtype).tolist()


def _read_tensors(
  cursor: _Cursor, count: int, alignment: int
) -> list[TensorInfo]:
  """Names, shapes and places; offsets become absolute."""
  entries = [_read_entry(cursor) for _ in range(count)]
  start = -(-cursor.position // alignment) * alignment
  tensors, seen = [], set()
  for name, shape, kind, offset in entries:
    what = f"tensor {weights.one_line(name)}"
    if name in seen:
      cursor.fail(f"{what} appears twice")
    seen.add(name)
    type_name, row_bytes = _row_size(cursor, what, kind, shape[-1])
    num_bytes = math.prod(shape[:-1]) * row_bytes
    if offset % alignment:
      cursor.fail(f"{what}: offset {offset} is no multiple of {alignment}")
    if start + offset + num_bytes > cursor.size:
      cursor.fail(
        f"{what} of {num_bytes} bytes at {start + offset} ends past the "
        f"file's {cursor.size} bytes: the file is truncated or damaged"
      )
    tensors.append(
      TensorInfo(name, shape, type_name, start + offset, num_bytes, row_bytes)
    )
  return tensors


def _read_entry(
  cursor: _Cursor,
) -> tuple[str, tuple[int, ...], int, int]:
  name = cursor.string("the name of a tensor")
  what = f"tensor {weights.one_line(name)}"
  num_dims = cursor.u32(what)
  if not 1 <= num_dims <= _MAX_DIMS:
    cursor.fail(f"{what} has {num_dims} dimensions, not 1 to {_MAX_DIMS}")
  shape = tuple(cursor.u64(what) for _ in range(num_dims))[::-1]
  if 0 in shape:
    cursor.fail(f"{what} has an empty dimension: {shape}")
  return name, shape, cursor.u32(what), cursor.u64(what)


def _row_size(
  cursor: _Cursor, what: str, kind: int, columns: int
) -> tuple[str, int]:
  import gguf

  try:
    quantization = gguf.GGMLQuantizationType(kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[quantization]
  except (ValueError, KeyError):
    cursor.fail(f"{what} has the unknown type {kind}")
  if columns % block:
    cursor.fail(
      f"{what}: rows of {columns} are no multiple of the "
      f"{quantization.name} block of {block}"
    )
  return quantization.name, columns // block * block_bytes


def _check_overlaps(cursor: _Cursor, tensors: list[TensorInfo]) -> None:
  ordered = sorted(tensors, key=lambda tensor: tensor.offset)
  for first, second in itertools.pairwise(ordered):
    if first.offset + first.num_bytes > second.offset:
      cursor.fail(
        f"tensors {weights.one_line(first.name)} and "
        f"{weights.one_line(second.name)} overlap"
      )
