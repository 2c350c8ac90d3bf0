# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs: what is timed, what follows from it, and that policies get it."""

import itertools
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from specjax.bench import build, loading
from specjax.drafters import draft_model
from specjax.policies import calibration, cost, gain, policy
from tests import runs, toys

TABLE = calibration.CostTable(
  (1, 4), (1, 2, 8), (0, 100), np.arange(12.0).reshape(2, 3, 2)
)


class CostTableTest(parameterized.TestCase):
  @parameterized.parameters(
    ((1, 1, 0), 0.0),
    ((4, 8, 100), 11.0),
    ((1, 1, 50), 0.5),
    ((1, 5, 0), 3.0),  # half way from width 2 to 8
    ((2, 1, 0), 2.0),  # a third of the way from 1 to 4 rows
    ((9, 30, 900), 11.0),  # beyond what was measured
  )
  def test_linear_between_what_was_measured(self, cell, seconds):
    self.assertAlmostEqual(TABLE.at(*cell), seconds)


class PredictionTest(parameterized.TestCase):
  @parameterized.parameters(
    # drafting one token / a pass of the target, alpha -> best length, speedup
    (0.02, 0.6, 6, 2.17),
    (0.02, 0.8, 11, 3.82),
    (0.05, 0.7, 6, 2.35),
    (0.05, 0.9, 13, 4.67),
    (0.1, 0.6, 3, 1.67),
    (0.2, 0.8, 4, 1.87),
    (0.5, 0.4, 0, 1.0),
  )
  def test_closed_form(self, ratio, alpha, length, speedup):
    """(1 - a^(g+1)) / ((1 - a) (g c + 1)), arXiv 2211.17192."""
    seconds = 1 + ratio * np.arange(31)
    rates = [alpha] * 30
    self.assertEqual(cost.best_length(rates, seconds), length)
    best = cost.speedups(rates, seconds, 1.0)[length]
    self.assertAlmostEqual(best, speedup, delta=0.005)  # two decimals


class MeasureTest(parameterized.TestCase):
  def test_median_of_turns_without_the_first(self):
    """The first turn compiles."""
    clock = itertools.accumulate(itertools.cycle([0, 100, 0, 4, 0, 8, 0, 400]))
    # Turns of one cell take 100, 4, 8, 400, ...; a call is a quarter of it.
    with absltest.mock.patch.object(
      calibration.time, "perf_counter", lambda: next(clock)
    ):
      seconds = calibration._medians(lambda x: x, [(1,)], 3)
    self.assertEqual(seconds.tolist(), [2.0])

  def test_rounds(self):
    """A round takes its draft and the pass of the width that holds it."""
    table = calibration.CostTable(
      (1,), (1, 4, 7), (8,), np.array([[[1.0], [2.0], [4.0]]])
    )
    target = toys.cycle(16)
    drafter = draft_model.DraftModel(target, 6)
    drafting = np.arange(7) / 10
    with (
      absltest.mock.patch.object(
        calibration, "calibrate", return_value=table
      ) as calibrate,
      absltest.mock.patch.object(
        calibration, "draft_seconds", return_value=drafting
      ),
    ):
      costs = cost.measure(target, drafter, (3, 0, 9), [1], [8])
    self.assertEqual(costs.slots, (1, 4, 4, 4, 7, 7, 7))
    self.assertEqual(calibrate.call_args.args[2], [1, 4, 4, 4, 7, 7, 7])
    np.testing.assert_allclose(
      costs.seconds(1, 8), [1, 2.1, 2.2, 2.3, 4.4, 4.5, 4.6], rtol=1e-6
    )

  def test_the_real_thing(self):
    """Positive, and a proposal of 4 tokens takes longer than one of none."""
    target = toys.tiny()
    drafter = draft_model.DraftModel(toys.noisy(target), 4)
    costs = cost.measure(target, drafter, (0,), [1], [32, 64])
    self.assertEqual(costs.table.seconds.shape, (1, 2, 2))
    self.assertEqual(costs.slots, (1, 5, 5, 5, 5))
    self.assertTrue(np.all(costs.table.seconds > 0))
    self.assertGreater(costs.draft[4], costs.draft[0])
    self.assertEqual(costs.seconds(1, 40).dtype, np.float32)

  @parameterized.parameters(
    ([1], [4], [253], "context 253 and a block of 4 pass the model's 256"),
    ([], [4], [8], "give one number of 1 or more"),
    ([1], [0], [8], "give one number of 1 or more"),
  )
  def test_refuses_what_cannot_be_timed(self, batches, widths, contexts, text):
    with self.assertRaisesRegex(ValueError, text) as caught:
      calibration.calibrate(toys.tiny(), batches, widths, contexts)
    self.assertNotIn("\n", str(caught.exception))


SECONDS = np.array([1, 2, 2, 2, 3], np.float32)


class PolicyTest(parameterized.TestCase):
  """Made from a config, with costs that are measured on the loaded target."""

  def made(self, *overrides, **section) -> Any:
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder)
      model = runs.write_model(path / "tiny.gguf")
      drafter = {"type": "ngram", "length": 4}
      methods = {"m": {"drafter": drafter, "policy": section}}
      runs.write_config(path / "config.py", model, methods=methods)
      config = runs.read_config(path / "config.py", *overrides)
      build.check(config)  # Needs no model, so it must not ask for one.
      loaded = loading.load(config)
      costs = absltest.mock.Mock()
      costs.seconds.return_value = SECONDS
      with absltest.mock.patch.object(
        cost, "measure", return_value=costs
      ) as measure:
        made = build.methods(config, loaded.target.model, {})["m"].policy
      self.calls = measure.call_args_list
      return made

  def test_expected_gain(self):
    made = self.made("batch_size=3", type="expected_gain", first=0.5)
    self.assertIsInstance(made, gain.ExpectedGain)
    np.testing.assert_array_equal(made.seconds, SECONDS)
    self.assertEqual((made.first, made.widths), (0.5, (0, 3)))
    (call,) = self.calls
    self.assertEqual(call.args[2:], ((0, 3), [3], [cost.CONTEXT]))

  def test_pausing(self):
    """Off below a speedup of 1.1: a round must bring 3.3 tokens."""
    made = self.made(type="pausing", least=1.1, widths=(0,))
    self.assertEqual(type(made).__name__, "Pausing")
    self.assertAlmostEqual(made.least, 3.3, places=6)
    self.assertEqual(made.policy, policy.Fixed(4, (0,)))

  @parameterized.parameters("heuristic", "confidence", "entropy")
  def test_policies_that_measure_nothing(self, kind):
    made = self.made(type=kind, widths=[0, 2])
    self.assertEqual(made.widths, (0, 2))
    self.assertEqual(self.calls, [])
    self.assertEqual(int(jnp.max(made.init(2))), 4)

  @parameterized.parameters("expected_gain", "pausing", "heuristic")
  def test_too_many_widths(self, kind):
    with self.assertRaisesRegex(ValueError, r"widths \(0, 1, 2\): a policy"):
      self.made(type=kind, widths=(0, 1, 2))

  def test_length_beyond_the_drafter(self):
    with self.assertRaisesRegex(ValueError, "length is 5 but its drafter"):
      self.made(type="pausing", length=5)


if __name__ == "__main__":
  absltest.main()
