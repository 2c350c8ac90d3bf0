# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Model folders of our own: read back equal, or refused in one line."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

import specjax
from specjax import tokenizers
from specjax.models import int8, orbax, sources, transformer
from specjax.models.model import Model
from tests import checkpoint_files, toys

TOKENIZER = tokenizers.from_gguf(
  checkpoint_files.TOKENIZER
  | {"tokenizer.chat_template": "{{ messages[0]['content'] }}é"}
)
NOTE = "_CHECKPOINT_METADATA"
# Together they set every field away from its default.
CONFIGS: dict[str, dict[str, Any]] = {
  "llama": {
    "rope_factors": (1.0, 2.5, 4.0, 8.0),
    "tie_embeddings": True,
    # A folder may say a whole number where a real one is meant.
    "norm_eps": 1,
  },
  "biases": {
    "family": "gpt_neox",
    "norm": "layer",
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "parallel_residual": True,
    "gated_mlp": False,
    "activation": "gelu",
    "rotary_dim": 4,
  },
  "windows": {
    "family": "gemma3",
    "norm_offset": 1.0,
    "qk_norm": True,
    "post_norms": True,
    "activation": "gelu_tanh",
    "query_scale": 0.25,
    "embedding_scale": 32**0.5,
    "windows": (5, None),
    "rope_local_theta": 1e4,
  },
  "int8": {"quantization": "int8"},
}
# Sizes are always set; kv heads are repeated on meshes only, never in files.
UNCHANGED = {
  field.name
  for field in dataclasses.fields(transformer.TransformerConfig)
  if field.default is dataclasses.MISSING
} | {"kv_copies"}


def make(name: str = "llama", dtype: str = "float32") -> Model:
  config = dataclasses.replace(toys.TINY_CONFIG, **CONFIGS[name])
  plain = dataclasses.replace(config, quantization=None)
  model = Model.init(plain, jax.random.key(1), dtype)
  model = model.replace(num_tokens=TOKENIZER.num_tokens)
  return model if config.quantization is None else int8.model(model)


class OrbaxTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder) / "saved"

  def save(self, model: Model | None = None) -> Model:
    model = make() if model is None else model
    specjax.save(model, TOKENIZER, self.path)
    return model

  @parameterized.parameters(
    *((name, "float32") for name in CONFIGS),
    *(("llama", "bfloat16"), ("llama", "float16"), ("int8", "bfloat16")),
  )
  def test_models_come_back_equal(self, name, dtype):
    model = self.save(make(name, dtype))
    loaded, tokenizer = specjax.load(self.path, dtype)
    self.assertEqual(loaded.config, model.config)
    self.assertEqual(loaded.num_tokens, model.num_tokens)
    chex.assert_trees_all_equal_dtypes(loaded.params, model.params)
    chex.assert_trees_all_equal(loaded.params, model.params)
    self.assertEqual(sources.fingerprint(loaded), sources.fingerprint(model))
    self.assertEqual(tokenizer, TOKENIZER)
    for text in ("abcab", "<s>cab</s>", "ü"):
      self.assertEqual(tokenizer.encode(text), TOKENIZER.encode(text))

  def test_every_switch_is_among_these_models(self):
    changed = {
      field.name
      for field in dataclasses.fields(transformer.TransformerConfig)
      for changes in CONFIGS.values()
      if field.name in changes and changes[field.name] != field.default
    }
    fields = dataclasses.fields(transformer.TransformerConfig)
    self.assertEqual({f.name for f in fields} - UNCHANGED - changed, set())

  def test_another_dtype(self):
    model = self.save()
    loaded, _ = specjax.load(self.path, "bfloat16")
    chex.assert_trees_all_equal(
      loaded.params, jax.tree.map(lambda x: x.astype("bfloat16"), model.params)
    )

  def test_eight_bits_on_the_way(self):
    model = self.save()
    loaded, _ = orbax.load(self.path, quantization="int8")
    wanted = int8.model(model)
    self.assertEqual(loaded.config, wanted.config)
    chex.assert_trees_all_equal(loaded.params, wanted.params)

  def test_meshes_leave_no_trace(self):
    """Read onto eight devices, saved from there, read onto one."""
    model = self.save()
    again = self.path.with_name("again")
    code = f"""if True:
      import pathlib
      import jax
      jax.config.update("jax_num_cpu_devices", 8)
      import specjax
      from specjax import sharding
      from specjax.models import orbax
      mesh = sharding.make_mesh(2, 4)
      model, tokenizer = orbax.load(pathlib.Path({str(self.path)!r}), mesh=mesh)
      query = model.params["layer_0"]["attention"]["query"]["kernel"]
      assert {{s.data.shape for s in query.addressable_shards}} == {{(32, 8)}}
      assert model.config.kv_copies == 2
      specjax.save(model, tokenizer, {str(again)!r})
    """
    done = subprocess.run(
      [sys.executable, "-c", code],
      cwd=pathlib.Path(__file__).parents[1],
      env={**os.environ, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 0, done.stderr[-2000:])
    loaded, _ = specjax.load(again)
    self.assertEqual(loaded.config, model.config)
    chex.assert_trees_all_equal(loaded.params, model.params)

  def test_what_a_folder_says_about_itself(self):
    model = make()
    orbax.save(model, TOKENIZER, self.path, description="from a test")
    note = self.read_note()
    self.assertEqual(note["description"], "from a test")
    self.assertEqual(note["fingerprint"], sources.fingerprint(model))
    self.assertEqual(note["num_tokens"], 7)
    source = sources.resolve(self.path)
    self.assertEqual(source.kind, "orbax")
    self.assertEqual(source.path, self.path)

  def test_nothing_is_overwritten_and_nothing_half_written(self):
    model = self.save()
    with self.assertRaisesRegex(ValueError, "exists already: name a new"):
      specjax.save(model, TOKENIZER, self.path)
    other = self.path.with_name("other")
    with (
      mock.patch.object(pathlib.Path, "rename", side_effect=KeyboardInterrupt),
      self.assertRaises(KeyboardInterrupt),
    ):
      specjax.save(model, TOKENIZER, other)
    self.assertEqual(list(self.path.parent.iterdir()), [self.path])
    with self.assertRaisesRegex(ValueError, "7 ids and the model 64"):
      specjax.save(toys.tiny(0), TOKENIZER, other)

  def test_two_tokens_of_one_text(self):
    metadata = dict(checkpoint_files.TOKENIZER)
    metadata["tokenizer.ggml.tokens"] = [*"sabcdef"[:6], "a"]
    metadata["tokenizer.ggml.merges"] = []
    twice = tokenizers.from_gguf(metadata)
    with self.assertRaisesRegex(ValueError, "two tokens have one text"):
      specjax.save(make(), twice, self.path)
    self.assertEmpty(list(self.path.parent.iterdir()))

  def read_note(self) -> dict:
    text = (self.path / "params" / NOTE).read_text()
    return json.loads(text)["custom_metadata"]

  def edit(self, sizes=None, **note) -> None:
    file = self.path / "params" / NOTE
    content = json.loads(file.read_text())
    content["custom_metadata"]["config"].update(sizes or {})
    content["custom_metadata"].update(note)
    file.write_text(json.dumps(content))

  def assert_refused(self, message, error=ValueError, **options):
    with self.assertRaisesRegex(error, message) as raised:
      specjax.load(self.path, **options)
    self.assertNotIn("\n", str(raised.exception))
    self.assertLess(len(str(raised.exception)), 500)

  @parameterized.parameters(
    ({"format": "other"}, "that specjax.save did not write"),
    ({"version": 2}, "is of format 2, this program reads 1"),
    ({"config": []}, "it has no configuration"),
    ({"config": {"vocab_size": 64}}, "damaged: .* missing .* 'embed_dim'"),
    ({"fingerprint": "0"}, "parameters are not those that were saved"),
    ({"tokenizer": "0"}, "tokenizer is not the one that it was saved with"),
  )
  def test_an_edited_note(self, changes, message):
    self.save()
    self.edit(**changes)
    self.assert_refused(message)

  @parameterized.parameters(
    ({"shell": "rm"}, "'shell' = 'rm' is not part of a configuration"),
    ({"activation": "rm"}, "'activation' = 'rm' is not part"),
    ({"family": "rm"}, "'family' = 'rm' is not part"),
    ({"norm": [1]}, "'norm' = "),
    ({"num_layers": "2"}, "'num_layers' = '2' is not part"),
    ({"num_layers": True}, "'num_layers' = True is not part"),
    ({"windows": [1, "a"]}, "'windows' = "),
    ({"kv_copies": 2}, "'kv_copies' = 2 is not part"),
    ({"num_layers": 10**9}, "1000000000 layers need 9000000000 arrays"),
    ({"num_layers": 1}, "has the unknown array layer_1"),
    ({"num_layers": -1}, "num_layers is -1, it must be positive"),
    (
      {"head_dim": 16, "rope_factors": None},
      "array layer_0/attention/.* is asked for",
    ),
    ({"vocab_size": 10**12}, "array embed/embedding as float32"),
    ({"norm_eps": float("nan")}, "norm_eps is nan"),
    ({"tie_embeddings": False}, "lacks array unembed/kernel"),
    ({"quantization": "int8"}, "lacks array embed/int8_scale"),
  )
  def test_an_edited_configuration(self, changes, message):
    self.save()
    self.edit(changes)
    self.assert_refused(message)

  def data_files(self) -> list[pathlib.Path]:
    files = (self.path / "params").glob("**/d/*")
    return sorted(files, key=lambda file: -file.stat().st_size)

  def test_a_changed_byte(self):
    self.save()
    file = self.data_files()[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    self.assert_refused("damaged")

  def test_lost_files(self):
    for lost in ("tokenizer.json", "params/state/_METADATA", "data"):
      with self.subTest(lost):
        self.path = self.path.with_name(lost.replace("/", "-"))
        self.save()
        if lost == "data":
          file = self.data_files()[0]
          file.write_bytes(file.read_bytes()[:100])
        else:
          (self.path / lost).unlink()
        self.assert_refused(
          "tokenizer.json|no complete Orbax|damaged",
          (ValueError, FileNotFoundError),
        )

  def test_numbers_that_do_not_fit_the_dtype(self):
    model = make()
    scale = model.params["final_norm"]["scale"]
    wide = model.params | {"final_norm": {"scale": scale * 1e5}}
    self.save(model.replace(params=wide))
    self.assert_refused(
      "final_norm/scale holds a value that is not finite in float16",
      dtype="float16",
    )

  def test_arrays_that_unpack_to_more_than_there_is(self):
    """A megabyte of zeros, packed, is refused before it is read."""
    self.save()
    params = str(self.path / "params")
    content: Any = ocp.metadata(params).custom_metadata
    tree = jax.tree.map(jnp.zeros_like, make().params)
    tree["embed"]["embedding"] = jnp.zeros((1000, 1000))
    ocp.save(params, tree, overwrite=True, custom_metadata=content)
    with mock.patch.object(orbax, "_PACKED", 100_000):
      self.assert_refused(r"its arrays take 40\d{5} bytes, its files have")

  @parameterized.parameters(NOTE, "_METADATA", "manifest.ocdbt")
  def test_foreign_checkpoints(self, mark):
    self.path.mkdir()
    (self.path / mark).write_text("{}")
    self.assert_refused("is an Orbax checkpoint and no model")

  def test_a_foreign_checkpoint_in_a_folder_like_ours(self):
    tree: Any = {"a": np.ones(2)}
    ocp.save(str(self.path / "params"), tree)
    self.assert_refused("that specjax.save did not write")


if __name__ == "__main__":
  absltest.main()
