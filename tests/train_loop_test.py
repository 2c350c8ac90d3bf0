# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training runs: stopped, killed, continued, begun from another's weights."""

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
from unittest import mock

from absl.testing import absltest, parameterized
import jax
import numpy as np
import pytest

from specjax.models import sources
from tests import train_runs
from train import build, run, saving, tracking
from train.objectives import medusa

_STATE = {"w": np.arange(3.0), "step": np.int32(1)}


def start(config, folder, *overrides: str) -> tuple[int, str]:
  """Exit status and error of a run in this process."""
  error = io.StringIO()
  with contextlib.redirect_stderr(error), contextlib.redirect_stdout(None):
    status = run.main([f"--config={config}", f"--workdir={folder}", *overrides])
  return status, error.getvalue()


def state(folder: pathlib.Path, step: int) -> dict[str, np.ndarray]:
  """Every array of a checkpoint by its place in the tree."""
  with saving.Saver(folder / "checkpoints", None) as saver:
    leaves = jax.tree.leaves_with_path(saver.load_all(step))
  return {jax.tree_util.keystr(p): np.asarray(x) for p, x in leaves}


def lines(folder: pathlib.Path) -> list[dict]:
  """Measures without those of time."""
  found = tracking.read(folder)
  for line in found:
    line.pop("tokens_per_second", None)
  return found


class _Folder(parameterized.TestCase):
  """Has one run of six steps that nothing disturbed, shared by the tests."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
      cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.config = train_runs.write_config(cls.folder)
    cls.whole = cls.folder / "whole"
    status, error = start(cls.config, cls.whole)
    assert status == 0, error

  def assert_same_run(self, folder: pathlib.Path) -> None:
    """Bit for bit: parameters, moments, measures and the drafter's file."""
    ours, theirs = state(folder, 6), state(self.whole, 6)
    self.assertEqual(ours.keys(), theirs.keys())
    for name, value in ours.items():
      np.testing.assert_array_equal(value, theirs[name], name)
    self.assertEqual(lines(folder), lines(self.whole))
    file = "drafter/model.safetensors"
    self.assertEqual(
      (folder / file).read_bytes(), (self.whole / file).read_bytes()
    )


class LoopTest(_Folder):
  @pytest.mark.fault_case("B62")
  def test_asked_to_stop_it_saves_and_goes_on_bit_equal(self):
    """A tree that came back as another one would not (google/orbax#2561)."""
    folder = self.folder / "stopped"
    write = tracking.Tracker.step

    def ask(tracker, step, tokens, measures):
      write(tracker, step, tokens, measures)
      if step == 3:
        os.kill(os.getpid(), signal.SIGTERM)

    with mock.patch.object(tracking.Tracker, "step", ask):
      status, error = start(self.config, folder)
    self.assertEqual(status, 0, error)
    self.assertFalse((folder / "drafter").exists())
    self.assertLess(lines(folder)[-1]["step"], 6)
    self.assertEqual(start(self.config, folder), (0, ""))
    self.assert_same_run(folder)

  def test_a_finished_run_is_left_as_it_is(self):
    before = (self.whole / "metrics.jsonl").read_bytes()
    self.assertEqual(
      start(self.config, self.whole, "--config.save_every=7"), (0, "")
    )
    self.assertEqual((self.whole / "metrics.jsonl").read_bytes(), before)

  def test_other_data_and_another_target_are_refused(self):
    with mock.patch.object(sources, "fingerprint", return_value="other"):
      status, error = start(self.config, self.whole)
    self.assertEqual(status, 2)
    self.assertIn("was trained with another target: ", error)
    path = self.folder / "train.jsonl"
    before = path.read_text()
    train_runs.write_texts(path, 40, seed=5)
    status, error = start(self.config, self.whole)
    path.write_text(before)
    self.assertEqual(status, 2)
    self.assertIn("was trained with another data: ", error)

  def test_weights_of_another_run_and_the_best_of_this(self):
    """`init_from` takes no moments; the drafter is of the best evaluation."""
    seen = []

    def evaluation(*_):
      def measure(params):
        seen.append(jax.tree.map(np.asarray, params))
        return {"tau": [1.0, 2.0, 1.5, 1.2][len(seen) - 1], "alpha": 0.5}

      return measure

    folder = self.folder / "from"
    config = train_runs.write_config(
      self.folder, evaluation={"every": 2}, init_from=str(self.whole)
    )
    with mock.patch.object(build, "evaluation", evaluation):
      self.assertEqual(start(config, folder), (0, ""))
    with saving.Saver(self.whole / "checkpoints", None) as saver:
      wanted = saver.load_all(saver.best)["params"]
    jax.tree.map(np.testing.assert_array_equal, seen[0], wanted)
    first = next(x for x in lines(folder) if x["kind"] == "train")
    self.assertAlmostEqual(first["learning_rate"], 0.01, places=6)
    summary = json.loads((folder / "summary.json").read_text())
    self.assertEqual(summary["step"], 2)
    self.assertEqual(summary["after"]["tau"], 2.0)

  def test_a_loss_that_is_no_number_names_step_and_conversations(self):
    folder = self.folder / "broken"
    init = medusa.Medusa.init

    def broken(objective, key):
      return jax.tree.map(lambda x: x * np.nan, init(objective, key))

    with mock.patch.object(medusa.Medusa, "init", broken):
      status, error = start(self.config, folder)
    self.assertEqual(status, 1)
    self.assertRegex(error, r"step 1: loss nan.* conversations: train-\d+, ")
    self.assertFalse((folder / "drafter").exists())
    self.assertEmpty(list((folder / "checkpoints").iterdir()))


