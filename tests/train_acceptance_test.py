# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of acceptance against hand-made texts and a simulated loop."""

from absl.testing import absltest
import numpy as np

from train import acceptance, renewal


def starts(accepted, counted, begun=None, source=None) -> acceptance.Starts:
  """Starts of one conversation unless `source` says otherwise."""
  n = len(accepted)
  return acceptance.Starts(
    np.asarray(accepted, float),
    np.asarray(counted, bool),
    np.ones(n) if begun is None else np.asarray(begun, float),
    np.zeros(n, int) if source is None else np.asarray(source),
    np.arange(n),
  )


def answers(rng, *lengths: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
  """accepted and counted [1, S, K] of a row of answers, two slots apart."""
  counted = []
  for n in lengths:
    rows = [[slot + k < n for k in range(depth)] for slot in range(n)]
    counted += [[False] * depth] * 2 + rows
  counted = np.asarray(counted)[None]
  return rng.uniform(size=counted.shape), counted


class MeasuresTest(absltest.TestCase):
  def test_by_hand(self):
    """Conditional and prefix are told apart: 0.2 / 0.5 is no 0.2."""
    # An easy start, a hard one, and one whose answer ends after one token.
    found = acceptance.measures(
      starts([[1.0, 0.6], [0.0, 0.9], [0.5, 0.0]], [[1, 1], [1, 1], [1, 0]])
    )
    np.testing.assert_allclose(found["conditional"], [1.5 / 3, 0.6 / 1.0])
    np.testing.assert_allclose(found["prefix"], [1.5 / 3, 0.6 / 2])
    self.assertAlmostEqual(found["alpha"], (1.5 + 0.6) / (3 + 1.0))
    self.assertAlmostEqual(found["tau"], 1 + 0.5 + 0.3)
    self.assertEqual(found["starts"], 3)

  def test_positions_that_no_draft_reaches(self):
    found = acceptance.measures(starts([[0.0, 0.5, 0.0]], [[1, 1, 0]]))
    self.assertEqual(found["conditional"], [0.0, None, None])
    self.assertEqual(found["prefix"], [0.0, 0.0, None])
    self.assertEqual((found["alpha"], found["tau"]), (0.0, 1.0))

  def test_weights_of_a_loop(self):
    accepted, counted = [[1.0], [0.0]], [[1], [1]]
    found = acceptance.measures(starts(accepted, counted, begun=[0.25, 1.0]))
    self.assertAlmostEqual(found["alpha"], 0.5)
    self.assertAlmostEqual(found["alpha_renewal"], 0.2)
    self.assertAlmostEqual(found["tau_renewal"], 1.2)

  def test_intervals_are_of_conversations(self):
    """Slots of one text are no independent draws."""
    rng = np.random.default_rng(0)
    easy = rng.uniform(size=40)
    accepted = np.repeat(easy, 50)[:, None]
    source = np.repeat(np.arange(40), 50)
    found = acceptance.measures(
      starts(accepted, np.ones_like(accepted), source=source)
    )
    low, high = found["alpha_interval"]
    error = easy.std() / np.sqrt(40)
    # A bootstrap of 1,000 draws: within a fifth of the normal interval.
    self.assertAlmostEqual(high - low, 2 * 1.96 * error, delta=0.2 * 4 * error)
    self.assertBetween(easy.mean(), low, high)

  def test_along_the_text(self):
    found = acceptance.by_context(
      starts([[0.25], [0.75], [1.0]], [[1], [1], [0]]), 1
    )
    self.assertEqual(
      found,
      [
        {"from": 0, "alpha": 0.25, "starts": 1},
        {"from": 1, "alpha": 0.75, "starts": 1},
      ],
    )

  def test_nothing_to_judge(self):
    with self.assertRaisesRegex(ValueError, "long enough for a draft"):
      acceptance.measures(starts([[0.5]], [[0]]))


class RenewalTest(absltest.TestCase):
  def test_begun_as_in_a_simulated_loop(self):
    """Three depths over two answers of a row, verdicts drawn many times."""
    rng = np.random.default_rng(0)
    accepted, counted = answers(rng, 5, 3, depth=3)
    number, times = 20000, np.zeros(counted.shape[1])
    for _ in range(number):
      for slot, end in ((2, 7), (9, 12)):
        while slot < end:
          times[slot] += 1
          kept = 0
          while kept < 3 and rng.uniform() < accepted[0, slot, kept]:
            kept += 1
          slot += kept + 1
    found = renewal.begun(accepted, counted)[0]
    # A share of 20,000 draws: 4 standard deviations are below 0.015.
    np.testing.assert_allclose(found, times / number, atol=0.015)
    np.testing.assert_array_equal(found[[0, 1, 7, 8]], 0)

  def test_rows_do_not_touch_each_other(self):
    rng = np.random.default_rng(1)
    rows = [answers(rng, *x, depth=2) for x in ((4, 4), (1, 7), (8,))]
    width = max(counted.shape[1] for _, counted in rows)
    fill = lambda x: np.pad(x, ((0, 0), (0, width - x.shape[1]), (0, 0)))
    together = renewal.begun(
      np.concatenate([fill(accepted) for accepted, _ in rows]),
      np.concatenate([fill(counted) for _, counted in rows]),
    )
    for row, (accepted, counted) in zip(together, rows):
      alone = renewal.begun(accepted, counted)[0]
      np.testing.assert_array_equal(row[: len(alone)], alone)

  def test_drafts_that_are_all_kept_or_all_refused(self):
    _, counted = answers(np.random.default_rng(2), 9, depth=2)
    whole = renewal.begun(np.ones(counted.shape), counted)[0, 2:]
    np.testing.assert_array_equal(whole, [1, 0, 0] * 3)
    none = renewal.begun(np.zeros(counted.shape), counted)[0, 2:]
    np.testing.assert_array_equal(none, np.ones(9))


if __name__ == "__main__":
  absltest.main()
