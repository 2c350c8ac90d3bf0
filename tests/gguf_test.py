# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights from GGUF files equal what the file says, or are refused."""

import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import gguf as gguf_lib
import jax
import numpy as np
import pytest

from specjax.models import gguf, huggingface, int8, weights
from specjax.models import model as model_lib
from tests import checkpoint_files

QUANTS = gguf_lib.quants


def _dequantises(kind: gguf_lib.GGMLQuantizationType) -> bool:
  size = gguf_lib.GGML_QUANT_SIZES[kind][1]
  try:
    QUANTS.dequantize(np.zeros((1, size), np.uint8), kind)
  except NotImplementedError:
    return False
  return True


ALL_TYPES = tuple(gguf_lib.GGMLQuantizationType)
READ = tuple(kind.name for kind in ALL_TYPES if _dequantises(kind))
REFUSED = tuple(kind.name for kind in ALL_TYPES if not _dequantises(kind))
# Blocks of up to 256 numbers: every matrix has rows of a multiple of that.
WIDE = checkpoint_files.tiny(
  num_layers=1,
  embed_dim=256,
  num_heads=4,
  num_kv_heads=2,
  head_dim=64,
  mlp_dim=256,
)


def _random_bytes(shape: tuple[int, int], kind: str, seed: int) -> np.ndarray:
  """Bytes of a matrix whose numbers are all finite."""
  kind_id = gguf_lib.GGMLQuantizationType[kind]
  block, size = gguf_lib.GGML_QUANT_SIZES[kind_id]
  rng = np.random.default_rng(seed)
  blocks = rng.integers(
    0, 256, (shape[0] * shape[1] // block, size), dtype=np.uint8
  )
  with np.errstate(all="ignore"):
    values = QUANTS.dequantize(blocks, kind_id)
  blocks[~np.isfinite(values).all(axis=-1)] = 0
  return blocks.reshape(shape[0], -1)


class GgufTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  def write(self, config=checkpoint_files.TINY, kind="F32", **changes):
    """A file of `config`; changes to metadata, None removes a key."""
    metadata = checkpoint_files.gguf_metadata(config) | changes
    metadata = {k: v for k, v in metadata.items() if v is not None}
    self.tensors = checkpoint_files.random_tensors(config)
    return checkpoint_files.write_gguf(
      self.folder / "model.gguf",
      metadata,
      checkpoint_files.gguf_tensors(config, self.tensors),
      kind,
    )

  def rewrite(self, change, config=checkpoint_files.TINY):
    """A file whose tensors went through `change(dict)` first."""
    tensors = checkpoint_files.gguf_tensors(
      config, checkpoint_files.random_tensors(config)
    )
    change(tensors)
    return checkpoint_files.write_gguf(
      self.folder / "model.gguf",
      checkpoint_files.gguf_metadata(config),
      tensors,
    )

  @parameterized.parameters(True, False)
  def test_config_and_parameters(self, tied):
    config = checkpoint_files.tiny(
      tie_embeddings=tied, norm_eps=1e-6, rope_theta=5e5, head_dim=16
    )
    loaded, params, metadata = gguf.load(self.write(config))
    self.assertEqual(loaded, config)
    self.assertEqual(metadata["llama.block_count"], 2)
    chex.assert_trees_all_equal(
      params, checkpoint_files.expected_params(config, self.tensors)
    )
    self.assertIsInstance(params["embed"]["embedding"], jax.Array)

  @parameterized.parameters("float32", "bfloat16", "float16")
  def test_same_weights_from_both_formats(self, dtype):
    path = self.write(checkpoint_files.TINY, "F16")
    folder = checkpoint_files.write_folder(
      self.folder / "hub",
      checkpoint_files.folder_config(checkpoint_files.TINY),
      self.tensors,
      "BF16",
    )
    config, params, _ = gguf.load(path, dtype)
    other_config, other = huggingface.load(folder, dtype)
    self.assertEqual(config, other_config)
    self.assertEqual(params["embed"]["embedding"].dtype, dtype)
    chex.assert_trees_all_equal(params, other)
    self.assertEqual(weights.fingerprint(params), weights.fingerprint(other))

  @parameterized.parameters(*READ)
  def test_every_type_equals_the_library(self, kind):
    """Tensor by tensor in chunks is the same as the library in one piece."""
    kind_id = gguf_lib.GGMLQuantizationType[kind]
    tensors = checkpoint_files.random_tensors(WIDE)
    stored = {
      name: _random_bytes(t.shape, kind, i) if t.ndim > 1 else t
      for i, (name, t) in enumerate(
        checkpoint_files.gguf_tensors(WIDE, tensors).items()
      )
    }
    path = checkpoint_files.write_gguf(
      self.folder / "model.gguf",
      checkpoint_files.gguf_metadata(WIDE),
      stored,
      kind,
    )
    with mock.patch.object(weights, "_CHUNK", 20 * 256):
      _, params, _ = gguf.load(path)
    whole = {
      name: QUANTS.dequantize(raw, kind_id)
      for name, raw in stored.items()
      if raw.dtype == np.uint8
    }
    self.assertGreater(np.abs(whole["token_embd.weight"]).max(), 0)
    layer = params["layer_0"]
    np.testing.assert_array_equal(
      params["embed"]["embedding"], whole["token_embd.weight"]
    )
    np.testing.assert_array_equal(
      layer["mlp"]["down"]["kernel"], whole["blk.0.ffn_down.weight"].T
    )
    # Row (pair, half) of a head in the file is row (half, pair) of ours.
    query = whole["blk.0.attn_q.weight"].reshape(4, 32, 2, 256)
    query = query.transpose(0, 2, 1, 3).reshape(256, 256)
    np.testing.assert_array_equal(
      layer["attention"]["query"]["kernel"], query.T
    )

  @parameterized.parameters(*REFUSED)
  def test_other_types_are_refused_by_name(self, kind):
    block, size = gguf_lib.GGML_QUANT_SIZES[gguf_lib.GGMLQuantizationType[kind]]
    tensors = checkpoint_files.gguf_tensors(
      WIDE, checkpoint_files.random_tensors(WIDE)
    )
    stored = {
      name: np.zeros((len(t), t.shape[-1] // block * size), np.uint8)
      if t.ndim > 1
      else t
      for name, t in tensors.items()
    }
    path = checkpoint_files.write_gguf(
      self.folder / "model.gguf",
      checkpoint_files.gguf_metadata(WIDE),
      stored,
      kind,
    )
    with self.assertRaisesRegex(ValueError, f"token_embd.* has type {kind},"):
      gguf.load(path)

  def test_reading_in_pieces_changes_nothing(self):
    path = self.write()
    _, whole, _ = gguf.load(path)
    for chunk in (1, 8 * 32 + 1, 24 * 32):
      with mock.patch.object(weights, "_CHUNK", chunk):
        _, pieces, _ = gguf.load(path)
      chex.assert_trees_all_equal(pieces, whole)

  def test_8_bit_matrices_are_those_of_the_loaded_model(self):
    path = self.write()
    model = model_lib.Model.from_params(*gguf.load(path)[:2])
    config, params, _ = gguf.load(path, quantization="int8")
    self.assertEqual(config.quantization, "int8")
    chex.assert_trees_all_equal(params, int8.model(model).params)

  @pytest.mark.fault_case("B55")
  def test_rope_factors_are_read(self):
    """Frequency scaling is a tensor here: ggml-org/llama.cpp#8676."""
    factors = np.array([1, 1.25, 8, 8], np.float32)
    path = self.rewrite(lambda t: t.update({"rope_freqs.weight": factors}))
    config, _, _ = gguf.load(path)
    self.assertEqual(config.rope_factors, (1, 1.25, 8, 8))

  def test_rope_factors_of_another_head_size_are_refused(self):
    factors = np.ones(3, np.float32)
    path = self.rewrite(lambda t: t.update({"rope_freqs.weight": factors}))
    with self.assertRaisesRegex(ValueError, "3 rope factors for 8 rotated"):
      gguf.load(path)

  @parameterized.parameters(
    ("general.architecture", "gpt2", "is 'gpt2', supported are llama, qwen2"),
    ("llama.rope.scaling.type", "yarn", "scaling.type = 'yarn' is not"),
    ("llama.rope.scaling.attn_factor", 2.0, "attn_factor' = 2.0 is not"),
    ("llama.expert_count", 8, "expert_count' = 8 is not"),
    ("llama.attention.scale", 0.5, "attention.scale' = 0.5 is not"),
    ("llama.attention.window_of_tomorrow", 1, "of_tomorrow' = 1 is not"),
    ("split.count", 2, "split.count' = 2 is not"),
    ("llama.rope.dimension_count", 4, "dimension_count is 4, only heads"),
    ("llama.attention.value_length", 4, "value_length is 4, only heads"),
    ("llama.attention.key_length", 1 << 31, "heads of 2147483648, at most"),
    ("llama.block_count", None, "llama.block_count is missing"),
    ("llama.block_count", "2", "llama.block_count is '2', one int"),
    (
      "llama.block_count",
      4_000_000_000,
      "4000000000 layers need more than",
    ),
    ("llama.block_count", 0, "num_layers is 0"),
    ("llama.feed_forward_length", [64, 64], "feed_forward_length is .64, 64."),
    ("llama.attention.head_count", 3, "not a multiple of num_kv_heads 2"),
    ("llama.attention.head_count", 0, "num_heads is 0"),
    ("llama.embedding_length", 64, "has shape .48, 32., .* asks for .48, 64."),
    ("llama.vocab_size", 49, "vocab_size is 49, token_embd.weight has 48"),
    ("tokenizer.ggml.tokens", ["a"] * 49, "list of at most 48 tokens"),
    ("llama.attention.layer_norm_rms_epsilon", float("nan"), "norm_eps is nan"),
    ("llama.rope.freq_base", 0.0, "rope_theta is 0.0"),
  )
  def test_what_is_not_computed_is_refused(self, key, value, message):
    path = self.write(**{key: value})
    with self.assertRaisesRegex(ValueError, message) as raised:
      gguf.load(path)
    self.assertNotIn("\n", str(raised.exception))

  @parameterized.parameters(
    ("lacks tensor 'output_norm.weight'", "output_norm.weight", None),
    ("lacks tensor 'token_embd.weight'", "token_embd.weight", None),
    ("unknown tensor 'blk.0.attn_x.bias'", "blk.0.attn_x.bias", (32,)),
    ("2 layers need 24 tensors, it holds 21", "blk.0.attn_q.bias", (32,)),
    (r"shape \(31,\), the .* asks for \(32,\)", "output_norm.weight", (31,)),
    (r"shape \(8, 32\), .* \(16, 32\)", "blk.1.attn_k.weight", (8, 32)),
  )
  def test_tensors_must_be_those_of_the_model(self, message, name, shape):
    def change(tensors):
      tensors.pop(name, None)
      if shape is not None:
        tensors[name] = np.zeros(shape, np.float32)

    path = self.rewrite(change)
    with self.assertRaisesRegex(ValueError, message):
      gguf.load(path)

  def test_many_missing_tensors_are_one_short_line(self):
    config = checkpoint_files.tiny(num_layers=3)

    def change(tensors):
      for name in [n for n in tensors if n.startswith("blk.2.")]:
        tensors[f"x{name}"] = tensors.pop(name)

    with self.assertRaisesRegex(
      ValueError, "lacks tensors 'blk.2.attn_k.weight', .* and 4 more$"
    ):
      gguf.load(self.rewrite(change, config))

  @parameterized.parameters(np.inf, np.nan, 7e4)
  def test_values_must_be_finite_in_the_wanted_dtype(self, value):
    def change(tensors):
      tensors["blk.0.ffn_up.weight"][3, 4] = value

    with self.assertRaisesRegex(ValueError, "blk.0.ffn_up.weight .*float16"):
      gguf.load(self.rewrite(change), "float16")

  @parameterized.parameters("int8", "float64", "fp32")
  def test_other_dtypes_are_refused(self, dtype):
    with self.assertRaisesRegex(ValueError, f"{dtype}.*float32, bfloat16"):
      gguf.load(self.write(), dtype)


if __name__ == "__main__":
  absltest.main()
