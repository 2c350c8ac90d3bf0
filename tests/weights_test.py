# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading stays within its memory; a fingerprint sees every byte."""

import json
import pathlib
import subprocess
import sys
import tempfile

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from specjax.models import weights
from tests import checkpoint_files

# 28 million parameters, of which the embedding is 8 million.
MEDIUM = checkpoint_files.tiny(
  vocab_size=16384,
  embed_dim=512,
  num_layers=5,
  num_heads=8,
  num_kv_heads=4,
  head_dim=64,
  mlp_dim=2048,
)

# Loads once and prints bytes: growth of the peak, parameters, largest tensor.
# VmHWM starts anew with the program; ru_maxrss would begin at the parent's.
MEASURE = """
import json, pathlib, sys
import gguf, jax
from specjax.models import gguf as gguf_format, huggingface

def peak():
  status = pathlib.Path("/proc/self/status").read_text()
  return int(status.split("VmHWM:")[1].split()[0]) * 1024

path, dtype = sys.argv[1:]
load = gguf_format.load if path.endswith(".gguf") else huggingface.load
jax.block_until_ready(jax.device_put(jax.numpy.ones(8)))
before = peak()
params = load(path, dtype)[1]
jax.block_until_ready(params)
sizes = [leaf.nbytes for leaf in jax.tree.leaves(params)]
print(json.dumps([peak() - before, sum(sizes), max(sizes)]))
"""


def _write_medium(path: pathlib.Path) -> None:
  tensors = checkpoint_files.random_tensors(MEDIUM)
  if path.suffix == ".gguf":
    checkpoint_files.write_gguf(
      path,
      checkpoint_files.gguf_metadata(MEDIUM),
      checkpoint_files.gguf_tensors(MEDIUM, tensors),
      "Q4_0",
    )
  else:
    checkpoint_files.write_folder(
      path, checkpoint_files.folder_config(MEDIUM), tensors, "BF16"
    )


class MemoryTest(parameterized.TestCase):
  @parameterized.product(name=("m.gguf", "m"), dtype=("float32", "bfloat16"))
  def test_peak_is_bounded(self, name, dtype):
    """Resident memory grows by at most 1.3 x parameters + largest tensor."""
    if not sys.platform.startswith("linux"):
      self.skipTest("reads /proc")
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / name
      _write_medium(path)
      done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), dtype],
        capture_output=True,
        text=True,
        check=False,
        cwd=pathlib.Path(__file__).parents[1],
      )
    self.assertEqual(done.returncode, 0, done.stderr)
    growth, total, largest = json.loads(done.stdout)
    self.assertEqual(total, 28_055_040 * jnp.dtype(dtype).itemsize)
    self.assertLessEqual(growth, 1.3 * total + largest)
    # Memory that was resident before may be used again, no more than this;
    # a growth far below the parameters would mean that nothing was measured.
    self.assertGreater(growth, 0.8 * total)


class ReadTensorTest(parameterized.TestCase):
  def test_memory_is_adopted_by_the_cpu(self):
    array = weights._aligned_empty((3, 5), np.dtype(np.float32))
    adopted = jax.device_put(array, jax.devices("cpu")[0])
    self.assertEqual(adopted.unsafe_buffer_pointer(), array.ctypes.data)

  def test_a_file_that_shrinks_is_noticed(self):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "x"
      path.write_bytes(bytes(12))
      stored = weights.Stored(path, 0, (4,), 16, lambda raw: raw.view("<f4"))
      with self.assertRaisesRegex(ValueError, "the file shrank"):
        weights.read_tensor(stored, np.dtype(np.float32), transpose=False)

  def test_interleaved_heads(self):
    """Two heads of 4: rows 0 1 2 3 of each become rows 0 2 1 3."""
    rows = np.arange(8, dtype=np.float32)[:, None]
    self.assertEqual(
      weights._unpair(rows, 4)[:, 0].tolist(), [0, 2, 1, 3, 4, 6, 5, 7]
    )


class FingerprintTest(parameterized.TestCase):
  def params(self, dtype=np.float32):
    x = np.arange(1, 7).reshape(2, 3).astype(dtype)
    return {"a": {"kernel": x}, "b": {"scale": np.ones(3, dtype)}}

  def test_does_not_depend_on_where_the_arrays_are(self):
    params = self.params()
    self.assertEqual(
      weights.fingerprint(params),
      weights.fingerprint(jax.tree.map(jnp.asarray, params)),
    )
    self.assertLen(weights.fingerprint(params), 64)

  def test_sees_every_change(self):
    seen = {weights.fingerprint(self.params())}
    for dtype in (np.float16, ml_dtypes.bfloat16):
      seen.add(weights.fingerprint(self.params(dtype)))
    for index in range(6):
      params = self.params()
      flat = params["a"]["kernel"].reshape(-1).view(np.uint32)
      flat[index] ^= 1
      seen.add(weights.fingerprint(params))
    x = self.params()["a"]["kernel"]
    seen.add(weights.fingerprint(self.params() | {"a": {"kernel": x.T}}))
    reshaped = {"kernel": x.reshape(3, 2)}
    seen.add(weights.fingerprint(self.params() | {"a": reshaped}))
    params = self.params()
    seen.add(weights.fingerprint({"c": params["a"], "b": params["b"]}))
    self.assertLen(seen, 12)


if __name__ == "__main__":
  absltest.main()
