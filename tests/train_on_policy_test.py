# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft learns from its own texts, judged by its target, as the docs say."""

import contextlib
import io
import json
import pathlib
import tempfile

from absl.testing import absltest
import pytest

from tests import runs, train_invent_test, train_regenerate_test, train_runs
from train import regenerate, run


class OnPolicyTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.model = runs.write_model(
      self.folder / "model.gguf", template=train_invent_test.TEMPLATE
    )
    train_runs.write_texts(self.folder / "validation.jsonl", 6, 1)
    questions = self.folder / "questions.jsonl"
    train_regenerate_test.write(
      questions, *({"prompt": "c" * (1 + i)} for i in range(12))
    )
    config = train_regenerate_test.CONFIG.format(target=str(self.model))
    (self.folder / "regenerate.py").write_text(config)
    self.asked = f"--config={self.folder / 'regenerate.py'}:{questions}"

  def call(self, command, *argv) -> str:
    with (
      contextlib.redirect_stdout(io.StringIO()) as output,
      contextlib.redirect_stderr(output),
    ):
      status = command.main(argv)
    self.assertEqual(status, 0, output.getvalue())
    return output.getvalue()

  def lines(self, name) -> list[str]:
    return (self.folder / name / "answers.jsonl").read_text().splitlines()

  def train(self, name, *answers, **changes) -> dict:
    """The summary of a run."""
    data = {
      "train": [str(self.folder / x / "answers.jsonl") for x in answers],
      "validation": str(self.folder / "validation.jsonl"),
      "width": 24,
    }
    objective = {"type": "draft_model", "num_layers": 1, "mlp_dim": 16}
    config = train_runs.write_config(
      self.folder, data=data, objective=objective, **changes
    )
    workdir = self.folder / name
    self.call(run, f"--config={config}", f"--workdir={workdir}")
    return json.loads((workdir / "summary.json").read_text())

  @pytest.mark.slow
  def test_both_answer_and_training_goes_on(self):
    self.call(regenerate, self.asked, f"--workdir={self.folder / 'target'}")
    first = self.train("first", "target")
    drafter = self.folder / "first" / "drafter"
    self.call(
      regenerate,
      self.asked,
      f"--workdir={self.folder / 'drafted'}",
      f"--config.target={drafter}",
    )
    said = [
      {
        (line["index"], line["turn"]): line["answer_ids"]
        for line in map(json.loads, self.lines(name))
      }
      for name in ("target", "drafted")
    ]
    self.assertEqual(said[0].keys(), said[1].keys())
    # At temperature 1 half of the texts are the draft's own.
    self.assertNotEqual(said[0], said[1])
    second = self.train(
      "second", "target", "drafted", init_from=str(self.folder / "first")
    )
    self.assertEqual(
      second["before"]["temperature_1"], first["after"]["temperature_1"]
    )


if __name__ == "__main__":
  absltest.main()
