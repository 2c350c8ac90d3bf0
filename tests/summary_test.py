# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a summary says about the file of the weights, and about time."""

import pathlib
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized

from specjax.bench import replay, summary
from specjax.models import gguf_header


class QuantisationTest(parameterized.TestCase):
  @parameterized.parameters(
    ("Q4_1", "4-bit (Q4_1)"),
    ("Q8_0", "8-bit (Q8_0)"),
    ("IQ2_XXS", "2-bit (IQ2_XXS)"),
    ("MXFP4", "4-bit (MXFP4)"),
    ("NVFP4", "4-bit (NVFP4)"),
    ("I8", "quantised (I8)"),
    ("F32", None),
    ("F16", None),
    ("BF16", None),
  )
  def test_only_floats_are_not_quantised(self, kind, expected):
    """The kind of most numbers decides, not of most tensors."""
    tensors = {
      f"norm_{i}": mock.Mock(type_name="F32", shape=(4,)) for i in range(3)
    }
    tensors["matrix"] = mock.Mock(type_name=kind, shape=(8, 8))
    header = mock.Mock(tensors=tensors)
    with mock.patch.object(gguf_header, "read", return_value=header):
      found = summary.quantisation(pathlib.Path("x.gguf"))
    self.assertEqual(found, expected)


class ReplayTest(absltest.TestCase):
  def test_the_cost_ratio_is_by_round(self):
    """0.5 s a pass in 4 rounds, 0.25 s a plain round in 10."""
    measures: dict[str, Any] = {"speedup": {}}
    times = replay.Times(2.6, 2.1, 2.0, 2.5, rounds=4, plain_rounds=10)
    summary.add_replay(measures, [times])
    self.assertAlmostEqual(measures["cost_ratio"], 2.0)
    self.assertEqual(
      measures["replay_seconds"],
      {"full": 2.6, "recorded": 2.1, "forward": 2.0, "plain": 2.5},
    )
    self.assertAlmostEqual(measures["speedup"]["predicted"], 1.0)

  def test_without_a_replay_nothing_is_claimed(self):
    measures: dict[str, Any] = {"speedup": {}}
    summary.add_replay(measures, [])
    self.assertIsNone(measures["cost_ratio"])
    self.assertIsNone(measures["time_share"])
    self.assertIsNone(measures["speedup"]["predicted"])


if __name__ == "__main__":
  absltest.main()
