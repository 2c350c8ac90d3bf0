# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders with draft heads: published layouts, our own, and damaged ones.

Axis letters: D model width, Q columns of a reduced vocabulary, V vocabulary.
"""

import json
import pathlib
import tempfile
from typing import Any

from absl import logging
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors

from specjax import sharding
from specjax.drafters import chained, eagle, early_exit, medusa
from specjax.models import huggingface, sources
from specjax.models.heads import (
  chained_heads,
  eagle_files,
  eagle_heads,
  medusa_files,
  saved_heads,
)
from specjax.models.heads import head as heads_lib
from tests import draft_heads, toys

D, V = draft_heads.D, draft_heads.V
IDS = (3, 9, 10, 17, 22, 40, 41, 63)
EAGLE3_CONFIG = {
  "architectures": ["LlamaForCausalLMEagle3"],
  "model_type": "llama",
  "hidden_act": "silu",
  "hidden_size": D,
  "intermediate_size": 64,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "max_position_embeddings": 256,
  "rms_norm_eps": 1e-5,
  "rope_theta": 10_000.0,
  "tie_word_embeddings": False,
  "vocab_size": V,
  "draft_vocab_size": len(IDS),
  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]},
}


def flat(head: heads_lib.Head) -> dict[str, np.ndarray]:
  """Parameters by dotted path, matrices as files hold them."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(head.params)
  return {
    ".".join(key.key for key in keys): np.asarray(
      leaf.T if keys[-1].key == "kernel" else leaf
    )
    for keys, leaf in leaves
  }


class HeadFilesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.target = toys.tiny()

  def write(
    self, config: dict, tensors: dict, file: str = "model.safetensors"
  ) -> str:
    (self.folder / "config.json").write_text(json.dumps(config))
    tensors = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
    safetensors.save_file(tensors, str(self.folder / file))
    return str(self.folder)

  def assert_same(self, got: heads_lib.Head, wanted: heads_lib.Head):
    self.assertEqual(got.config, wanted.config)
    jax.tree.map(np.testing.assert_array_equal, got.params, wanted.params)


