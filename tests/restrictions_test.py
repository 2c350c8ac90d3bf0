# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What may not be written is not written, and a row with nothing left ends."""

from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import pytest

from specjax import api, session
from specjax import sampling as sampling_lib
from specjax.decoding import stopping
from specjax.drafters import empty, ngram
from specjax.policies import policy as policy_lib
from specjax.sampling import automata
from specjax.verifiers import coupled, rejection
from tests import decode_test, decoding, oracle, toys

LETTERS, CHOICES = oracle.LETTERS, oracle.CHOICES
TARGET = toys.Table(jnp.asarray(oracle.TABLE, jnp.float32))
DRAFTERS: dict[str, Any] = {
  "plain": empty.Empty(1),
  "ngram": ngram.NGram(length=3, min_n=1),
}
VERIFIERS: dict[str, Any] = {
  "coupled": coupled.Coupled(),
  "rejection": rejection.Rejection(),
}


class RestrictionsTest(parameterized.TestCase):
  @parameterized.parameters("coupled", "rejection")
  @pytest.mark.fault_case("B27")
  def test_a_draft_of_what_is_forbidden(self, verifier):
    """vllm-project/vllm#42744: bias and minimum reach all offsets.

    Token 0 is likely and drafted everywhere. Row 0 forbids it by its bias; in
    the others it is EOS, which the third and the first token must not be.
    """
    rule = VERIFIERS[verifier]
    asked = sampling_lib.per_row(
      sampling_lib.Sampling(
        temperature=1.0,
        bias=[{0: -100.0}, None, None],
        min_tokens=[0, 3, 1],
      ),
      3,
      vocab=3,
      eos=(0,),
    )
    state = decoding.run(
      toys.row([0.9998, 0.0001, 0.0001]),
      decode_test.Constant(4),
      [[1], [1], [0]],
      sampling=asked,
      verifier=rule,
      eos=(0,),
      new=20,
    )
    answers = decoding.answers(state)
    self.assertLen(answers[0], 20)
    self.assertNotIn(0, answers[0])
    self.assertEqual([len(answers[1]), answers[1][-1]], [4, 0])
    self.assertEqual([len(answers[2]), answers[2][-1]], [2, 0])

  def test_a_row_with_nothing_left_ends(self):
    """With an error, never with a token that was forbidden."""
    asked = sampling_lib.per_row(
      sampling_lib.Sampling(
        allowed=[[0, 2], [1, 2], []], bad_words=[[2, 0], [2, 2]]
      ),
      3,
    )
    for drafter in (empty.Empty(4), decode_test.Constant(4)):
      state = decoding.run(
        toys.row([0.2, 0.3, 0.5]),
        drafter,
        [[1], [1], [1]],
        sampling=asked,
        new=6,
      )
      # After 2 the first row may write neither 0 nor 2.
      self.assertEqual(
        decoding.answers(state), [[2], [2, 1, 2, 1, 2, 1], [2, 1, 2, 1, 2, 1]]
      )
      self.assertEqual(state.reason[0], stopping.Reason.ERROR)
      self.assertEqual(state.reason[1], stopping.Reason.LENGTH)


class AnswersTest(parameterized.TestCase):
  """Through the Python API: two sessions of one Sampling, several samples."""

  @parameterized.parameters(("coupled", "plain"), ("rejection", "ngram"))
  def test_answers_have_their_form(self, verifier, drafter):
    self.check_answers(verifier, drafter)

  @pytest.mark.slow
  def test_coupled_answers_have_their_form(self):
    self.check_answers("coupled", "ngram")

  def check_answers(self, verifier, drafter):
    asked = sampling_lib.Sampling(
      temperature=1.0,
      bad_words=[[[3]], None],
      constraint=[
        automata.regex("[a-c]{3,5}(d|e)+", LETTERS),
        automata.choices(CHOICES, LETTERS),
      ],
    )
    for seed in range(2):
      answers = api.generate(
        TARGET,
        LETTERS,
        [[1, 2, 1, 2], [6, 7, 6]],
        drafter=DRAFTERS[drafter],
        policy=policy_lib.Fixed(DRAFTERS[drafter].max_depth, widths=()),
        verifier=VERIFIERS[verifier],
        sampling=asked,
        samples=2,
        seed=seed,
        max_new_tokens=40,
      )
      for answer in answers[:2]:
        self.assertNotIn(3, answer.tokens)
        self.assertRegex(answer.text, "^[a-c]{3,5}(d|e)*(<e>)?$")
        if answer.reason == "eos":
          self.assertRegex(answer.text, "^[a-c]{3,5}(d|e)+<e>$")
      for answer in answers[2:]:
        self.assertIn(answer.text, [f"{choice}<e>" for choice in CHOICES])

  def test_each_turn_begins_anew(self):
    settings = session.Settings(
      sampling_lib.Sampling(
        temperature=1.0, constraint=automata.choices(CHOICES, LETTERS)
      ),
      max_new_tokens=10,
    )
    wanted = policy_lib.Fixed(3, widths=())
    method = session.Method(DRAFTERS["ngram"], policy=wanted)
    talk = session.Session(
      TARGET, LETTERS, method, settings, [[1, 2]], capacity=64
    )
    for prompt in ([5], [3, 4], None):
      for _ in talk.rounds():
        pass
      choices = [f"{choice}<e>" for choice in CHOICES]
      self.assertIn(talk.results()[0].text, choices)
      if prompt:
        talk.prefill([prompt])


if __name__ == "__main__":
  absltest.main()
