# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A comparison whose workdir is in an object store."""

import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized

from specjax.bench import measure, storage
from tests import run_test, runs, stores


class Remote(parameterized.TestCase):
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
      methods={"ngram_2": runs.METHODS["ngram_2"]},
      max_new_tokens=4,
      replays=0,
      trace=True,
    )

  def call(self, path, *argv):
    return run_test.call(f"--config={self.config}", f"--workdir={path}", *argv)


class ResumeTest(Remote):
  """Interrupted in the middle, and gone on with."""

  PATH = "bucket/deep/run"

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.store = cls.enterClassContext(stores.serve())
    answer, left = measure.answer, [7]

    def interrupted(*args, **options):
      if not left[0]:
        raise KeyboardInterrupt
      left[0] -= 1
      return answer(*args, **options)

    cls.enterClassContext(absltest.mock.patch.object(storage, "PART_LINES", 3))
    argv = (f"--config={cls.config}", f"--workdir=gs://{cls.PATH}")
    with absltest.mock.patch.object(measure, "answer", interrupted):
      cls.first = run_test.call(*argv)
    cls.kept = dict(cls.store.objects)
    cls.second = run_test.call(*argv)

  def lines(self, content):
    return [json.loads(line) for line in content.decode().splitlines()]

  def test_an_interrupt_leaves_parts(self):
    self.assertEqual(self.first[0], 130)
    names = sorted(name.removeprefix(f"{self.PATH}/") for name in self.kept)
    parts = [f"results-{first:08d}.jsonl" for first in (0, 3, 6)]
    begun = ["config.json", "inputs.json", "policies.json"]
    self.assertEqual(names, [*begun, *parts])

  def test_it_ends_with_the_files_of_any_run(self):
    self.assertEqual(self.second[::2], (0, ""))
    names = [name.removeprefix(f"{self.PATH}/") for name in self.store.objects]
    self.assertCountEqual(
      names,
      [
        "config.json",
        "inputs.json",
        "policies.json",
        "results.jsonl",
        "summary.json",
        "tokens.jsonl",
      ],
    )

  def test_no_answer_is_lost_or_stands_there_twice(self):
    lines = self.lines(self.store.objects[f"{self.PATH}/results.jsonl"])
    kept = [
      line
      for name in sorted(self.kept)
      if "results-" in name
      for line in self.lines(self.kept[name])
    ]
    self.assertLen(kept, 7)
    self.assertEqual(lines[:7], kept)
    seen = {(x["run"], x["method"], x["question_id"]) for x in lines}
    self.assertLen(seen, len(lines))
    self.assertLen(lines, 3 * (2 * 2 + 1))

  def test_the_same_command_again_only_shows_the_table(self):
    writes = len(self.store.writes)
    status, out, err = self.call(f"gs://{self.PATH}")
    self.assertEqual((status, err), (0, ""))
    self.assertStartsWith(out, f"gs://{self.PATH}: finished before")
    results = f"{self.PATH}/results.jsonl"
    self.assertNotIn(results, self.store.writes[writes:])

  def test_another_config_is_refused(self):
    status, _, err = self.call(f"gs://{self.PATH}", "--config.seed=3")
    self.assertEqual(status, 2)
    self.assertRegex(err, "^error: workdir gs://bucket/deep/run .*another seed")


class MistakesTest(Remote):
  @parameterized.parameters(
    (
      "gs://other/run",
      "gs://other/run.* no bucket .*: check the bucket",
    ),
    ("gs://", "gs:// names no bucket: write gs://BUCKET/FOLDER"),
    ("gcs://bucket/run", "gcs://bucket/run is on no known store: use gs://"),
    ("hf://datasets/me/x", "is on no known store: use gs://, s3://, az://"),
  )
  def test_a_workdir_that_cannot_be(self, path, pattern):
    with stores.serve() as store:
      status, out, err = self.call(path)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(err, "^error: [^\n]*\n$")
    self.assertRegex(err, pattern)
    self.assertEmpty(store.writes)

  def test_a_store_that_may_only_be_read(self):
    with stores.serve() as store:
      store.read_only = True
      status, _, err = self.call("gs://bucket/run")
    self.assertEqual(status, 2)
    self.assertRegex(err, "^error: gs://bucket/run.*403.* your rights to it\n$")

  def test_a_client_that_is_not_installed(self):
    with stores.without_client():
      status, _, err = self.call("gs://bucket/run")
    self.assertEqual(status, 2)
    self.assertRegex(err, "^error: gs://bucket/run needs .*install gcsfs\n$")


if __name__ == "__main__":
  absltest.main()
