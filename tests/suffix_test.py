# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Suffix decoding: who votes, who wins, how far it drafts, what is stored."""

import json
import math
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing
from specjax.drafters import empty, suffix
from tests import decoding, toys

SLOTS = 24
_row = jax.jit(lambda drafter, tokens, length: drafter._row(tokens, length))


def propose(drafter, text) -> list[int]:
  """What is drafted after a text."""
  tokens = np.full(SLOTS, 9, np.int32)  # Stale slots match, too.
  tokens[: len(text)] = text
  draft, count = _row(drafter, tokens, np.int32(len(text)))
  return np.asarray(draft)[:count].tolist()


def brute_force(drafter, text, stored) -> list[int]:
  """The documented rule with lists alone."""
  best: tuple[Any, list[int]] = (-1.0, [])
  for m in range(drafter.min_match, drafter.max_match + 1):
    found = [_places(past, text, m) for past in (*stored, text)]
    # Later places first; of two texts the own one is the later.
    places = [place for group in found[::-1] for place in group[::-1]]
    places.sort(key=lambda place: -_run(place, text, drafter.max_match))
    draft, gain, share = [], 0.0, np.float32(1)
    following = [past[end:] for past, end in places[: drafter.candidates]]
    while len(draft) < min(drafter.length, drafter.factor * m + drafter.offset):
      heads = [rest[0] for rest in following if rest]
      if not heads:
        break
      winner = max(heads, key=heads.count)  # The first of equals.
      share *= np.float32(heads.count(winner) / len(heads))
      if share < drafter.min_probability:
        break
      draft.append(winner)
      gain += share
      following = [r[1:] for r in following if r and r[0] == winner]
    if gain >= best[0] - 1e-6:
      best = gain, draft
  return best[1]


def _places(past, text, m):
  ends = range(m, len(past))
  return [
    (past, end)
    for end in ends
    if len(text) >= m and past[end - m : end] == text[len(text) - m :]
  ]


def _run(place, text, most):
  past, end = place
  most = min(most, end, len(text))
  same = [past[end - 1 - n] == text[-1 - n] for n in range(most)]
  return (*same, False).index(False)


