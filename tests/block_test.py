# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Block verification: its law, and that no chain rule keeps more."""

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax import exact
from specjax.testing import cases
from specjax.verifiers import block, rejection

TOLERANCE = 1e-12  # a few roundings of float64
BLOCK, TOKEN = block.Block(), rejection.Rejection()
TARGET = cases.random(1, 3)
DRAFT = cases.random(2, 3)


def accepted(rule, target, drafts, length):
  return exact.expected_accepted(rule, target, drafts, length)


class LengthTest(parameterized.TestCase):
  def test_the_paper_s_example(self):
    """Two tokens of (2/3, 1/3) for (1/3, 2/3): 10/9 are kept, here 11/9."""
    target = cases.constant([1 / 3, 2 / 3])
    drafts = exact.honest(cases.constant([2 / 3, 1 / 3]))
    self.assertAlmostEqual(accepted(TOKEN, target, drafts, 2), 10 / 9)
    self.assertAlmostEqual(accepted(BLOCK, target, drafts, 2), 11 / 9)

  def test_never_below_the_token_rule(self):
    """30 random models of two words."""
    self.compare(vocab=2, length=2)

  @pytest.mark.slow
  def test_never_below_the_token_rule_with_longer_drafts(self):
    self.compare(vocab=3, length=3)

  def compare(self, vocab, length):
    more = 0
    for seed in range(30):
      target, draft = (cases.random(base + seed, vocab) for base in (100, 200))
      token, whole = (
        accepted(rule, target, exact.honest(draft), length)
        for rule in (TOKEN, BLOCK)
      )
      self.assertGreaterEqual(whole, token - TOLERANCE)
      more += whole > token + 1e-3
    self.assertGreater(more, 10)

  def test_tokens_taken_as_given_gain_nothing(self):
    target, draft = (cases.random(seed, 2) for seed in (1, 2))
    drafts = exact.honest(cases.best(draft))
    kept = [accepted(rule, target, drafts, 2) for rule in (TOKEN, BLOCK)]
    self.assertAlmostEqual(*kept, places=12)


class LawTest(parameterized.TestCase):
  @parameterized.parameters(
    exact.honest(DRAFT),
    exact.honest(TARGET),
    exact.Drafts(DRAFT, None),
    exact.honest(cases.constant([0, 0.5, 0.5])),
  )
  def test_several_rounds_and_stops(self, drafts):
    """Contract pitfall 9: the last slot of a short draft tests its weight."""
    law = exact.law(BLOCK, TARGET, drafts, (1, 2, 0), 3)
    off = exact.total_variation(law, exact.joint(TARGET, 3))
    self.assertLess(off, TOLERANCE)

  def test_stopping_on_what_was_drafted_before(self):
    """A draft may end behind a token, not because of the token left out."""
    behind = lambda prefix, tokens: np.where(tokens[:, 0] == 0, 1, 2)
    drafts = exact.Drafts(DRAFT, DRAFT, cut=behind)
    law = exact.law(BLOCK, TARGET, drafts, (2,), 2)
    off = exact.total_variation(law, exact.joint(TARGET, 2))
    self.assertLess(off, TOLERANCE)
    because = lambda prefix, tokens: np.where(tokens[:, 1] == 0, 1, 2)
    drafts = exact.Drafts(DRAFT, DRAFT, cut=because)
    law = exact.law(BLOCK, TARGET, drafts, (2,), 2)
    off = exact.total_variation(law, exact.joint(TARGET, 2))
    self.assertGreater(off, 1e-3)

  @pytest.mark.slow
  def test_four_words(self):
    target = cases.random(1, 4)
    drafts = exact.honest(cases.random(2, 4))
    law = exact.law(BLOCK, target, drafts, (3, 1, 0, 2), 4)
    off = exact.total_variation(law, exact.joint(target, 4))
    self.assertLess(off, TOLERANCE)


if __name__ == "__main__":
  absltest.main()
