# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replayed answers with a given acceptance."""

import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import testing
from specjax.drafters import empty, recorded, synthetic
from tests import decoding, toys

TARGET = toys.tiny(0)
PROMPTS = ((7, 8, 9, 7, 8), (3,), (5, 6, 5))


def records(new=80):
  state = decoding.run(TARGET, empty.Empty(1), PROMPTS, new=new)
  return state, [
    recorded.Answer(len(prompt), tuple(answer))
    for prompt, answer in zip(PROMPTS, decoding.answers(state))
  ]


class SyntheticTest(parameterized.TestCase):
  def test_all_right_and_all_wrong(self):
    plain, answers = records()
    for profile, kept in (([1.0] * 4, 64), ([0.0] * 4, 0), ([1, 0, 1, 1], 40)):
      drafter = synthetic.Synthetic.of(answers, profile)
      state = decoding.run(TARGET, drafter, PROMPTS, new=80)
      self.assertEqual(decoding.answers(state), decoding.answers(plain))
      accepted = np.asarray(state.stats.accepted).sum(axis=1)
      np.testing.assert_array_equal(accepted, [kept] * 3)

  def test_acceptance_is_the_profile(self):
    """Conditional shares by depth, over three rows of 80 tokens.

    A bound of four standard deviations; the seed is fixed.
    """
    _, answers = records()
    profile = [0.9, 0.5, 0.8, 0.7]
    drafter = synthetic.Synthetic.of(answers, profile, seed=1)
    state = decoding.run(TARGET, drafter, PROMPTS, new=80)
    rounds = np.arange(state.stats.drafted.shape[1])
    full = (rounds < state.stats.rounds[:, None]) & (state.stats.drafted == 4)
    accepted = state.stats.accepted[full]
    for depth, expected in enumerate(profile):
      reached = np.sum(accepted >= depth)
      share = np.sum(accepted > depth) / reached
      bound = 4 * np.sqrt(expected * (1 - expected) / reached)
      self.assertLess(abs(share - expected), bound)

  def test_another_text_is_not_followed(self):
    _, answers = records()
    spoiled = [
      recorded.Answer(a.prompt_tokens, (a.tokens[0] ^ 1, *a.tokens[1:]))
      for a in answers
    ]
    drafter = synthetic.Synthetic.of(spoiled, [1.0] * 4)
    state = decoding.run(TARGET, drafter, PROMPTS, new=20)
    # The first round cannot know; after it nothing is drafted.
    self.assertEqual(int(state.stats.drafted[:, 1:].sum()), 0)

  @pytest.mark.slow
  def test_contract(self):
    answers = [recorded.Answer(n, (3, 1, 4, 1, 5, 9, 2, 6)) for n in (1, 5, 13)]
    drafter = synthetic.Synthetic.of(answers, [0.8, 0.6])
    # Where a prompt ended is not to be seen in the text.
    testing.check_drafter(drafter, learns_from_rejected=True)

  def test_from_a_file(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder) / "results.jsonl"
    line = {"run": 0, "method": "plain", "prompt_tokens": 2, "tokens": [5, 6]}
    path.write_text(json.dumps(line))
    drafter = synthetic.synthetic(str(path), 2, 0.5)
    np.testing.assert_array_equal(drafter.answers, [[5, 6]])
    np.testing.assert_array_equal(drafter.profile, [0.5, 0.5])
    with self.assertRaisesRegex(ValueError, "1 numbers for length 2"):
      synthetic.synthetic(str(path), 2, (0.5,))
    with self.assertRaisesRegex(ValueError, "1.5 is no probability"):
      synthetic.synthetic(str(path), 2, 1.5)
    with self.assertRaisesRegex(ValueError, "no recorded answers .*: give at"):
      synthetic.Synthetic.of([], [0.5])

  def test_empty_answers_are_followed_by_nothing(self):
    drafter = synthetic.Synthetic.of([recorded.Answer(2, ())], [1.0])
    draft, count = drafter._row(jnp.arange(8), jnp.int32(2), jnp.int32(2))
    self.assertEqual((draft.shape, int(count)), ((1,), 0))


if __name__ == "__main__":
  absltest.main()
