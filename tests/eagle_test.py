# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""EAGLE drafts of depth one, which never feed what they drafted."""

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax.trees import branching, plans, tree
from tests import decoding, head_drafters_test


class ShallowTest(parameterized.TestCase):
  @parameterized.parameters(
    branching.chain(1), plans.Static(tree.from_widths((3,)))
  )
  @pytest.mark.slow
  def test_a_right_head_is_always_accepted(self, plan):
    target, step = head_drafters_test.jumps()
    drafter = head_drafters_test.eagle3_of_features(target, step)
    state = decoding.run(target, drafter.replace(plan=plan), new=24)
    for row in range(3):
      counters = decoding.counters(state, row)
      # A prompt is no part of the cycle, so the first features say nothing.
      self.assertFalse(any(counters["rejected"][1:]))
      self.assertEqual(counters["accepted"][1:-1], counters["drafted"][1:-1])
    self.assertGreater(np.sum(state.stats.accepted), 30)


if __name__ == "__main__":
  absltest.main()
