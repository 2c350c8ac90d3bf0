# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden logits of model_golden_test.py, made again by Transformers."""

import pathlib
import tempfile

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from tests import checkpoint_files
from tests.parity import make_model_golden as maker

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
pytestmark = pytest.mark.parity


class ModelGoldenTest(parameterized.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.model = real_model_path

  def assert_stored(self, live, name):
    stored = np.load(GOLDEN / f"{name}.npz")
    self.assertEqual(set(live), set(stored.files))
    for key, array in live.items():
      if array.dtype.kind == "f":
        # Processors order the sums of a product differently.
        np.testing.assert_allclose(array, stored[key], rtol=0, atol=1e-3)
      elif not key.endswith("ids"):
        np.testing.assert_array_equal(array, stored[key])

  def test_tiny_checkpoints(self):
    with tempfile.TemporaryDirectory() as folder:
      self.assert_stored(maker.tiny(pathlib.Path(folder)), "model_tiny")

  def test_families(self):
    with tempfile.TemporaryDirectory() as folder:
      self.assert_stored(maker.families(pathlib.Path(folder)), "model_families")

  def test_default_model(self):
    self.assert_stored(maker.smollm2(self.model), "model_smollm2")

  @parameterized.parameters("llama2", "smollm2")
  def test_gguf_reader_of_transformers(self, name):
    """It leaves the scaling of rotary frequencies out, so not for llama3."""
    import torch
    import transformers

    config = checkpoint_files.tiny(**maker.CASES[name])
    tensors = checkpoint_files.gguf_tensors(
      config, checkpoint_files.random_tensors(config)
    )
    metadata = checkpoint_files.gguf_metadata(config)
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "tiny.gguf"
      checkpoint_files.write_gguf(path, metadata, tensors)
      network = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=path.name, dtype=torch.float32
      ).eval()
    stored = np.load(GOLDEN / "model_tiny.npz")[f"{name}/logits"]
    live = maker.logits(network, maker.TOKENS)
    np.testing.assert_allclose(live, stored, rtol=0, atol=1e-3)


if __name__ == "__main__":
  absltest.main()