class SlowLoopTest(_Folder):
  def command(self, folder: pathlib.Path) -> list[str]:
    flags = [f"--config={self.config}", f"--workdir={folder}"]
    return [sys.executable, "-m", "train.run", *flags]

  @pytest.mark.slow
  def test_killed_at_any_step_it_goes_on_bit_equal(self):
    folder = self.folder / "killed"
    command = self.command(folder)
    for step in (1, 4):
      with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
          if any(line["step"] >= step for line in tracking.read(folder)):
            process.kill()
          time.sleep(0.001)
        self.assertEqual(process.wait(), -signal.SIGKILL)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    self.assert_same_run(folder)

  @pytest.mark.slow
  def test_micro_batches_add_up_to_the_batch(self):
    folder = self.folder / "accumulated"
    config = train_runs.write_config(self.folder, accumulation=2)
    self.assertEqual(start(config, folder), (0, ""))
    for ours, theirs in zip(lines(folder), lines(self.whole), strict=True):
      if ours["kind"] == "train":
        for name in ("loss", "gradient_norm", "alpha", "loss_tokens"):
          # Sums in another order: some roundings of float32, carried along.
          self.assertAlmostEqual(
            ours[name] / theirs[name], 1, delta=1e-4, msg=name
          )

  @pytest.mark.slow
  def test_decoding_is_measured_beside_the_texts(self):
    folder = self.folder / "decoded"
    evaluation = {"every": 6, "depth": 2, "rows": 4, "max_new_tokens": 16}
    config = train_runs.write_config(
      self.folder, evaluation={**evaluation, "prompts": ["abc", "ba"]}
    )
    self.assertEqual(start(config, folder), (0, ""))
    line = lines(folder)[-1]
    decoded = line["decode"]["alpha"]
    self.assertBetween(decoded, 0, 1)
    self.assertBetween(line["decode"]["tau"], 1, 3)
    promised = line["serving"]["alpha_renewal"]
    self.assertAlmostEqual(line["gap"], promised - decoded)

  @pytest.mark.slow
  def test_other_loader_processes_change_nothing(self):
    folder = self.folder / "workers"
    status, error = start(self.config, folder, "--config.data.workers=2")
    self.assertEqual(status, 0, error)
    self.assert_same_run(folder)

  @pytest.mark.slow
  @pytest.mark.fault_case("B61")
  def test_two_devices_learn_what_one_does(self):
    """Rows split between devices: the sums are the same up to rounding.

    One device opens what two have saved (google/orbax#648).
    """
    folder = self.folder / "mesh"
    flags = "--xla_force_host_platform_device_count=2"
    subprocess.run(
      [*self.command(folder), "--config.mesh.data=2"],
      check=True,
      stdout=subprocess.DEVNULL,
      env=os.environ | {"XLA_FLAGS": flags},
    )
    for ours, theirs in zip(lines(folder), lines(self.whole), strict=True):
      if ours["kind"] == "train":
        self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-3)
    self.assertEqual(start(self.config, folder), (0, ""))
    theirs = state(self.whole, 6)
    for name, value in state(folder, 6).items():
      # Adam divides by the gradient's own size: where that is nearly nothing,
      # a rounding becomes a part of a step, which is 1e-2.
      np.testing.assert_allclose(value, theirs[name], atol=1e-3, err_msg=name)


class TrackerTest(absltest.TestCase):
  def test_the_speed_is_that_of_updates_alone(self):
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    measures = {"loss": 1.0, "alpha": 0.5}
    # An update of 2 seconds, an evaluation of 98, an update of 1.
    clock = mock.Mock(side_effect=[0, 2, 2, 100, 101, 101])
    with (
      mock.patch.object(tracking.time, "perf_counter", clock),
      tracking.Tracker(folder, 0, 2, tensorboard=False) as tracker,
    ):
      tracker.step(1, 40, measures)
      tracker.write(1, "evaluation", measures)
      tracker.step(2, 50, measures)
    speeds = [line.get("tokens_per_second") for line in tracking.read(folder)]
    self.assertEqual(speeds, [20, None, 30])


class SavingTest(absltest.TestCase):
  def test_the_best_and_the_last_are_kept(self):
    folder = self.enterContext(tempfile.TemporaryDirectory())
    taus = {1: 1.5, 2: 2.0, 3: 1.2, 4: None, 5: 1.3}
    with saving.Saver(folder, 2) as saver:
      for step, tau in taus.items():
        measures = None if tau is None else {"tau": tau}
        value = jax.tree.map(lambda x, s=step: jax.numpy.asarray(x * s), _STATE)
        saver.save(step, value, {"step": step}, measures)
        saver.save(step, value, {}, None)  # Once is enough.
      saver.wait()
      self.assertEqual((saver.latest, saver.best), (5, 2))
    kept = sorted(int(p.name) for p in pathlib.Path(folder).iterdir())
    self.assertEqual(kept, [2, 4, 5])
    with saving.Saver(folder, 2) as saver:
      self.assertEqual((saver.latest, saver.best), (5, 2))
      self.assertEqual(saver.note(2), {"step": 2})
      found = saver.load(2, jax.tree.map(jax.numpy.asarray, _STATE))
      np.testing.assert_array_equal(found["w"], [0, 2, 4])


if __name__ == "__main__":
  absltest.main()
