# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures against examples computed by hand."""

from typing import Any

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax.reports import metrics
from tests.rounds import answer

# Accepts all of 4, is refused after 1, drafts nothing, is cut after 2 by EOS.
MIXED = ((4, 4, 5, 0), (4, 1, 2, 1), (0, 0, 1, 0), (4, 2, 2, 0))


class Case(parameterized.TestCase):
  def near(self, value: Any, expected: float) -> None:
    """Equal up to the rounding of float64; None is not near anything."""
    self.assertAlmostEqual(value, expected)


class AcceptanceTest(Case):
  def test_rates_divide_by_what_they_say(self):
    """Tests passed: 4 + 1 + 2; tests failed: the second round's one."""
    one = [answer(MIXED)]
    self.near(metrics.acceptance_rate(one), 7 / 8)
    self.near(metrics.accepted_per_draft(one), 7 / 12)
    self.near(metrics.block_efficiency(one), 10 / 4)

  def test_positions(self):
    found: Any = metrics.acceptance_by_position([answer(MIXED)])
    # Three rounds had a draft; 3, 2, 1, 1 of them kept more than i tokens.
    np.testing.assert_allclose(
      found["unconditional"], [3 / 3, 2 / 3, 1 / 3, 1 / 3]
    )
    # The second token was tested three times and refused once; the cut round
    # says nothing about its third.
    np.testing.assert_allclose(found["conditional"], [1, 2 / 3, 1, 1])

  @pytest.mark.fault_case("B52")
  def test_drafts_that_were_never_tested_count_nowhere(self):
    """ggml-org/llama.cpp#14104, vllm-project/vllm#50518, #33729."""
    rounds = ((2, 0, 0, 0), (4, 4, 5, 0), (4, 2, 3, 1), (0, 0, 0, 0))
    one = [answer(rounds)]
    self.near(metrics.accepted_per_draft(one), 6 / 8)
    self.near(metrics.block_efficiency(one), 8 / 2)

  @pytest.mark.fault_case("B52")
  def test_the_targets_own_token_is_in_one_measure_only(self):
    """SafeAILab/EAGLE#132: K = 4 keeps 4, 2 and 0."""
    one = [answer(((4, 4, 5, 0), (4, 2, 3, 1), (4, 0, 1, 1)))]
    self.near(metrics.accepted_per_draft(one), 0.5)
    self.near(metrics.block_efficiency(one), 3.0)
    self.near(metrics.acceptance_rate(one), 6 / 8)

  def test_a_perfect_draft_cut_by_the_length_was_never_refused(self):
    """24 tokens at K = 4: five rounds, 19 accepted."""
    one = [answer([(4, 4, 5, 0)] * 4 + [(3, 3, 4, 0)])]
    self.assertEqual(metrics.acceptance_rate(one), 1.0)
    self.assertEqual(metrics.accepted_per_draft(one), 1.0)
    self.near(metrics.block_efficiency(one), 24 / 5)

  def test_micro_weighs_rounds_and_macro_answers(self):
    both = [answer([(4, 3, 4, 1)] * 1), answer([(4, 0, 1, 1)] * 3)]
    self.near(metrics.block_efficiency(both), 7 / 4)
    self.near(metrics.block_efficiency_macro(both), 5 / 2)

  def test_nothing_is_none_and_not_zero(self):
    for measure in (
      metrics.acceptance_rate,
      metrics.accepted_per_draft,
      metrics.block_efficiency,
      metrics.block_efficiency_macro,
      metrics.degenerate,
      metrics.acceptance_rate_interval,
      metrics.block_efficiency_interval,
    ):
      self.assertIsNone(measure([]))
    plain = [answer([(0, 0, 1, 0)] * 3)]
    self.assertIsNone(metrics.acceptance_rate(plain))
    self.assertIsNone(metrics.accepted_per_draft(plain))
    self.assertEqual(metrics.block_efficiency(plain), 1.0)


class IntervalTest(Case):
  def test_one_prompt_has_no_interval(self):
    self.assertIsNone(metrics.acceptance_rate_interval([answer(MIXED)]))
    self.assertIsNone(metrics.block_efficiency_interval([answer(MIXED)]))

  def test_interval_of_block_efficiency(self):
    """Prompts of 4 tokens in 1 call and 3 in 3, with all their runs."""
    both = [
      answer(rounds, name=name, run=run)
      for name, rounds in (("a", [(4, 3, 4, 1)]), ("b", [(4, 0, 1, 1)] * 3))
      for run in range(2)
    ]
    # Both draws are a, or both b, a quarter of the time each.
    self.assertEqual(metrics.block_efficiency_interval(both), (1.0, 4.0))

  def test_samples_of_a_prompt_are_one_draw(self):
    both = [
      answer(rounds, name=name, sample=sample)
      for name, rounds in (("a", [(4, 3, 4, 1)]), ("b", [(4, 0, 1, 1)] * 3))
      for sample in range(8)
    ]
    self.assertEqual(metrics.block_efficiency_interval(both), (1.0, 4.0))

  def test_bootstrap_finds_the_standard_error_of_a_mean(self):
    """Mean of 400 coin flips: 1.96 standard errors are 0.049."""
    flips = np.arange(400)[None] % 2
    interval: Any = metrics.bootstrap(flips, np.ones((1, 400)))
    low, high = interval
    # 2000 resamples know an end of the interval to about 0.003 (3 sigma).
    self.assertAlmostEqual(low, 0.451, delta=0.004)
    self.assertAlmostEqual(high, 0.549, delta=0.004)


class MatchTest(parameterized.TestCase):
  def test_matched_counts_prompts_equal_in_every_run(self):
    wanted = [answer(name=n, tokens=(1, 2, 3)) for n in "abc"]
    ours = [
      answer(name="a", tokens=(1, 2, 3)),
      answer(name="b", tokens=(1, 2)),
      answer(name="c", tokens=(1, 2, 4)),
      answer(name="d", tokens=(1,)),
      answer(name="a", tokens=(1, 2, 3), run=1),
      answer(name="b", tokens=(1, 2, 3), run=1),
    ]
    self.assertEqual(metrics.matched(ours, wanted), {"equal": 1, "total": 3})

  def test_every_sample_is_compared_with_its_own(self):
    wanted = [answer(tokens=(i,), sample=i) for i in range(3)]
    ours = [answer(tokens=(i % 2,), sample=i) for i in range(3)]
    self.assertEqual(metrics.matched(ours, wanted), {"equal": 2, "total": 3})

  def test_first_difference(self):
    self.assertIsNone(metrics.first_difference((1, 2), (1, 2)))
    self.assertEqual(metrics.first_difference((1, 2, 3), (1, 4, 3)), 1)
    self.assertEqual(metrics.first_difference((1, 2), (1, 2, 3)), 2)


class DegenerateTest(parameterized.TestCase):
  @parameterized.parameters(
    ((1, 2, 3, 4) * 4, True),
    ((1, 2, 3, 4) * 3, False),
    ((7,) * 7, True),
    ((7,) * 6, False),
    ((), False),
    (tuple(range(100)), False),
  )
  def test_degenerate_is_one_4_gram_four_times(self, tokens, expected):
    self.assertEqual(metrics.is_degenerate(tokens), expected)


if __name__ == "__main__":
  absltest.main()
