# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line from its arguments to its files, on a tiny model."""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import absltest, parameterized

from specjax import run
from tests import runs

ROOT = pathlib.Path(__file__).resolve().parent.parent


def call(*argv: object) -> tuple[int, str, str]:
  """Exit status, stdout and stderr of the command in this process."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = run.main([str(word) for word in argv])
  return status, out.getvalue(), err.getvalue()


def read_lines(path: pathlib.Path) -> list[dict]:
  return [json.loads(line) for line in path.read_text().splitlines()]


class Folder(parameterized.TestCase):
  """A folder with a model and a config, one for all tests of a class."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    cls.config = runs.write_config(cls.folder / "config.py", cls.model)


class RunTest(Folder):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.workdir = cls.folder / "run"
    cls.status, cls.out, cls.err = call(
      f"--config={cls.config}",
      f"--workdir={cls.workdir}",
      "--config.trace=true",
    )
    cls.lines = read_lines(cls.workdir / "results.jsonl")
    cls.summary = json.loads((cls.workdir / "summary.json").read_text())

  def test_it_ends_well(self):
    self.assertEqual((self.status, self.err), (0, ""))
    names = sorted(path.name for path in self.workdir.iterdir())
    self.assertEqual(
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

  def test_every_method_answers_every_prompt_in_every_run(self):
    seen = {(x["run"], x["method"], x["question_id"]) for x in self.lines}
    self.assertLen(seen, len(self.lines))
    # Two methods and plain twice, the reference once, on three prompts.
    self.assertLen(self.lines, 3 * (3 * 2 + 1))

  def test_lines_have_the_layout_of_spec_bench(self):
    for line in self.lines:
      choice = line["choices"][0]
      self.assertEqual(sum(choice["accept_lengths"]), choice["new_tokens"][0])
      self.assertLen(choice["accept_lengths"], choice["decoding_steps"][0])
      self.assertLen(line["tokens"], choice["new_tokens"][0])
      self.assertAlmostEqual(
        choice["wall_time"][0], line["prefill_time"] + line["decode_time"]
      )
      self.assertIn(line["category"], ("copy", "other"))

  def test_every_method_matches_the_reference(self):
    for name, measures in self.summary["methods"].items():
      matched = {"equal": 3, "total": 3, "first_difference_margin": None}
      self.assertEqual(measures["matched"], matched, name)
      self.assertTrue(measures["lossless"])

  def test_speculation_happened(self):
    taken = [sum(x["accepted"]) for x in self.lines if x["method"] == "ngram_2"]
    self.assertGreater(sum(taken), 0)
    self.assertGreater(
      self.summary["methods"]["ngram_2"]["block_efficiency"], 1
    )

  def test_summary_has_the_documented_keys(self):
    self.assertContainsSubset(
      ("device", "versions", "target", "methods", "plain"), self.summary
    )
    for measures in self.summary["methods"].values():
      self.assertContainsSubset(
        (
          "block_efficiency",
          "acceptance_rate",
          "acceptance_overlap",
          "acceptance_coupled",
          "accepted_per_draft",
          "acceptance_by_position",
          "tokens_per_second",
          "time_share",
          "cost_ratio",
          "block_efficiency_interval",
          "degenerate",
        ),
        measures,
      )
      self.assertContainsSubset(
        ("mean", "std", "decode_only", "predicted"), measures["speedup"]
      )
      self.assertAlmostEqual(sum(measures["time_share"].values()), 1)
      self.assertCountEqual(measures["by_category"], ("copy", "other"))
      memory = measures["memory"]
      self.assertGreater(memory["peak"], memory["weights"])
      self.assertEqual(memory["draft_weights"], 0)
    self.assertIn(self.summary["plain"]["width"], (1, 2))

  def test_table_names_every_method(self):
    for word in ("plain", "ngram_2", "ngram_10", "3/3", "copy", "other"):
      self.assertIn(word, self.out)

  def test_trace_says_what_the_results_say(self):
    rounds = read_lines(self.workdir / "tokens.jsonl")
    for line in self.lines:
      if line["run"] or line["method"] not in runs.METHODS:
        continue
      mine = [
        r
        for r in rounds
        if (r["method"], r["question_id"])
        == (line["method"], line["question_id"])
      ]
      tokens = [token for r in mine for token in r["emitted"]]
      self.assertEqual(tokens, line["tokens"])
      self.assertEqual([r["accepted"] for r in mine], line["accepted"])
      lengths = [len(r["drafted"]) for r in mine]
      self.assertEqual(lengths, line["drafted"])
      for r in mine:
        self.assertLen(r["entropy"], len(r["emitted"]))
        self.assertLen(r["margin"], len(r["emitted"]))
        # Greedy: a drafted token overlaps wholly or not at all.
        self.assertContainsSubset(r["overlap"], (0.0, 1.0))

  def test_the_same_command_again_only_shows_the_table(self):
    before = (self.workdir / "results.jsonl").stat().st_mtime_ns
    status, out, _ = call(
      f"--config={self.config}",
      f"--workdir={self.workdir}",
      "--config.trace=true",
    )
    note = f"{self.workdir}: finished before, nothing was run\n"
    self.assertEqual((status, out), (0, note + self.out))
    after = (self.workdir / "results.jsonl").stat().st_mtime_ns
    self.assertEqual(before, after)

  def test_another_config_in_the_same_folder_is_refused(self):
    status, _, err = call(
      f"--config={self.config}", f"--workdir={self.workdir}"
    )
    self.assertEqual(status, 2)
    self.assertRegex(err, "^error: .* another trace: .*--overwrite\n$")


class SamplingRunTest(Folder):
  """The target drafts for itself, at temperature 1, two prompts at a time."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    draft = {"type": "draft_model", "length": 3, "model": str(cls.model)}
    methods = {
      rule: {
        "drafter": draft,
        "verifier": {"type": rule},
        "policy": runs.ONE_WIDTH,
      }
      for rule in ("coupled", "rejection")
    }
    cls.config = runs.write_config(
      cls.folder / "self.py",
      cls.model,
      methods=methods,
      sampling={"temperature": 1.0},
      batch_size=2,
      runs=1,
      replays=0,
      trace=True,
    )
    cls.workdir = cls.folder / "run"
    cls.status, cls.out, cls.err = call(
      f"--config={cls.config}", f"--workdir={cls.workdir}"
    )
    cls.summary = json.loads((cls.workdir / "summary.json").read_text())

  def test_it_ends_well(self):
    self.assertEqual((self.status, self.err), (0, ""))

  @parameterized.parameters("coupled", "rejection")
  def test_a_perfect_draft_is_always_accepted(self, rule):
    measures = self.summary["methods"][rule]
    self.assertEqual(measures["acceptance_rate"], 1.0)
    self.assertGreater(measures["block_efficiency"], 2.5)
    # Draft and target run blocks of other widths: float32 rounding.
    self.assertAlmostEqual(measures["acceptance_overlap"], 1.0, delta=1e-4)
    self.assertAlmostEqual(measures["acceptance_coupled"], 1.0, delta=1e-4)
    self.assertEqual(measures["memory"]["draft_weights"], 0)

  def test_draft_models_are_named(self):
    target, drafts = self.summary["target"], self.summary["drafts"]
    known = {key: target[key] for key in ("description", "fingerprint")}
    self.assertEqual(drafts, {"coupled": known, "rejection": known})

  def test_only_the_plain_stream_is_compared(self):
    methods = self.summary["methods"]
    self.assertEqual(methods["coupled"]["matched"]["equal"], 3)
    self.assertIsNone(methods["rejection"]["matched"])
    self.assertTrue(methods["rejection"]["lossless"])
    self.assertIn("rejection draws from streams of its own", self.out)

  def test_the_reference_has_two_rows_already(self):
    lines = read_lines(self.workdir / "results.jsonl")
    widths = {x["width"] for x in lines if x["method"] == "plain_reference"}
    self.assertEqual(widths, {1})


class ResumeTest(Folder):
  def command(self, workdir):
    flags = (f"--config={self.config}", f"--workdir={workdir}")
    return (*flags, "--config.replays=0")

  def test_a_killed_run_goes_on_where_it_stopped(self):
    """SIGKILL in the middle, half a line at the end; the rest is kept."""
    workdir = self.folder / "killed"
    results = workdir / "results.jsonl"
    process = subprocess.Popen(
      [sys.executable, "-m", "specjax.run", *self.command(workdir)],
      cwd=ROOT,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
      if results.is_file() and results.read_bytes().count(b"\n") >= 3:
        break
      time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    _, err = process.communicate()
    self.assertTrue(results.is_file(), err)
    kept = read_lines_whole(results)
    with open(results, "a") as file:
      file.write('{"question_id": "inl')
    status, _, err = call(*self.command(workdir))
    self.assertEqual((status, err), (0, ""))
    lines = read_lines(results)
    self.assertEqual(lines[: len(kept)], kept)
    seen = {(x["run"], x["method"], x["question_id"]) for x in lines}
    self.assertLen(seen, len(lines))
    self.assertLen(lines, 21)
    self.assertTrue((workdir / "summary.json").is_file())

  def test_an_interrupt_is_told_and_not_an_error(self):
    with absltest.mock.patch.object(run, "run", side_effect=KeyboardInterrupt):
      for argv, expected in (
        (["--workdir=w"], "stopped: the same command continues the run\n"),
        (["--config.prompts=ab"], "stopped\n"),
      ):
        status, _, err = call("--config=x", *argv)
        self.assertEqual((status, err), (130, expected))

  def test_other_weights_under_the_same_name_are_refused(self):
    workdir, model = self.folder / "swapped", self.folder / "swapped.gguf"
    model.write_bytes(self.model.read_bytes())
    config = self.folder / "swapped.py"
    runs.write_config(
      config,
      model,
      prompts=["ab"],
      categories=[],
      methods={},
      max_new_tokens=2,
      runs=1,
    )
    command = (f"--config={config}", f"--workdir={workdir}")
    self.assertEqual(call(*command)[0], 0)
    content = bytearray(model.read_bytes())
    content[-1] ^= 1  # The last weight's sign or exponent.
    model.write_bytes(content)
    status, out, err = call(*command)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(err, "^error: .* another target_weights: [^\n]*\n$")


def read_lines_whole(path: pathlib.Path) -> list[dict]:
  """Lines that were ended; the last may be half written."""
  whole = path.read_text().rpartition("\n")[0]
  return [json.loads(line) for line in whole.splitlines()]


class InlineTest(Folder):
  def test_one_prompt_is_answered_on_the_terminal(self):
    argv = (f"--config={self.config}", "--config.prompts=abcabc")
    status, plain, err = call(*argv)
    self.assertEqual((status, err), (0, ""))
    answer, _, summary = plain.rstrip("\n").rpartition("\n\n")
    self.assertRegex(summary, r"^ngram_2: 12 tokens \(ended by length\)")
    marked = call(*argv, "--mark")[1]
    self.assertIn("«", marked)
    self.assertNotIn("«", plain)
    text = marked.replace("«", "").replace("»", "").rpartition("\n\n")[0]
    self.assertEqual(text, answer)
    other = call(*argv, "--method=ngram_10")[1].rpartition("\n\n")
    self.assertEqual(other[0], answer)
    self.assertStartsWith(other[2], "ngram_10: ")

  def test_plain_decoding_can_be_asked_for(self):
    argv = (f"--config={self.config}", "--config.prompts=abcabc")
    answer = call(*argv)[1].rpartition("\n\n")[0]
    status, out, _ = call(*argv, "--method=plain")
    self.assertEqual(status, 0)
    self.assertEqual(out.rpartition("\n\n")[0], answer)
    self.assertRegex(out, r"\nplain: 12 tokens .* tau 1.00, alpha n/a")

  def test_drafts_of_other_methods_are_not_looked_for(self):
    draft = {"type": "draft_model", "length": 2, "model": "/none.gguf"}
    methods = runs.METHODS | {"a_draft": {"drafter": draft}}
    config = self.folder / "missing.py"
    runs.write_config(config, self.model, methods=methods)
    argv = (f"--config={config}", "--config.prompts=abcabc")
    self.assertEqual(call(*argv, "--method=ngram_2")[0], 0)
    self.assertRegex(call(*argv)[2], "none.gguf")

  def test_stop_strings_end_what_is_printed(self):
    argv = (f"--config={self.config}", "--config.prompts=abcabc")
    answer = call(*argv)[1].rpartition("\n\n")[0]
    stop = answer[4]
    _, out, _ = call(*argv, f"--config.stop=('{stop}',)")
    self.assertEqual(
      out.rpartition("\n\n")[0], answer[: answer.index(stop) + 1]
    )


class MistakesTest(Folder):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    words = ("<s>", "</s>", "x", "y", *runs.WORDS[4:-1], "cd")
    runs.write_model(cls.folder / "other.gguf", words, merges=("c d",))
    (cls.folder / "bad.jsonl").write_text('{"prompt": "ab"}\n{"prompt": \n')
    (cls.folder / "empty.jsonl").write_text("\n")
    (cls.folder / "cut.gguf").write_bytes(cls.model.read_bytes()[:2000])
    (cls.folder / "file").write_text("")
    draft = {"type": "draft_model", "length": 2}
    draft["model"] = str(cls.folder / "other.gguf")
    runs.write_config(
      cls.folder / "draft.py", cls.model, methods={"d": {"drafter": draft}}
    )
    tree = {"type": "draft_tree", "tree": [2, 1], "model": str(cls.model)}
    method = {"drafter": tree, "verifier": {"type": "rejection"}}
    runs.write_config(cls.folder / "tree.py", cls.model, methods={"t": method})
    runs.write_config(cls.folder / "sweep.py", cls.model, sweep={"sed": [1, 2]})
    (cls.folder / "syntax.py").write_text("def get_config(:\n")
    (cls.folder / "nothing.py").write_text("")

  def check(self, argv, pattern):
    """Status 2, one line, and nothing written."""
    before = sorted(self.folder.iterdir())
    argv = [str(word).replace("FOLDER", str(self.folder)) for word in argv]
    status, out, err = call(*argv)
    self.assertEqual(status, 2, err)
    self.assertEqual(out, "")
    self.assertRegex(err, "^error: [^\n]*\n$")
    self.assertRegex(err, pattern)
    self.assertEqual(sorted(self.folder.iterdir()), before)

  @parameterized.parameters(
    ([], "no config: python -m specjax.run --config"),
    (["--config=FOLDER/none.py"], "no config file .*none.py"),
    (["--config=FOLDER/config.py"], "no workdir: add --workdir=DIR"),
    (["--confg=x"], "unknown argument '--confg=x': did you mean 'config'"),
    (["--config=FOLDER/syntax.py"], "SyntaxError"),
    (["--config=FOLDER/nothing.py"], "get_config"),
    (["--config=FOLDER/config.py", "--workdir"], "expected one argument"),
    (
      ["--config=FOLDER/sweep.py", "--workdir=FOLDER/w"],
      "sweep: unknown config key 'sed': did you mean 'seed'",
    ),
    (
      ["--config=FOLDER/draft.py", "--workdir=FOLDER/w"],
      "methods.d.drafter.model .* another vocabulary .* differ at 3 ids",
    ),
    (
      ["--config=FOLDER/tree.py", "--workdir=FOLDER/w"],
      "methods.t: Rejection takes chains only",
    ),
  )
  def test_arguments_and_files(self, argv, pattern):
    self.check(argv, pattern)

  @parameterized.parameters(
    ("prompt=x", "unknown config key 'prompt': did you mean 'prompts'"),
    ("sampling.temprature=1", "did you mean 'temperature'"),
    ("runs", "--config.runs has no value"),
    ("runs=0", "runs is 0: use 1 or more"),
    ("batch_size=0", "batch_size is 0: use 1 or more"),
    ("batch_size=two", "batch_size is 'two': it must be int"),
    ("max_new_tokens=-1", "max_new_tokens is -1: use 0 or more"),
    ("max_new_tokens=125", "has 5 tokens, .* room for 3"),
    ("seed=-1", "seed is -1"),
    ("dtype=int7", "int7"),
    ("mesh.data=2", "batch_size 1 does not divide by mesh.data 2"),
    ("sampling.temperature=-1", "temperature is -1"),
    ("sampling.top_p=0", "top_p is 0"),
    ("methods.ngram_2.drafter.type=ngrm", "did you mean 'ngram'"),
    ("methods.ngram_2.verifier.type=magic", "use one of coupled, rejection"),
    ("methods.ngram_2.drafter.length=-1", "draft length -1 is negative"),
    ("methods.ngram_2.policy.length=3", "drafts 2 tokens at most"),
    ("methods.ngram_2.drafter.length=500", "methods.ngram_2 drafts 500"),
    ("methods.ngram_2.drafter.max_n=0", "n-gram sizes 1 to 0"),
    ("methods=3", "has keys of its own"),
    ("prompts=()", "prompts is empty"),
    ("prompts=(' ',)", "empty text"),
    ("prompts=FOLDER/none.jsonl", "none.jsonl"),
    ("prompts=FOLDER/bad.jsonl", "bad.jsonl line 2"),
    ("prompts=FOLDER/empty.jsonl", "no prompts in .*empty.jsonl"),
    ("prompt_ids=('x',)", "1 ids are not among the prompts: 'x'"),
    ("categories=('one',)", "categories has 1 names for 3 prompts"),
    ("target=FOLDER/none.gguf", "none.gguf"),
    ("target=FOLDER/cut.gguf", "cut.gguf"),
    ("target=smollm2", "did you mean 'smollm2-135m-instruct"),
  )
  def test_values(self, override, pattern):
    argv = [
      "--config=FOLDER/config.py",
      "--workdir=FOLDER/w",
      f"--config.{override}",
    ]
    self.check(argv, pattern)

  @parameterized.parameters("file", "file/below")
  def test_a_workdir_that_cannot_be(self, name):
    self.check(
      ["--config=FOLDER/config.py", f"--workdir=FOLDER/{name}"],
      "is a file: name a folder",
    )

  def test_a_method_that_is_not_there(self):
    self.check(
      ["--config=FOLDER/config.py", "--config.prompts=ab", "--method=ngrm_2"],
      "unknown method 'ngrm_2': did you mean 'ngram_2'",
    )

  @parameterized.parameters(
    (["--config.prompts=ab", "--workdir=FOLDER/w"], "--workdir .* single text"),
    (["--config.prompts=ab", "--overwrite"], "--overwrite does nothing"),
    (["--method=ngram_2", "--workdir=FOLDER/w"], "--method .* list or file"),
    (["--mark", "--workdir=FOLDER/w"], "--mark does nothing with a list"),
  )
  def test_flags_that_would_do_nothing(self, argv, pattern):
    self.check(["--config=FOLDER/config.py", *argv], pattern)

  def test_exit_status_and_debug_in_a_process(self):
    command = [sys.executable, "-m", "specjax.run", "--config=none.py"]
    for extra, pattern in (
      ((), "^error: no config file"),
      (
        ("--debug",),
        "^Traceback",
      ),
    ):
      done = subprocess.run(
        [*command, *extra], cwd=ROOT, capture_output=True, text=True
      )
      self.assertEqual(done.returncode, 2)
      self.assertRegex(done.stderr, pattern)


if __name__ == "__main__":
  absltest.main()
