# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A folder of every family is read as it says, or refused by name."""

import dataclasses
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import jax.numpy as jnp
import numpy as np

from specjax.models import families, huggingface, huggingface_config, layout
from specjax.models import model as model_lib
from tests import checkpoint_files, family_files

ABSENT = object()


def read(name, **changes):
  """The configuration of a case with other entries."""
  raw = family_files.CONFIGS[name] | changes
  raw = {key: value for key, value in raw.items() if value is not ABSENT}
  return huggingface_config.read_config(raw)


def expected(name, **changes):
  return dataclasses.replace(family_files.EXPECTED[name], **changes)


class FamiliesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name) / "model"

  def assert_loads(self, name, dtype="float32"):
    raw = family_files.CONFIGS[name]
    config, params = huggingface.load(self.folder, dtype)
    self.assertEqual(config, family_files.EXPECTED[name])
    wanted = family_files.expected_params(
      raw,
      {
        key: tensor.astype(jnp.dtype(dtype))
        for key, tensor in family_files.random_tensors(raw).items()
      },
    )
    chex.assert_trees_all_equal_shapes_and_dtypes(params, wanted)
    chex.assert_trees_all_equal(params, wanted)

  @parameterized.product(
    name=tuple(family_files.CONFIGS), how=(("F32", 1), ("BF16", 3))
  )
  def test_config_and_parameters(self, name, how):
    kind, files = how
    family_files.write(name, self.folder, kind=kind, files=files)
    self.assert_loads(name, "float32" if kind == "F32" else "bfloat16")

  @parameterized.parameters(*family_files.CONFIGS)
  def test_every_parameter_has_a_name(self, name):
    config = family_files.EXPECTED[name]
    row = families.FAMILIES[config.family]
    for path in layout.layer_shapes(config):
      self.assertIn(path, row.tensors)

  def test_rows_know_the_fields_of_a_configuration(self):
    fields = {
      field.name for field in dataclasses.fields(family_files.EXPECTED["llama"])
    }
    for row in families.FAMILIES.values():
      self.assertLessEqual(set(row.fields), fields)

  def test_old_buffers_of_neox_are_ignored(self):
    """They are masks of bytes and scalars, which no parameter is."""
    raw = family_files.CONFIGS["gpt_neox"]
    tensors = family_files.random_tensors(raw)
    family_files.write("gpt_neox", self.folder)
    path = self.folder / "model.safetensors"
    header: dict = {}
    data = b""
    layer = "gpt_neox.layers.0.attention."
    for name, (dtype, shape, content) in {
      **{n: ("F32", list(t.shape), t.tobytes()) for n, t in tensors.items()},
      layer + "bias": ("BOOL", [1, 1, 2, 2], bytes(4)),
      layer + "masked_bias": ("F32", [], bytes(4)),
      layer + "rotary_emb.inv_freq": ("F32", [2], bytes(8)),
    }.items():
      offsets = [len(data), len(data) + len(content)]
      header[name] = dict(dtype=dtype, shape=shape, data_offsets=offsets)
      data += content
    checkpoint_files.write_raw_safetensors(path, header, data)
    self.assert_loads("gpt_neox")

  def test_neox_with_todays_name_of_the_unembedding(self):
    tensors = family_files.random_tensors(family_files.CONFIGS["gpt_neox"])
    tensors["lm_head.weight"] = tensors.pop("embed_out.weight")
    raw = family_files.CONFIGS["gpt_neox"]
    checkpoint_files.write_folder(self.folder, raw, tensors)
    self.assert_loads("gpt_neox")
    both = tensors | {"embed_out.weight": tensors["lm_head.weight"]}
    checkpoint_files.write_folder(self.folder, raw, both)
    with self.assertRaisesRegex(
      ValueError, "embed_out.weight' is stored under"
    ):
      huggingface.load(self.folder)

  @parameterized.parameters("qwen2", "gemma3")
  def test_tied_with_lm_head(self, name):
    family_files.write(name, self.folder)
    tensors = family_files.random_tensors(family_files.CONFIGS[name])
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    checkpoint_files.write_safetensors(
      self.folder / "model.safetensors", tensors
    )
    with mock.patch("absl.logging.warning") as warning:
      self.assert_loads(name)
    self.assertFalse(warning.called)

  @parameterized.parameters(
    ("language_model.model.", "vision_tower."),
    ("model.language_model.", "model.vision_tower."),
  )
  def test_the_text_model_inside_gemma3(self, prefix, vision):
    """Both orders of the prefix are in files; pictures are left out."""
    text = family_files.CONFIGS["gemma3"]
    tensors = {
      prefix + name.removeprefix("model."): tensor
      for name, tensor in family_files.random_tensors(text).items()
    }
    tensors[vision + "encoder.layers.0.weight"] = np.ones((3, 3), np.float32)
    raw = {"model_type": "gemma3", "text_config": text, "vision_config": {}}
    checkpoint_files.write_folder(self.folder, raw, tensors, files=2)
    self.assert_loads("gemma3")

  def test_gemma3_without_its_text_model(self):
    with self.assertRaisesRegex(ValueError, "text_config is missing"):
      huggingface_config.read_config({"model_type": "gemma3"})

  def test_entries_that_large_gemmas_leave_out(self):
    """The text part of the 4B model's file, as far as it goes."""
    raw = {
      "model_type": "gemma3_text",
      "hidden_size": 2560,
      "intermediate_size": 10240,
      "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024,
    }
    config = huggingface_config.read_config(raw)
    self.assertEqual(config.vocab_size, 262_208)
    self.assertEqual((config.num_heads, config.num_kv_heads), (8, 4))
    self.assertEqual((config.head_dim, config.query_scale), (256, 1 / 16))
    self.assertEqual((config.rope_theta, config.rope_local_theta), (1e6, 1e4))
    self.assertEqual(config.windows, ((1024,) * 5 + (None,)) * 5 + (1024,) * 4)
    self.assertTrue(config.tie_embeddings)

  @parameterized.parameters("bfloat16", "float32")
  def test_embeddings_are_scaled_in_their_own_type(self, dtype):
    """huggingface/transformers#29402: sqrt(32) is 5.65625 in bfloat16."""
    family_files.write("gemma3", self.folder)
    model = model_lib.Model.from_params(*huggingface.load(self.folder, dtype))
    tokens = jnp.arange(8)[None]
    factor = np.float32(32**0.5).astype(model.dtype)
    np.testing.assert_array_equal(
      model.embed(tokens), model.params["embed"]["embedding"][:8][None] * factor
    )

  @parameterized.parameters(
    ("mistral", dict(sliding_window=None), dict(windows=None)),
    ("mistral", dict(sliding_window=ABSENT), dict(windows=(4096, 4096))),
    ("mistral", dict(head_dim=ABSENT), dict(head_dim=8)),
    ("qwen2", dict(use_sliding_window=ABSENT), {}),
    ("qwen2", dict(use_sliding_window=True), {}),  # From layer 21 on.
    ("qwen2_windows", dict(max_window_layers=0), dict(windows=(6, 6))),
    ("qwen2_windows", dict(sliding_window=None), dict(windows=None)),
    (
      "qwen2_windows",
      dict(layer_types=["sliding_attention", "full_attention"]),
      dict(windows=(6, None)),
    ),
    ("qwen3", dict(head_dim=ABSENT), dict(head_dim=128)),
    ("qwen3", dict(layer_types=["full_attention"] * 2), dict(windows=None)),
    (
      "gemma3",
      dict(sliding_window_pattern=ABSENT),
      dict(windows=(6, 6, 6, 6)),
    ),
    ("gemma3", dict(rope_scaling=None), dict(rope_factors=None)),
    ("gemma3", dict(query_pre_attn_scalar=16), dict(query_scale=0.25)),
    (
      "gemma3",
      dict(
        rope_theta=ABSENT,
        rope_local_base_freq=ABSENT,
        rope_scaling=ABSENT,
        rope_parameters={
          "full_attention": {
            "rope_type": "linear",
            "rope_theta": 1e6,
            "factor": 8.0,
          },
          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
      ),
      {},
    ),
    (
      "gemma3",
      dict(
        rope_theta=ABSENT,
        rope_local_base_freq=ABSENT,
        rope_scaling=ABSENT,
        rope_parameters={"sliding_attention": {"rope_theta": 5.0}},
      ),
      dict(rope_factors=None, rope_theta=1e6, rope_local_theta=5.0),
    ),
    ("gpt_neox", dict(rotary_emb_base=ABSENT), {}),
    ("gpt_neox", dict(rotary_pct=ABSENT), {}),
    ("gpt_neox", dict(rotary_pct=1.0), dict(rotary_dim=None)),
    ("gpt_neox", dict(rope_theta=10000), {}),
    (
      "gpt_neox",
      dict(
        rotary_emb_base=ABSENT,
        rotary_pct=ABSENT,
        rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5},
      ),
      dict(rope_theta=500.0, rotary_dim=8),
    ),
    (
      "gpt_neox",
      dict(attention_bias=False),
      dict(qkv_bias=False, output_bias=False),
    ),
    ("gpt_neox", dict(hidden_act="gelu_new"), dict(activation="gelu_tanh")),
    ("gpt_neox", dict(tie_word_embeddings=True), dict(tie_embeddings=True)),
    ("llama", dict(torch_dtype="float16", dtype="bfloat16"), {}),
    ("llama", dict(eos_token_id=[1, 2], bos_token_id=0, use_cache=False), {}),
    ("llama", dict(mlp_bias=None), dict(mlp_bias=False)),
  )
  def test_what_entries_mean(self, name, entries, fields):
    self.assertEqual(read(name, **entries), expected(name, **fields))

  @parameterized.parameters(
    ("gemma3", dict(attn_logit_softcapping=50.0), "attn_logit_softcapping = 5"),
    ("gemma3", dict(final_logit_softcapping=30.0), "final_logit_softcapping ="),
    ("gemma3", dict(use_bidirectional_attention=True), "use_bidirectional"),
    ("gemma3", dict(hidden_activation="silu2"), "hidden_activation = 'silu2'"),
    ("gemma3", dict(query_pre_attn_scalar=0), "must be at least 1"),
    ("gemma3", dict(sliding_window_pattern=0), "must be at least 1"),
    ("gemma3", dict(sliding_window=0), "sliding_window is 0, it must be at"),
    ("gemma3", dict(sliding_window="6"), "sliding_window is '6', one int"),
    ("gemma3", dict(layer_types=["full_attention"]), "layer_types = "),
    ("gemma3", dict(layer_types=["chunked_attention"] * 4), "layer_types = "),
    ("gemma3", dict(num_hidden_layers=10**12), "at most 16384 are read"),
    ("gemma3", dict(rope_parameters={"rope_theta": 5.0}), "by layer type"),
    (
      "gemma3",
      dict(
        rope_parameters={
          "sliding_attention": {"rope_type": "linear", "factor": 2.0}
        }
      ),
      "rope type 'linear' of sliding_attention is not supported",
    ),
    ("mistral", dict(layer_types=["full_attention"] * 2), "layer_types = "),
    ("mistral", dict(attention_bias=True), "attention_bias = True is not"),
    ("mistral", dict(partial_rotary_factor=0.5), "partial_rotary_factor = 0.5"),
    ("qwen2", dict(use_mrope=True), "use_mrope = True is not supported"),
    ("qwen2", dict(use_sliding_window=1), "use_sliding_window is 1, true or"),
    (
      "qwen2",
      dict(layer_types=["sliding_attention"] * 2),
      "no sliding_window is in use",
    ),
    ("qwen3", dict(rope_scaling={"rope_type": "yarn"}), "rope type .'yarn'."),
    ("gpt_neox", dict(rope_theta=500.0), "10000 contradicts rope_theta = 500"),
    ("gpt_neox", dict(rotary_pct=1.5), "must be above 0 and at most 1"),
    ("gpt_neox", dict(rotary_pct=-0.5), "must be above 0 and at most 1"),
    ("gpt_neox", dict(hidden_act="relu"), "hidden_act = 'relu' is not"),
  )
  def test_what_is_not_computed_is_refused(self, name, entries, message):
    with self.assertRaisesRegex(ValueError, message) as raised:
      read(name, **entries)
    self.assertNotIn("\n", str(raised.exception))


if __name__ == "__main__":
  absltest.main()
