# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The folder of a run survives kills and refuses what does not belong."""

import json
import math
import os
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized

from specjax.bench import workdir

CONFIG = {"runs": 1, "methods": {"a": {"length": 4}}}
INPUTS = {"prompts": "1f", "target_weights": "2a", "draft_weights": {"a": "3"}}


class WorkdirTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = pathlib.Path(folder.name) / "deep" / "run"

  def test_lines_are_there_when_append_returns(self):
    opened = workdir.Workdir(self.path, CONFIG, INPUTS)
    for number in range(3):
      opened.append({"n": number, "text": "ü\n\u2028"})
      lines = (self.path / "results.jsonl").read_text("utf-8").split("\n")
      self.assertLen(lines, number + 2)
      self.assertEqual(json.loads(lines[number])["n"], number)
    self.assertEqual(
      workdir.Workdir(self.path, CONFIG, INPUTS).records, opened.records
    )

  @parameterized.parameters(1, 5, 12)
  def test_what_a_killed_run_left_of_a_line_is_cut(self, left):
    opened = workdir.Workdir(self.path, CONFIG, INPUTS)
    opened.append({"n": 0})
    with open(self.path / "results.jsonl", "a") as file:
      file.write('{"n": 1, "x": 2}'[:left])
    again = workdir.Workdir(self.path, CONFIG, INPUTS)
    self.assertEqual(again.records, [{"n": 0}])
    again.append({"n": 2})
    text = (self.path / "results.jsonl").read_text()
    self.assertEqual(text, '{"n": 0}\n{"n": 2}\n')

  def test_another_config_is_named(self):
    workdir.Workdir(self.path, CONFIG, INPUTS).append({"n": 0})
    other = {"runs": 1, "methods": {"a": {"length": 5}}}
    with self.assertRaisesRegex(ValueError, "another methods.a.length: .*over"):
      workdir.Workdir(self.path, other, INPUTS)
    opened = workdir.Workdir(self.path, other, INPUTS, overwrite=True)
    self.assertEmpty(opened.records)
    config = json.loads((self.path / "config.json").read_text())
    self.assertEqual(config, other)

  def test_a_key_that_one_side_lacks_is_a_difference(self):
    workdir.Workdir(self.path, CONFIG, INPUTS)
    with self.assertRaisesRegex(ValueError, "another seed"):
      workdir.check(self.path, CONFIG | {"seed": 0})

  @parameterized.parameters(
    ({"prompts": "2f"}, "another prompts: .*--overwrite"),
    ({"target_weights": ""}, "another target_weights: "),
    ({"draft_weights": {"a": "4"}}, "another draft_weights.a: "),
    ({"specjax_version": "9"}, "another specjax_version: "),
  )
  def test_other_content_behind_the_same_names_is_refused(
    self, change, pattern
  ):
    workdir.Workdir(self.path, CONFIG, INPUTS).append({"n": 0})
    workdir.Workdir(self.path, CONFIG, INPUTS)
    with self.assertRaisesRegex(ValueError, pattern):
      workdir.Workdir(self.path, CONFIG, INPUTS | change)
    anew = workdir.Workdir(self.path, CONFIG, INPUTS | change, overwrite=True)
    self.assertEmpty(anew.records)

  def test_results_of_unknown_inputs_are_refused(self):
    workdir.Workdir(self.path, CONFIG, INPUTS).append({"n": 0})
    (self.path / "inputs.json").unlink()
    with self.assertRaisesRegex(ValueError, "without an inputs.json"):
      workdir.Workdir(self.path, CONFIG, INPUTS)

  def test_a_run_killed_before_its_first_answer_goes_on(self):
    workdir.Workdir(self.path, CONFIG, INPUTS)
    (self.path / "inputs.json").unlink()
    opened = workdir.Workdir(self.path, CONFIG, INPUTS)
    self.assertEmpty(opened.records)

  def test_foreign_results_are_not_touched(self):
    self.path.mkdir(parents=True)
    (self.path / "results.jsonl").write_text("mine")
    with self.assertRaisesRegex(ValueError, "results without a config.json"):
      workdir.Workdir(self.path, CONFIG, INPUTS)
    self.assertEqual((self.path / "results.jsonl").read_text(), "mine")

  def test_a_damaged_line_is_named(self):
    workdir.Workdir(self.path, CONFIG, INPUTS)
    (self.path / "results.jsonl").write_text('{"n": 0}\n{"n"\n{"n": 2}\n')
    with self.assertRaisesRegex(ValueError, "results.jsonl line 2"):
      workdir.Workdir(self.path, CONFIG, INPUTS)

  def test_check_creates_nothing(self):
    workdir.check(self.path, CONFIG)
    self.assertFalse(self.path.parent.exists())

  def test_a_folder_that_cannot_be_written(self):
    # The tests may run as a user whom no mode bit stops.
    with (
      mock.patch.object(os, "access", return_value=False),
      self.assertRaisesRegex(ValueError, "cannot be written"),
    ):
      workdir.check(self.path, CONFIG)

  def test_a_summary_is_whole_or_not_there(self):
    opened = workdir.Workdir(self.path, CONFIG, INPUTS)
    self.assertIsNone(opened.read_summary())
    opened.write_summary({"n": 1})
    with (
      mock.patch.object(os, "replace", side_effect=KeyboardInterrupt),
      self.assertRaises(KeyboardInterrupt),
    ):
      opened.write_summary({"n": 2})
    self.assertEqual(opened.read_summary(), {"n": 1})
    names = sorted(path.name for path in self.path.iterdir())
    self.assertEqual(names, ["config.json", "inputs.json", "summary.json"])

  def test_numbers_that_json_lacks_become_null(self):
    opened = workdir.Workdir(self.path, CONFIG, INPUTS)
    opened.write_summary({"a": [math.inf, 1.0], "b": (math.nan,)})
    text = (self.path / "summary.json").read_text()
    self.assertEqual(
      json.loads(text, parse_constant=self.fail),
      {"a": [None, 1.0], "b": [None]},
    )


if __name__ == "__main__":
  absltest.main()
