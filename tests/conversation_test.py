# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A further turn of a kept conversation is a fresh prompt of everything.

After each turn the kept session and one that reads the whole text anew must
agree on the next logits, on the tokens that follow, and, where the random
streams are keyed by position alone, on what each round drafted and accepted:
then the drafter remembers the same, too.
"""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.answers import Method, Settings
from specjax.drafters import draft_model, empty, ngram
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled, rejection
from tests import decoding, toys
from tests.decoding import Letters

PLAIN = toys.tiny(0)
# Layers that see less than a turn, so that one turn's keys leave the window of
# the next. The same weights.
WINDOWED = toys.tiny(
  0, config=dataclasses.replace(toys.TINY_CONFIG, windows=(6, None))
)
TEXTS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ."
PROMPTS = [list(prompt) for prompt in decoding.PROMPTS]
# Ragged, one longer than a window and one of a single token.
TURNS = ([[9, 9], [8], [7, 6, 5, 7, 6, 5, 7, 6]], [[1], [2, 3, 2, 3], [4, 4]])
WARM = sampling_lib.Sampling(temperature=0.8, top_k=20)


DRAFT = draft_model.DraftModel(toys.noisy(PLAIN), 3)
UNUSED = 10_000  # An id that no model has: every run has one EOS id and one
# stop sequence of two, so that few programs are compiled.

# name, model, drafter, verifier, settings; "eos", "stop" and "sequence" end an
# answer with what the first one has at this place.
SCENARIOS = (
  ("draft", PLAIN, DRAFT, coupled.Coupled(), {}),
  ("eos", PLAIN, DRAFT, coupled.Coupled(), {"eos": 5}),
  ("stop_string", PLAIN, DRAFT, coupled.Coupled(), {"stop": 4}),
  ("stop_tokens", PLAIN, DRAFT, coupled.Coupled(), {"sequence": 4}),
  ("windows", WINDOWED, ngram.NGram(3), coupled.Coupled(), {}),
  ("windows_cut", WINDOWED, ngram.NGram(3), coupled.Coupled(), {"stop": 4}),
  (
    "penalties",
    PLAIN,
    ngram.NGram(3),
    coupled.Coupled(),
    {
      "sampling": sampling_lib.Sampling(
        temperature=0.8, repetition=1.3, presence=0.2
      )
    },
  ),
)

GREEDY = (
  "rejection_greedy",
  PLAIN,
  DRAFT,
  rejection.Rejection(),
  {"sampling": sampling_lib.Sampling()},
)


@jax.jit
def _next_logits(model, tokens, lengths, cache):
  root = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)
  return model(root, cache).logits[:, 0]


def next_logits(session: session_lib.Session) -> np.ndarray:
  """[B, V]: what the target says about the token that comes next."""
  state = session.state
  return np.asarray(
    _next_logits(session.model, state.tokens, state.lengths, state.cache)
  )


def answer(session: session_lib.Session) -> list[Any]:
  for _ in session.rounds():
    pass
  return session.results()


class ConversationTest(parameterized.TestCase):
  def start(self, scenario, prompts) -> session_lib.Session:
    _, model, drafter, verifier, options = scenario
    options = {"sampling": WARM, "max_new_tokens": 12} | options
    eos, sequence = (UNUSED,), (UNUSED, UNUSED)
    if "eos" in options:
      (token,) = self.first_answer(scenario, options.pop("eos"), 1)
      eos = (token,)
    if "sequence" in options:
      sequence = self.first_answer(scenario, options.pop("sequence"), 2)
    if "stop" in options:
      found = self.first_answer(scenario, options.pop("stop"), 2)
      options["stop"] = ("".join(TEXTS[token] for token in found),)
    letters: Any = Letters(TEXTS, eos_ids=eos)
    options["stop_tokens"] = (sequence,)
    return session_lib.Session(
      model,
      letters,
      # One width: each further one is a pass more to compile.
      Method(drafter, verifier, policy_lib.Fixed(drafter.max_depth, ())),
      Settings(**options),
      prompts,
      capacity=128,
    )

  def first_answer(self, scenario, place: int, count: int) -> tuple[int, ...]:
    """Tokens of the first prompt's answer when nothing ends it."""
    session = self.start((*scenario[:4], {}), PROMPTS)
    tokens = answer(session)[0].tokens.tolist()
    return tuple(tokens[place : place + count])

  @parameterized.named_parameters((s[0], s) for s in SCENARIOS)
  def test_a_further_turn_is_a_fresh_prompt(self, scenario):
    self.check_turns(scenario)

  @pytest.mark.slow
  def test_a_further_turn_under_a_ratio_rule(self):
    self.check_turns(GREEDY)

  def check_turns(self, scenario):
    kept = self.start(scenario, PROMPTS)
    whole = [list(prompt) for prompt in PROMPTS]
    for turn in TURNS:
      for text, said, new in zip(whole, answer(kept), turn):
        text += [*said.tokens.tolist(), *new]
      kept.prefill(turn)
      fresh = self.start(scenario, whole)
      # Another number of chunks reads the same tokens: float32 sums of 32 to
      # 128 terms near 1 differ by a few 1e-7 a layer.
      np.testing.assert_allclose(
        next_logits(kept), next_logits(fresh), rtol=0, atol=1e-5
      )
      for one, other, text in zip(answer(kept), answer(fresh), whole):
        self.assertEqual(one.tokens.tolist(), other.tokens.tolist())
        self.assertEqual(one.reason, other.reason)
        self.assertEqual(one.text, other.text)
        self.assertEqual(one.prompt_tokens, len(text))
        # The same rounds: the drafter knew the same.
        np.testing.assert_array_equal(one.drafted, other.drafted)
        np.testing.assert_array_equal(one.accepted, other.accepted)
        np.testing.assert_array_equal(one.emitted, other.emitted)
        np.testing.assert_allclose(
          one.log_probs, other.log_probs, rtol=0, atol=1e-5
        )

  @parameterized.parameters("eos", "stop_string", "stop_tokens")
  def test_the_ends_are_met(self, name):
    """Some rows end early and others do not, so their caches differ."""
    (scenario,) = (s for s in SCENARIOS if s[0] == name)
    answers = answer(self.start(scenario, PROMPTS))
    reasons = [said.reason for said in answers]
    self.assertNotEqual(reasons[0], "length")
    self.assertLess(len(answers[0].tokens), 12)
    self.assertIn("length", reasons)

  def test_logits_are_those_of_a_forward_without_a_cache(self):
    scenario = next(s for s in SCENARIOS if s[0] == "draft")
    kept = self.start(scenario, PROMPTS)
    whole = [
      [*prompt, *said.tokens.tolist(), *new]
      for prompt, said, new in zip(PROMPTS, answer(kept), TURNS[0])
    ]
    kept.prefill(TURNS[0])
    reference = toys.last_logits(scenario[1])
    for row, text in zip(next_logits(kept), whole):
      # float64 sums against float32 ones.
      np.testing.assert_allclose(row, reference(text), rtol=0, atol=1e-4)

  def test_windows_matter_here(self):
    """Else the windowed scenarios would prove nothing."""
    whole = [[*a, *b] for a, b in zip(PROMPTS, TURNS[0])]
    plain, windowed = (
      next_logits(self.start(scenario, whole))
      for scenario in SCENARIOS
      if scenario[0] in ("draft", "windows")
    )
    # The last prompt is the one that is longer than the window.
    self.assertGreater(np.abs(plain - windowed)[2].max(), 0.1)

  def test_sampled_coupled_tokens_depend_on_their_position_alone(self):
    """SAMPLE is keyed by absolute position: turns are no part of it."""
    kept = self.start(SCENARIOS[0], PROMPTS)
    first = answer(kept)
    kept.prefill([[9]] * 3)
    second = answer(kept)
    whole = [
      [*prompt, *said.tokens.tolist(), 9]
      for prompt, said in zip(PROMPTS, first)
    ]
    plain = ("plain", PLAIN, empty.Empty(), coupled.Coupled(), {})
    fresh = answer(self.start(plain, whole))
    for one, other in zip(second, fresh):
      self.assertEqual(one.tokens.tolist(), other.tokens.tolist())

  def test_ratio_rules_go_on_with_their_rounds(self):
    """Their streams are keyed by round, and a kept row's rounds go on.

    So a sampled second turn is no replay of a fresh one; its logits are.
    """
    scenario = ("rejection", PLAIN, DRAFT, rejection.Rejection(), {})
    kept = self.start(scenario, PROMPTS)
    first = answer(kept)
    rounds = np.asarray(kept.state.round).copy()
    kept.prefill(TURNS[0])
    np.testing.assert_array_equal(kept.state.round, rounds)
    self.assertGreater(rounds.min(), 0)
    whole = [
      [*prompt, *said.tokens.tolist(), *new]
      for prompt, said, new in zip(PROMPTS, first, TURNS[0])
    ]
    fresh = self.start(scenario, whole)
    np.testing.assert_array_equal(fresh.state.round, np.zeros(3))
    np.testing.assert_allclose(
      next_logits(kept), next_logits(fresh), rtol=0, atol=1e-5
    )
    tokens = [
      [said.tokens.tolist() for said in answer(s)] for s in (kept, fresh)
    ]
    self.assertNotEqual(*tokens)


if __name__ == "__main__":
  absltest.main()
