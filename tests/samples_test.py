# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several answers to a prompt, each with random numbers of its own."""

import contextlib
import io
import json
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax import api, run
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.drafters import ngram
from specjax.policies import policy as policy_lib
from specjax.verifiers import rejection
from tests import runs, toys
from tests.benches import Words

PROMPTS = ((5, 6, 7, 5, 6), (3,), (9, 9))
WORDS: Any = Words()
TARGET = toys.tiny()


def answers(prompts=PROMPTS, temperature: Any = 1.0, **settings: Any):
  found = api.generate(
    TARGET,
    WORDS,
    prompts,
    sampling=sampling_lib.Sampling(temperature=temperature),
    max_new_tokens=6,
    **settings,
  )
  return [answer.tokens.tolist() for answer in found]


class GenerateTest(parameterized.TestCase):
  def test_samples_of_a_prompt_stand_together(self):
    """The first is what one alone would be, the others are others."""
    several = answers(samples=3, seed=4)
    self.assertLen(several, 9)
    self.assertEqual(several[::3], answers(seed=4))
    self.assertLen(set(map(tuple, several)), 9)

  @parameterized.parameters(1, 4)
  def test_they_do_not_depend_on_the_batch(self, batch_size):
    """A batch of 4 holds samples of two prompts."""
    several = answers(samples=3, seed=4)
    self.assertEqual(several, answers(samples=3, seed=4, batch_size=batch_size))

  def test_a_sample_is_a_row_of_a_session(self):
    """The third answer to the second prompt, asked for alone."""
    session = session_lib.Session(
      TARGET,
      WORDS,
      session_lib.Method(),
      session_lib.Settings(
        sampling_lib.Sampling(temperature=np.float32(1)), 6, seed=4
      ),
      [PROMPTS[1]],
      indices=[1],
      samples=[2],
    )
    for _ in session.rounds():
      pass
    alone = session.results()[0].tokens.tolist()
    self.assertEqual(alone, answers(samples=3, seed=4)[5])

  def test_speculation_changes_no_sample(self):
    plain = answers(samples=3)
    drafter, policy = ngram.NGram(3), policy_lib.Fixed(3, widths=())
    drafted = answers(samples=3, drafter=drafter, policy=policy)
    self.assertEqual(drafted, plain)

  @pytest.mark.slow
  def test_samples_under_a_rule_of_its_own_streams(self):
    other = answers(
      samples=3, drafter=ngram.NGram(3), verifier=rejection.Rejection()
    )
    self.assertLen(set(map(tuple, other)), 9)

  def test_what_prompts_are_given_their_samples_are_given_too(self):
    """Seeds and temperatures, one a prompt; a greedy one repeats itself."""
    found = answers(samples=2, seed=[7, 8, 9], temperature=[1.0, 0.0, 1.0])
    self.assertNotEqual(found[0], found[1])
    self.assertEqual(found[2], found[3])
    moved = answers(
      (PROMPTS[2], PROMPTS[0]), samples=2, seed=[9, 7], temperature=1.0
    )
    self.assertEqual(moved, found[4:] + found[:2])

  @parameterized.parameters(
    (0, 1.0, "samples is 0: use 1 or more"),
    (2, 0.0, "samples is 2 but the temperature is 0"),
    (2, [0.0, 0.0, 0.0], "samples is 2 but the temperature is 0"),
  )
  def test_mistakes(self, samples, temperature, pattern):
    with self.assertRaisesRegex(ValueError, pattern):
      answers(samples=samples, temperature=temperature)


class RunTest(absltest.TestCase):
  """Two samples of three prompts, two rows at a time."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    cls.config = runs.write_config(
      cls.folder / "config.py",
      cls.model,
      methods={
        "n": {
          "drafter": {"type": "ngram", "length": 2},
          "policy": runs.ONE_WIDTH,
        }
      },
      sampling={"temperature": 1.0},
      samples=2,
      batch_size=2,
      runs=1,
      replays=1,
      trace=True,
    )
    cls.workdir = cls.folder / "run"
    cls.results = cls.workdir / "results.jsonl"
    cls.status, cls.out = cls.call(f"--workdir={cls.workdir}")
    cls.lines = cls.results.read_text().splitlines()

  @classmethod
  def call(cls, *argv: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
      status = run.main([f"--config={cls.config}", *argv])
    return status, out.getvalue()

  def test_a_line_is_one_sample(self):
    self.assertEqual(self.status, 0, self.out)
    records = [json.loads(line) for line in self.lines]
    keys = [
      (r["method"], r["question_id"], choice["index"])
      for r in records
      for choice in r["choices"]
    ]
    # The method, plain and its reference.
    self.assertLen(keys, 3 * 3 * 2)
    self.assertLen(set(keys), len(keys))
    texts = {r["choices"][0]["turns"][0] for r in records}
    self.assertLen(texts, 6)
    rounds = (self.workdir / "tokens.jsonl").read_text().splitlines()
    traced = {(x["question_id"], x["sample"]) for x in map(json.loads, rounds)}
    self.assertLen(traced, 6)

  def test_measures_are_of_all_samples(self):
    summary = json.loads((self.workdir / "summary.json").read_text())
    self.assertEqual((summary["prompts"], summary["samples"]), (3, 2))
    for measures in (summary["methods"]["n"], summary["plain"]):
      self.assertEqual(measures["answers"], 6)
      self.assertEqual(measures["matched"]["equal"], 6)
      self.assertEqual(measures["matched"]["total"], 6)
      # One batch of two rows was streamed.
      self.assertEqual(measures["streamed"], 2)
      for name in ("time_to_first_token", "time_per_output_token", "gaps"):
        self.assertLessEqual(measures[name]["p50"], measures[name]["p90"])
      self.assertGreater(measures["memory"]["peak"], 0)
    self.assertGreater(summary["memory"]["process_peak"], 0)
    self.assertIn("2 samples a prompt", self.out)

  def test_a_stopped_run_makes_the_samples_that_are_missing(self):
    workdir = self.folder / "stopped"
    self.assertEqual(self.call(f"--workdir={workdir}")[0], 0)
    (workdir / "summary.json").unlink()
    results = workdir / "results.jsonl"
    kept = results.read_text().splitlines(keepends=True)[:7]
    results.write_text("".join(kept))
    self.assertEqual(self.call(f"--workdir={workdir}")[0], 0)
    again = results.read_text().splitlines()
    self.assertLen(again, len(self.lines))
    content = lambda line: (
      line["method"],
      line["question_id"],
      line["choices"][0]["index"],
      tuple(line["tokens"]),
    )
    self.assertCountEqual(
      [content(json.loads(line)) for line in again],
      [content(json.loads(line)) for line in self.lines],
    )

  def test_a_single_text_is_answered_as_often(self):
    status, out = self.call("--config.prompts=abcabc")
    self.assertEqual(status, 0)
    self.assertEqual(out.count("n: 12 tokens"), 2)
    first, second = out.split("n: 12 tokens")[:2]
    self.assertNotIn(first.strip(), second)

  def test_greedy_samples_are_refused_before_anything_is_read(self):
    status, out = self.call(
      f"--workdir={self.folder / 'w'}",
      "--config.sampling.temperature=0.0",
      "--config.target=none",
    )
    self.assertEqual(status, 2)
    self.assertRegex(out, "^error: samples is 2 but the temperature is 0")
    self.assertFalse((self.folder / "w").exists())


if __name__ == "__main__":
  absltest.main()
