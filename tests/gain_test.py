# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies that draft only where it pays: by themselves, and in the loop.

Axis letters: B batch, T draft length.
"""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import types
from specjax.decoding import decode
from specjax.drafters import draft_model, empty, ngram, tree_draft_model
from specjax.policies import gain, policy
from specjax.verifiers import coupled
from tests import decoding, toys

# Milliseconds of rounds with 0 to 8 drafted tokens, the first without any: a
# model of 135 million parameters on two CPU cores, widths 1, 4 and 9.
SECONDS = jnp.array([14.6, *[19.8] * 3, *[23.8] * 5]) / 1000
STEADY = policy.Fixed(8, (0, 3))
VOCAB = 80


def outcome(accepted, rejected, ran=True) -> types.Acceptance:
  accepted = jnp.asarray(accepted, jnp.int32)
  count = jnp.where(jnp.asarray(ran), accepted + 1, 0)
  none = jnp.zeros((len(accepted), 0), jnp.int32)
  return types.Acceptance(
    none, none, count, accepted, jnp.asarray(rejected, bool)
  )


advance = jax.jit(lambda policy, state, *seen: policy.update(state, *seen))
ask = jax.jit(lambda policy, state: policy.draft_length(state))


def play(policy, chance, tokens=128, rows=64, seed=0, share=1.0, idle=1.0):
  """Answers whose drafts are kept with a chance that depends on the place.

  In a share of the rounds alone the drafter has something; else it takes `idle`
  of a round without drafts.

  Returns:
    Draft lengths by round [R, B], and each row's speedup over rounds without
    drafts [B].
  """
  rng = np.random.default_rng(seed)
  state = policy.init(rows)
  at, spent, lengths = np.zeros(rows, int), np.zeros(rows), []
  costs = np.asarray(SECONDS)
  while np.any(at < tokens):
    running = at < tokens
    length = np.asarray(ask(policy, state))
    length = np.where(running, np.minimum(length, tokens - at - 1), 0)
    has = rng.random(rows) < share if share < 1 else np.ones(rows, bool)
    asked, length = length, np.where(has, length, 0)
    kept = rng.random((rows, 8)) < chance(at)[:, None]
    accepted = np.minimum(np.cumprod(kept, axis=1).sum(1), length)
    seen = outcome(accepted, accepted < length, running)
    state = advance(policy, state, seen, jnp.asarray(asked))
    lengths.append(length)
    cost = np.where(has | (asked == 0), costs[length], idle * costs[0])
    spent += np.where(running, cost, 0)
    at += np.where(running, accepted + 1, 0)
  return np.array(lengths), tokens * costs[0] / spent


def always(chance):
  return lambda at: np.full(at.shape, chance)


class ExpectedTokensTest(parameterized.TestCase):
  @parameterized.parameters(0.0, 0.3, 0.8)
  def test_geometric_series(self, alpha):
    tokens = gain.expected_tokens(jnp.full((2, 5), alpha))
    wanted = (1 - alpha ** np.arange(1, 7)) / (1 - alpha)
    np.testing.assert_allclose(tokens, [wanted] * 2, rtol=1e-6)

  def test_no_draft(self):
    self.assertEqual(gain.expected_tokens(jnp.zeros((0,))).tolist(), [1])


class ExpectedGainTest(parameterized.TestCase):
  @parameterized.parameters(
    # chance to be kept, least mean speedup, in 128 tokens
    (0.0, 0.94),  # a few tries in vain
    (0.2, 0.93),
    (0.5, 1.25),
    (0.8, 2.0),
    (0.95, 3.4),
  )
  def test_gains_where_there_is_something_to_gain(self, chance, least):
    """64 answers; means were 0.954, 0.943, 1.285, 2.20 and 3.70."""
    _, speedups = play(gain.ExpectedGain(SECONDS), always(chance))
    self.assertGreater(speedups.mean(), least)
    _, fixed = play(STEADY, always(chance))
    self.assertGreater(speedups.mean(), 0.97 * fixed.mean())

  @parameterized.parameters(
    # share of rounds with a draft, chance to be kept, seconds of the others
    (0.3, 0.75, 1.05, 1.42),  # worth asking
    (0.1, 0.75, 1.05, 1.1),
    (0.05, 0.5, 1.1, 0.965),  # not worth it: always asking gives 0.944
  )
  def test_asking_has_a_price(self, share, chance, idle, least):
    """256 answers; means were 1.474, 1.141 and 0.978."""
    rule = gain.ExpectedGain(SECONDS, idle=idle * float(SECONDS[0]))
    given = {"rows": 256, "share": share, "idle": idle}
    _, speedups = play(rule, always(chance), **given)
    self.assertGreater(speedups.mean(), least)

  def test_it_stops_where_the_drafter_is_not_sure(self):
    rule = gain.ExpectedGain(SECONDS, least=0.4)
    law = jnp.log(jnp.array([[0.3, 0.5, 0.2], [0.3, 0.35, 0.35]]))
    keeps = rule.keep_drafting(rule.init(2), law)
    self.assertEqual(keeps.tolist(), [True, False])
    keeps = gain.ExpectedGain(SECONDS).keep_drafting(rule.init(2), law)
    self.assertEqual(keeps.tolist(), [True, True])

  def test_length_follows_what_is_kept(self):
    """Drafts die after two tokens; a third costs nothing, a fourth does."""
    rule = gain.ExpectedGain(SECONDS)
    state = rule.init(1)
    for _ in range(30):
      state = advance(rule, state, outcome([2], [True]), jnp.array([8]))
    np.testing.assert_allclose(rule.rates(state)[0, :2], 1, atol=0.2)
    self.assertLess(float(rule.rates(state)[0, 2]), 0.15)
    self.assertEqual(ask(rule, state).tolist(), [3])

  def test_a_hopeless_belief_is_tried_all_the_same(self):
    """It would otherwise never learn that it is wrong."""
    rule = gain.ExpectedGain(SECONDS, first=0.01)
    self.assertGreater(int(ask(rule, rule.init(1))[0]), 0)
    _, speedups = play(rule, always(0.9))
    self.assertGreater(speedups.mean(), 2)

  def test_never_where_even_sure_drafts_lose(self):
    rule = gain.ExpectedGain(jnp.array([1.0, 2.5, 4.0]), 1.0, 1.0)
    self.assertEqual(int(ask(rule, rule.init(1))[0]), 0)

  def test_rounds_that_tested_nothing_teach_nothing(self):
    rule = gain.ExpectedGain(SECONDS)
    state = rule.init(2)
    state = advance(rule, state, outcome([0, 0], [False] * 2), jnp.zeros(2))
    np.testing.assert_array_equal(rule.rates(state), rule.rates(rule.init(2)))


POLICIES: dict[str, Any] = {
  "gain": gain.ExpectedGain(SECONDS),
  "gain_quick": gain.ExpectedGain(SECONDS, weight=1.0, memory=0.9),
  "pausing": gain.Pausing(STEADY, 1.6),
  "pausing_heuristic": gain.Pausing(policy.Heuristic(8, 5, (0, 3)), 1.4),
}


class SettingsTest(parameterized.TestCase):
  @parameterized.parameters(
    ({"first": 1.2}, "first is 1.2: use 0 to 1"),
    ({"memory": -0.1}, "memory is -0.1: use 0 to 1"),
    ({"weight": 0}, "weight is 0: use 0.01 to inf"),
  )
  def test_expected_gain_refuses(self, settings, message):
    with self.assertRaisesRegex(ValueError, message):
      gain.ExpectedGain(SECONDS, **settings)

  def test_pausing_refuses(self):
    with self.assertRaisesRegex(ValueError, "pause is 0: use 1 to inf"):
      gain.Pausing(STEADY, 1.5, pause=0)


class PausingTest(absltest.TestCase):
  def test_pauses_double_and_end(self):
    rule = gain.Pausing(STEADY, 1.6, pause=2, longest=4, memory=0.5)
    state, lengths = rule.init(1), []
    kept = iter([0] * 6 + [8] * 40)
    for _ in range(24):
      length = ask(rule, state)
      lengths.append(int(length[0]))
      accepted = next(kept) if lengths[-1] else 0
      seen = outcome([accepted], [accepted < lengths[-1]])
      state = advance(rule, state, seen, length)
    # Two rounds in vain, a pause of 2, a try, 4, a try, 4 (the longest), ...
    start = [8, 8, 0, 0, 8, 0, 0, 0, 0, 8, 0, 0, 0, 0, 8, 0, 0, 0, 0, 8]
    self.assertEqual(lengths, [*start, 0, 0, 0, 0])
    self.assertEqual(int(state.left[0]), 0)
    state = advance(rule, state, outcome([8], [False]), jnp.array([8]))
    self.assertEqual(int(state.next[0]), 2)
    self.assertEqual(int(ask(rule, state)[0]), 8)

  def test_one_round_that_pays_ends_the_pauses(self):
    """However many tries before were in vain; two tokens pay 1.6."""
    rule = gain.Pausing(STEADY, 1.6, pause=1, longest=1)
    state, tries = rule.init(1), 0
    while tries < 20:
      length = ask(rule, state)
      tries += int(length[0] > 0)
      state = advance(rule, state, outcome([0], length > 0), length)
    while not ask(rule, state)[0]:
      state = advance(rule, state, outcome([0], [False]), jnp.array([0]))
    state = advance(rule, state, outcome([1], [True]), jnp.array([8]))
    self.assertEqual(int(ask(rule, state)[0]), 8)

  def test_speed(self):
    """64 answers of 128 tokens: 0.945 where nothing is kept, 3.7 at 0.95."""
    rule = POLICIES["pausing"]
    self.assertGreater(play(rule, always(0.0))[1].mean(), 0.93)
    self.assertGreater(play(rule, always(0.95))[1].mean(), 3.4)


class EveryPolicyTest(parameterized.TestCase):
  @parameterized.named_parameters(*((name, name) for name in POLICIES))
  def test_comes_back(self, name):
    """Off while drafts fail, on again once they hold."""
    lengths, _ = play(
      POLICIES[name], lambda at: np.where(at < 128, 0.0, 1.0), 512, rows=4
    )
    for row in lengths.T:
      self.assertGreater(np.mean(row[20:128] == 0), 0.75)
      self.assertGreater(row[row > 0][-2], 3)

  @parameterized.named_parameters(*((name, name) for name in POLICIES))
  def test_rows_do_not_know_each_other(self, name):
    """Each row alone decides as it does in a batch."""
    rng = np.random.default_rng(1)
    rule = POLICIES[name]
    together, alone = rule.init(3), [rule.init(1) for _ in range(3)]
    for _ in range(40):
      length = ask(rule, together)
      apart = jnp.concatenate([ask(rule, state) for state in alone])
      np.testing.assert_array_equal(length, apart)
      accepted = np.minimum(rng.integers(0, 9, 3) * [1, 0, 1], length)
      rejected, ran = accepted < length, rng.random(3) < 0.9
      seen = outcome(accepted, rejected, ran)
      together = advance(rule, together, seen, length)
      for row in range(3):
        at = slice(row, row + 1)
        seen = outcome(accepted[at], rejected[at], ran[at])
        alone[row] = advance(rule, alone[row], seen, length[at])

  @parameterized.named_parameters(*((name, name) for name in POLICIES))
  def test_rows_that_are_done_forget_nothing(self, name):
    """A conversation may go on after it has waited for its neighbours."""
    rule = POLICIES[name]
    state = rule.init(2)
    for _ in range(12):
      seen = outcome([0, 0], [True, True])
      state = advance(rule, state, seen, ask(rule, state))
    waited = advance(
      rule, state, outcome([0, 0], [False] * 2, [True, False]), jnp.zeros(2)
    )
    changed = [
      np.any(np.not_equal(a, b).reshape(2, -1), axis=1)
      for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(waited))
    ]
    self.assertEqual(np.any(changed, axis=0).tolist(), [True, False])


def half_right(vocab: int) -> toys.Table:
  """A draft that is wrong below vocab / 2 and right from there on."""
  table = np.asarray(toys.skip(vocab).table).copy()
  right = np.asarray(toys.cycle(vocab).table)
  table[vocab // 2 :] = right[vocab // 2 :]
  return toys.Table(jnp.asarray(table))


def rows_at(*temperature: float) -> sampling_lib.Sampling:
  return sampling_lib.Sampling(jnp.array(temperature, jnp.float32))


class LoopTest(parameterized.TestCase):
  """In the decoding loop, on tiny models.

  Models of one size and temperatures as arrays: tests share their programs.
  """

  def test_off_and_on_again_in_an_answer(self):
    self.check_off_and_on("pausing")

  @pytest.mark.slow
  def test_off_and_on_again_by_expected_gain(self):
    self.check_off_and_on("gain_quick")

  def check_off_and_on(self, name):
    state = decoding.run(
      toys.cycle(VOCAB),
      draft_model.DraftModel(half_right(VOCAB), 8),
      [[0], [0], [60]],
      policy=POLICIES[name],
      sampling=rows_at(0, 0, 0),
      new=70,
    )
    for row, first in ((0, 0), (2, 60)):
      wanted = [(first + 1 + i) % VOCAB for i in range(70)]
      self.assertEqual(decoding.answers(state)[row], wanted)
    drafted = decoding.counters(state, 0)["drafted"]
    self.assertGreater(np.mean(np.equal(drafted[:30], 0)), 0.6)
    self.assertGreater(max(drafted), 3)
    self.assertGreater(decoding.counters(state, 2)["drafted"][0], 2)

  def test_text_is_that_of_plain_decoding(self):
    self.check_text("gain_quick", "model")

  @parameterized.parameters(
    ("gain", "ngram"),
    ("pausing", "ngram"),
    ("pausing", "model"),
    ("confidence", "model"),
    ("pausing_heuristic", "model"),
    ("heuristic", "model"),
    ("heuristic", "ngram"),
    ("entropy", "model"),
    ("tree_gain", "tree"),
    ("tree_pausing", "tree"),
  )
  @pytest.mark.slow
  def test_text_with_the_other_pairs(self, name, drafter):
    self.check_text(name, drafter)

  def check_text(self, name, drafter):
    """Whatever lengths and widths a policy chooses, in ragged batches."""
    rng = np.random.default_rng(2)
    logits = 2 * rng.normal(size=(VOCAB, VOCAB)).astype(np.float32)
    near = logits + rng.normal(size=(VOCAB, VOCAB)).astype(np.float32)
    target = toys.Table(jnp.asarray(logits))
    draft = toys.Table(jnp.asarray(near))
    drafters: dict[str, Any] = {
      "model": draft_model.DraftModel(draft, 8),
      "ngram": ngram.NGram(8),
      "tree": tree_draft_model.static_tree(draft, (2, 2)),
    }
    rules = POLICIES | {
      "heuristic": policy.Heuristic(8, 2, (0, 3)),
      "confidence": policy.Confidence(8, (0, 3), 0.3),
      "entropy": policy.Entropy(8, (0, 3), 0.2),
      # Lengths are depths there, and all 6 nodes are verified or none.
      "tree_gain": gain.ExpectedGain(
        jnp.array([1, 1.7, 1.8]), weight=1.0, memory=0.9, widths=(0,)
      ),
      "tree_pausing": gain.Pausing(policy.Fixed(2, (0,)), 1.8),
    }
    settings: dict[str, Any] = {"sampling": rows_at(0, 0.8, 0.6), "new": 60}
    state = decoding.run(
      target, drafters[drafter], policy=rules[name], **settings
    )
    plain = decoding.run(target, empty.Empty(1), **settings)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    drafted = [decoding.counters(state, row)["drafted"] for row in range(3)]
    self.assertGreater(len({length for row in drafted for length in row}), 1)
    self.assertTrue(decoding.rows_differ(state))

  def test_settings_are_data(self):
    """New seconds between two chunks of rounds compile nothing."""
    target = toys.cycle(VOCAB)
    drafter = draft_model.DraftModel(target, 8)
    rule = gain.ExpectedGain(SECONDS)
    state, (sampling, _, stop) = decoding.start(
      target, drafter, policy=rule, sampling=rows_at(0, 0, 0), new=60
    )
    rest = (target, drafter, coupled.Coupled())
    never = rule.replace(seconds=jnp.array([1.0, *[99.0] * 8]))
    state = decode.advance(*rest, state, sampling, rule, stop, 2)
    programs = decoding.compiled()
    state = decode.advance(*rest, state, sampling, never, stop, 40)
    quick = rule.replace(first=0.9, weight=1.0, memory=0.5)
    state = decode.advance(*rest, state, sampling, quick, stop, 40)
    self.assertEqual(decoding.compiled(), programs)
    drafted = decoding.counters(decoding.fetch(state), 2)["drafted"]
    self.assertGreater(max(drafted[:2]), 0)
    self.assertEqual(max(drafted[2:42], default=0), 0)


if __name__ == "__main__":
  absltest.main()
