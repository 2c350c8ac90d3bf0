# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile safetensors headers end in one line."""

import json
import pathlib
import struct
import tempfile

from absl.testing import absltest, parameterized
import numpy as np
import safetensors.numpy

from specjax.models import safetensors_header

HUGE = 1 << 60


def entry(begin=0, end=16, shape=(4,), dtype="F32"):
  return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def build(header, data=16) -> bytes:
  text = header if isinstance(header, str) else json.dumps(header)
  return struct.pack("<Q", len(text)) + text.encode() + bytes(data)


class SafetensorsHeaderTest(parameterized.TestCase):
  def read(self, content: bytes):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "model.safetensors"
      path.write_bytes(content)
      return safetensors_header.read(path)

  def test_files_of_the_library(self):
    arrays = {
      "b": np.arange(6, dtype=np.float32).reshape(2, 3),
      "a": np.arange(3, dtype=np.float16),
    }
    content = safetensors.numpy.save(arrays, metadata={"format": "pt"})
    tensors = self.read(content)
    self.assertEqual(set(tensors), {"a", "b"})
    for name, array in arrays.items():
      stored = tensors[name]
      self.assertEqual(stored.shape, array.shape)
      raw = content[stored.offset : stored.offset + array.nbytes]
      values = stored.decode(np.frombuffer(raw, np.uint8))
      np.testing.assert_array_equal(values.reshape(array.shape), array)

  @parameterized.named_parameters(
    ("empty", b"", "too short"),
    ("huge_header", struct.pack("<Q", HUGE) + b"{}", "does not fit"),
    ("header_past_end", struct.pack("<Q", 3) + b"{}", "does not fit"),
    ("not_json", build("{"), "damaged header"),
    ("not_an_object", build("[]"), "not a JSON object"),
    ("deep", build("[" * 100_000), "damaged header"),
    ("not_text", struct.pack("<Q", 2) + b"\xff\xfe", "damaged header"),
    (
      "tensor_twice",
      build('{"a": %s, "a": %s}' % ((json.dumps(entry()),) * 2)),
      "'a' appears twice",
    ),
    ("no_entry", build({"a": 3}), "no description"),
    ("dtype", build({"a": entry(dtype="I64")}), "dtype 'I64', only F32"),
    ("dtype_list", build({"a": entry(dtype=[])}), r"dtype \[\], only"),
    ("f8", build({"a": entry(dtype="F8_E4M3")}), "dtype 'F8_E4M3'"),
    ("no_shape", build({"a": {"dtype": "F32"}}), "the shape None"),
    ("negative", build({"a": entry(shape=[-4])}), r"the shape \[-4\]"),
    ("fraction", build({"a": entry(shape=[4.0])}), r"the shape \[4.0\]"),
    ("truth", build({"a": entry(shape=[True])}), r"the shape \[True\]"),
    ("scalar", build({"a": entry(0, 4, [])}, 4), r"the shape \[\]"),
    ("empty_dim", build({"a": entry(0, 0, [0])}, 0), r"the shape \[0\]"),
    ("size", build({"a": entry(shape=[5])}), "takes 20 bytes, its range has"),
    ("overflow", build({"a": entry(shape=[HUGE] * 8)}), "its range has 16"),
    ("backwards", build({"a": entry(16, 0)}), "its range has -16"),
    (
      "range",
      build({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0]}}),
      r"the range \[0\]",
    ),
    ("past_the_end", build({"a": entry()}, 15), "16 bytes, the file has 15"),
    ("trailing", build({"a": entry()}, 17), "16 bytes, the file has 17"),
    (
      "offset",
      build({"a": entry(HUGE, HUGE + 16)}),
      "'a' leaves a hole",
    ),
    (
      "overlap",
      build({"a": entry(), "b": entry(8, 24)}, 24),
      "'b' overlaps another",
    ),
    ("hole", build({"a": entry(4, 20)}, 20), "'a' leaves a hole"),
    (
      "two_lines",
      build({"a\nb": entry(dtype="I8")}),
      r"'a\\nb' has dtype",
    ),
  )
  def test_refused_in_one_line(self, content, message):
    with self.assertRaisesRegex(ValueError, message) as raised:
      self.read(content)
    self.assertNotIn("\n", str(raised.exception))
    self.assertStartsWith(str(raised.exception), "model.safetensors: ")

  def test_every_truncation_is_noticed(self):
    content = build({"a": entry(), "b": entry(16, 24, (2, 1))}, 24)
    self.assertLen(self.read(content), 2)
    for size in range(len(content)):
      with self.assertRaises(ValueError, msg=f"first {size} bytes"):
        self.read(content[:size])


if __name__ == "__main__":
  absltest.main()
