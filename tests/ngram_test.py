# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup: which match is taken, and what follows it."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.drafters import empty, ngram
from specjax.policies import policy as policy_lib
from tests import decoding, toys

SLOTS = 16


def propose(drafter, *texts) -> list[list[int]]:
  """What is drafted after each text, all in one batch."""
  tokens = np.full((len(texts), SLOTS), 9, np.int32)  # stale slots match, too
  for row, text in zip(tokens, texts):
    row[: len(text)] = text
  unused: Any = None
  context = types.Context(
    tokens=jnp.asarray(tokens),
    lengths=jnp.array([len(text) for text in texts]),
    history=None,
    sampling=unused,
    noise=unused,
    draft_length=jnp.full(len(texts), 99),
    cache=unused,
    policy=policy_lib.Fixed(99),
    policy_state=None,
  )
  draft, _, _ = jax.jit(lambda c: drafter.propose(None, c))(context)
  return [
    np.asarray(row)[:count].tolist()
    for row, count in zip(draft.tokens, draft.count)
  ]


def brute_force(text, drafter) -> list[int]:
  """The documented rule, by trying all n and all places."""
  for n in range(min(drafter.max_n, len(text) - 1), drafter.min_n - 1, -1):
    suffix = text[len(text) - n :]
    places = [i for i in range(len(text) - n) if text[i : i + n] == suffix]
    if places:
      at = (places[-1] if drafter.tie == "latest" else places[0]) + n
      return text[at : at + drafter.length]
  return []


class MatchTest(parameterized.TestCase):
  @parameterized.parameters(("latest", [9, 1, 2]), ("earliest", [8, 1, 2]))
  @pytest.mark.fault_case("B46")
  def test_longest_match_then_the_tie_rule(self, tie, expected):
    """vllm-project/vllm#15348: the longest match was not taken."""
    drafter = ngram.NGram(3, tie=tie)
    texts = [1, 2, 8, 1, 2, 9, 1, 2], [5], [5, 6], [1, 2, 3]
    self.assertEqual(propose(drafter, *texts), [expected, [], [], []])

  @pytest.mark.fault_case("B46")
  def test_one_token_over_and_over(self):
    """The 3-gram of [7, 7, 7, 7] stands once before its end."""
    self.assertEqual(propose(ngram.NGram(3), [7, 7, 7, 7]), [[7]])

  @parameterized.parameters(
    ("latest", (1, 3), 4), ("latest", (2, 2), 1), ("earliest", (1, 5), 4)
  )
  def test_random_texts(self, tie, sizes, length):
    self.check(tie, sizes, length)

  @parameterized.product(
    tie=("latest", "earliest"), sizes=((1, 3), (2, 2), (1, 5)), length=(1, 4)
  )
  @pytest.mark.slow
  def test_random_texts_of_every_setting(self, tie, sizes, length):
    self.check(tie, sizes, length)

  def check(self, tie, sizes, length):
    drafter = ngram.NGram(length, *sizes, tie=tie)
    rng = np.random.default_rng(0)
    texts = [
      rng.integers(0, 3, rng.integers(1, SLOTS + 1)).tolist()
      for _ in range(200)
    ]
    expected = [brute_force(text, drafter) for text in texts]
    self.assertEqual(propose(drafter, *texts), expected)
    self.assertIn([], expected)

  def test_nothing_is_copied_from_behind_the_end(self):
    """Slots past the length hold what earlier rounds left there."""
    self.assertEqual(propose(ngram.NGram(8), [9, 3, 9]), [[3, 9]])
    self.assertEqual(propose(ngram.NGram(8), [3, 9]), [[]])

  @parameterized.parameters(
    ({"length": -1}, "draft length -1 is negative"),
    ({"length": 2, "min_n": 0}, "n-gram sizes 0 to 3"),
    ({"length": 2, "min_n": 4}, "n-gram sizes 4 to 3"),
    ({"length": 2, "tie": "first"}, "tie rule 'first' is unknown"),
  )
  def test_refuses(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      ngram.NGram(**options)


class DecodingTest(parameterized.TestCase):
  @parameterized.parameters(
    ([[1, 2, 3], [4, 4], [5, 6, 7, 8, 9, 5]], [0, 1, 4]),
    ([[1], [2, 3], [4, 5, 6]], [0, 0, 0]),
  )
  @pytest.mark.fault_case("B48")
  def test_rows_without_a_match(self, prompts, drafted):
    """vllm-project/vllm#7047: rows with zero drafts are mishandled."""
    target = toys.tiny(0)
    state = decoding.run(target, ngram.NGram(4), prompts, new=12)
    base = decoding.run(target, empty.Empty(1), prompts, new=12)
    self.assertEqual(decoding.answers(state), decoding.answers(base))
    self.assertEqual(state.stats.drafted[:, 0].tolist(), drafted)

  @pytest.mark.fault_case("B48")
  def test_empty_prompt_is_refused(self):
    with self.assertRaisesRegex(ValueError, "prompt 1 is empty"):
      decoding.run(toys.tiny(0), ngram.NGram(4), [[1], [], [2]])

  @pytest.mark.fault_case("B37")
  def test_drafts_end_with_the_models_positions(self):
    """vllm-project/vllm#42533: drafts run past the maximum."""
    config = dataclasses.replace(toys.TINY_CONFIG, max_position=16)
    target = dataclasses.replace(toys.tiny(0), config=config)
    prompt = [1, 2] * 7
    state = decoding.run(target, ngram.NGram(5), [prompt] * 3, new=[2, 1, 0])
    self.assertEqual([len(row) for row in decoding.answers(state)], [2, 1, 0])
    # One of two tokens is the target's own, so at most one is drafted.
    self.assertEqual(state.stats.drafted[:, 0].tolist(), [1, 0, 0])
    whole = decoding.run(toys.tiny(0), empty.Empty(1), [prompt] * 3, new=2)
    self.assertEqual(decoding.answers(state)[0], decoding.answers(whole)[0])
    with self.assertRaisesRegex(ValueError, "need 17 positions"):
      decoding.run(target, ngram.NGram(5), [prompt] * 3, new=3)


if __name__ == "__main__":
  absltest.main()
