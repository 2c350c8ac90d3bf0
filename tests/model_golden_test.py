# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logits and greedy tokens equal Transformers', from files that hold them.

The files are made by tests/parity/make_model_golden.py; the parity tier makes
them again. Logits are compared within 1e-3: float32 sums in another order
differ by 5e-4 at most where logits reach 40 (the tiny weights are coarse), a
wrong frequency or row order by whole units.
"""

import dataclasses
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import decode
from specjax.drafters import empty
from specjax.models import gguf, huggingface, sources
from specjax.models import model as model_lib
from specjax.policies import policy
from specjax.verifiers import coupled
from tests import checkpoint_files, family_files
from tests.parity import make_model_golden as maker

GOLDEN = pathlib.Path(__file__).parent / "golden"
TOLERANCE = 1e-3
# Of the largest logit: sums in another order differ by 2e-6 of it at most.
FAMILY_TOLERANCE = 1e-5


def logits(model, tokens):
  """[T, V] of one block."""
  cache = model.init_cache(1, len(tokens), len(tokens))
  return np.asarray(model(jnp.asarray(tokens)[None], cache).logits[0])


def greedy(model, tokens, new=maker.NEW_TOKENS):
  """Ids that the decoding loop adds, with nothing that ends a row."""
  one = jnp.ones((1,), jnp.int32)
  nothing = jnp.full((1,), -1, jnp.int32)
  stop = types.Stop(nothing, one * new, jnp.full((0, 1), -1, jnp.int32))
  state = decode.decode(
    model,
    empty.Empty(),
    coupled.Coupled(),
    jnp.asarray(tokens, jnp.int32)[None],
    one * len(tokens),
    streams.row_keys(0, jnp.arange(1), jnp.zeros((1,), int)),
    sampling_lib.Sampling(),
    policy.Fixed(0),
    stop,
    capacity=len(tokens) + new + 1,
  )
  return np.asarray(state.tokens[0, len(tokens) : len(tokens) + new])


class TinyGoldenTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.golden = np.load(GOLDEN / "model_tiny.npz")

  def assert_equal(self, name, config, params) -> model_lib.Model:
    model = model_lib.Model.from_params(config, params)
    np.testing.assert_allclose(
      logits(model, maker.TOKENS),
      self.golden[f"{name}/logits"],
      rtol=0,
      atol=TOLERANCE,
    )
    return model

  @parameterized.parameters(*maker.CASES)
  def test_safetensors(self, name):
    self.load_safetensors(name)

  @parameterized.parameters(*maker.CASES)
  @pytest.mark.slow
  def test_greedy_tokens(self, name):
    model = self.load_safetensors(name)
    np.testing.assert_array_equal(
      greedy(model, maker.TOKENS), self.golden[f"{name}/greedy"]
    )

  def load_safetensors(self, name) -> model_lib.Model:
    folder = maker.write_case(name, self.folder / name)
    config, params = huggingface.load(folder)
    factors = config.rope_factors or (1.0,) * (config.head_dim // 2)
    theirs = self.golden[f"{name}/rope_factors"]
    np.testing.assert_allclose(factors, theirs, rtol=1e-6)
    self.assertEqual(np.ptp(theirs) > 1, maker.is_scaled(name))
    return self.assert_equal(name, config, params)

  @parameterized.parameters(*maker.CASES)
  def test_gguf(self, name):
    config = checkpoint_files.tiny(**maker.CASES[name])
    tensors = checkpoint_files.gguf_tensors(
      config, checkpoint_files.random_tensors(config)
    )
    if maker.is_scaled(name):
      factors = self.golden[f"{name}/rope_factors"].astype(np.float32)
      tensors["rope_freqs.weight"] = factors
    path = checkpoint_files.write_gguf(
      self.folder / "tiny.gguf", checkpoint_files.gguf_metadata(config), tensors
    )
    config, params, _ = gguf.load(path)
    self.assert_equal(name, config, params)

  def test_the_tolerance_sees_a_wrong_frequency(self):
    folder = maker.write_case("llama3", self.folder / "llama3")
    config, params = huggingface.load(folder)
    plain = checkpoint_files.tiny(**maker.CASES["llama3"])
    self.assertNotEqual(plain, config)
    model = model_lib.Model.from_params(plain, params)
    off = logits(model, maker.TOKENS) - self.golden["llama3/logits"]
    self.assertGreater(np.abs(off).max(), 100 * TOLERANCE)


class FamilyGoldenTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.golden = np.load(GOLDEN / "model_families.npz")

  def load(self, name, **changes):
    """The case's model; `changes` of the configuration its file states."""
    config, params = huggingface.load(
      family_files.write(name, self.folder / name)
    )
    config = dataclasses.replace(config, **changes)
    return model_lib.Model.from_params(config, params)

  def error(self, model, name):
    """The largest difference, as a part of the largest logit."""
    golden = self.golden[f"{name}/logits"]
    off = logits(model, maker.FAMILY_TOKENS) - golden
    return np.abs(off).max() / np.abs(golden).max()

  @parameterized.parameters(*family_files.CONFIGS)
  def test_logits(self, name):
    self.assertLess(self.error(self.load(name), name), FAMILY_TOLERANCE)

  @parameterized.parameters("gemma3", "gpt_neox")
  def test_greedy_tokens(self, name):
    self.check_greedy(name)

  @parameterized.parameters(*family_files.CONFIGS)
  @pytest.mark.slow
  def test_greedy_tokens_of_every_family(self, name):
    self.check_greedy(name)

  def check_greedy(self, name):
    model = self.load(name)
    golden = self.golden[f"{name}/greedy"]
    self.assertGreater(len(set(golden)), 12)  # A loop would test little.
    np.testing.assert_array_equal(greedy(model, maker.FAMILY_TOKENS), golden)

  @parameterized.parameters(
    ("llama", "rope_factors", None),
    ("mistral", "windows", (6, 7)),
    ("qwen2_windows", "windows", (None, 7)),
    ("qwen3", "windows", None),
    ("gemma3", "activation", "gelu"),
    ("gemma3", "embedding_scale", 1.0),
    ("gemma3", "norm_offset", 0.0),
    ("gemma3", "query_scale", None),
    ("gemma3", "rope_factors", None),
    ("gemma3", "rope_local_theta", 101.0),
    ("gemma3", "windows", (6, 6, 6, 6)),
    ("gpt_neox", "activation", "gelu_tanh"),
    ("gpt_neox", "norm_eps", 1e-6),
    ("gpt_neox", "parallel_residual", False),
    ("gpt_neox", "rotary_dim", 2),
  )
  def test_the_tolerance_sees_a_wrong_switch(self, name, field, value):
    model = self.load(name, **{field: value})
    self.assertNotEqual(model.config, family_files.EXPECTED[name])
    self.assertGreater(self.error(model, name), 2 * FAMILY_TOLERANCE)


class DefaultModelGoldenTest(absltest.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.model, _ = sources.load(str(real_model_path))

    self.golden = np.load(GOLDEN / "model_smollm2.npz")

  def test_real_weights(self):
    golden = self.golden
    tokens, ids = golden["tokens"], golden["ids"]
    own = logits(self.model, tokens)
    np.testing.assert_allclose(
      np.take_along_axis(own, ids, axis=1),
      golden["logits"],
      rtol=0,
      atol=TOLERANCE,
    )
    top = golden["logits"][:, 0]
    np.testing.assert_allclose(own.max(axis=1), top, rtol=0, atol=TOLERANCE)
    self.assertEqual(own[-1].argmax(), golden["greedy"][0])

  @pytest.mark.slow
  def test_greedy_tokens_of_real_weights(self):
    tokens, expected = self.golden["tokens"], self.golden["greedy"]
    np.testing.assert_array_equal(greedy(self.model, tokens), expected)


if __name__ == "__main__":
  absltest.main()
