# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of two laws against its definition and against draws."""

from absl.testing import absltest, parameterized
import numpy as np

from specjax.bench import agreement


class OverlapTest(parameterized.TestCase):
  @parameterized.parameters(range(8))
  def test_coupled_overlap_is_the_double_sum(self, seed):
    """The definition of arXiv 2408.07978, term by term, zeros included."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(6, 0.5), size=2)
    p[rng.integers(6)], q[rng.integers(6)] = 0, 0
    p, q = p / p.sum(), q / q.sum()
    expected = sum(
      1 / sum(max(p[j] / p[i], q[j] / q[i]) for j in range(6))
      for i in range(6)
      if p[i] > 0 and q[i] > 0
    )
    # Both are sums of a few float64 terms near 1.
    self.assertAlmostEqual(agreement.coupled_overlap(p, q), expected, places=12)

  @parameterized.parameters(range(4))
  def test_bounds_of_the_coupling(self, seed):
    """(1 - TV) / (1 + TV) <= alpha_G <= 1 - TV."""
    p, q = np.random.default_rng(seed).dirichlet(np.ones(50), size=2)
    agree = agreement.overlap(p, q)
    found = agreement.coupled_overlap(p, q)
    self.assertLessEqual(found, agree + 1e-12)
    self.assertGreaterEqual(found, agree / (2 - agree) - 1e-12)

  def test_a_given_token_is_kept_with_its_own_probability(self):
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.0, 1.0, 0.0])
    self.assertAlmostEqual(agreement.overlap(p, q), 0.5)
    self.assertAlmostEqual(agreement.coupled_overlap(p, q), 0.5)

  def test_the_coupling_agrees_as_often_as_computed(self):
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(8), size=2)
    noise = rng.gumbel(size=(40_000, 8))
    same = (np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)
    # Four standard deviations of 40,000 draws.
    self.assertAlmostEqual(
      agreement.coupled_overlap(p, q), same.mean(), delta=0.01
    )

  def test_entropy(self):
    with np.errstate(divide="ignore"):
      self.assertAlmostEqual(
        agreement.entropy(np.log([0.5, 0.5, 0.0])), np.log(2)
      )
      self.assertEqual(agreement.entropy(np.log([1.0, 0.0])), 0.0)


if __name__ == "__main__":
  absltest.main()