class RuleTest(parameterized.TestCase):
  def test_the_majority_wins_not_the_latest(self):
    drafter = suffix.suffix(1)
    self.assertEqual(propose(drafter, [1, 2, 9, 1, 2, 9, 1, 2, 8, 1, 2]), [9])
    self.assertEqual(propose(drafter, [1, 2, 9, 1, 2, 8, 1, 2]), [8])

  @pytest.mark.fault_case("B46")
  def test_nothing_to_copy(self):
    """vllm-project/vllm#15348: the match that was taken was not stated."""
    drafter = suffix.suffix(4)
    for text in ([5], [5, 6], [1, 2, 3]):
      self.assertEqual(propose(drafter, text), [])
    # The match of two drafts two tokens, that of three has one to copy.
    self.assertEqual(propose(drafter, [7, 7, 7, 7]), [7, 7])

  def test_a_longer_match_drafts_further(self):
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    drafter = suffix.suffix(8)
    for match in (1, 2, 3):
      again = propose(drafter, [*text, 0, *text[:match]])
      self.assertEqual(again, text[match : 2 * match])

  def test_an_unlikely_path_ends(self):
    """9 is sure to follow, then three tokens have a third each."""
    text = [1, 9, 2, 1, 9, 3, 1, 9, 4, 1]
    long = {"offset": 9.0, "max_match": 1}
    for least, expected in ((0.4, [9]), (0.3, [9, 4, 1])):
      drafter = suffix.suffix(3, min_probability=least, **long)
      self.assertEqual(propose(drafter, text), expected)

  def test_random_texts(self):
    rng = np.random.default_rng(0)
    stored = [rng.integers(0, 3, n).tolist() for n in (9, 5, 4)]
    drafter = suffix.suffix(
      5, min_match=1, max_match=4, offset=1.0, candidates=6, store=21
    ).remember(stored)
    drafted = 0
    for _ in range(150):
      text = rng.integers(0, 3, rng.integers(1, SLOTS + 1)).tolist()
      expected = brute_force(drafter, text, stored)
      self.assertEqual(propose(drafter, text), expected, text)
      drafted += len(expected)
    self.assertGreater(drafted, 300)

  @parameterized.parameters(
    ({"length": -1}, "draft length -1 is negative"),
    ({"length": 2, "min_match": 0}, "match lengths 0 to 16"),
    ({"length": 2, "candidates": 0}, "candidates is 0"),
    ({"length": 2, "min_probability": -0.1}, "min_probability is -0.1: use 0"),
    ({"length": 2, "min_probability": 1.1}, "min_probability is 1.1: use 0 to"),
    ({"length": 2, "min_probability": math.nan}, "min_probability is nan"),
    ({"length": 2, "factor": -1}, "factor is -1.0: use a number of 0 or more"),
    ({"length": 2, "factor": math.inf}, "factor is inf: use a number"),
    ({"length": 2, "factor": 0}, "draft 0 tokens after a match of 16"),
    ({"length": 2, "offset": math.nan}, "draft nan tokens after a match of 16"),
    ({"length": 2, "offset": -15.5}, "offset -15.5 draft 0.5 tokens after"),
    ({"length": 2, "store": -1}, "store is -1"),
    ({"length": 2, "warm": "x.jsonl"}, "'x.jsonl' but store is 0"),
  )
  def test_refuses(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      suffix.suffix(**options)


class StoreTest(absltest.TestCase):
  def test_past_answers_vote(self):
    cold = suffix.suffix(3, offset=3.0, store=8)
    self.assertEqual(propose(cold, [4, 5]), [])
    warm = cold.remember([[5, 6, 7]])
    self.assertEqual(propose(warm, [4, 5]), [6, 7])
    # Nothing is copied, and nothing matches, from one answer into the next.
    two = warm.remember([[8, 1]])
    self.assertEqual(propose(two, [4, 5]), [6, 7])
    self.assertEqual(propose(two, [7, 8]), [1])
    # The oldest tokens give way, and the shapes stay.
    full = two.remember([[2, 3, 2, 3, 2]])
    self.assertEqual(full.store.shape, cold.store.shape)
    self.assertEqual(propose(full, [4, 5]), [])

  def test_warm_from_a_recorded_run(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder) / "results.jsonl"
    lines = [
      {"run": run, "method": method, "prompt_tokens": 2, "tokens": tokens}
      for run, method, tokens in (
        (0, "plain", [5, 6]),
        (0, "ngram", [5, 7]),
        (1, "plain", [5, 8]),
      )
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    warm = suffix.suffix(1, store=9, warm=str(path))
    self.assertEqual(propose(warm, [4, 5]), [6])
    other = suffix.suffix(1, store=9, warm=str(path), warm_method="ngram")
    self.assertEqual(propose(other, [4, 5]), [7])
    with self.assertRaisesRegex(ValueError, "no answers of 'x': .*ngram"):
      suffix.suffix(1, store=9, warm=str(path), warm_method="x")
    path.write_text("[1]")
    with self.assertRaisesRegex(ValueError, "no results.jsonl"):
      suffix.suffix(1, store=9, warm=str(path))
    with self.assertRaisesRegex(FileNotFoundError, "nowhere does not exist"):
      suffix.suffix(1, store=9, warm="nowhere")


class DecodingTest(parameterized.TestCase):
  @pytest.mark.slow
  def test_contract(self):
    drafter = suffix.suffix(4, offset=2.0, store=12).remember([[1, 2, 3], [5]])
    found = testing.check_drafter(drafter)
    self.assertGreater(found["shapes"], 20)

  @pytest.mark.fault_case("B48")
  def test_text_is_plain_text(self):
    """vllm-project/vllm#7047: rows with zero drafts are mishandled.

    Sampled rows and a greedy one, with a store that the first round reads.
    """
    target = toys.tiny(0)
    sampling = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))
    plain = decoding.run(target, empty.Empty(1), sampling=sampling)
    texts = decoding.answers(plain)
    drafter = suffix.suffix(4, offset=1.0, store=99)
    for remembered in ([], texts[:1]):
      state = decoding.run(
        target, drafter.remember(remembered), sampling=sampling
      )
      self.assertEqual(decoding.answers(state), texts)
    # What is stored comes again: nearly all of the first row is accepted.
    self.assertGreater(int(state.stats.accepted[0].sum()), 25)
    self.assertIn(0, decoding.counters(state, 1)["drafted"])


if __name__ == "__main__":
  absltest.main()
