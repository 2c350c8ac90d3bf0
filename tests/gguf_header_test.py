# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile GGUF headers end in one line, before any allocation."""

import pathlib
import struct
import tempfile
import time
import tracemalloc
from unittest import mock

from absl.testing import absltest, parameterized

from specjax.models import gguf_header

U32, STRING, ARRAY, BOOL = 4, 8, 9, 7
F32 = 0
HUGE = 1 << 60


def text(value: str | bytes) -> bytes:
  raw = value.encode() if isinstance(value, str) else value
  return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
  return text(name) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
  return struct.pack("<IQ", kind, count) + values


def tensor(name="a", dims=(4,), kind=F32, offset=0) -> bytes:
  return (
    text(name)
    + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    + struct.pack("<IQ", kind, offset)
  )


def build(
  keys=(),
  tensors=(),
  data=64,
  magic=b"GGUF",
  version=3,
  num_keys=None,
  num_tensors=None,
) -> bytes:
  head = magic + struct.pack(
    "<IQQ",
    version,
    len(tensors) if num_tensors is None else num_tensors,
    len(keys) if num_keys is None else num_keys,
  )
  head += b"".join(keys) + b"".join(tensors)
  return head + bytes(-len(head) % 32) + bytes(data)


class GgufHeaderTest(parameterized.TestCase):
  def read(self, content: bytes) -> gguf_header.Header:
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "model.gguf"
      path.write_bytes(content)
      return gguf_header.read(path)

  @parameterized.parameters(2, 3)
  def test_values_and_places(self, version):
    header = self.read(
      build(
        [
          key("n", U32, struct.pack("<I", 7)),
          key("yes", BOOL, b"\1"),
          key("s", STRING, text("é")),
          key("words", ARRAY, array(STRING, 2, text("a") + text(""))),
          key("small", ARRAY, array(1, 3, b"\xff\0\1")),
        ],
        [tensor("m", (4, 2)), tensor("v", (3,), offset=32)],
        version=version,
      )
    )
    self.assertEqual(
      header.metadata,
      {"n": 7, "yes": True, "s": "é", "words": ["a", ""], "small": [-1, 0, 1]},
    )
    self.assertIs(header.metadata["yes"], True)
    matrix, vector = header.tensors["m"], header.tensors["v"]
    self.assertEqual((matrix.shape, matrix.num_bytes), ((2, 4), 32))
    self.assertEqual((vector.shape, vector.num_bytes), ((3,), 12))
    self.assertEqual(vector.offset - matrix.offset, 32)
    self.assertEqual(matrix.offset % 32, 0)

  def test_alignment_is_a_key(self):
    alignment = key("general.alignment", U32, struct.pack("<I", 256))
    header = self.read(build([alignment], [tensor()], data=512))
    self.assertEqual(header.tensors["a"].offset, 256)

  @parameterized.named_parameters(
    ("empty", b"", "the magic number needs 4 bytes"),
    ("magic", build(magic=b"GGML"), "not a GGUF file"),
    ("version_1", build(version=1), "GGUF version 1: only"),
    ("version_4", build(version=4), "GGUF version 4: only"),
    ("big_endian", build(version=3 << 24), "big-endian"),
    ("many_keys", build(num_keys=HUGE), "keys do not fit"),
    ("many_tensors", build(num_tensors=HUGE), "tensors and 0 keys do not fit"),
    (
      "long_name",
      build([struct.pack("<Q", HUGE) + bytes(16)]),
      f"name of a key needs {HUGE} bytes",
    ),
    (
      "long_string",
      build([key("s", STRING, struct.pack("<Q", HUGE))]),
      f"key 's' needs {HUGE} bytes",
    ),
    (
      "long_array",
      build([key("s", ARRAY, array(0, HUGE))]),
      f"key 's' has {HUGE} values, at most",
    ),
    (
      "array_past_the_end",
      build([key("s", ARRAY, array(U32, 1 << 20))]),
      "key 's' needs 4194304 bytes",
    ),
    (
      "strings_past_the_end",
      build([key("s", ARRAY, array(STRING, 1 << 20))]),
      "1048576 strings, which do not fit",
    ),
    (
      "nested_array",
      build([key("s", ARRAY, array(ARRAY, 1, array(0, 0)))]),
      "array of arrays",
    ),
    ("key_type", build([key("s", 13, b"")]), "'s' has the unknown type 13"),
    (
      "value_type",
      build([key("s", ARRAY, array(99, 1))]),
      "values of the unknown type 99",
    ),
    ("truth", build([key("s", BOOL, b"\2")]), "truth value other than"),
    ("utf8", build([key("s", STRING, text(b"\xff"))]), "not valid UTF-8"),
    (
      "key_twice",
      build([key("s", BOOL, b"\0"), key("s", BOOL, b"\1")]),
      "key 's' appears twice",
    ),
    (
      "alignment",
      build([key("general.alignment", U32, struct.pack("<I", 24))]),
      "alignment 24 is not a power of two",
    ),
    (
      "alignment_zero",
      build([key("general.alignment", U32, bytes(4))]),
      "alignment 0 is not",
    ),
    (
      "alignment_text",
      build([key("general.alignment", STRING, text("32"))]),
      "alignment '32' is not",
    ),
    (
      "tensor_twice",
      build(tensors=[tensor(), tensor(offset=32)]),
      "tensor 'a' appears twice",
    ),
    (
      "overlap",
      build(tensors=[tensor("a", (16,)), tensor("b", offset=32)]),
      "'a' and 'b' overlap",
    ),
    (
      "offset",
      build(tensors=[tensor(offset=HUGE)]),
      "ends past the file's",
    ),
    ("misaligned", build(tensors=[tensor(offset=4)]), "no multiple of 32"),
    ("truncated", build(tensors=[tensor(dims=(17,))]), "ends past the file's"),
    (
      "size_overflow",
      build(tensors=[tensor(dims=(1 << 32, 1 << 32))]),
      "ends past the file's",
    ),
    ("no_dims", build(tensors=[tensor(dims=())]), "has 0 dimensions"),
    ("dims", build(tensors=[tensor(dims=(1,) * 5)]), "has 5 dimensions"),
    ("empty_dim", build(tensors=[tensor(dims=(0,))]), "an empty dimension"),
    ("tensor_type", build(tensors=[tensor(kind=4)]), "unknown type 4"),
    (
      "partial_block",
      build(tensors=[tensor(dims=(33,), kind=2)]),
      "rows of 33 are no multiple of the Q4_0 block of 32",
    ),
    (
      "two_lines",
      build([key("a\nb", BOOL, b"\0"), key("a\nb", BOOL, b"\0")]),
      r"'a\\nb' appears twice",
    ),
  )
  def test_refused_in_one_line(self, content, message):
    tracemalloc.start()
    self.addCleanup(tracemalloc.stop)
    with self.assertRaisesRegex(ValueError, message) as raised:
      self.read(content)
    self.assertNotIn("\n", str(raised.exception))
    self.assertStartsWith(str(raised.exception), "model.gguf: ")
    # The file buffer is 1 MB; nothing grows with a number in the file.
    self.assertLess(tracemalloc.get_traced_memory()[1], 4 << 20)

  def test_every_truncation_is_noticed(self):
    content = build(
      [key("s", STRING, text("abc")), key("l", ARRAY, array(0, 2, b"\1\2"))],
      [tensor("a", (4, 2)), tensor("b", (8,), offset=32)],
    )
    self.assertLen(self.read(content).tensors, 2)
    for size in range(len(content)):
      with self.assertRaises(ValueError, msg=f"first {size} bytes"):
        self.read(content[:size])

  def test_vocabularies_are_read_at_once(self):
    """Start-up waits for this; the bound is ten times what it takes."""
    words = b"".join(text(f"token{i}") for i in range(50_000))
    content = build([key("tokens", ARRAY, array(STRING, 50_000, words))])
    start = time.perf_counter()
    header = self.read(content)
    self.assertLess(time.perf_counter() - start, 1.0)
    self.assertEqual(header.metadata["tokens"][-1], "token49999")

  def test_nothing_is_mapped(self):
    with mock.patch("mmap.mmap", side_effect=AssertionError):
      self.assertLen(self.read(build(tensors=[tensor()])).tensors, 1)


if __name__ == "__main__":
  absltest.main()
