# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a summary says about the file of the weights, and about time."""

import pathlib
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized
import numpy as np

from specjax.bench import loading, replay, summary
from specjax.models import gguf_header, int8, sources
from specjax.reports import speed
from tests import toys
from tests.rounds import answer


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


class NoteTest(parameterized.TestCase):
  @parameterized.parameters(
    ("none", "folder", "bfloat16 weights"),
    ("none", "gguf", "4-bit (Q4_1), dequantised to bfloat16"),
    (
      "int8",
      "folder",
      "int8 weights (per output channel), computed in bfloat16",
    ),
    (
      "int8",
      "gguf",
      "int8 weights (per output channel) of 4-bit (Q4_1), computed in bfloat16",
    ),
  )
  def test_quantised_weights_are_another_target(self, quantization, kind, note):
    source = sources.Source(kind, pathlib.Path("x"), "x")
    model = toys.tiny() if quantization == "none" else int8.model(toys.tiny())
    weights = loading.Weights(model, source)
    with mock.patch.object(
      summary, "quantisation", return_value="4-bit (Q4_1)"
    ):
      self.assertEqual(summary.note(weights, "bfloat16"), note)


class MethodTest(parameterized.TestCase):
  def measures(self, groups):
    """One answer a group; the second prompt is three times as fast."""
    plain = [
      answer([(0, 0, 1, 0)] * 3, name=g, group=g, decode=3.0) for g in groups
    ]
    ours = [
      answer([(2, 2, 3, 0)], name=g, group=g, decode=3.0 / (1 + 2 * i))
      for i, g in enumerate(groups)
    ]
    arrivals = [speed.Arrival("x", 0.5, np.array([0.25]), np.array([3]))]
    return summary.method(ours, plain, plain, arrivals)

  def test_categories_have_what_belongs_to_them(self):
    found = self.measures("xy")
    self.assertEqual(found["speedup"]["mean"], 2.0)
    one, other = (found["by_category"][g] for g in "xy")
    self.assertEqual((one["answers"], other["answers"]), (1, 1))
    self.assertEqual((one["streamed"], other["streamed"]), (1, 0))
    self.assertEqual(one["speedup"]["mean"], 1.0)
    self.assertEqual(other["speedup"]["mean"], 3.0)
    self.assertEqual(one["time_to_first_token"], {"p50": 0.5, "p90": 0.5})
    self.assertIsNone(other["time_to_first_token"])
    self.assertIsNone(other["gaps"])
    self.assertEqual(found["gaps"]["tokens"], 3.0)
    self.assertEqual(found["time_per_output_token"]["p50"], (1 + 1 / 3) / 2)
    self.assertEqual(set(one) | {"by_category"}, set(found))

  def test_one_category_is_not_repeated(self):
    self.assertEmpty(self.measures("x")["by_category"])


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