class MedusaFilesTest(HeadFilesTest):
  def original(self) -> tuple[dict, dict]:
    tensors = {}
    for name, value in flat(draft_heads.head("medusa")).items():
      head, part = name.split(".")[:2]
      i = head.removeprefix("head_")
      word = "bias" if name.endswith("bias") else "weight"
      name = f"{i}.1.weight" if part == "output" else f"{i}.0.linear.{word}"
      tensors[name] = value
    return {"medusa_num_heads": 4, "medusa_num_layers": 1}, tensors

  def vllm(self) -> tuple[dict, dict]:
    tensors = {}
    for name, value in flat(draft_heads.head("medusa")).items():
      head, part = name.split(".")[:2]
      i = head.removeprefix("head_")
      word = "bias" if name.endswith("bias") else "weight"
      if part == "output":
        tensors[f"medusa_heads.lm_heads.{i}.weight"] = value
      else:
        tensors[f"medusa_heads.blocks.{i}.layers.0.{word}"] = value
    config = {
      "model_type": "medusa",
      "hidden_size": D,
      "vocab_size": V,
      "num_heads": 4,
      "num_hidden_layers": 1,
      "medusa_fc_bias": True,
    }
    return config, tensors

  def test_the_original_layout(self):
    config, tensors = self.original()
    name = self.write(config, tensors, huggingface.MEDUSA)
    drafter = medusa.medusa(self.target, name)
    self.assert_same(drafter.heads, draft_heads.head("medusa"))
    self.assertEqual(drafter.max_depth, 4)
    self.assertEqual(medusa.medusa(self.target, name, 2).num_nodes, 2)

  def test_the_layout_of_vllm(self):
    head = medusa_files.load(self.write(*self.vllm()), self.target)
    self.assert_same(head, draft_heads.head("medusa"))

  def test_heads_without_bias_that_end_in_the_targets_matrix(self):
    config, tensors = self.vllm()
    config |= {"original_lm_head": True, "medusa_fc_bias": False}
    tensors = {k: v for k, v in tensors.items() if ".layers.0.weight" in k}
    head = medusa_files.load(self.write(config, tensors), self.target)
    self.assertIsNone(head.config.draft_vocab)
    self.assertFalse(np.any(head.params["head_0"]["block_0"]["linear"]["bias"]))
    logits = head(jnp.ones((1, D)), self.target)
    self.assertEqual(logits.shape, (1, 4, V))

  @pytest.mark.fault_case("B45")
  def test_a_reduced_vocabulary_needs_its_map(self):
    """vllm-project/vllm-ascend#9795: columns taken for the first ids."""
    config, tensors = self.vllm()
    config["truncated_vocab_size"] = len(IDS)
    for i in range(4):
      name = f"medusa_heads.lm_heads.{i}.weight"
      tensors[name] = tensors[name][list(IDS)]
    with self.assertRaisesRegex(ValueError, "drafts 8 of the target's 64"):
      medusa_files.load(self.write(config, tensors), self.target)
    tensors["token_map"] = np.array(IDS, np.int64)
    head = medusa_files.load(self.write(config, tensors), self.target)
    x = jnp.ones((1, D))
    full = draft_heads.head("medusa")(x, self.target)
    got = np.asarray(head(x, self.target))
    np.testing.assert_allclose(got[..., IDS], full[..., jnp.array(IDS)], 1e-5)
    self.assertEqual(np.isfinite(got).sum(), 4 * len(IDS))

  def test_pickles_are_refused(self):
    config, _ = self.original()
    (self.folder / "config.json").write_text(json.dumps(config))
    (self.folder / "medusa_lm_head.pt").write_bytes(b"anything")
    with self.assertRaisesRegex(ValueError, "medusa_lm_head.pt is a pickle"):
      medusa_files.load(self.folder, self.target)

  @parameterized.named_parameters(
    ("more_heads", {"medusa_num_heads": 5}, {}, "lacks tensors '4.0"),
    ("many_heads", {"medusa_num_heads": 10**9}, {}, "too few"),
    ("other", {}, {"x": np.ones(2, np.float32)}, "unknown tensor 'x'"),
    (
      "other_shape",
      {},
      {"1.1.weight": np.ones((V, D + 1), np.float32)},
      r"\(64, 33\), the configuration asks for \(64, 32\)",
    ),
    (
      "other_width",
      {},
      {"0.1.weight": np.ones((V, D + 1), np.float32)},
      "width 33, the target's is 32",
    ),
    ("deep", {"medusa_num_layers": -1}, {}, "at least 0"),
  )
  def test_what_does_not_fit_is_refused(self, config, tensors, message):
    right, rest = self.original()
    name = self.write(right | config, rest | tensors, huggingface.MEDUSA)
    with self.assertRaisesRegex(ValueError, message):
      medusa_files.load(name, self.target)

  def test_more_columns_than_the_target_has_ids(self):
    """Padding of another size is no other vocabulary."""
    config, tensors = self.original()
    for i in range(4):
      tensors[f"{i}.1.weight"] = np.pad(
        tensors[f"{i}.1.weight"], ((0, 8), (0, 0)), constant_values=9
      )
    name = self.write(config, tensors, huggingface.MEDUSA)
    target = toys.tiny(num_tokens=60)
    got = medusa_files.load(name, target)(jnp.ones((1, D)), target)
    self.assertEqual(got.shape, (1, 4, V))
    self.assertFalse(np.any(np.isfinite(got[..., 60:])))


