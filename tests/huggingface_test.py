# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights from Hugging Face folders equal what they say, or are refused."""

import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import huggingface, huggingface_rope, weights
from specjax.models import model as model_lib
from specjax.text import untrusted
from tests import checkpoint_files

LLAMA3 = {
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 64,
}


class HuggingFaceTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name) / "tiny"

  def write(
    self, config=checkpoint_files.TINY, kind="F32", files=1, **changes
  ) -> pathlib.Path:
    """A folder of `config`; changes to config.json, None removes a key."""
    raw = checkpoint_files.folder_config(config) | changes
    raw = {k: v for k, v in raw.items() if v is not None}
    self.tensors = checkpoint_files.random_tensors(config)
    return checkpoint_files.write_folder(
      self.folder, raw, self.tensors, kind, files
    )

  def assert_loads(self, folder, config, dtype="float32"):
    loaded, params = huggingface.load(folder, dtype)
    self.assertEqual(loaded, config)
    self.assertEqual(params["embed"]["embedding"].dtype, dtype)
    chex.assert_trees_all_equal(
      params,
      checkpoint_files.expected_params(
        config,
        {n: t.astype(jnp.dtype(dtype)) for n, t in self.tensors.items()},
      ),
    )

  def assert_refused(self, message, error=ValueError):
    with self.assertRaisesRegex(error, message) as raised:
      huggingface.load(self.folder)
    self.assertNotIn("\n", str(raised.exception))

  @parameterized.product(
    kind=("F32", "F16", "BF16"), dtype=("float32", "bfloat16"), files=(1, 3)
  )
  def test_config_and_parameters(self, kind, dtype, files):
    config = checkpoint_files.tiny(tie_embeddings=False)
    self.assert_loads(self.write(config, kind, files), config, dtype)

  def test_reading_in_pieces_changes_nothing(self):
    folder = self.write()
    with mock.patch.object(weights, "_CHUNK", 3 * 32 + 1):
      self.assert_loads(folder, checkpoint_files.TINY)

  def test_defaults_of_absent_keys(self):
    config = checkpoint_files.tiny(num_kv_heads=4, tie_embeddings=False)
    folder = self.write(
      config,
      num_key_value_heads=None,
      head_dim=None,
      rope_theta=None,
      tie_word_embeddings=None,
    )
    self.assert_loads(folder, config)

  def test_old_rotary_buffers_are_ignored(self):
    folder = self.write()
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)}
    checkpoint_files.write_safetensors(
      folder / "model.safetensors", self.tensors | extra
    )
    self.assert_loads(folder, checkpoint_files.TINY)

  @pytest.mark.fault_case("B54")
  def test_tied_without_lm_head(self):
    """vllm-project/vllm#6758, google-deepmind/gemma#8: (a) loads."""
    folder = self.write()
    self.assertNotIn("lm_head.weight", self.tensors)
    self.assert_loads(folder, checkpoint_files.TINY)

  @parameterized.parameters(True, False)
  @pytest.mark.fault_case("B54")
  def test_tied_with_lm_head(self, same):
    """huggingface/transformers#38870: the embedding is used, or it warns."""
    folder = self.write()
    head = self.tensors["model.embed_tokens.weight"] + (0 if same else 1)
    checkpoint_files.write_safetensors(
      folder / "model.safetensors", self.tensors | {"lm_head.weight": head}
    )
    with mock.patch("absl.logging.warning") as warning:
      self.assert_loads(folder, checkpoint_files.TINY)
    self.assertEqual(warning.called, not same)

  @pytest.mark.fault_case("B54")
  def test_untied_without_lm_head(self):
    """vllm-project/vllm#6758: (c) is an error that names the key."""
    self.write(tie_word_embeddings=False)
    self.assert_refused("lacks tensor 'lm_head.weight'.*tie_word_embeddings")

  @pytest.mark.fault_case("B57")
  def test_stated_head_size(self):
    """NVIDIA/TensorRT-LLM#5912: hidden 40, 4 heads of 16 and not of 10."""
    config = checkpoint_files.tiny(
      embed_dim=40, num_heads=4, num_kv_heads=2, head_dim=16
    )
    folder = self.write(config)
    self.assert_loads(folder, config)
    _, params = huggingface.load(folder)
    attention = params["layer_0"]["attention"]
    self.assertEqual(attention["query"]["kernel"].shape, (40, 64))
    self.assertEqual(attention["output"]["kernel"].shape, (64, 40))
    model = model_lib.Model.from_params(config, params)
    keys, _ = model.init_cache(1, 8, 1).layers[0]
    self.assertEqual(keys.shape[-1], 16)

  @pytest.mark.fault_case("B55")
  def test_llama3_frequencies(self):
    """ggml-org/llama.cpp#8676; the ratios are calculated by hand."""
    factors = huggingface_rope.llama3_factors(8, 100.0, 8, 1, 4, 64)
    np.testing.assert_allclose(
      1 / np.array(factors),
      [1, 0.7728, 0.1304, 0.125],
      atol=5e-5,  # they are given to four digits
    )
    factors = huggingface_rope.llama3_factors(64, 5e5, 32, 1, 4, 8192)
    ratios = 1 / np.array(factors)
    np.testing.assert_array_equal(ratios[:15], 1)
    np.testing.assert_allclose(ratios[15:18], [0.6056, 0.3037, 0.1034], 1e-3)
    np.testing.assert_array_equal(ratios[18:], 1 / 32)

  @parameterized.named_parameters(
    ("type", "rope_scaling", {"type": "llama3"}),
    ("rope_type", "rope_scaling", {"rope_type": "llama3"}),
    ("both", "rope_scaling", {"type": "llama3", "rope_type": "llama3"}),
    ("parameters", "rope_parameters", {"rope_type": "llama3"}),
  )
  @pytest.mark.fault_case("B55")
  def test_every_spelling_of_llama3_scaling(self, key, kind):
    """felafax/felafax#59, lablup/mlxcel#1355: the key has several names."""
    config, _ = huggingface.load(
      self.write(rope_theta=100.0, **{key: LLAMA3 | kind})
    )
    self.assertEqual(
      config.rope_factors,
      huggingface_rope.llama3_factors(8, 100.0, 8, 1, 4, 64),
    )

  @parameterized.parameters(None, "default")
  def test_rope_parameters_hold_the_base(self, kind):
    folder = self.write(
      rope_theta=None, rope_parameters={"rope_theta": 5e5, "rope_type": kind}
    )
    self.assert_loads(folder, checkpoint_files.tiny(rope_theta=5e5))

  @parameterized.parameters(
    ({"model_type": "phi3"}, "model_type is 'phi3', known are llama, mistral"),
    ({"model_type": None}, "model_type is None"),
    ({"model_type": ["llama"]}, "model_type is .'llama'., known are"),
    ({"attention_bias": True}, "2 layers need 26 tensors, it holds 20"),
    ({"attention_bias": 1}, "attention_bias is 1, true or false was expected"),
    ({"hidden_act": "relu"}, "hidden_act = 'relu' is not supported"),
    ({"sliding_window": 4096}, "sliding_window = 4096 is not supported"),
    ({"layer_types": ["sliding_attention"] * 2}, "layer_types = .* is not"),
    ({"quantization_config": {"bits": 4}}, "quantization_config = .* is not"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 is not"),
    ({"rope_scaling": {"type": "yarn"}}, "rope type .'yarn'. is not"),
    ({"rope_scaling": {"rope_type": "dynamic"}}, "rope type .'dynamic'. is"),
    ({"rope_scaling": {"rope_type": "longrope"}}, "rope type .'longrope'. is"),
    ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
    ({"rope_parameters": {"full_attention": {}}}, "by layer type in families"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
    ({"rope_scaling": {"type": "yarn", "rope_type": "llama3"}}, "yarn.*lla"),
    ({"rope_scaling": 2}, "rope_scaling is 2"),
    (
      {"rope_scaling": LLAMA3 | {"type": "llama3", "high_freq_factor": 1.0}},
      "the low factor positive and below the high one",
    ),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"hidden_size": "32"}, "hidden_size is '32', one int was expected"),
    ({"hidden_size": 32.0}, "hidden_size is 32.0, one int was expected"),
    ({"hidden_size": True}, "hidden_size is True, one int was expected"),
    ({"rope_theta": 10**400}, "rope_theta is 1000.*, one float was expected"),
    ({"rms_norm_eps": -1e-5}, "norm_eps is -1e-05, it must be positive"),
    ({"num_attention_heads": 0}, "num_heads is 0, it must be positive"),
    ({"num_key_value_heads": 3}, "not a multiple of num_kv_heads 3"),
    ({"head_dim": 7}, "head_dim 7 must be even"),
    ({"head_dim": 1 << 40}, "head_dim 1099511627776 must be even"),
    ({"num_hidden_layers": 10**12}, "layers need 9000000000000 tensors"),
    ({"num_hidden_layers": 1}, "unknown tensors 'model.layers.1.input_lay"),
    ({"vocab_size": 50}, r"shape \(48, 32\), the .* asks for \(50, 32\)"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', true or"),
  )
  def test_what_is_not_computed_is_refused(self, changes, message):
    self.write(**changes)
    self.assert_refused(message)

  @parameterized.parameters("[1]", "{", "[" * 100_000)
  def test_damaged_config(self, content):
    self.write()
    (self.folder / "config.json").write_text(content)
    self.assert_refused("config.json(: malformed JSON| is not a JSON object)")

  def test_a_config_of_absurd_size_is_not_parsed(self):
    folder = self.write()
    size = (folder / "config.json").stat().st_size
    with mock.patch.object(untrusted, "MAX_BYTES", size):
      huggingface.load(folder)
    with mock.patch.object(untrusted, "MAX_BYTES", size - 1):
      self.assert_refused(f"config.json is larger than {size - 1} bytes")

  def test_missing_files_are_named(self):
    self.write()
    (self.folder / "model.safetensors").unlink()
    self.assert_refused("neither model.safetensors nor", FileNotFoundError)
    (self.folder / "config.json").unlink()
    self.assert_refused("config.json is missing", FileNotFoundError)

  @parameterized.parameters("pytorch_model.bin", "model.pt", "a.pth", "b.ckpt")
  def test_pickles_are_refused_by_name(self, name):
    self.write()
    (self.folder / "model.safetensors").rename(self.folder / name)
    self.assert_refused(f"{name} is a pickle")

  @parameterized.parameters(
    "../model.safetensors", "/etc/passwd", "a\\b.safetensors", "..", "x.bin", 3
  )
  def test_an_index_names_only_siblings(self, name):
    self.write(files=2)
    index = self.folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(content))
    self.assert_refused("index.json names .*only .safetensors files beside")

  def test_an_index_must_agree_with_its_files(self):
    self.write(files=2)
    index = self.folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(content))
    self.assert_refused("disagree about tensor 'model.norm.weight'")
    name = "model-00002-of-00002.safetensors"
    (self.folder / name).unlink()
    self.assert_refused(f"{name}, named by .* is missing", FileNotFoundError)
    index.write_text("{}")
    self.assert_refused("weight_map is missing")


if __name__ == "__main__":
  absltest.main()
