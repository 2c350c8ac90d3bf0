# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stop strings: looked for in the whole answer, and everything cut alike."""

from typing import Any

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax import session
from specjax.answers import Method, Settings
from specjax.decoding import stopping
from specjax.drafters import draft_model, empty
from specjax.policies import policy
from tests import decoding, toys
from tests.decoding import Letters

VOCAB = 32
TARGET = toys.cycle(VOCAB)
LENGTH = 8
DRAFTERS = {
  "none": empty.Empty(1),
  "right": draft_model.DraftModel(TARGET, LENGTH),
  "part": draft_model.DraftModel(toys.part(VOCAB), LENGTH),
}


def texts(**pieces: str) -> list[str]:
  """Texts of all tokens; t7="ab" names that of token 7, the rest are "x"."""
  return [pieces.get(f"t{token}", "x") for token in range(VOCAB)]


def method(drafter) -> Method:
  """One width: each further one is a pass more to compile."""
  wanted = policy.Fixed(drafter.max_depth, widths=())
  return Method(drafter, policy=wanted)


def start(drafter, words, stop, eos=(), prompts=((1,), (20,)), new=28):
  letters: Any = Letters(words, eos)
  return session.Session(
    TARGET,
    letters,
    method(DRAFTERS[drafter]),
    Settings(max_new_tokens=new, stop=tuple(stop)),
    prompts,
    capacity=96,
  )


def finish(running, chunk=None):
  for _ in running.rounds(chunk):
    pass
  return running.results()


