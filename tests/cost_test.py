# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs: what is timed, what follows from it, and that policies get it."""

import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.bench import build, loading
from specjax.drafters import (
  cascade,
  draft_model,
  empty,
  ngram,
  tree_draft_model,
)
from specjax.policies import calibration, cost, gain, parts, policy
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
        calibration, "outside_seconds", return_value=drafting
      ),
    ):
      costs = cost.measure(target, drafter, (3, 0), [1], [8])
    self.assertEqual(costs.slots, (1, 4, 4, 4, 7, 7, 7))
    self.assertEqual(calibrate.call_args.args[2], [1, 4, 4, 4, 7, 7, 7])
    np.testing.assert_allclose(
      costs.seconds(1, 8), [1, 2.1, 2.2, 2.3, 4.4, 4.5, 4.6], rtol=1e-6
    )
    # It drafted for one token, of which nothing came.
    self.assertAlmostEqual(costs.idle(1, 8), 1.1)

  @parameterized.parameters((0, (1, 4, 4, 4, 6, 6)), (8, (1, 4, 4, 4, 9, 9)))
  def test_rounds_of_a_cascade(self, widest, slots):
    """What needs more than a narrow program runs in the cascade's widest."""
    drafter = draft_model.DraftModel(toys.cycle(16), 5)
    with (
      absltest.mock.patch.object(calibration, "calibrate", return_value=TABLE),
      absltest.mock.patch.object(
        calibration, "outside_seconds", return_value=np.zeros(6)
      ),
    ):
      costs = cost.measure(
        toys.cycle(16), drafter, (0, 3), [1], [8], widest=widest
      )
    self.assertEqual(costs.slots, slots)

  @parameterized.parameters(((1, 0), (1, 7, 7)), ((3, 0), (1, 4, 7)))
  def test_rounds_of_a_tree(self, widths, slots):
    """All nodes of its depth are verified, in the program that holds them."""
    table = calibration.CostTable((1,), (1, 7), (8,), np.ones((1, 2, 1)))
    drafter = tree_draft_model.static_tree(toys.cycle(16), (2, 2))
    with (
      absltest.mock.patch.object(calibration, "calibrate", return_value=table),
      absltest.mock.patch.object(
        calibration, "outside_seconds", return_value=np.zeros(3)
      ),
    ):
      costs = cost.measure(toys.cycle(16), drafter, widths, [1], [8])
    self.assertEqual(costs.slots, slots)

  def test_widths_are_checked_before_anything_is_timed(self):
    with self.assertRaisesRegex(ValueError, r"widths \(0, 1, 2\): a policy"):
      cost.measure(toys.cycle(16), empty.Empty(4), (0, 1, 2), [1])


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
      with self.measured() as measure:
        made = build.methods(config, loaded.target.model, {})["m"].policy
      self.calls = measure.call_args_list
      return made

  def measured(self) -> Any:
    """Costs that are no measured ones."""
    costs = absltest.mock.Mock()
    costs.seconds.return_value = SECONDS
    costs.idle.return_value = 1.5
    return absltest.mock.patch.object(cost, "measure", return_value=costs)

  def test_expected_gain(self):
    made = self.made("batch_size=3", type="expected_gain", first=0.5)
    self.assertIsInstance(made, gain.ExpectedGain)
    np.testing.assert_array_equal(made.seconds, SECONDS)
    self.assertEqual((made.first, made.widths), (0.5, (0, 3)))
    np.testing.assert_array_equal(made.idle, 1.5)
    (call,) = self.calls
    self.assertEqual(call.args[2:], ((0, 3), [3], [cost.CONTEXT], 4))

  def test_expected_gain_of_a_cascade(self):
    """Each of its drafters costs what it costs, with the same settings."""
    drafter = cascade.cascade(
      ngram.NGram(4), draft_model.DraftModel(toys.cycle(16), 2)
    )
    with self.measured() as measure:
      made = cost.expected_gain(toys.cycle(16), drafter, 1, weight=7.0)
    self.assertIsInstance(made, parts.Parts)
    for part in made.policies:
      assert isinstance(part, gain.ExpectedGain)
      self.assertEqual(part.weight, 7.0)
      np.testing.assert_array_equal(part.seconds, SECONDS)
    self.assertEqual(
      [call.args[1] for call in measure.call_args_list],
      [drafter.first, drafter.second],
    )
    # Both run in the programs of the cascade, whose first copies four tokens.
    for call in measure.call_args_list:
      self.assertEqual(call.args[5], 4)

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

  @parameterized.parameters("expected_gain", "pausing")
  def test_nothing_to_draft(self, kind):
    """Of the empty drafter every policy is plain decoding."""
    costs = cost.Costs(TABLE, np.array([1.0]), (1,))
    with absltest.mock.patch.object(cost, "measure", return_value=costs):
      made = getattr(cost, kind)(toys.cycle(16), empty.Empty(), batch_size=2)
    none = jnp.zeros((2, 0), jnp.int32)
    kept = jnp.zeros((2,), jnp.int32)
    plain = types.Acceptance(none, none, kept + 1, kept, kept > 0)
    state = made.init(2)
    for _ in range(2):
      length = made.draft_length(state)
      np.testing.assert_array_equal(length, [0, 0])
      state = made.update(state, plain, length)

  def test_length_beyond_the_drafter(self):
    with self.assertRaisesRegex(ValueError, "length is 5 but its drafter"):
      self.made(type="pausing", length=5)


if __name__ == "__main__":
  absltest.main()
