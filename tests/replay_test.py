# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A replayed batch takes the recorded path, whatever the rule would say."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax import types
from specjax.bench import recording, replay
from specjax.drafters import cascade, draft_model, empty, ngram
from specjax.policies import parts
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled, rejection
from tests import toys

LIMIT = 10
PROMPTS = ((5, 6, 7, 5, 6), (3,))


class Words:
  """As much of a tokenizer as a session asks for."""

  eos_ids = (63,)

  def decode(self, ids):
    return " ".join(map(str, ids))


WORDS: Any = Words()


def session(drafter, verifier, temperature: Any = 0.0, widths=()):
  policy: types.Policy = policy_lib.Fixed(drafter.max_depth, widths)
  if isinstance(drafter, cascade.Cascade):
    lengths = (part.max_depth for part in drafter.parts)
    policy = parts.Parts(tuple(policy_lib.Fixed(n, widths) for n in lengths))
  return session_lib.Session(
    toys.tiny(),
    WORDS,
    session_lib.Method(drafter, verifier, policy),
    session_lib.Settings(
      sampling_lib.Sampling(temperature=temperature), LIMIT, seed=3
    ),
    PROMPTS,
  )


def method(name):
  draft = draft_model.DraftModel(toys.noisy(toys.tiny()), 3)
  return {
    # Rounds without a draft run narrower.
    "ngram": (ngram.NGram(3), coupled.Coupled(), 0.0, (1,)),
    # Its policy learns whose drafts were kept.
    "cascade": (
      cascade.cascade(ngram.NGram(4), draft),
      coupled.Coupled(),
      0.0,
      (0, 3),
    ),
    "coupled": (draft, coupled.Coupled(), 1.0),
    "rejection": (draft, rejection.Rejection(), 1.0),
  }[name]


