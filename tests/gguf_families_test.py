# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A family's GGUF file is the model of the folder it was made from."""

import dataclasses
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import chex
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import gguf, huggingface
from specjax.models import model as model_lib
from tests import gguf_files

TOKENS = np.random.default_rng(3).integers(0, gguf_files.VOCAB, (1, 24))


def logits(config, params) -> np.ndarray:
  """[T, V] of TOKENS."""
  model = model_lib.Model.from_params(config, params)
  cache = model.init_cache(1, TOKENS.shape[1], TOKENS.shape[1])
  return np.asarray(model(jnp.asarray(TOKENS), cache).logits[0])


class GgufFamiliesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  def load(self, name, **changes):
    family = gguf_files.FAMILIES[name]
    path = gguf_files.write_gguf(self.folder / "m.gguf", family, **changes)
    return gguf.load(path)[:2]

  def load_folder(self, name):
    family = gguf_files.FAMILIES[name]
    return huggingface.load(gguf_files.write_folder(self.folder / "m", family))

  @parameterized.parameters(
    *[name for name in gguf_files.FAMILIES if name != "gemma3"]
  )
  def test_both_formats_give_one_model(self, name):
    config, params = self.load(name)
    other_config, other = self.load_folder(name)
    self.assertEqual(config, other_config)
    chex.assert_trees_all_equal(params, other)

  def test_gemma_has_the_same_logits(self):
    """The file's scales have their 1 added, which is exact in this data."""
    config, params = self.load("gemma3")
    other_config, other = self.load_folder("gemma3")
    self.assertEqual(dataclasses.replace(config, norm_offset=1.0), other_config)
    self.assertEqual(config.windows, (5, 5, 5, 5, 5, None, 5))
    np.testing.assert_array_equal(
      logits(config, params), logits(other_config, other)
    )

  @parameterized.parameters(
    ("gemma3", "windows", None), ("gptneox", "rotary_dim", 8)
  )
  def test_a_switch_matters(self, name, field, value):
    self.check_switch(name, field, value)

  @parameterized.parameters(
    ("gemma3", "rope_local_theta", None),
    ("gemma3", "rope_factors", None),
    ("gemma3", "query_scale", 0.5),
    ("gemma3", "embedding_scale", 1.0),
    ("gemma3", "activation", "silu"),
    ("mistral", "windows", None),
    ("llama_linear", "rope_factors", None),
    ("gptneox", "parallel_residual", False),
    ("gptneox", "activation", "gelu_tanh"),
  )
  @pytest.mark.slow
  def test_each_switch_matters(self, name, field, value):
    self.check_switch(name, field, value)

  def check_switch(self, name, field, value):
    """Guards the comparison: a wrong switch moves the logits.

    The least of them, GELU by the tanh formula, moves them by 6e-4, a hundred
    times what another order of sums does.
    """
    config, params = self.load(name)
    wrong = dataclasses.replace(config, **{field: value})
    self.assertNotEqual(config, wrong)
    difference = logits(config, params) - logits(wrong, params)
    self.assertGreater(np.abs(difference).max(), 5e-4)

  def test_keys_that_newer_files_state(self):
    config, _ = self.load(
      "gemma3",
      rope__freq_base_swa=20000.0,
      attention__sliding_window_pattern=3,
    )
    self.assertEqual(config.windows, (5, 5, None, 5, 5, None, 5))
    self.assertEqual(config.rope_local_theta, 20000.0)

  @parameterized.parameters(
    {"attention__sliding_window": None},
    {"attention__sliding_window": 0},
    {"attention__sliding_window_pattern": 1},
  )
  def test_gemma_without_windows(self, **changes):
    config, _ = self.load("gemma3", **changes)
    self.assertIsNone(config.windows)
    self.assertIsNone(config.rope_local_theta)

  def test_the_largest_gemma_is_scaled_by_its_width(self):
    """Its 62 layers tell it; its heads are 128 wide and it divides by 168."""
    family = dataclasses.replace(gguf_files.FAMILIES["gemma3"], layers=62)
    path = gguf_files.write_gguf(self.folder / "m.gguf", family)
    self.assertEqual(gguf.load(path)[0].query_scale, 8**-0.5)
    self.assertEqual(self.load("gemma3")[0].query_scale, 16**-0.5)

  @parameterized.parameters(
    ("llama", {"rope__scaling__type": "none", "rope__scaling__factor": 4.0}),
    ("llama", {"rope__scaling__type": "linear"}),
    ("llama", {"rope__scaling__factor": 1.0}),
  )
  def test_scaling_that_is_none(self, name, changes):
    self.assertIsNone(self.load(name, **changes)[0].rope_factors)

  @parameterized.parameters("rope__scaling__factor", "rope__scale_linear")
  def test_scaling_is_linear_where_it_is_not_named(self, key):
    config, _ = self.load("qwen2", **{key: 2.0})
    self.assertEqual(config.rope_factors, (2.0,) * 4)

  @parameterized.parameters(
    ("gptneox", {"use_parallel_residual": None}, "parallel_residual is miss"),
    ("gptneox", {"rope__dimension_count": 9}, "dimension_count is 9"),
    ("gptneox", {"rope__dimension_count": 3}, "rotary_dim 3 must be even"),
    ("gptneox", {"attention__head_count_kv": 2}, "attn_qkv.*shape"),
    ("gemma3", {"final_logit_softcapping": 30.0}, "softcapping' = 30.0 is not"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "softcapping' = 50.0 is not"),
    ("gemma3", {"attention__sliding_window_pattern": "6"}, "one int was"),
    ("qwen2", {"attention__sliding_window": 8}, "sliding_window' = 8 is not"),
    ("qwen3", {"expert_count": 64}, "expert_count' = 64 is not"),
    ("qwen3", {"use_parallel_residual": True}, "residual' = True is not"),
    ("llama", {"rope__scaling__factor": -2.0}, "must be positive and finite"),
    ("gemma3", {"attention__head_count": 0}, "num_heads is 0"),
    (
      "gemma3",
      {"attention__key_length": 0, "attention__value_length": 0},
      "head_dim is 0",
    ),
  )
  def test_what_is_not_computed_is_refused(self, name, changes, message):
    with self.assertRaisesRegex(ValueError, message) as raised:
      self.load(name, **changes)
    self.assertNotIn("\n", str(raised.exception))

  @parameterized.parameters(
    ("qwen2", "attn_k.bias", "lacks tensors 'blk.0.attn_k.bias', 'blk.1"),
    ("qwen3", "attn_q_norm.weight", "lacks tensors 'blk.0.attn_q_norm.weight"),
    ("gemma3", "post_ffw_norm.weight", "7 layers need 91 tensors"),
    ("gptneox", "output_norm.bias", "lacks tensor 'output_norm.bias'"),
    ("gptneox", "attn_qkv.bias", "lacks tensors 'blk.0.attn_qkv.bias'"),
  )
  def test_tensors_that_a_family_needs(self, name, missing, message):
    family = gguf_files.FAMILIES[name]
    family = dataclasses.replace(
      family,
      layer=tuple(row for row in family.layer if row[0] != missing),
      outside=tuple(row for row in family.outside if row[0] != missing),
    )
    path = gguf_files.write_gguf(self.folder / "m.gguf", family)
    with self.assertRaisesRegex(ValueError, message):
      gguf.load(path)


if __name__ == "__main__":
  absltest.main()
