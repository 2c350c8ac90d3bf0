# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a training run: one line, exit status 2, nothing written."""

import contextlib
import io
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized

from specjax.bench import configuration
from tests import train_runs
from train import run, schema, training

_CASES = {
  "key": (["--config.batchsize=4"], "unknown config key 'batchsize'"),
  "nested_key": (["--config.optimizer.lr=1"], "optimizer.lr"),
  "argument": (["--config.objective.heads=2"], "objective.heads"),
  "objective": (["--config.objective.type=medus"], "did you mean 'medusa'"),
  "steps_and_epochs": (["--config.epochs=1"], "give one of them"),
  "neither": (["--config.steps=0"], "give one of them"),
  "negative": (["--config.keep=0"], "keep is 0: use 1 or more"),
  "parts": (["--config.accumulation=3"], "batch_size 4 does not divide"),
  "loss": (["--config.losses.tvd=1"], "did you mean 'tv'"),
  # A loss that the file does not name.
  "infinite": (
    ["--config.losses.reverse_kl=1", "--config.sampling.top_k=5"],
    "top_k = 5",
  ),
  "schedule": (["--config.optimizer.schedule=sine"], "cosine, linear"),
  "rate": (["--config.optimizer.learning_rate=0"], "use more than 0"),
  "select": (["--config.evaluation.select=best"], "temperature_0"),
  "sampling": (["--config.sampling.temperature=-1"], "temperature"),
  "file": (["--config.data.train=none.jsonl"], "none.jsonl"),
  "prompts": (["--config.evaluation.prompts=none.jsonl"], "none.jsonl"),
  "held_out": (["--config.data.validation={train}"], "hold them out"),
  "rows": (["--config.batch_size=64"], "there are"),
  "target": (["--config.target=none.gguf"], "none.gguf"),
  "init_from": (["--config.init_from=none"], "has no checkpoints/"),
  "flag": (["--work=x"], "unknown argument '--work=x'"),
  "value": (["--config.steps"], "has no value"),
  "mesh": (["--config.mesh.data=0"], "mesh.data is 0: use 1 or more"),
  "moments": (["--config.optimizer.beta2=1.0"], "use 0 to below 1"),
  "epochs": (["--config.steps=0", "--config.epochs=0.01"], "makes none"),
  "features": (["--config.data.features={old}"], "of another target, data: "),
}


class MistakesTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
      cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.config = train_runs.write_config(cls.folder)
    cls.old = cls.folder / "features"
    cls.old.mkdir()
    note = json.dumps({"width": 24, "temperature": 1.0})
    (cls.old / "features.json").write_text(note)

  def refused(self, *argv: str) -> str:
    """The one line that a run prints which ends with status 2."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
      status = run.main(list(argv))
    self.assertEqual(status, 2, error.getvalue())
    self.assertEqual(error.getvalue().count("\n"), 1, error.getvalue())
    return error.getvalue()

  @parameterized.named_parameters((k, *v) for k, v in _CASES.items())
  def test_one_line_and_nothing_written(self, overrides, part):
    folder = self.folder / "new"
    places = {"train": self.folder / "train.jsonl", "old": self.old}
    overrides = [x.format(**places) for x in overrides]
    flags = [f"--config={self.config}", f"--workdir={folder}"]
    self.assertIn(part, self.refused(*flags, *overrides))
    self.assertFalse(folder.exists())

  @parameterized.parameters(
    ({"losses": {"forward_lk": 1.0}}, "forward_lk"),
    ({"losses": {"forward_kl": -1.0}}, "forward_kl"),
    ({"losses": {}}, "loss"),
    ({"losses": {"lk": {"eta": "much"}}}, "losses.lk has eta 'much'"),
    ({"losses": {"tv": float("nan")}}, "losses.tv has weight nan"),
    ({"losses": {"reverse_kl": 1.0}, "sampling": {"top_k": 5}}, "top_k = 5"),
    ({"extra": {"feature": -1.0}}, "extra.feature is -1.0"),
    ({"objective": {"type": "medusa", "num_layers": -1}}, "num_layers is -1"),
    ({"objective": {"type": "eagle", "mlp_dim": -4}}, "mlp_dim is -4"),
    ({"objective": {"type": "draft_model", "mlp_dim": -4}}, "mlp_dim is -4"),
    ({"extra": {"feature": "much"}}, "extra.feature"),
    ({"extra": {"feature": 0.5}}, "extra.feature"),
    ({"data": {"train": [], "validation": []}}, "no conversation to train on"),
  )
  def test_sections(self, changes, part):
    config = train_runs.write_config(self.folder, **changes)
    folder = self.folder / "other"
    self.assertIn(
      part, self.refused(f"--config={config}", f"--workdir={folder}")
    )
    self.assertFalse(folder.exists())

  @parameterized.parameters(("config", "workdir"), ("workdir", "config"))
  def test_flags_that_a_run_needs(self, given, missing):
    self.assertIn(f"no {missing}: ", self.refused(f"--{given}=x"))

  def test_folder_of_something_else(self):
    flags = [f"--config={self.config}", f"--workdir={self.folder}"]
    self.assertIn("has other files in it", self.refused(*flags))
    # Nor is it deleted.
    self.assertIn("has other files in it", self.refused(*flags, "--overwrite"))

  def test_a_mistake_overwrites_nothing(self):
    folder = self.folder / "kept"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    flags = (f"--config={self.config}", f"--workdir={folder}", "--overwrite")
    line = self.refused(*flags, "--config.data.train=none.jsonl")
    self.assertIn("none.jsonl", line)
    self.assertEqual((folder / "config.json").read_text(), "{}")

  def test_folder_of_another_config(self):
    folder = self.folder / "begun"
    folder.mkdir()
    config = configuration.read(str(self.config), (), schema)
    begun = configuration.plain(config)
    (folder / "config.json").write_text(json.dumps(begun | {"steps": 7}))
    flags = (f"--config={self.config}", f"--workdir={folder}")
    with mock.patch.object(training, "train") as train:
      self.assertIn("begun with another steps", self.refused(*flags))
      train.assert_not_called()
    # Of a version that had another key.
    (folder / "config.json").write_text(json.dumps(begun | {"gone": 1}))
    self.assertRegex(self.refused(*flags), "config.json, .*gone.*name another")
    # Of older versions, which had some keys less.
    del begun["accumulation"], begun["evaluation"]["max_new_tokens"]
    (folder / "config.json").write_text(json.dumps(begun))
    with mock.patch.object(training, "train") as train:
      self.assertEqual(run.main(flags), 0)
      train.assert_called_once()


if __name__ == "__main__":
  absltest.main()
