# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command that judges a run: what training saw, before and after."""

import contextlib
import io
import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import numpy as np

from specjax.bench import configuration
from tests import train_runs
from train import conversations, evaluate, run, tracking, trained

DRAFT_VOCAB = 20


def call(main, *argv: str) -> tuple[int, str]:
  """Exit status and error of a command in this process."""
  error = io.StringIO()
  with contextlib.redirect_stderr(error), contextlib.redirect_stdout(None):
    status = main(list(argv))
  return status, error.getvalue()


class _Run(parameterized.TestCase):
  """Has one run whose head drafts some of the tokens."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
      cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.config = train_runs.write_config(cls.folder, **cls.changes(cls.folder))
    cls.training = cls.folder / "run"
    status, error = call(
      run.main, f"--config={cls.config}", f"--workdir={cls.training}"
    )
    assert status == 0, error

  @staticmethod
  def changes(folder: pathlib.Path) -> dict:
    return {
      "objective": {"type": "medusa", "num_heads": 2, "own_output": True},
      "data": {
        "train": str(folder / "train.jsonl"),
        "validation": str(folder / "validation.jsonl"),
        "width": 24,
        "draft_vocab": DRAFT_VOCAB,
      },
    }

  def evaluated(self, *flags: str) -> dict:
    out = self.folder / "found.json"
    argv = (f"--workdir={self.training}", f"--out={out}", *flags)
    self.assertEqual(call(evaluate.main, *argv), (0, ""))
    return json.loads(out.read_text())


class EvaluateTest(_Run):
  def test_is_what_the_run_measured_itself(self):
    found = self.evaluated()
    lines = {
      line["step"]: line
      for line in tracking.read(self.training)
      if line["kind"] == "evaluation"
    }
    self.assertEqual(found["conversations"], 6)
    self.assertEqual(set(found["measures"]), {"temperature_0", "temperature_1"})
    for name, drafts in found["measures"].items():
      self.assertEqual(drafts["before"]["all"], lines[0][name])
      self.assertEqual(drafts["after"]["all"], lines[found["step"]][name])

  def test_a_run_carries_its_whole_config(self):
    given = json.loads((self.training / "config.json").read_text())
    found = trained.read(self.training, "run").config(["keep=7"])
    self.assertEqual(configuration.plain(found), given | {"keep": 7})

  def test_judged_under_other_settings_and_without_loops(self):
    """Half of these answers say one token again and again."""
    path = self.folder / "loops.jsonl"
    with open(train_runs.write_texts(path, 6, 2), "a") as file:
      for i in range(6):
        line = {"id": f"loop-{i}", "prompt_ids": [2], "answer_ids": [3 + i] * 9}
        file.write(json.dumps(line) + "\n")
    flags = (f"--data={path}", "--config.sampling.temperature=0.5")
    found = self.evaluated(*flags)
    self.assertEqual(found["degenerate"], 0.5)
    parts = found["measures"]["serving"]["after"]
    self.assertEqual(self.evaluated(*flags, "--limit=1")["conversations"], 1)
    self.assertLess(
      parts["without_degenerate"]["starts"], parts["all"]["starts"]
    )
    contexts = found["by_context"]["serving"]
    self.assertEqual(sum(x["starts"] for x in contexts), parts["all"]["starts"])

  def test_columns_keep_their_tokens_when_trained_on_other_texts(self):
    """sgl-project/SpecForge#534: a new map scrambles an old output matrix."""
    old = trained.read(self.training, "run").draft_ids()
    other = train_runs.write_texts(self.folder / "other.jsonl", 40, 7)
    data = self.changes(self.folder)["data"] | {"train": str(other)}
    changes = self.changes(self.folder) | {"data": data, "steps": 1}
    config = train_runs.write_config(
      self.folder, init_from=str(self.training), **changes
    )
    folder = self.folder / "next"
    flags = (f"--config={config}", f"--workdir={folder}")
    self.assertEqual(call(run.main, *flags), (0, ""))
    np.testing.assert_array_equal(trained.read(folder, "run").draft_ids(), old)
    status, error = call(
      run.main,
      f"--config={config}",
      f"--workdir={self.folder / 'wrong'}",
      "--config.data.draft_vocab=21",
    )
    self.assertEqual(status, 2)
    self.assertIn(f"use data.draft_vocab = {DRAFT_VOCAB}", error)

  @parameterized.parameters(
    (["--workdir={folder}/none"], "has no checkpoints/"),
    (["--workdir={folder}"], "has no checkpoints/"),
    (["--workdir={run}", "--data={folder}/none.jsonl"], "none.jsonl"),
    (["--workdir={run}", "--data={folder}/train.jsonl"], "was trained on"),
    (["--workdir={run}", "--limit=-1"], "use 0 or more"),
    (["--workdir={run}", "--out={folder}/a/b.json"], "make it first"),
    (["--workdir={run}", "--config.objective.num_heads=3"], "other shapes"),
    (["--workdir={run}", "--config.steps"], "has no value"),
    (["--work={run}"], "unknown argument"),
    ([], "no workdir"),
  )
  def test_mistakes(self, argv, part):
    argv = [x.format(folder=self.folder, run=self.training) for x in argv]
    status, error = call(evaluate.main, *argv)
    self.assertEqual(status, 2, error)
    self.assertEqual(error.count("\n"), 1, error)
    self.assertIn(part, error)
    self.assertFalse((self.training / "evaluation.json").exists())


class LoopingTest(parameterized.TestCase):
  @parameterized.parameters(
    ([5, 5, 5, 5, 5, 5, 5], [1, 1, 1, 1, 1, 1, 1], True),
    # Too short a loop, one in the prompt, and two answers that are alike.
    ([5, 5, 5, 5, 5, 5, 5], [0, 1, 1, 1, 1, 1, 1], False),
    ([5, 5, 5, 5, 5, 5, 5, 6], [0, 0, 0, 0, 0, 0, 0, 1], False),
    ([1, 2, 3, 4, 0] * 5, [1, 1, 1, 1, 0] * 5, False),
  )
  def test_answers_one_by_one(self, tokens, loss, wanted):
    example = conversations.Example(
      "", np.asarray(tokens, np.int32), np.asarray(loss, bool)
    )
    self.assertEqual(evaluate.is_looping(example), wanted)


if __name__ == "__main__":
  absltest.main()
