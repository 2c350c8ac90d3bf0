# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The reference itself, against numbers worked out by hand."""

from absl.testing import absltest, parameterized
import jax
import numpy as np

from tests import reference


class LogProbsTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ("plain", {}, (0.5, 0.25, 0.125, 0.125)),
    ("greedy", {"temperature": 0}, (1, 0, 0, 0)),
    ("sharper", {"temperature": 0.5}, (16 / 22, 4 / 22, 1 / 22, 1 / 22)),
    ("top_2", {"top_k": 2}, (2 / 3, 1 / 3, 0, 0)),
    # The third largest value stands twice, and both stay.
    ("top_3_ties", {"top_k": 3}, (0.5, 0.25, 0.125, 0.125)),
    ("top_p_exact", {"top_p": 0.75}, (2 / 3, 1 / 3, 0, 0)),
    ("top_p_more", {"top_p": 0.76}, (0.5, 0.25, 0.125, 0.125)),
    ("min_p", {"min_p": 0.5}, (2 / 3, 1 / 3, 0, 0)),
    # top-p acts on the law that top-k left, where token 0 holds 2/3.
    ("order", {"top_k": 2, "top_p": 0.6}, (1, 0, 0, 0)),
  )
  def test_laws(self, settings, expected):
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    law = np.exp(reference.log_probs(logits, **settings))
    np.testing.assert_allclose(law, expected, atol=1e-12)

  def test_greedy_takes_the_lowest_of_equal_ids(self):
    law = reference.log_probs([1.0, 3.0, 3.0], temperature=0)
    self.assertEqual(np.argmax(law), 1)


class GenerateTest(absltest.TestCase):
  def test_counts_and_stops(self):
    cycle = lambda tokens: 10.0 * np.eye(8)[(tokens[-1] + 1) % 8]
    key = reference.row_key(0)
    tokens, _ = reference.generate(cycle, [1], 5, key=key, temperature=0)
    self.assertEqual(tokens, [2, 3, 4, 5, 6])
    tokens, laws = reference.generate(
      cycle, [1], 5, key=key, eos={4}, temperature=0
    )
    self.assertEqual(tokens, [2, 3, 4])
    self.assertEqual(laws, [0.0, 0.0, 0.0])

  def test_samples_follow_the_law(self):
    law = np.array([0.4, 0.3, 0.2, 0.1])
    tokens, _ = reference.generate(
      lambda _: np.log(law), [0], 2000, key=reference.row_key(7)
    )
    share = np.bincount(tokens, minlength=4) / len(tokens)
    # Four standard deviations of a share of 0.4 in 2000 draws are 0.044.
    np.testing.assert_allclose(share, law, atol=0.044)

  def test_rows_differ_by_seed_prompt_and_sample(self):
    keys = [
      reference.row_key(*parts)
      for parts in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    data = {tuple(jax.random.key_data(key).tolist()) for key in keys}
    self.assertLen(data, 4)


if __name__ == "__main__":
  absltest.main()
