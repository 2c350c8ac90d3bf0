# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's logits are those of Transformers' own GGUF reader."""

import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import gguf
from specjax.models import model as model_lib
from tests import gguf_files

pytestmark = pytest.mark.parity

TOKENS = np.random.default_rng(3).integers(0, gguf_files.VOCAB, (1, 24))


# What Transformers' reader does not learn from a file, told to it.
_TOLD = {"qwen3": {"head_dim": 16}, "gemma3": {"query_pre_attn_scalar": 16}}
# What it leaves out, left out of the file: linear scaling.
_CHANGES = {"gemma3": {"rope__scaling__factor": None}}


def _theirs(path: pathlib.Path, **told: int) -> np.ndarray:
  import torch
  import transformers

  config = transformers.AutoConfig.from_pretrained(
    path.parent, gguf_file=path.name
  )
  for key, value in told.items():
    setattr(config, key, value)
  network = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, config=config, dtype=torch.float32
  ).eval()
  with torch.inference_mode():
    return network(torch.tensor(TOKENS)).logits[0].numpy()


class GgufModelTest(parameterized.TestCase):
  # It reads no GPT-NeoX files and no biases or windows of Llama's: those are
  # compared with folders, whose logits are compared with Transformers'.
  @parameterized.parameters("llama", "qwen2", "qwen3", "gemma3")
  def test_logits(self, name):
    family = gguf_files.FAMILIES[name]
    changes: dict[str, Any] = {"vocab_size": gguf_files.VOCAB}
    changes |= _CHANGES.get(name, {})
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "m.gguf"
      gguf_files.write_gguf(path, family, **changes)
      config, params, _ = gguf.load(path)
      theirs = _theirs(path, **_TOLD.get(name, {}))
    model = model_lib.Model.from_params(config, params)
    cache = model.init_cache(1, TOKENS.shape[1], TOKENS.shape[1])
    ours = model(jnp.asarray(TOKENS), cache).logits[0]
    self.assertGreater(np.abs(theirs).max(), 1)
    # Sums of float32 in another order.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)


if __name__ == "__main__":
  absltest.main()
