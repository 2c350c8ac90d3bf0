# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A grid of settings survives a kill, and its table has no row twice."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import absltest, parameterized
import jax
import pandas as pd

from specjax.bench import backend, loading, measure, sweep, sweep_table
from specjax.models import sources
from tests import run_test, runs, stores

LENGTH, SEED = "methods.ngram_2.drafter.length", "seed"
GRID = {LENGTH: [2, 3], SEED: [0, 1, 2]}
METHODS = {"ngram_2": runs.METHODS["ngram_2"] | {"policy": runs.ONE_WIDTH}}
ANSWERS = 3 * (2 + 1)  # Two timed methods and the reference, on 3 prompts.


def write_config(path, model, **changes):
  values = {
    "methods": METHODS,
    "max_new_tokens": 6,
    "runs": 1,
    "replays": 0,
    "sampling": {"temperature": 1.0},
    "sweep": GRID,
  } | changes
  return runs.write_config(path, model, **values)


def names(grid):
  return [
    f"{LENGTH}={length},{SEED}={seed}"
    for length in grid[LENGTH]
    for seed in grid[SEED]
  ]


class Folder(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    cls.config = write_config(cls.folder / "config.py", cls.model)

  def call(self, workdir, *argv, config=None):
    return run_test.call(
      f"--config={config or self.config}", f"--workdir={workdir}", *argv
    )


class KillTest(Folder):
  """2 x 3 settings, killed within the third, started again."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.workdir = cls.folder / "run"
    cls.names = names(GRID)
    cls.err = cls._run_and_kill(cls.workdir / cls.names[2] / "results.jsonl")
    cls.table_of_the_killed = (cls.workdir / "sweep.csv").read_text()
    cls.kept = {
      path: (path.stat().st_mtime_ns, path.read_bytes())
      for name in cls.names[:2]
      for path in sorted((cls.workdir / name).iterdir())
      if path.name in ("results.jsonl", "summary.json")
    }
    third = cls.workdir / cls.names[2] / "results.jsonl"
    cls.begun = run_test.read_lines_whole(third)
    cls.again = run_test.call(
      f"--config={cls.config}", f"--workdir={cls.workdir}"
    )
    cls.table = pd.read_csv(cls.workdir / "sweep.csv")

  @classmethod
  def _run_and_kill(cls, results):
    process = subprocess.Popen(
      [
        *(sys.executable, "-m", "specjax.run"),
        *(f"--config={cls.config}", f"--workdir={cls.workdir}"),
      ],
      cwd=run_test.ROOT,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
      if results.is_file() and results.read_bytes().count(b"\n"):
        break
      time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    return process.communicate()[1]

  def test_it_was_killed_within_the_third_setting(self):
    self.assertNotEmpty(self.begun, self.err)
    self.assertLess(len(self.begun), ANSWERS)
    self.assertLen(self.kept, 4)

  def test_the_killed_sweep_had_a_table_of_what_had_ended(self):
    rows = self.table_of_the_killed.splitlines()
    # Two settings, plain and one method, all and two categories.
    self.assertLen(rows, 1 + 2 * 2 * 3)

  def test_it_ends_well(self):
    status, out, err = self.again
    self.assertEqual((status, err), (0, ""))
    self.assertRegex(out, "\n6 settings, .*sweep.csv\n$")
    self.assertRegex(out, r"\n *length +seed +method +tau ")
    for line in out.splitlines():
      if "ngram_2" in line:
        self.assertEndsWith(line.rstrip(), "3/3")

  def test_what_had_ended_was_not_run_again(self):
    for path, (modified, content) in self.kept.items():
      self.assertEqual(path.stat().st_mtime_ns, modified, path)
      self.assertEqual(path.read_bytes(), content, path)

  def test_the_killed_setting_went_on(self):
    lines = run_test.read_lines(self.workdir / self.names[2] / "results.jsonl")
    self.assertEqual(lines[: len(self.begun)], self.begun)

  def test_no_answer_stands_there_twice(self):
    for name in self.names:
      lines = run_test.read_lines(self.workdir / name / "results.jsonl")
      seen = {(x["run"], x["method"], x["question_id"]) for x in lines}
      self.assertLen(seen, len(lines))
      self.assertLen(lines, ANSWERS)

  def test_every_setting_is_a_comparison_of_its_own(self):
    grid = itertools.product(GRID[LENGTH], GRID[SEED])
    for name, (length, seed) in zip(self.names, grid):
      text = (self.workdir / name / "config.json").read_text()
      config = json.loads(text)
      self.assertEqual(
        config["methods"]["ngram_2"]["drafter"]["length"], length
      )
      self.assertEqual(config["seed"], seed)
      self.assertEqual(config["sweep"], {})
    folders = [path.name for path in self.workdir.iterdir() if path.is_dir()]
    self.assertContainsSubset(self.names, folders)

  def test_the_table_has_one_row_a_setting_method_and_category(self):
    index = [LENGTH, SEED, "method", "category"]
    self.assertEqual(list(self.table.columns[:4]), index)
    self.assertFalse(self.table.duplicated(index).any())
    self.assertLen(self.table, 6 * 2 * 3)
    for column, values in (
      (LENGTH, (2, 3)),
      (SEED, (0, 1, 2)),
      ("method", ("plain", "ngram_2")),
      ("category", ("all", "copy", "other")),
    ):
      self.assertCountEqual(self.table[column].unique(), values)

  def test_the_table_says_what_the_summaries_say(self):
    index = (LENGTH, SEED, "method", "category")
    rows = {
      tuple(row[key] for key in index): row
      for row in self.table.to_dict("records")
    }
    for length, seed in itertools.product(GRID[LENGTH], GRID[SEED]):
      path = self.workdir / f"{LENGTH}={length},{SEED}={seed}"
      summary = json.loads((path / "summary.json").read_text())
      measures = summary["methods"]["ngram_2"]
      for name, part in {"all": measures, **measures["by_category"]}.items():
        row = rows[length, seed, "ngram_2", name]
        self.assertEqual(row["block_efficiency"], part["block_efficiency"])
        self.assertEqual(row["speedup.mean"], part["speedup"]["mean"])
        self.assertEqual(row["matched.equal"], part["matched"]["equal"])
        # One prompt alone has no interval.
        low, high = part["speedup"]["interval"] or (None, None)
        for end, value in (("low", low), ("high", high)):
          found = row[f"speedup.interval.{end}"]
          self.assertEqual(None if pd.isna(found) else found, value)

  def test_values_may_be_added_and_left_out(self):
    before = self.kept | {}
    status, _, err = self.call(
      self.workdir,
      f"--config.sweep.{SEED}=(1, 7)",
      f"--config.sweep.{LENGTH}=(3,)",
    )
    self.assertEqual((status, err), (0, ""))
    table = pd.read_csv(self.workdir / "sweep.csv")
    self.assertLen(table, 2 * 2 * 3)
    self.assertCountEqual(table[SEED].unique(), (1, 7))
    for path, (modified, _) in before.items():
      self.assertEqual(path.stat().st_mtime_ns, modified)

  @parameterized.parameters(
    (("--config.runs=2",), "another runs: "),
    (("--config.sweep.sampling.temperature=(0.5,)",), "another sweep: "),
  )
  def test_another_config_is_refused(self, argv, pattern):
    status, out, err = self.call(self.workdir, *argv)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(err, f"^error: .*{pattern}choose another workdir or add")

  def test_a_comparison_in_the_folder_of_a_sweep_is_refused(self):
    config = write_config(self.folder / "one.py", self.model, sweep={})
    status, _, err = self.call(self.workdir, config=config)
    self.assertEqual(status, 2)
    self.assertRegex(err, "another sweep: ")


class RunTest(Folder):
  """Sweeps of one small setting or two."""

  def test_models_are_loaded_once_and_then_when_they_change(self):
    other = self.folder / "other.gguf"
    other.write_bytes(self.model.read_bytes())
    targets = [str(self.model), str(other)]
    config = write_config(
      self.folder / "two.py",
      self.model,
      max_new_tokens=2,
      sweep={"target": targets, SEED: [0, 1]},
    )
    loads, load = [], sources.load
    spy = absltest.mock.patch.object(
      sources, "load", lambda *a, **k: loads.append(a[0].path) or load(*a, **k)
    )
    fits = absltest.mock.patch.object(loading, "fits", wraps=loading.fits)
    with spy, fits:
      status, _, err = self.call(self.folder / "models", config=config)
    self.assertEqual((status, err), (0, ""))
    # `seed` is the outer key: checking and running go through both targets.
    self.assertLen(loads, 2 * 4)
    loads.clear()
    config = write_config(
      self.folder / "one_target.py",
      self.model,
      max_new_tokens=2,
      sweep={SEED: [0, 1]},
    )
    with spy:
      self.call(self.folder / "once", config=config)
    self.assertLen(loads, 1)

  @parameterized.parameters((32_766, True), (32_765, False), (0, False))
  def test_programs_are_freed_before_mappings_run_out(self, held, expected):
    mappings = (held, 65_530 if held else 0)
    mock = absltest.mock.patch.object
    with (
      mock(backend, "_mappings", return_value=mappings),
      mock(jax, "clear_caches") as clear,
    ):
      backend.free_programs()
    self.assertEqual(clear.called, expected)

  def test_mappings_are_counted(self):
    if not os.path.exists("/proc/self/maps"):
      self.skipTest("not Linux")
    held, limit = backend._mappings()
    self.assertBetween(held, 100, limit)

  def test_overwriting_starts_all_settings_anew(self):
    """Even those that a kill right after it keeps from being reached."""
    workdir = self.folder / "overwritten"
    argv = ("--config.max_new_tokens=2", f"--config.sweep.{LENGTH}=(2,)")
    argv += (f"--config.sweep.{SEED}=(0, 1)",)
    self.assertEqual(self.call(workdir, *argv)[0], 0)
    with absltest.mock.patch.object(
      measure, "answer", side_effect=KeyboardInterrupt
    ):
      self.assertEqual(self.call(workdir, "--overwrite", *argv)[0], 130)
    left = sorted(str(p.relative_to(workdir)) for p in workdir.rglob("*.*"))
    left = [name for name in left if not (workdir / name).is_dir()]
    first = f"{LENGTH}=2,{SEED}=0"
    begun = [f"{first}/{n}.json" for n in ("config", "inputs", "policies")]
    self.assertEqual(left, ["config.json", *begun])

  def test_prompts_need_no_categories(self):
    config = write_config(
      self.folder / "bare.py", self.model, categories=[], max_new_tokens=2
    )
    argv = (f"--config.sweep.{LENGTH}=(2,)", f"--config.sweep.{SEED}=(0, 1)")
    workdir = self.folder / "bare"
    status, _, err = self.call(workdir, *argv, config=config)
    self.assertEqual((status, err), (0, ""))
    rows = (workdir / "sweep.csv").read_text().splitlines()
    self.assertLen(rows, 1 + 2 * 2)

  def test_a_sweep_in_a_store(self):
    with stores.serve() as store:
      argv = ("--config.max_new_tokens=2", f"--config.sweep.{LENGTH}=(2,)")
      argv += (f"--config.sweep.{SEED}=(0, 1)",)
      status, out, err = self.call("gs://bucket/sweep", *argv)
    self.assertEqual((status, err), (0, ""))
    self.assertIn("gs://bucket/sweep/sweep.csv", out)
    rows = store.objects["bucket/sweep/sweep.csv"].decode().splitlines()
    self.assertLen(rows, 1 + 2 * 2 * 3)
    for name in names({LENGTH: [2], SEED: [0, 1]}):
      path = f"bucket/sweep/{name}/results.jsonl"
      self.assertEqual(store.objects[path].count(b"\n"), ANSWERS)


class MistakesTest(Folder):
  @parameterized.parameters(
    ((f"--config.sweep.{SEED}=(0, -1)",), "seed=-1: seed is -1"),
    (
      ("--config.sweep.max_new_tokens=(2, 127)",),
      f"max_new_tokens=127, {LENGTH}=2, seed=0: .* 5 tokens, .* room for 1",
    ),
    (
      ("--config.sweep.target=('FOLDER/tiny.gguf', 'FOLDER/none.gguf')",),
      "target=FOLDER/none.gguf: .*none.gguf",
    ),
    (
      ("--config.sweep.prompts=(('ab', 'c', 'd'), 'abc')",),
      "prompts=abc, seed=0: prompts is one text: give a list or file",
    ),
    (
      ("--config.categories=('all', 'all', 'b')",),
      "a category is called 'all', which sweep.csv calls all prompts: rename",
    ),
    ((f"--config.sweep.{SEED}=(3, 3)",), "sweep.seed holds 3 twice"),
    (("--config.prompts=abc",), "prompts is one text.* no sweep is run on"),
  )
  def test_all_settings_are_checked_before_the_first_runs(self, argv, pattern):
    replace = lambda text: text.replace("FOLDER", str(self.folder))
    workdir = () if "--config.prompts" in argv[0] else (self.folder / "w",)
    argv = (f"--config={self.config}", *map(replace, argv))
    argv += tuple(f"--workdir={path}" for path in workdir)
    status, out, err = run_test.call(*argv)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(err, f"^error: [^\n]*{replace(pattern)}[^\n]*\n$")
    self.assertFalse((self.folder / "w").exists())

  def test_parts_that_do_not_go_together_are_found_before_the_first_runs(self):
    drafter = {"type": "draft_tree", "tree": [2, 1], "model": str(self.model)}
    config = write_config(
      self.folder / "tree.py",
      self.model,
      methods={"t": {"drafter": drafter}},
      sweep={"methods.t.verifier.type": ["coupled", "rejection"]},
    )
    status, out, err = self.call(self.folder / "tree", config=config)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(
      err,
      "^error: sweep: with methods.t.verifier.type=rejection: methods.t: "
      "Rejection takes chains only[^\n]*\n$",
    )
    self.assertFalse((self.folder / "tree").exists())

  def test_a_setting_of_another_run_is_found_before_the_first_runs(self):
    """The last setting's folder holds answers of other weights."""
    workdir = self.folder / "swapped"
    model = self.folder / "swapped.gguf"
    model.write_bytes(self.model.read_bytes())
    config = write_config(self.folder / "swapped.py", model, max_new_tokens=2)
    argv = (f"--config.sweep.{LENGTH}=(3,)", f"--config.sweep.{SEED}=(2,)")
    self.assertEqual(self.call(workdir, *argv, config=config)[0], 0)
    content = bytearray(model.read_bytes())
    content[-1] ^= 1  # The last weight's sign or exponent.
    model.write_bytes(content)
    status, out, err = self.call(workdir, config=config)
    self.assertEqual((status, out), (2, ""))
    self.assertRegex(err, "seed=2: .* another target_weights: ")
    folders = [path.name for path in workdir.iterdir() if path.is_dir()]
    self.assertLen(folders, 1)


class TableTest(parameterized.TestCase):
  @parameterized.parameters(
    ({"a.b": 2, "c": 0.5}, "a.b=2,c=0.5"),
    ({"target": "smollm2-135m"}, "target=smollm2-135m"),
    ({"a": True, "b": -1e-05}, "a=True,b=-1e-05"),
  )
  def test_folders_have_readable_names(self, values, expected):
    self.assertEqual(sweep.folder_name(values), expected)

  def test_folders_never_share_a_name(self):
    odd = ["/a/b", "/a_b", "a b", "../..", "ü", "ö", "x" * 300, "x" * 301]
    odd += [("a", "b"), ("a, b",), "x=1,seed=2", "=", ""]
    found = [sweep.folder_name({"a": value}) for value in odd]
    self.assertLen(set(found), len(odd))
    for name in found:
      self.assertRegex(name, r"^a=[A-Za-z0-9_.=,+-]{0,140}$")

  def test_numbers_of_any_depth_become_columns(self):
    summary = {
      "plain": {"matched": None, "by_category": {}},
      "methods": {
        "m": {
          "x": 1.5,
          "matched": {"equal": 1, "deep": {"y": "text"}},
          "positions": [1, 2],
          "interval": [0, 2],
          "none_interval": None,
          "by_category": {"c": {"x": 2.5}},
        }
      },
    }
    rows = sweep_table.rows({"seed": 3}, summary)
    text = sweep_table.write(["seed"], rows)
    self.assertEqual(
      text.splitlines(),
      [
        "seed,method,category,x,matched.equal,matched.deep.y,interval.low,"
        "interval.high,none_interval",
        "3,plain,all,,,,,,",
        "3,m,all,1.5,1,text,0,2,",
        "3,m,c,2.5,,,,,",
      ],
    )

  def test_a_measure_with_the_name_of_a_key_does_not_take_its_place(self):
    summary = {"plain": {"seed": 9, "x": 1}, "methods": {}}
    rows = sweep_table.rows({"seed": 3}, summary)
    self.assertEqual(rows[0]["seed"], 3)

  @parameterized.parameters(
    (["a.b.length", "temperature"], ["length", "temperature"]),
    (["a.x.length", "a.y.length"], ["x.length", "y.length"]),
    (["length", "a.length"], ["length", "a.length"]),
    (["seed"], ["seed"]),
  )
  def test_short_names_stay_apart(self, keys, expected):
    self.assertEqual(sweep._short(keys), expected)


if __name__ == "__main__":
  absltest.main()
