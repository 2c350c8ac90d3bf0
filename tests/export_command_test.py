# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command that exports: what it writes, and its mistakes in one line."""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import sources
from specjax.models.heads import eagle_files, medusa_files
from tests import export_test, runs
from tests import train_objectives_test as trained
from train import export
from train.objectives import chained, draft_model, eagle, medusa


class CommandTest(parameterized.TestCase):
  """A target of 24 tokens whose embedding has 48 rows, and its drafters."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
      cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.name = str(runs.write_model(cls.folder / "target.gguf"))
    cls.target, tokenizer = sources.load(cls.name)
    ids = jnp.asarray([2, 3, 5, 8, 13, 21])
    made = {
      "whole": medusa.medusa(cls.target, None, 2),
      "some": medusa.medusa(cls.target, ids, 2),
      "eagle3": eagle.eagle(cls.target, ids),
      "mtp": eagle.eagle(cls.target, ids, "mtp"),
      "chained": chained.chained(cls.target),
      "model": draft_model.draft_model(cls.target, trained.no_model),
    }
    for name, objective in made.items():
      params = export_test.spread(objective)
      objective.save(params, cls.folder / name, tokenizer)
    (cls.folder / "run" / "drafter").mkdir(parents=True)
    for place in ("run", "run/drafter"):
      (cls.folder / place / "config.json").write_text("{}")
    cls.kept = sorted(cls.folder.iterdir())

  def call(self, **flags: str) -> tuple[int, str]:
    """Exit status and what is printed."""
    flags = {"target": self.name, "out": str(self.folder / "out"), **flags}
    flags["drafter"] = str(self.folder / flags["drafter"])
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
      status = export.main([f"--{name}={x}" for name, x in flags.items()])
    return status, said.getvalue()

  def write(self, name: str, drafter: str, **flags: str) -> dict[str, Any]:
    """config.json of an export."""
    out = self.folder / name
    status, said = self.call(drafter=drafter, out=str(out), **flags)
    self.assertEqual(status, 0, said)
    type(self).kept = sorted([*self.kept, out])
    self.assertEqual(sorted(self.folder.iterdir()), self.kept)
    # Whoever reads one file reads all.
    self.assertLen({path.stat().st_mode for path in out.iterdir()}, 1)
    return json.loads((out / "config.json").read_text())

  def test_medusa_in_one_layout_and_from_it_in_another(self):
    config = self.write("original", "whole", format="medusa")
    self.assertEqual(config["base_model_name_or_path"], self.name)
    self.write("vllm", "original", format="medusa-vllm")
    first, second = (
      medusa_files.load(self.folder / name, self.target)
      for name in ("original", "vllm")
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)
    # Rows of no token are there, and never drafted.
    x = jnp.ones((1, 32))
    found = np.asarray(first(x, self.target))
    self.assertEqual(found.shape, (1, 2, 48))
    self.assertEqual(np.isfinite(found).sum(), 2 * 24)

  def test_eagle3_in_another_type_and_of_another_length(self):
    config = self.write(
      "short", "eagle3", format="eagle3", dtype="bfloat16", max_length="999"
    )
    self.assertEqual(config["max_position_embeddings"], 999)
    self.assertEqual(config["torch_dtype"], "bfloat16")
    self.assertEqual(
      (config["vocab_size"], config["draft_vocab_size"]), (48, 6)
    )
    short = eagle_files.load(self.folder / "short", self.target)
    whole = eagle_files.load(self.folder / "eagle3", self.target)
    np.testing.assert_array_equal(short.columns, whole.columns)
    jax.tree.map(
      lambda x, y: np.testing.assert_array_equal(x, y.astype(jnp.bfloat16)),
      short.params,
      whole.params,
    )

  def test_a_draft_model(self):
    self.write("draft", "model", format="huggingface")
    (found, own), (wanted, _) = (
      sources.load(self.folder / name) for name in ("draft", "model")
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    self.assertEqual(own.num_tokens, 24)

  def test_heads_as_they_are_in_another_type(self):
    self.write("half", "some", format="specjax", dtype="float16")
    half, whole = (
      medusa_files.load(self.folder / name, self.target)
      for name in ("half", "some")
    )
    np.testing.assert_array_equal(half.columns, whole.columns)
    jax.tree.map(
      lambda x, y: np.testing.assert_array_equal(x, y.astype(jnp.float16)),
      half.params,
      whole.params,
    )
    sizes = [
      (self.folder / name / "model.safetensors").stat().st_size
      for name in ("half", "some")
    ]
    self.assertLess(sizes[0], 0.7 * sizes[1])

  def test_a_draft_model_without_its_targets_embedding(self):
    config = self.write("layers", "model", format="specjax")
    self.assertEqual(config["vocabulary_of"], self.name)
    (found, own), (wanted, _) = (
      sources.load(self.folder / name) for name in ("layers", "model")
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    self.assertEqual(own.num_tokens, 24)
    sizes = [
      (self.folder / name / "model.safetensors").stat().st_size
      for name in ("layers", "model")
    ]
    embedding = 4 * self.target.params["embed"]["embedding"].size
    self.assertLess(sizes[0], sizes[1] - 0.9 * embedding)
    # With it again, for engines that know no lender.
    self.write("again", "layers", format="huggingface")
    found, _ = sources.load(self.folder / "again")
    jax.tree.map(np.testing.assert_array_equal, found, wanted)

  def test_a_model_type_that_is_no_text(self):
    folder = self.folder / "odd"
    folder.mkdir()
    self.addCleanup(shutil.rmtree, folder)
    (folder / "config.json").write_text('{"model_type": ["llama"]}')
    status, said = self.call(drafter="odd", format="huggingface")
    self.assertEqual(status, 2)
    self.assertIn("which no format fits", said)

  def test_what_is_not_read_back_does_not_appear(self):
    real = medusa_files.load(self.folder / "whole", self.target)
    damaged = mock.Mock(side_effect=[real, ValueError("damaged")])
    with mock.patch.object(medusa_files, "load", damaged):
      self.refused({"drafter": "whole", "format": "medusa"}, "damaged")

  @parameterized.named_parameters(
    ("flag", {"drafter": "some", "colour": "red"}, "unknown argument"),
    ("format", {"drafter": "some", "format": "gguf"}, "choose from .?medusa"),
    ("no_target", {"drafter": "some", "target": ""}, "no target: "),
    ("dtype", {"drafter": "some", "dtype": "int8"}, "choose from .?float32"),
    ("length", {"drafter": "some", "max_length": "9"}, "is of eagle3"),
    (
      "length_0",
      {"drafter": "eagle3", "format": "eagle3", "max_length": "0"},
      "--max_length is 0: use 1",
    ),
    ("none", {"drafter": "none"}, "there is no such folder"),
    ("run", {"drafter": "run"}, "is the folder of a run: name "),
    ("nothing", {"drafter": "run/drafter"}, "'no drafter', which no format"),
    ("chained", {"drafter": "chained"}, "use --format=specjax"),
    ("mtp", {"drafter": "mtp", "format": "eagle3"}, "use --format=specjax"),
    ("model", {"drafter": "model"}, "use --format=huggingface or specjax"),
    ("eagle3", {"drafter": "eagle3"}, "use --format=eagle3 or specjax"),
    (
      "medusa",
      {"drafter": "some", "format": "eagle3"},
      "use --format=medusa or medusa-vllm or specjax",
    ),
    ("map", {"drafter": "some"}, "has no map .* use --format=medusa-vllm"),
    ("out", {"drafter": "whole", "out": "{folder}"}, "is not empty"),
  )
  def test_mistakes_before_the_target_is_loaded(self, flags, message):
    here = str(self.folder)
    flags = {key: x.replace("{folder}", here) for key, x in flags.items()}
    with mock.patch.object(sources, "load") as load:
      self.refused({"format": "medusa", **flags}, message)
    load.assert_not_called()

  @parameterized.named_parameters(
    ("target", {"drafter": "whole", "target": "none.gguf"}, "none.gguf"),
    (
      "vocabulary",
      {"drafter": "model", "format": "huggingface", "target": "{other}"},
      "has another vocabulary than",
    ),
  )
  def test_mistakes_of_the_target(self, flags, message):
    with tempfile.TemporaryDirectory() as other:
      words = ("<s>", "</s>", *"zyxwvutsrqponmlkjihgf", "zy")
      path = runs.write_model(pathlib.Path(other) / "x.gguf", words, ("z y",))
      flags = {k: x.replace("{other}", str(path)) for k, x in flags.items()}
      self.refused({"format": "medusa", **flags}, message)

  def refused(self, flags: dict[str, str], message: str) -> None:
    status, said = self.call(**flags)
    self.assertEqual(status, 2, said)
    self.assertRegex(said, message)
    self.assertEqual(said.count("\n"), 1, said)
    self.assertEqual(sorted(self.folder.iterdir()), self.kept)


if __name__ == "__main__":
  absltest.main()