class ReplayTest(parameterized.TestCase):
  @parameterized.parameters("ngram", "cascade", "rejection")
  def test_the_recorded_path_is_taken(self, name):
    self.check_path(name)

  @pytest.mark.slow
  def test_the_recorded_path_of_a_sampled_law_is_taken(self):
    self.check_path("coupled")

  def check_path(self, name):
    asked = session(*method(name))
    record = recording.record(asked, LIMIT)
    state = recording.copy(asked.state)
    end = jax.device_get(replay._recorded(asked, record)(state).stats)
    for _ in asked.rounds():
      pass
    for ours, theirs in zip(
      jax.tree.leaves(end), jax.tree.leaves(jax.device_get(asked.state.stats))
    ):
      np.testing.assert_array_equal(ours, theirs)
    self.assertEqual(record.rounds, int(end.rounds.max()))

  def test_the_record_decides_and_not_the_rule(self):
    """A record that claims no acceptance is believed."""
    asked = session(*method("rejection"))
    record = recording.record(asked, LIMIT)
    self.assertGreater(record.acceptance.accepted.sum(), 0)
    nothing = record.acceptance.replace(
      accepted=np.zeros_like(record.acceptance.accepted),
      count=np.minimum(record.acceptance.count, 1),
    )
    changed = dataclasses.replace(record, acceptance=nothing)
    state = recording.copy(asked.state)
    end = replay._recorded(asked, changed)(state)
    self.assertEqual(int(end.stats.accepted.sum()), 0)

  @parameterized.parameters("ngram", "rejection")
  def test_the_forward_alone_ends_at_the_same_lengths(self, name):
    asked = session(*method(name))
    record = recording.record(asked, LIMIT)
    state = recording.copy(asked.state)
    cache, largest = replay._forward_alone(asked, record)(state)
    for _ in asked.rounds():
      pass
    np.testing.assert_array_equal(cache.lengths, asked.state.cache.lengths)
    self.assertTrue(np.isfinite(float(largest)))
    # The same tokens stand in both caches; rows differ by float32 rounding of
    # blocks of other widths.
    length = int(cache.lengths.min())
    np.testing.assert_allclose(
      cache.layers[1][0][:, :length],
      asked.state.cache.layers[1][0][:, :length],
      atol=1e-4,
    )

  def test_the_session_stays_as_it_was(self):
    asked = session(*method("ngram"))
    before = jax.device_get(asked.state.lengths)
    plain = session(empty.Empty(), coupled.Coupled())
    times = replay.measure(asked, plain, LIMIT, repetitions=1)
    np.testing.assert_array_equal(before, asked.state.lengths)
    self.assertGreater(min(dataclasses.astuple(times)), 0)
    self.assertLess(times.rounds, LIMIT)
    self.assertEqual(times.plain_rounds, LIMIT)
    for _ in asked.rounds():
      pass
    self.assertTrue(np.all(asked.state.done))

  def test_plain_decoding_runs_as_many_rounds_as_there_are_tokens(self):
    """The rule draws from streams of its own; plain would end at once."""
    asked = session(*method("rejection"))
    settings = session_lib.Settings(
      sampling_lib.Sampling(temperature=asked.settings.sampling.temperature),
      LIMIT,
      ignore_eos=True,
      seed=3,
    )
    plain = session_lib.Session(
      toys.tiny(), WORDS, session_lib.Method(empty.Empty()), settings, PROMPTS
    )
    record = recording.record(asked, LIMIT)
    longest = int(record.acceptance.count.sum(axis=0).max())
    rounds = []

    def spend(program, state):
      end = program(recording.copy(state))
      if isinstance(end, types.DecodeState):
        rounds.append(int(end.stats.rounds.max()))
      return 1.0

    with absltest.mock.patch.object(replay, "_time", spend):
      replay.measure(asked, plain, LIMIT, repetitions=1, compiled=True)
    self.assertEqual(rounds, [record.rounds, record.rounds, longest])

  def test_nothing_to_replay_is_told(self):
    asked = session_lib.Session(
      toys.tiny(),
      WORDS,
      session_lib.Method(empty.Empty()),
      session_lib.Settings(max_new_tokens=0),
      PROMPTS,
    )
    with self.assertRaisesRegex(ValueError, "nothing to replay"):
      recording.record(asked, 1)

  def test_shares_are_of_all_batches(self):
    times = [replay.Times(2.0, 1.5, 1.25, 1.0, 5, 8)] * 2
    self.assertEqual(
      replay.shares(times), {"draft": 0.25, "verify": 0.625, "other": 0.125}
    )

  def test_predicted_speedup(self):
    """0.5 s to draft and 2 s to verify what plain decoding takes 4 s for."""
    times = [replay.Times(2.6, 2.1, 2.0, 4.0, 5, 8)]
    found: Any = replay.predicted_speedup(times)
    self.assertAlmostEqual(found, 1.6)
    self.assertIsNone(
      replay.predicted_speedup([replay.Times(1.0, 3.0, 1.0, 0.2, 5, 8)])
    )


class MarginTest(absltest.TestCase):
  def test_greedy_is_the_gap_of_log_probabilities(self):
    asked = session(empty.Empty(1), coupled.Coupled())
    before, seen = next(recording.steps(asked))
    gaps: Any = recording.margins(before, seen, asked.sampling)
    top = np.sort(np.asarray(seen.logits[0, 0], np.float64))[-2:]
    # A difference of two float32 numbers of a few units.
    self.assertAlmostEqual(float(gaps[0, 0]), top[1] - top[0], delta=1e-5)
    self.assertEqual(recording.margin(asked), float(gaps[0, 0]))

  def test_sampling_adds_the_noise_that_drew_the_token(self):
    """The best score belongs to the token that was emitted."""
    asked = session(empty.Empty(1), coupled.Coupled(), temperature=1.0)
    for before, seen in recording.steps(asked):
      positions = jnp.asarray(before.lengths)[:, None]
      noise = before.noise.gumbel(0, positions, positions * 0, 64)
      best = np.asarray(seen.log_p[:, 0] + noise[:, 0]).argmax(-1)
      drawn = np.asarray(seen.acceptance.tokens[:, 0])
      np.testing.assert_array_equal(best[before.active], drawn[before.active])
      gaps: Any = recording.margins(before, seen, asked.sampling)
      self.assertGreater(gaps[:, 0].min(), 0)


if __name__ == "__main__":
  absltest.main()
