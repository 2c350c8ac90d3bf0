# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""When rows end, and that nothing after the end is kept or counted."""

from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.decoding import stopping
from specjax.drafters import draft_model
from tests import decoding, toys

VOCAB = 32
LENGTH = 6
TARGET = toys.cycle(VOCAB)
DRAFTERS = {
  name: draft_model.DraftModel(make(VOCAB), LENGTH)
  for name, make in (
    ("right", toys.cycle),
    ("wrong", toys.skip),
    ("part", toys.part),
  )
}
Reason = stopping.Reason
ONE = ((1,), (9,), (20,))  # the first row is looked at


def run(drafter="right", prompts=ONE, **options) -> types.DecodeState:
  return decoding.run(TARGET, DRAFTERS[drafter], prompts, **options)


def check_nothing_after_the_end(test, state) -> None:
  for row, length in enumerate(state.lengths):
    stats = decoding.counters(state, row)
    new = int(length - state.prompt_lengths[row])
    test.assertEqual(sum(stats["emitted"]), new)
    test.assertEqual(int(state.cache.lengths[row]), length - 1)
    np.testing.assert_array_equal(state.tokens[row, length:], 0)
    np.testing.assert_array_equal(state.log_probs[row, length:], 0)
    # The table model's cache holds the tokens it was fed.
    np.testing.assert_array_equal(
      state.cache.layers[0][0][row, : length - 1, 0, 0],
      state.tokens[row, : length - 1],
    )


