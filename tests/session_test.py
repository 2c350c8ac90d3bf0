# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts in, answers out: batches, seeds, conversations, mistakes."""

from typing import Any

from absl.testing import absltest, parameterized
import numpy as np
import pytest

import specjax
from specjax import api, session
from specjax import sampling as sampling_lib
from specjax.answers import Method, Settings
from specjax.drafters import draft_model, ngram
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled
from tests import decoding, toys
from tests.decoding import Letters

TARGET = toys.tiny(0)
LETTERS: Any = Letters(
  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ."
)
PROMPTS = [list(prompt) for prompt in decoding.PROMPTS]
NGRAM = ngram.NGram(3)
WARM = sampling_lib.Sampling(temperature=0.8)


def generate(prompts=PROMPTS, **options):
  defaults: dict[str, Any] = {"max_new_tokens": 20, "sampling": WARM}
  if "drafter" in options:
    # One width: each further one is a pass more to compile.
    defaults["policy"] = policy_lib.Fixed(3, widths=())
  return specjax.generate(TARGET, LETTERS, prompts, **(defaults | options))


def tokens(answers) -> list[list[int]]:
  return [answer.tokens.tolist() for answer in answers]


class GenerateTest(parameterized.TestCase):
  def test_drafters_change_the_rounds_and_not_the_answers(self):
    plain, drafted = generate(), generate(drafter=NGRAM)
    self.assertEqual(tokens(drafted), tokens(plain))
    for answer, prompt in zip(drafted, PROMPTS):
      self.assertEqual(answer.text, LETTERS.decode(answer.tokens))
      self.assertLen(answer.tokens, 20)
      self.assertLen(answer.log_probs, 20)
      self.assertEqual(answer.prompt_tokens, len(prompt))
      self.assertEqual(answer.reason, "length")
      self.assertEqual(answer.emitted.sum(), 20)
      np.testing.assert_array_equal(answer.emitted, answer.accepted + 1)
    self.assertEqual(plain[0].emitted.tolist(), [1] * 20)
    self.assertLess(len(drafted[0].emitted) + len(drafted[2].emitted), 40)

  @pytest.mark.fault_case("B49")
  def test_batch_size_changes_nothing(self):
    """vllm-project/vllm#6038: a row's text depends on its neighbours.

    Sizes that leave the last batch with rows to spare are among them.
    """
    prompts = [*PROMPTS, [40, 2], [1, 1, 1]]
    whole = tokens(generate(prompts, drafter=NGRAM, batch_size=3))
    for size in (1, 5, None):
      got = generate(prompts, drafter=NGRAM, batch_size=size)
      self.assertEqual(tokens(got), whole)

  def test_settings_of_each_prompt(self):
    """Batches cut them as they cut the prompts."""
    sampling = sampling_lib.Sampling(temperature=[0, 0.8, 0], top_k=[0, 3, 0])
    mixed = tokens(generate(sampling=sampling, batch_size=2))
    greedy = tokens(generate(sampling=sampling_lib.Sampling()))
    self.assertEqual([mixed[0], mixed[2]], [greedy[0], greedy[2]])
    self.assertNotEqual(mixed[1], greedy[1])

  def test_seeds(self):
    first, other = tokens(generate(seed=0)), tokens(generate(seed=1))
    for a, b in zip(first, other):
      self.assertNotEqual(a, b)
    # Equal prompts differ, because their index differs.
    twice = tokens(generate([PROMPTS[0]] * 2))
    self.assertNotEqual(twice[0], twice[1])
    # One seed a prompt: then the index does not matter.
    own = tokens(generate([PROMPTS[0]] * 3, seed=[4, 5, 4]))
    self.assertEqual(own[0], own[2])
    self.assertNotEqual(own[0], own[1])

  def test_one_prompt_or_several(self):
    several = tokens(generate([[3, 4, 5]]))
    self.assertEqual(tokens(generate([3, 4, 5])), several)
    self.assertEqual(tokens(generate("def")), several)
    self.assertEqual(tokens(generate(["def"])), several)

  def test_stop_may_be_one_string(self):
    greedy = sampling_lib.Sampling()
    text = generate(sampling=greedy)[0].text
    stop = text[2:4]
    answers = [
      generate(sampling=greedy, stop=value)[0].text for value in (stop, [stop])
    ]
    self.assertEqual(answers, [text[: text.index(stop) + 2]] * 2)

  @parameterized.parameters(
    ({"prompts": []}, "there is no prompt"),
    ({"prompts": ""}, "prompt 0 is empty"),
    ({"prompts": [[1], []]}, "prompt 1 is empty"),
    ({"max_new_tokens": -1}, "max_new_tokens is -1: use 0 or more"),
    ({"batch_size": 0}, "batch_size is 0: use 1 or more"),
    ({"stop": [""]}, "a stop string is empty"),
    ({"seed": [1, 2]}, "2 seeds for 3 prompts"),
    (
      {"sampling": sampling_lib.Sampling(temperature=[1, 0])},
      "one for each of 3 rows",
    ),
    ({"max_new_tokens": 250}, "263 positions but the model has 256"),
    ({"prompts": [[1] * 300]}, "320 positions but the model has 256"),
  )
  def test_mistakes(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      generate(**options)

  @parameterized.parameters(
    lambda: policy_lib.Fixed(-1),
    lambda: ngram.NGram(-1),
    lambda: draft_model.DraftModel(TARGET, 0),
  )
  def test_impossible_draft_lengths(self, make):
    with self.assertRaisesRegex(ValueError, "draft length (-1|0)"):
      make()

  def test_nothing_to_say(self):
    for answer in generate(max_new_tokens=0, drafter=NGRAM):
      self.assertEqual(answer.tokens.tolist(), [])
      self.assertEqual(answer.text, "")
      self.assertEqual(answer.reason, "length")
      self.assertEqual(answer.emitted.tolist(), [])


class BucketTest(parameterized.TestCase):
  @parameterized.parameters(
    (1, 8, 128), (100, 20, 128), (100, 25, 256), (200, 50, 256), (200, 56, 384)
  )
  def test_few_sizes(self, prompt, new, expected):
    size = session.bucket(
      TARGET,
      Method(ngram.NGram(3)),
      Settings(max_new_tokens=new),
      [[1] * prompt],
    )
    self.assertEqual(size, expected)
    self.assertGreaterEqual(size, prompt + new + 4)


class SessionTest(parameterized.TestCase):
  def session(self, prompts=PROMPTS, drafter=NGRAM, **options):
    defaults: dict[str, Any] = {"max_new_tokens": 12, "sampling": WARM}
    settings = Settings(**(defaults | options))
    return session.Session(
      TARGET,
      LETTERS,
      Method(drafter, coupled.Coupled()),
      settings,
      prompts,
      capacity=128,
    )

  def test_chunks_change_nothing(self):
    whole = self.session()
    for _ in whole.rounds():
      pass
    parts = self.session()
    seen = []
    for _ in parts.rounds(1):
      seen.append(sum(len(answer.tokens) for answer in parts.results()))
    self.assertEqual(tokens(parts.results()), tokens(whole.results()))
    self.assertEqual(seen, sorted(seen))
    self.assertEqual(seen[-1], 36)

  def test_kept_conversation(self):
    """`prefill` continues with what a fresh prompt of everything would give."""
    kept = self.session()
    for _ in kept.rounds():
      pass
    first = tokens(kept.results())
    turn = [[9, 9], [8], [7, 6, 5]]
    kept.prefill(turn)
    for _ in kept.rounds():
      pass
    whole = [a + b + c for a, b, c in zip(PROMPTS, first, turn)]
    fresh = self.session(whole)
    for _ in fresh.rounds():
      pass
    self.assertEqual(tokens(kept.results()), tokens(fresh.results()))
    for answer, prompt in zip(kept.results(), whole):
      self.assertEqual(answer.prompt_tokens, len(prompt))

  def test_conversation_that_no_longer_fits(self):
    kept = self.session()
    for _ in kept.rounds():
      pass
    with self.assertRaisesRegex(ValueError, "capacity 128 cannot hold"):
      kept.prefill([[1] * 110] * 3)

  def test_ends_of_text(self):
    whole = tokens(generate())
    letters: Any = Letters(LETTERS.texts, eos_ids=(whole[0][5],))
    for ignore in (False, True):
      answers = session.Session(
        TARGET,
        letters,
        Method(NGRAM),
        Settings(sampling=WARM, max_new_tokens=20, ignore_eos=ignore),
        PROMPTS,
      )
      for _ in answers.rounds():
        pass
      first = answers.results()[0]
      if ignore:
        self.assertEqual(first.tokens.tolist(), whole[0])
      else:
        self.assertEqual(first.reason, "eos")
        self.assertLessEqual(len(first.tokens), 6)
        self.assertEqual(first.tokens[-1], whole[0][5])


class EncodeTest(absltest.TestCase):
  def test_texts_and_ids(self):
    self.assertEqual(api.encode(LETTERS, ["bad", [3, 4]]), [[1, 0, 3], [3, 4]])


if __name__ == "__main__":
  absltest.main()