class StopStringTest(parameterized.TestCase):
  def check(self, answer, expected, reason):
    """Ids, text, log-probabilities and counters end at the same token."""
    self.assertEqual(answer.tokens.tolist(), expected)
    self.assertEqual(answer.reason, reason)
    self.assertLen(answer.log_probs, len(expected))
    self.assertTrue(np.all(answer.log_probs < 0))
    self.assertEqual(int(answer.emitted.sum()), len(expected))
    self.assertTrue(np.all(answer.emitted > 0))
    self.assertTrue(np.all(answer.accepted <= answer.drafted))
    self.assertTrue(np.all(answer.accepted <= answer.emitted))

  @parameterized.product(
    drafter=tuple(DRAFTERS), first=(2, 5, 9, 10, 11), chunk=(None, 1)
  )
  @pytest.mark.fault_case("B21")
  def test_anywhere_in_a_block_and_across(self, drafter, first, chunk):
    """sgl-project/sglang#23802: missed early in a block, or across two.

    A block of 8 drafts ends with token 10, the next begins with 11.
    """
    words = texts(**{f"t{first}": "a", f"t{first + 1}": "b"})
    answers = finish(start(drafter, words, ["ab"]), chunk)
    self.check(answers[0], list(range(2, first + 2)), "stop")
    self.assertTrue(answers[0].text.endswith("ab"))
    # The other row meets the string later, after wrapping around.
    wrapped = [(21 + i) % VOCAB for i in range(28)]
    end = wrapped.index(first + 1) + 1
    self.check(answers[1], wrapped[:end], "stop")

  @parameterized.parameters(*DRAFTERS)
  @pytest.mark.fault_case("B21")
  def test_must_lie_wholly_in_the_answer(self, drafter):
    """One rule with and without speculation: the prompt's tokens count not."""
    words = texts(t1="a", t2="b", t6="ab")
    answers = finish(start(drafter, words, ["ab"]))
    self.check(answers[0], [2, 3, 4, 5, 6], "stop")

  @parameterized.parameters(*DRAFTERS)
  @pytest.mark.fault_case("B22")
  def test_stop_before_the_end_of_text_in_one_block(self, drafter):
    """vllm-project/vllm#47616: the end of text later in the block wins."""
    words = texts(t2="x", t3="ab", t4="y", t5="</s>")
    answers = finish(start(drafter, words, ["ab"], eos=(5,)))
    self.check(answers[0], [2, 3], "stop")
    self.assertEqual(answers[0].text, "xab")
    answers = finish(start(drafter, words, ["zz"], eos=(5,)))
    self.check(answers[0], [2, 3, 4, 5], "eos")

  @parameterized.parameters(*DRAFTERS)
  def test_part_of_a_token_completes_it(self, drafter):
    """The answer keeps the whole token, and so does its text."""
    words = texts(t4="so", t5="me one", t9="so")
    answers = finish(start(drafter, words, ["some"]))
    self.check(answers[0], [2, 3, 4, 5], "stop")
    self.assertEqual(answers[0].text, "xxsome one")

  def test_first_of_several_strings(self):
    words = texts(t4="a", t5="b", t6="c")
    answers = finish(start("right", words, ["abc", "b", "zz"]))
    self.check(answers[0], [2, 3, 4, 5], "stop")

  def test_letters_of_several_bytes(self):
    words = texts(t4="ß", t5="é")
    answers = finish(start("right", words, ["ßé"]))
    self.check(answers[0], [2, 3, 4, 5], "stop")

  def test_conversation_goes_on_after_a_stop(self):
    """The caches are cut as well, drafters begin anew."""
    words = texts(t4="ab")
    for drafter in DRAFTERS:
      kept = start(drafter, words, ["ab"], prompts=((1,), (2,)), new=8)
      self.check(finish(kept)[0], [2, 3, 4], "stop")
      kept.prefill(((9,), (17,)))
      np.testing.assert_array_equal(
        kept.state.cache.lengths, kept.state.lengths - 1
      )
      answers = finish(kept)
      self.check(answers[0], list(range(10, 18)), "length")
      self.check(answers[1], list(range(18, 26)), "length")
      if drafter == "right":
        self.assertEqual(answers[0].emitted.tolist(), [8])
      cache = np.asarray(kept.state.cache.layers[0][0])[0, :, 0, 0]
      self.assertEqual(cache[:12].tolist(), [1, 2, 3, 4, 9, *range(10, 17)])

  def test_drafts_are_right_again_after_a_stop(self):
    """What the draft model saw past the cut must not stay in its cache."""
    target = toys.tiny(0)
    letters: Any = Letters([chr(256 + token) for token in range(64)])
    asked = method(draft_model.DraftModel(target, 4))
    prompts = [list(prompt) for prompt in decoding.PROMPTS]
    start = lambda stop: session.Session(
      target,
      letters,
      asked,
      Settings(max_new_tokens=20, stop=stop),
      prompts,
      capacity=96,
    )
    whole = finish(start(()))
    kept = start((whole[0].text[5:8], whole[1].text[1:4], whole[2].text[11:14]))
    answers = finish(kept)
    self.assertEqual(answers[0].reason, "stop")
    self.assertLess(sum(len(answer.tokens) for answer in answers), 60)
    kept.prefill([[9], [8, 7], [6]])
    for answer in finish(kept):
      self.assertGreater(answer.accepted[0], 0)
      self.assertFalse(np.any(answer.rejected))


class StringEndTest(parameterized.TestCase):
  @parameterized.parameters(
    (["a", "b"], ["ab"], 2),
    (["x", "ab", "y"], ["ab"], 2),
    (["x", "ay", "b"], ["ab"], None),
    (["aaab"], ["ab"], 1),
    (["a", "", "b", ""], ["ab"], 3),
    (["a", "b", "c"], ["c", "bc", "b"], 2),
    (["ab", "ab"], ["ab"], 1),
    ([], ["ab"], None),
    (["a"], [], None),
  )
  def test_tokens_to_keep(self, pieces, strings, expected):
    got = stopping.string_end(
      [piece.encode() for piece in pieces],
      [string.encode() for string in strings],
    )
    self.assertEqual(got, expected)

  def test_letters_split_between_tokens(self):
    letter = "é".encode()
    got = stopping.string_end([b"x", letter[:1], letter[1:], b"y"], [letter])
    self.assertEqual(got, 3)


if __name__ == "__main__":
  absltest.main()