class LengthTest(parameterized.TestCase):
  @parameterized.parameters(*DRAFTERS)
  @pytest.mark.fault_case("B24")
  def test_exactly_as_many_tokens_as_asked(self, drafter):
    """huggingface/transformers#28555: drafts overshoot the budget."""
    run(drafter)
    compiled = decoding.compiled()
    for new in range(14):
      state = run(drafter, new=[new, 13 - new, new // 2], length=5)
      for row, (prompt, count) in enumerate(
        zip((1, 9, 20), (new, 13 - new, new // 2))
      ):
        expected = [(prompt + 1 + i) % VOCAB for i in range(count)]
        self.assertEqual(decoding.answers(state)[row], expected)
        self.assertEqual(state.reason[row], Reason.LENGTH)
        drafted = decoding.counters(state, row)["drafted"]
        self.assertLessEqual(max(drafted, default=0), max(count - 1, 0))
      check_nothing_after_the_end(self, state)
    self.assertEqual(decoding.compiled(), compiled)

  @parameterized.parameters((1, (), [2]), (5, (), [2, 3, 4, 5, 6]))
  @pytest.mark.fault_case("B18")
  def test_first_token_counts(self, new, eos, expected):
    """Lightning-AI/litgpt#2307: the first token is left out."""
    state = run(new=new, eos=eos)
    self.assertEqual(decoding.answers(state)[0], expected)

  @pytest.mark.fault_case("B18")
  def test_first_token_may_be_the_last(self):
    state = run(new=5, eos=[2])
    self.assertEqual(decoding.answers(state)[0], [2])
    self.assertEqual(state.reason[0], Reason.EOS)
    self.assertEqual(decoding.counters(state, 0)["emitted"], [1])
    check_nothing_after_the_end(self, state)


class EosTest(parameterized.TestCase):
  @parameterized.product(drafter=tuple(DRAFTERS), eos=tuple(range(2, 10)))
  @pytest.mark.fault_case("B19")
  def test_at_every_offset_of_a_block(self, drafter, eos):
    """huggingface/transformers#47912: an end inside a block is passed over."""
    state = run(drafter, eos=[eos, 31], new=20)
    self.assertEqual(decoding.answers(state)[0], list(range(2, eos + 1)))
    self.assertEqual(decoding.answers(state)[2], list(range(21, 32)))
    self.assertEqual(
      state.reason.tolist(), [Reason.EOS, Reason.LENGTH, Reason.EOS]
    )
    check_nothing_after_the_end(self, state)

  def test_end_of_text_in_the_prompt_is_no_end(self):
    state = run(prompts=[[4, 1], [4], [4, 4]], eos=[4], new=3)
    self.assertEqual(decoding.answers(state), [[2, 3, 4], [5, 6, 7], [5, 6, 7]])

  def test_last_allowed_token_that_is_an_end(self):
    """The first reason in emission order; of two at one token, EOS."""
    state = run(eos=[6], new=5)
    self.assertEqual(state.reason[0], Reason.EOS)
    state = run(eos=[7], new=5)
    self.assertEqual(state.reason[0], Reason.LENGTH)

  @pytest.mark.fault_case("B70")
  def test_finished_rows_stay_as_they_are(self):
    """jax-ml/jax#20628: the loop's body runs on for rows that ended.

    Contract pitfall 16: ids and counters equal each row alone.
    """
    for drafter in DRAFTERS:
      state = run(drafter, eos=[2], new=30)
      self.assertGreater(state.stats.rounds[1], state.stats.rounds[0])
      self.assertEqual(state.round.tolist(), state.stats.rounds.tolist())
      for row in range(3):
        alone = run(drafter, [ONE[row]] * 3, eos=[2], new=30)
        self.assertEqual(
          decoding.answers(alone)[0], decoding.answers(state)[row]
        )
        self.assertEqual(
          decoding.counters(alone, 0), decoding.counters(state, row)
        )


class SequenceTest(parameterized.TestCase):
  @parameterized.product(drafter=tuple(DRAFTERS), end=tuple(range(3, 12)))
  def test_at_every_place_of_a_block_and_across(self, drafter, end):
    sequences = [[end - 1, end], [30, 29]]
    # The last row would wrap around and meet the sequence, too.
    state = run(drafter, sequences=sequences, new=[20, 20, 10])
    self.assertEqual(decoding.answers(state)[0], list(range(2, end + 1)))
    self.assertEqual(state.reason[0], Reason.STOP)
    self.assertEqual(state.reason[2], Reason.LENGTH)
    check_nothing_after_the_end(self, state)

  def test_tokens_of_the_prompt_never_count(self):
    state = run(prompts=[[1, 2], [1], [9]], sequences=[[2, 3], [9, 9]], new=4)
    self.assertEqual(decoding.answers(state)[0], [3, 4, 5, 6])
    self.assertEqual(decoding.answers(state)[1], [2, 3])

  def test_sequences_of_several_lengths(self):
    stop = [[4, 5, 6], [13], [22, 23]]
    state = run(sequences=stop, new=20)
    self.assertEqual([row[-1] for row in decoding.answers(state)], [6, 13, 23])
    self.assertEqual(state.reason.tolist(), [Reason.STOP] * 3)

  def test_end_of_text_that_completes_a_sequence_is_an_end_of_text(self):
    state = run(sequences=[[4, 5], [13, 14]], eos=[5], new=20)
    self.assertEqual(state.reason[:2].tolist(), [Reason.EOS, Reason.STOP])


class ErrorTest(parameterized.TestCase):
  """vllm-project/vllm#53029: NaN leaves as an ordinary-looking id."""

  def broken(self, value) -> toys.Table:
    return toys.Table(TARGET.table.at[5].set(value))

  @parameterized.parameters(np.nan, -np.inf, np.inf)
  @pytest.mark.fault_case("B07")
  def test_ends_the_row_and_no_other(self, value):
    target = self.broken(value)
    for drafter in DRAFTERS.values():
      state = decoding.run(target, drafter, [[9], [3], [20]], new=6, length=2)
      self.assertEqual(
        decoding.answers(state),
        [list(range(10, 16)), [4, 5], list(range(21, 27))],
      )
      self.assertEqual(
        state.reason.tolist(), [Reason.LENGTH, Reason.ERROR, Reason.LENGTH]
      )
      check_nothing_after_the_end(self, state)
      self.assertTrue(np.all(np.isfinite(state.log_probs)))

  @pytest.mark.fault_case("B07")
  def test_first_token(self):
    state = decoding.run(
      self.broken(np.nan), DRAFTERS["right"], [[5], [5, 6], [7]], new=3
    )
    self.assertEqual(decoding.answers(state), [[], [7, 8, 9], [8, 9, 10]])
    self.assertEqual(state.reason[0], Reason.ERROR)

  def test_bad_draft_does_not_end_a_healthy_row(self):
    """Contract pitfall 15: only kept slots are checked."""
    state = decoding.run(
      self.broken(np.nan), DRAFTERS["wrong"], [[2], [3], [20]], new=[2, 1, 9]
    )
    # After 3 the draft is 5, whose logits are NaN, and it is refused.
    self.assertEqual(decoding.answers(state)[0], [3, 4])
    self.assertEqual(state.reason.tolist(), [Reason.LENGTH] * 3)


class MakeStopTest(parameterized.TestCase):
  def test_widths_do_not_depend_on_the_number_of_ids(self):
    shapes = {
      stopping.make_stop(eos, [1]).eos.shape for eos in ((), (1,), (1, 2, 3))
    }
    self.assertLen(shapes, 1)

  @parameterized.parameters(
    ([-1], (), "max_new_tokens is -1: use 0 or more"),
    ([1], ((),), "a stop sequence is empty"),
  )
  def test_refuses(self, limit, sequences, message):
    with self.assertRaisesRegex(ValueError, message):
      stopping.make_stop((), limit, sequences)


class StatsTest(absltest.TestCase):
  @pytest.mark.fault_case("B52")
  def test_rounds_that_a_stop_cut_short_reject_nothing(self):
    """ggml-org/llama.cpp#14104: drafts never tested lower the rate.

    Contract pitfall 19: 24 tokens of a draft that is always right, 4 a round.
    """
    state = run(new=24, length=4)
    stats = decoding.counters(state, 0)
    self.assertEqual(stats["emitted"], [5, 5, 5, 5, 4])
    self.assertEqual(stats["drafted"], [4, 4, 4, 4, 3])
    self.assertEqual(stats["accepted"], [4, 4, 4, 4, 3])
    self.assertEqual(stats["rejected"], [False] * 5)
    state = run(new=24, length=4, eos=[8])
    stats = decoding.counters(state, 0)
    self.assertEqual(stats["emitted"], [5, 2])
    self.assertEqual(stats["accepted"], [4, 2])
    self.assertEqual(stats["rejected"], [False, False])

  @pytest.mark.fault_case("B52")
  def test_partly_right_drafts(self):
    """Right unless the last token is a multiple of four."""
    state = run("part", new=10, length=4)
    stats = decoding.counters(state, 0)
    # From 1: 2 3 4 kept, 6 refused, so 5 from the target; then 6 7 8; ...
    self.assertEqual(stats["emitted"], [4, 4, 2])
    self.assertEqual(stats["drafted"], [4, 4, 1])
    self.assertEqual(stats["accepted"], [3, 3, 1])
    self.assertEqual(stats["rejected"], [True, True, False])


class EndRowsTest(absltest.TestCase):
  def test_cuts_everything_at_one_place(self):
    sampling = decoding.settings([0] * 3).replace(presence=jnp.zeros(3))
    state = run(new=12, length=4, sampling=sampling)
    cut: Any = stopping.end_rows(state, jnp.array([8, -1, 3]))
    np.testing.assert_array_equal(cut.lengths, [8, 13, 3])
    np.testing.assert_array_equal(cut.cache.lengths, [7, 12, 2])
    np.testing.assert_array_equal(
      cut.reason, [Reason.STOP, Reason.LENGTH, Reason.STOP]
    )
    for row, (emitted, accepted) in enumerate(
      (([5, 2], [4, 2]), ([5, 5, 2], [4, 4, 1]), ([2], [2]))
    ):
      stats = decoding.counters(cut, row)
      self.assertEqual(stats["emitted"], emitted)
      self.assertEqual(stats["accepted"], accepted)
      counts = np.bincount(
        state.tokens[row, : cut.lengths[row]], minlength=VOCAB
      )
      np.testing.assert_array_equal(cut.history.counts[row], counts)


if __name__ == "__main__":
  absltest.main()
