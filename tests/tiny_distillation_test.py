# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a target of random weights to a drafter: the whole way, once."""

import itertools
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from experiments.tiny_distillation import bigram, run


class BigramTest(parameterized.TestCase):
  @parameterized.parameters(0, 1, 2)
  def test_no_table_keeps_more(self, seed):
    """Against every law on a grid of twentieths."""
    rng = np.random.default_rng(seed)
    laws, last = rng.dirichlet([0.5] * 3, 12), rng.integers(0, 2, 12)
    grid = [
      np.array([a, b, 20 - a - b]) / 20
      for a, b in itertools.product(range(21), repeat=2)
      if a + b <= 20
    ]
    wanted = sum(
      max(np.minimum(laws[last == token], q).sum() for q in grid)
      for token in (0, 1)
    )
    found = bigram.acceptance(laws, last)
    self.assertGreaterEqual(found, wanted / 12 - 1e-9)
    # Between two points of the grid a law moves by a tenth at most.
    self.assertLess(found, wanted / 12 + 0.1)

  def test_one_law_is_kept_whole(self):
    laws = np.tile([0.5, 0.3, 0.2], (4, 1))
    self.assertAlmostEqual(bigram.acceptance(laws, np.zeros(4)), 1)


class WholeTest(absltest.TestCase):
  @pytest.mark.slow
  def test_training_beats_the_best_bigram_and_decodes_as_promised(self):
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    found = run.main([f"--workdir={folder}"])
    self.assertGreaterEqual(found["nats_per_token"], 1.5)
    self.assertLess(found["alpha_bigram"], 0.5)
    self.assertLess(found["alpha_before"], found["alpha_bigram"])
    self.assertGreater(found["alpha_after"], found["alpha_bigram"] + 0.15)
    low, high = found["alpha_interval"]
    self.assertBetween(found["alpha_decode"], low, high)


if __name__ == "__main__":
  absltest.main()