class EagleFilesTest(HeadFilesTest):
  def eagle3(self) -> tuple[Any, dict]:
    """A head of few tokens and the tensors of its file."""
    head = draft_heads.head("eagle3", draft_vocab=len(IDS))
    names = {".".join(path): name for path, name in eagle_files.NAMES.items()}
    tensors = {names[path]: value for path, value in flat(head).items()}
    tensors["d2t"] = np.array(IDS) - np.arange(len(IDS))
    tensors["t2d"] = np.isin(np.arange(V), IDS)
    return head, tensors

  @pytest.mark.fault_case("B45")
  def test_the_layout_of_hugging_face(self):
    """vllm-project/speculators#74: a map that was lost or not used."""
    head, tensors = self.eagle3()
    name = self.write(EAGLE3_CONFIG, tensors)
    loaded = eagle.eagle(self.target, name, 3).head
    self.assert_same(loaded, head)
    x = jnp.ones((1, D))
    got = np.asarray(loaded.logits(x, self.target))
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(got[0])), IDS)
    np.testing.assert_allclose(
      got[:, IDS], head.logits(x, self.target), rtol=1e-6
    )
    saved_heads.save(loaded, self.folder / "own")
    again = eagle_files.load(self.folder / "own", self.target)
    self.assert_same(again, loaded)
    np.testing.assert_array_equal(again.columns, loaded.columns)

  def test_names_of_a_first_layer(self):
    head, tensors = self.eagle3()
    tensors = {
      name.replace("midlayer.", "layers.0."): value
      for name, value in tensors.items()
    }
    name = self.write(EAGLE3_CONFIG, tensors)
    self.assert_same(eagle_files.load(name, self.target), head)

  def test_an_embedding_of_its_own(self):
    _, tensors = self.eagle3()
    tensors["embed_tokens.weight"] = np.ones((V, D), np.float32)
    head = eagle_files.load(self.write(EAGLE3_CONFIG, tensors), self.target)
    self.assertTrue(head.config.own_embedding)
    np.testing.assert_array_equal(head.params["embed"]["embedding"], 1)

  @parameterized.named_parameters(
    ("no_map", {}, {"d2t": None}, "drafts 8 of the target's 64"),
    (
      "two_maps",
      {},
      {"t2d": np.arange(V) < len(IDS)},
      "d2t and t2d name other tokens",
    ),
    (
      "twice",
      {},
      {"d2t": -np.arange(len(IDS))},
      "does not name 8 different tokens",
    ),
    ("beyond", {}, {"d2t": np.full(len(IDS), 60)}, "names token 64"),
    ("lost", {}, {"fc.weight": None}, "lacks tensor 'fc.weight'"),
    ("layers", {"num_hidden_layers": 2}, {}, "num_hidden_layers is 2"),
    (
      "targets_layers",
      {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2]}},
      {},
      r"layers \(0, 2\)",
    ),
    (
      "targets_layers_kind",
      {"eagle_config": {"eagle_aux_hidden_state_layer_ids": 3}},
      {},
      "no list of layers",
    ),
    ("no_size", {"draft_vocab_size": None}, {}, "does not name 64"),
    ("floats", {}, {"d2t": np.ones(len(IDS), np.float32)}, "dtype 'F32'"),
  )
  @pytest.mark.fault_case("B45")
  def test_what_does_not_fit_is_refused(self, config, tensors, message):
    """NVIDIA-NeMo/Automodel#2447: a checkpoint without its id map."""
    _, right = self.eagle3()
    tensors = {k: v for k, v in (right | tensors).items() if v is not None}
    name = self.write(EAGLE3_CONFIG | config, tensors)
    with self.assertRaisesRegex(ValueError, message):
      eagle_files.load(name, self.target)

  def test_layers_that_the_config_leaves_open(self):
    self.assertEqual(
      eagle_files.load(self.write(*self._open()), self.target, (0, 1)).config,
      draft_heads.head("eagle3", draft_vocab=len(IDS)).config,
    )
    with self.assertRaisesRegex(ValueError, "feature_layers"):
      eagle_files.load(self.folder, self.target)

  @parameterized.parameters("model", None)
  def test_heads_lie_where_their_target_lies(self, vocab):
    """An own output matrix is split as the target's; all else is whole."""
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=auto)
    target = self.target.replace(rules=sharding.Rules(mesh, vocab=vocab))
    made = {
      "eagle": eagle_files.load(
        self.write(EAGLE3_CONFIG, self.eagle3()[1]), target
      ),
      "own": draft_heads.head("medusa").beside(target),
    }
    for name, head in made.items():
      leaves = jax.tree.leaves_with_path((head.params, head.columns))
      self.assertNotEmpty(leaves)
      for (_, *keys), leaf in leaves:
        where = [key.key for key in keys]
        own = "output" in where and "attention" not in where
        axes = (None, vocab) if own else (None,) * leaf.ndim
        wanted = sharding.NamedSharding(mesh, sharding.PartitionSpec(*axes))
        self.assertEqual(leaf.sharding, wanted, f"{name} {where}")
    self.assert_same(made["own"], draft_heads.head("medusa"))

  def _open(self):
    config = {k: v for k, v in EAGLE3_CONFIG.items() if k != "eagle_config"}
    return config, self.eagle3()[1]


