# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of time against examples computed by hand."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import numpy as np

from specjax.reports import metrics, speed
from tests.rounds import answer


class Case(parameterized.TestCase):
  def near(self, value: Any, expected: float) -> None:
    """Equal up to the rounding of float64; None is not near anything."""
    self.assertAlmostEqual(value, expected)


class SpeedTest(Case):
  def setUp(self):
    super().setUp()
    ten = range(10)
    times = {
      # (run, prompt): plain prefill, plain decode, ours decode
      (0, "a"): (1.0, 4.0, 1.0),
      (0, "b"): (1.0, 1.0, 1.0),
      (1, "a"): (1.0, 9.0, 1.0),
      (1, "b"): (1.0, 1.0, 1.0),
    }
    self.plain = [
      answer(name=n, run=r, tokens=ten, prefill=p, decode=d)
      for (r, n), (p, d, _) in times.items()
    ]
    self.ours = [
      answer(name=n, run=r, tokens=ten, prefill=p, decode=d)
      for (r, n), (p, _, d) in times.items()
    ]

  def test_rate_is_the_mean_of_rates(self):
    run = [a for a in self.plain if a.run == 0]
    self.near(speed.tokens_per_second(run), (2 + 5) / 2)
    self.near(speed.tokens_per_second(run, decode_only=True), (2.5 + 10) / 2)

  def test_speedup_is_the_ratio_of_means_of_paired_runs(self):
    """Ours 5 and 5 tokens/s; plain 2 and 5, then 1 and 5."""
    found = speed.speedup(self.ours, self.plain)
    first, second = 5 / 3.5, 5 / 3
    self.near(found["mean"], (first + second) / 2)
    self.near(found["std"], (second - first) / 2**0.5)
    decode = (10 / 6.25 + 10 / ((10 / 9 + 10) / 2)) / 2
    self.near(found["decode_only"], decode)

  def test_only_prompts_of_both_count(self):
    plain = [a for a in self.plain if a.id == "a"]
    self.near(speed.speedup(self.ours, plain)["mean"], 3.75)

  def test_one_run_has_no_spread(self):
    ours = [a for a in self.ours if a.run == 0]
    self.assertIsNone(speed.speedup(ours, self.plain)["std"])

  def test_loops_are_left_out_where_it_says_so(self):
    loop = (1, 2, 3, 4) * 4
    ours = [
      dataclasses.replace(a, tokens=loop if a.id == "a" else a.tokens)
      for a in self.ours
    ]
    self.near(metrics.degenerate(ours), 0.5)
    self.near(speed.speedup(ours, self.plain)["without_degenerate"], 1.0)
    decode = speed.speedup(ours, self.plain)["decode_only_without_degenerate"]
    self.near(decode, 1.0)

  def test_interval_holds_the_value_and_is_repeatable(self):
    interval: Any = speed.speedup_interval(self.ours, self.plain)
    low, high = interval
    self.assertLess(low, speed.speedup(self.ours, self.plain)["mean"])
    self.assertGreater(high, speed.speedup(self.ours, self.plain)["mean"])
    # Prompts alone give 1 (b) and the mean of 2.5 and 5 (a).
    self.near(low, 1.0)
    self.near(high, 3.75)
    again = speed.speedup_interval(self.ours, self.plain)
    self.assertEqual((low, high), again)

  def test_interval_without_prompts(self):
    """Decoding alone b gives 1, and a the mean of 4 and 9."""
    found = speed.speedup(self.ours, self.plain)
    low, high = found["decode_only_interval"]
    self.near(low, 1.0)
    self.near(high, 6.5)
    self.assertNotEqual(found["interval"], found["decode_only_interval"])

  def test_samples_are_paired_with_their_own(self):
    """Ours is twice as fast in every sample; only the pairing shows it."""
    ours, plain = (
      [
        answer(name="a", tokens=range(10), decode=seconds * slow, sample=i)
        for i, seconds in enumerate(times)
      ]
      for slow, times in ((0.5, (1.0, 2.0)), (1.0, (1.0, 2.0)))
    )
    self.near(speed.speedup(ours, plain[::-1])["mean"], 2.0)
    self.near(speed.speedup(ours[1:], plain)["mean"], 2.0)

  def test_samples_of_one_prompt_are_drawn_together(self):
    """Two prompts of speedup 1 and 3, and their samples as fast as they.

    Samples drawn one by one would almost never be all of one prompt, so the
    interval of four prompts is narrower.
    """

    def interval(key) -> tuple[float, float]:
      ours, plain = [], []
      for place in range(16):
        name, sample = key(place)
        fast = 3.0 if place % 2 else 1.0
        made = answer(name=name, sample=sample, tokens=range(10))
        plain.append(made)
        ours.append(dataclasses.replace(made, decode_seconds=1 / fast))
      found: Any = speed.speedup_interval(ours, plain)
      return found

    self.assertEqual(interval(lambda i: ("ab"[i % 2], i // 2)), (1.0, 3.0))
    low, high = interval(lambda i: (str(i), 0))
    self.assertGreater(low, 1.2)
    self.assertLess(high, 2.8)


class LatencyTest(Case):
  def test_time_of_a_token_takes_nothing_off(self):
    """The first token comes from a round, as all do: 2 s for 4 tokens.

    vllm-project/vllm counts one token less, its prompt pass having drawn it.
    """
    times = [
      answer(tokens=range(4), prefill=9.0, decode=2.0),
      answer(tokens=range(10), prefill=9.0, decode=1.0),
      answer(tokens=(), decode=1.0),
    ]
    found: Any = speed.time_per_output_token(times)
    self.near(found["p50"], (0.5 + 0.1) / 2)
    self.near(found["p90"], 0.1 + 0.9 * 0.4)
    alone: Any = speed.time_per_output_token(times[:1])
    rate = speed.tokens_per_second(times[:1], decode_only=True)
    self.near(rate, 1 / alone["p50"])

  def test_the_first_tokens_are_no_gap(self):
    arrivals = [
      speed.Arrival("x", 3.0, np.array([1.0, 2.0]), np.array([4, 1])),
      speed.Arrival("y", 5.0, np.array([]), np.array([], int)),
      speed.Arrival("x", 4.0, np.array([3.0]), np.array([2])),
    ]
    first: Any = speed.time_to_first_token(arrivals)
    self.assertEqual(first, {"p50": 4.0, "p90": 4.8})
    gaps: Any = speed.gaps(arrivals)
    self.near(gaps["p50"], 2.0)
    self.near(gaps["p90"], 2.8)
    self.near(gaps["max"], 3.0)
    self.near(gaps["tokens"], 7 / 3)

  def test_nothing_is_none_and_not_zero(self):
    one = speed.Arrival("x", 3.0, np.array([]), np.array([], int))
    self.assertIsNone(speed.gaps([one]))
    self.assertIsNone(speed.gaps([]))
    self.assertIsNone(speed.time_to_first_token([]))
    self.assertIsNone(speed.time_per_output_token([answer(tokens=())]))
    self.assertIsNone(speed.tokens_per_second([]))


if __name__ == "__main__":
  absltest.main()
