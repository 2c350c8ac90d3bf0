# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A saved Hugging Face folder is the model it was saved from."""

import dataclasses
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import jax
import numpy as np

from specjax import tokenizers
from specjax.models import (
  huggingface,
  huggingface_config,
  huggingface_save,
  int8,
  sources,
)
from specjax.models import model as model_lib
from tests import checkpoint_files, family_files

LLAMA3 = {
  "rope_type": "llama3",
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32,
}


class SaveTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.saved = self.folder / "saved"

  def load(self, name, dtype="float32", **how):
    path = family_files.write(name, self.folder / name, **how)
    return model_lib.Model.from_params(*huggingface.load(path, dtype))

  def assert_reads_back(self, model):
    dtype = np.dtype(model.dtype).name
    config, params = huggingface.load(self.saved, dtype)
    self.assertEqual(config, model.config)
    chex.assert_trees_all_equal_shapes_and_dtypes(params, model.params)
    chex.assert_trees_all_equal(params, model.params)

  @parameterized.product(
    name=tuple(family_files.CONFIGS),
    dtype=("float32", "bfloat16", "float16"),
  )
  def test_round_trip(self, name, dtype):
    model = self.load(name, dtype)
    huggingface_save.save(model, None, self.saved)
    self.assert_reads_back(model)
    raw = json.loads((self.saved / "config.json").read_text())
    self.assertEqual(raw["torch_dtype"], dtype)
    self.assertLen(list(self.folder.iterdir()), 2)  # Nothing is left beside it.

  @parameterized.parameters(*family_files.CONFIGS)
  def test_the_same_tensors_as_were_read(self, name):
    """The files hold what the first folder held, by the same names."""
    import safetensors.numpy

    huggingface_save.save(self.load(name), None, self.saved)
    found = safetensors.numpy.load_file(self.saved / "model.safetensors")
    wanted = family_files.random_tensors(family_files.CONFIGS[name])
    chex.assert_trees_all_equal(found, wanted)

  @parameterized.parameters("qwen3", "gpt_neox")
  def test_small_pieces_and_several_files(self, name):
    model = self.load(name)
    limit = 50_000
    with (
      mock.patch.object(huggingface_save, "_CHUNK", 100),
      mock.patch.object(huggingface_save, "MAX_FILE_BYTES", limit),
    ):
      huggingface_save.save(model, None, self.saved)
    files = sorted(self.saved.glob("*.safetensors"))
    self.assertGreater(len(files), 2)
    self.assertEqual(
      files[0].name, f"model-00001-of-{len(files):05}.safetensors"
    )
    for file in files:
      self.assertLess(file.stat().st_size, limit + 5_000)  # and its header
    index = json.loads(
      (self.saved / "model.safetensors.index.json").read_text()
    )
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    self.assertEqual(index["metadata"]["total_size"], size)
    self.assert_reads_back(model)

  @parameterized.parameters("rope_scaling", "rope_parameters")
  def test_llama3_scaling_is_found_again(self, key):
    raw = checkpoint_files.folder_config(checkpoint_files.TINY)
    config = huggingface_config.read_config(raw | {key: LLAMA3})
    written = huggingface_config.write_config(config)
    self.assertEqual(written["rope_scaling"], LLAMA3)

  def test_scaling_that_no_words_describe_is_refused(self):
    config = checkpoint_files.tiny(rope_factors=(1.0, 1.5, 2.0, 8.0))
    with self.assertRaisesRegex(ValueError, "neither linear nor llama3"):
      huggingface_config.write_config(config)

  @parameterized.parameters(
    ("qkv_bias", True),
    ("qk_norm", True),
    ("norm", "layer"),
    ("windows", (4, 4)),
    ("embedding_scale", 2.0),
    ("query_scale", 0.5),
    ("rotary_dim", 4),
    ("rope_local_theta", 100.0),
    ("quantization", "int8"),
  )
  def test_what_the_file_cannot_state_is_refused(self, field, value):
    config = checkpoint_files.tiny(**{field: value})
    with self.assertRaisesRegex(ValueError, f"cannot state {field} = "):
      huggingface_config.write_config(config)

  def test_an_unknown_family_is_refused(self):
    config = checkpoint_files.tiny(family="bert")
    with self.assertRaisesRegex(ValueError, "family 'bert' has no config.json"):
      huggingface_config.write_config(config)

  def test_eight_bit_matrices_are_refused_before_anything_is_written(self):
    model = int8.model(self.load("llama"))
    with self.assertRaisesRegex(ValueError, "cannot state quantization"):
      huggingface_save.save(model, None, self.saved)
    self.assertFalse(self.saved.exists())

  def test_only_an_empty_folder_is_filled(self):
    model = self.load("mistral")
    self.saved.mkdir()
    huggingface_save.save(model, None, self.saved)
    self.assert_reads_back(model)
    with self.assertRaisesRegex(ValueError, "saved exists and is not empty"):
      huggingface_save.save(model, None, self.saved)

  def test_a_failed_save_leaves_nothing(self):
    model = self.load("mistral")
    with (
      mock.patch.object(
        huggingface_save, "_write_file", side_effect=OSError("full")
      ),
      self.assertRaisesRegex(OSError, "full"),
    ):
      huggingface_save.save(model, None, self.saved)
    self.assertEqual(list(self.folder.iterdir()), [self.folder / "mistral"])

  def test_with_its_tokenizer(self):
    folder = family_files.write("qwen2", self.folder / "qwen2")
    checkpoint_files.write_tokenizer(folder)
    model, tokenizer = sources.load(folder)
    huggingface_save.save(model, tokenizer, self.saved)
    loaded, read = sources.load(self.saved)
    self.assertEqual(loaded.num_tokens, model.num_tokens)
    self.assertEqual(read.fingerprint(), tokenizer.fingerprint())
    self.assertEqual(read.encode("abc ab a"), tokenizer.encode("abc ab a"))
    self.assertEqual(read.eos_ids, tokenizer.eos_ids)
    raw = json.loads((self.saved / "config.json").read_text())
    self.assertEqual(raw["eos_token_id"], list(tokenizer.eos_ids))
    self.assertEqual(raw["bos_token_id"], tokenizer.bos_id)

  def test_another_models_tokenizer_is_refused(self):
    model = self.load("qwen2")
    tokenizer = tokenizers.from_gguf(checkpoint_files.TOKENIZER)
    with self.assertRaisesRegex(ValueError, "7 ids and the model 48"):
      huggingface_save.save(model, tokenizer, self.saved)

  def test_fields_are_compared_one_by_one(self):
    """No field of a configuration is left out of the check."""
    for name, config in family_files.EXPECTED.items():
      with self.subTest(name):
        raw = huggingface_config.write_config(config)
        read = huggingface_config.read_config(raw)
        self.assertEqual(dataclasses.asdict(read), dataclasses.asdict(config))


if __name__ == "__main__":
  absltest.main()