class OwnFilesTest(HeadFilesTest):
  @parameterized.parameters(*draft_heads.KINDS)
  def test_saved_heads_come_back(self, kind):
    head = draft_heads.head(kind)
    saved_heads.save(head, self.folder / "own")
    loaded = saved_heads.load(self.folder / "own", self.target, type(head))
    self.assert_same(loaded, head)
    self.assertIsNone(loaded.columns)
    with self.assertRaisesRegex(ValueError, "exists already"):
      saved_heads.save(head, self.folder / "own")

  def test_other_weights_than_a_head_was_trained_for_are_told(self):
    own = self.folder / "own"
    saved_heads.save(draft_heads.head("medusa"), own, self.target)
    other: Any = toys.tiny(7)
    for target, found in ((self.target, 0), (other, 1)):
      with absltest.mock.patch.object(logging, "warning") as told:
        saved_heads.load(own, target, heads_lib.MedusaHeads)
      self.assertEqual(told.call_count, found)
    _, name, was, now = told.call_args.args
    self.assertEqual((name, now), ("own", sources.fingerprint(other)))
    self.assertIn(sources.fingerprint(self.target)[:12], was)

  def test_other_layers_than_a_head_was_trained_for(self):
    own = self.folder / "own"
    saved_heads.save(draft_heads.head("eagle3"), own)
    for layers in ((), (0, 1)):
      read = eagle_files.load(own, self.target, layers).config.feature_layers
      self.assertEqual(read, (0, 1))
    with self.assertRaisesRegex(ValueError, r"own was trained for \(0, 1\)"):
      eagle_files.load(own, self.target, (1,))

  def test_no_more_children_than_tokens_that_it_drafts(self):
    """Some ids by the target's own output matrix: it ranks no others."""
    ids = jnp.arange(3, 9)
    head = draft_heads.head("medusa_shared").drafting(ids, self.target)
    saved_heads.save(head, self.folder / "own")
    make = lambda width: medusa.medusa(
      self.target, str(self.folder / "own"), tree=(width,)
    )
    self.assertEqual(make(6).num_nodes, 6)
    with self.assertRaisesRegex(ValueError, "rank 6 but the drafter ranks 6"):
      make(7)

  def test_a_head_of_another_kind(self):
    saved_heads.save(draft_heads.head("hydra"), self.folder / "own")
    with self.assertRaisesRegex(ValueError, "holds 'ChainedHeads', EagleHead"):
      saved_heads.load(self.folder / "own", self.target, eagle_heads.EagleHead)
    drafter = chained.chained(self.target, str(self.folder / "own"))
    self.assertEqual(drafter.max_depth, 4)
    with self.assertRaisesRegex(ValueError, "depth 5 does not fit 4 chained"):
      chained.chained(self.target, str(self.folder / "own"), 5)

  @parameterized.parameters(
    ("cell", "lstm", "cell 'lstm' is unknown"),
    ("num_heads", 10**9, "num_heads is 1000000000"),
    ("num_heads", 0, "num_heads is 0"),
    ("embed_dim", 16, "width 16, the target's is 32"),
    ("embed_dim", "wide", "'embed_dim' = 'wide' is not part"),
    ("color", 1, "'color' = 1 is not part"),
    ("num_layers", None, "'num_layers' = None is not part"),
  )
  def test_what_does_not_fit_is_refused(self, key, value, message):
    own = self.folder / "own"
    saved_heads.save(draft_heads.head("mlp"), own)
    config = json.loads((own / "config.json").read_text()) | {key: value}
    (own / "config.json").write_text(json.dumps(config))
    with self.assertRaisesRegex(ValueError, message):
      saved_heads.load(own, self.target, chained_heads.ChainedHeads)

  @parameterized.parameters("/nowhere/heads", "heads", "smollm2-135m-instruct")
  def test_no_folder(self, name):
    """A name of no folder is no model's name either."""
    for make in (
      lambda: medusa.medusa(self.target, name),
      lambda: early_exit.early_exit(self.target, 1, 2, name),
    ):
      with self.assertRaisesRegex(
        FileNotFoundError, f"^heads or adapter '{name}'"
      ):
        make()

  def test_a_folder_of_something_else(self):
    with self.assertRaisesRegex(FileNotFoundError, "config.json is missing"):
      medusa.medusa(self.target, str(self.folder))


if __name__ == "__main__":
  absltest.main()
