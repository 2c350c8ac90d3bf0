# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The coupled rule's text equals plain decoding, token for token.

float32, one device. The baseline is plain decoding in blocks of two slots, and
it is compared in turn with an independent reference without cache or blocks.
On these tiny models no difference is expected, so every difference fails.
"""

from collections.abc import Sequence
import functools
import itertools
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import types
from specjax.decoding import decode, stopping
from specjax.drafters import draft_model, empty, ngram
from specjax.verifiers import coupled
from tests import decoding, reference, toys

TARGET = toys.tiny(0)
NEW = 60
LENGTH = 8
DRAFTERS = {
  "right": draft_model.DraftModel(TARGET, LENGTH),
  "noisy": draft_model.DraftModel(toys.noisy(TARGET), LENGTH),
  "wrong": draft_model.DraftModel(toys.tiny(99), LENGTH),
  "ngram": ngram.NGram(LENGTH),
  "empty": empty.Empty(LENGTH),
}
# What each drafter's rounds must have shown. A draft of the target itself is
# never refused; other weights agree by luck only; one token is all or nothing.
OUTCOMES = {
  "right": {"all"},
  "noisy": {"none", "some", "all"},
  "wrong": {"none"},
  "ngram": {"none", "some", "all"},
  "empty": set(),
}
SAMPLINGS = {
  "greedy": decoding.settings([0] * 3),
  "warm": decoding.settings([0.7] * 3),
  "filtered": decoding.settings([1] * 3, [10] * 3, [0.9] * 3, [0.05] * 3),
  "mixed": decoding.settings([0, 0.8, 1], [0, 10, 0], [1, 0.9, 1], [0, 0, 0.1]),
}
# Temperature alone: fewer transforms compile faster, where shapes are many.
TEMPERATURES = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))
# The same as `reference.log_probs` takes them, by row.
REFERENCE_SETTINGS: dict[str, list[dict[str, Any]]] = {
  "greedy": [{"temperature": 0}] * 3,
  "warm": [{"temperature": 0.7}] * 3,
  "filtered": [{"top_k": 10, "top_p": 0.9, "min_p": 0.05}] * 3,
  "mixed": [
    {"temperature": 0},
    {"temperature": 0.8, "top_k": 10, "top_p": 0.9},
    {"min_p": 0.1},
  ],
}


def pairwise(*factors: Sequence) -> list[tuple]:
  """Rows that hold every pair of values of two factors; greedy, repeatable."""
  columns = list(itertools.combinations(range(len(factors)), 2))

  def pairs(row):
    return {(i, j, row[i], row[j]) for i, j in columns}

  everything = list(itertools.product(*factors))
  missing = set().union(*map(pairs, everything))
  rows = []
  while missing:
    rows.append(max(everything, key=lambda row: len(pairs(row) & missing)))
    missing -= pairs(rows[-1])
  return rows


@functools.cache
def plain(sampling: str) -> types.DecodeState:
  settings = {**SAMPLINGS, "temperatures": TEMPERATURES}[sampling]
  return decoding.run(TARGET, empty.Empty(1), sampling=settings, new=NEW)


def one_row(sampling: sampling_lib.Sampling, row: int):
  return jax.tree.map(lambda x: x[row : row + 1], sampling)


def run_alone(
  row: int, sampling, drafter, length: int = LENGTH, **options
) -> types.DecodeState:
  """The row in a batch of its own, with the index it has in the batch."""
  return decoding.run(
    TARGET,
    drafter,
    decoding.PROMPTS[row : row + 1],
    sampling=one_row(sampling, row),
    indices=[row],
    length=length,
    **options,
  )


class PairwiseTest(parameterized.TestCase):
  def test_every_pair_is_there(self):
    rows = pairwise("ab", (1, 2, 3), (True, False))
    self.assertLess(len(rows), 12)
    for i, j in ((0, 1), (0, 2), (1, 2)):
      values = (("a", "b"), (1, 2, 3), (True, False))
      self.assertEqual(
        {(row[i], row[j]) for row in rows},
        set(itertools.product(values[i], values[j])),
      )

  @parameterized.parameters(
    *pairwise(
      tuple(DRAFTERS), range(1, 9), tuple(SAMPLINGS), ("batch", "alone")
    )
  )
  @pytest.mark.fault_case("B15")
  def test_text_is_plain_text(self, drafter, length, sampling, rows):
    """huggingface/transformers#39421: text depends on speculation."""
    expected = plain(sampling)
    options = {"length": length, "new": NEW}
    settings = SAMPLINGS[sampling]
    if rows == "batch":
      states = [
        decoding.run(TARGET, DRAFTERS[drafter], sampling=settings, **options)
      ]
      if drafter in ("noisy", "ngram"):
        self.assertTrue(decoding.rows_differ(states[0]))
    else:
      states = [
        run_alone(row, settings, DRAFTERS[drafter], **options)
        for row in range(3)
      ]
    got = [answer for state in states for answer in decoding.answers(state)]
    self.assertEqual(got, decoding.answers(expected))
    seen = set().union(*map(decoding.outcomes, states))
    wanted = OUTCOMES[drafter] - ({"some"} if length == 1 else set())
    self.assertContainsSubset(wanted, seen)
    if drafter in ("right", "empty"):
      self.assertEqual(seen, wanted)

  @parameterized.parameters(ngram.NGram(5), empty.Empty(0))
  def test_blocks_of_their_own_width(self, made):
    self.check_block(made)

  @pytest.mark.slow
  def test_blocks_of_a_draft_model(self):
    self.check_block(draft_model.DraftModel(toys.noisy(TARGET), 3))

  def check_block(self, made):
    """The width of a block is a shape, not only a policy's wish."""
    state = decoding.run(TARGET, made, sampling=TEMPERATURES, new=NEW)
    self.assertEqual(
      decoding.answers(state), decoding.answers(plain("temperatures"))
    )


class ReferenceTest(parameterized.TestCase):
  """Contract pitfall 1: plain decoding and verification share their faults."""

  @parameterized.parameters(*SAMPLINGS)
  @pytest.mark.fault_case("B53")
  def test_plain_decoding_equals_the_reference(self, sampling):
    """ggml-org/llama.cpp#27972 for the log-probabilities."""
    state = decoding.fetch(plain(sampling))
    last_logits = toys.last_logits(TARGET)
    for row, prompt in enumerate(decoding.PROMPTS):
      settings = REFERENCE_SETTINGS[sampling][row]
      expected, _ = reference.generate(
        last_logits, prompt, 24, key=reference.row_key(0, row), **settings
      )
      self.assertEqual(decoding.answers(state)[row][:24], expected)
      logits = reference.transformer_logits(
        TARGET.params, TARGET.config, [*prompt, *expected]
      )[len(prompt) - 1 : -1]
      log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
      at = slice(len(prompt), len(prompt) + 24)
      # Two float32 layers against float64: errors stay near 1e-6.
      np.testing.assert_allclose(
        state.log_probs[row, at], log_p[range(24), expected], atol=1e-4
      )

  @pytest.mark.fault_case("B53")
  def test_log_probs_do_not_depend_on_the_draft(self):
    """vllm-project/vllm#17876: drafted tokens carry no log-probability."""
    base = plain("mixed")
    for name in ("right", "noisy", "ngram"):
      state = decoding.run(
        TARGET, DRAFTERS[name], sampling=SAMPLINGS["mixed"], new=NEW
      )
      # Blocks of other widths may sum in another order.
      np.testing.assert_allclose(state.log_probs, base.log_probs, atol=1e-4)

  def test_penalties(self):
    self.check_penalties("right")

  @parameterized.parameters("empty", "noisy")
  @pytest.mark.slow
  def test_penalties_of_other_drafts(self, drafter):
    self.check_penalties(drafter)

  def check_penalties(self, drafter):
    """Contract pitfalls 1 and 2: counts by slot, the root counted once.

    The draft model shares the settings, so drafting the target's own tokens
    must never be refused; counts frozen at the root fail at once.
    """
    sampling = sampling_lib.Sampling(
      temperature=jnp.array([0, 0.8, 1]),
      repetition=jnp.array([1.3, 1.5, 1]),
      presence=jnp.array([0, 0.2, 0.5]),
      frequency=jnp.array([0.1, 0, 0.3]),
    )
    last_logits = toys.last_logits(TARGET)

    def penalised(row):
      repetition, presence, frequency = (
        float(x[row])
        for x in (sampling.repetition, sampling.presence, sampling.frequency)
      )

      def logits(tokens):
        x = last_logits(tokens)
        counts = np.bincount(tokens, minlength=x.size)
        scaled = np.where(x > 0, x / repetition, x * repetition)
        x = np.where(counts > 0, scaled, x)
        return x - presence * (counts > 0) - frequency * counts

      return logits

    expected = [
      reference.generate(
        penalised(row),
        decoding.PROMPTS[row],
        24,
        key=reference.row_key(0, row),
        temperature=(0, 0.8, 1)[row],
      )[0]
      for row in range(3)
    ]
    state: Any = decoding.run(
      TARGET, DRAFTERS[drafter], sampling=sampling, new=24
    )
    self.assertEqual(decoding.answers(state), expected)
    if drafter == "right":
      self.assertEqual(decoding.outcomes(state), {"all"})
    np.testing.assert_array_equal(
      state.history.counts,
      [
        np.bincount([*prompt, *answer], minlength=toys.TINY_VOCAB)
        for prompt, answer in zip(decoding.PROMPTS, expected)
      ],
    )


class InvarianceTest(parameterized.TestCase):
  """What else must not matter."""

  @parameterized.parameters("noisy", "ngram")
  @pytest.mark.fault_case("B28")
  def test_order_and_company_of_rows(self, drafter):
    """Blaizzy/mlx-vlm#1144: neighbours disturb a row's cache."""
    sampling, drafter = SAMPLINGS["mixed"], DRAFTERS[drafter]
    batch = decoding.run(TARGET, drafter, sampling=sampling, new=NEW)
    order = [2, 0, 1]
    moved = decoding.run(
      TARGET,
      drafter,
      [decoding.PROMPTS[row] for row in order],
      sampling=jax.tree.map(lambda x: x[jnp.array(order)], sampling),
      indices=order,
      new=NEW,
    )
    answers = decoding.answers(batch)
    self.assertEqual(decoding.answers(moved), [answers[row] for row in order])
    for place, row in enumerate(order):
      alone = run_alone(row, sampling, drafter, new=NEW)
      self.assertEqual(decoding.answers(alone)[0], answers[row])
      for state, at in ((moved, place), (alone, 0)):
        self.assertEqual(
          decoding.counters(state, at), decoding.counters(batch, row)
        )

  def test_stopping_every_three_rounds_changes_nothing(self):
    for name in ("noisy", "ngram"):
      options = {"sampling": SAMPLINGS["mixed"], "new": NEW}
      whole = decoding.run(TARGET, DRAFTERS[name], **options)
      parts = decoding.run(TARGET, DRAFTERS[name], rounds=3, **options)
      jax.tree.map(np.testing.assert_array_equal, parts, whole)

  def test_stream_gives_what_decode_gives(self):
    state, rest = decoding.start(
      TARGET, DRAFTERS["noisy"], sampling=SAMPLINGS["mixed"], new=NEW
    )
    counts, text = [], [[], [], []]
    for newest, committed in decode.stream(
      TARGET, DRAFTERS["noisy"], coupled.Coupled(), state, *rest
    ):
      answers = decoding.answers(decoding.fetch(newest))
      for row, answer in enumerate(answers):
        self.assertEqual(answer[: len(text[row])], text[row])
      for row, added in enumerate(committed):
        self.assertEqual([*text[row], *added.tokens.tolist()], answers[row])
        self.assertLessEqual(added.accepted, len(added.tokens))
      text = answers
      counts.append([len(answer) for answer in answers])
    self.assertEqual(text, decoding.answers(plain("mixed")))
    self.assertEqual(counts[-1], [NEW] * 3)
    self.assertGreater(len(counts), 10)

  def test_decode_is_start_and_advance(self):
    tokens, counts = decoding.pad(decoding.PROMPTS)
    state, rest = decoding.start(TARGET, DRAFTERS["ngram"], new=NEW)
    del state
    state = decode.decode(
      TARGET,
      DRAFTERS["ngram"],
      coupled.Coupled(),
      tokens,
      counts,
      decoding.keys(0, range(3)),
      *rest,
      capacity=decoding.CAPACITY,
    )
    self.assertEqual(
      decoding.answers(decoding.fetch(state)), decoding.answers(plain("greedy"))
    )

  @pytest.mark.fault_case("B49")
  def test_seed_and_index_decide_the_text(self):
    """vllm-project/vllm#6038: a row's seed is ignored, or others disturb it."""
    sampling = SAMPLINGS["warm"]
    texts = {}
    for seed, indices in ((0, (0, 1, 2)), (1, (0, 1, 2)), (0, (5, 1, 2))):
      for name in ("noisy", "empty"):
        state = decoding.run(
          TARGET,
          DRAFTERS[name],
          sampling=sampling,
          seed=seed,
          indices=indices,
          new=NEW,
        )
        texts[name, seed, indices[0]] = decoding.answers(state)
    for seed, index in ((0, 0), (1, 0), (0, 5)):
      self.assertEqual(texts["noisy", seed, index], texts["empty", seed, index])
    first = texts["noisy", 0, 0]
    seeded, indexed = texts["noisy", 1, 0], texts["noisy", 0, 5]
    for row in range(3):
      self.assertNotEqual(first[row], seeded[row])
    self.assertNotEqual(first[0], indexed[0])
    self.assertEqual(first[1:], indexed[1:])

  @pytest.mark.fault_case("B16")
  def test_short_prompts(self):
    """huggingface/transformers#30042: one-token prompts go wrong."""
    last_logits = toys.last_logits(TARGET)
    prompts = [[9, 4, 1, 7, 30][:n] for n in (1, 2, 3, 4, 5)]
    for at in (0, 2):
      three = prompts[at : at + 3]
      state = decoding.run(
        TARGET,
        DRAFTERS["noisy"],
        three,
        sampling=SAMPLINGS["greedy"],
        length=4,
        new=12,
      )
      expected = [
        reference.generate(
          last_logits, prompt, 12, key=reference.row_key(0), temperature=0
        )[0]
        for prompt in three
      ]
      self.assertEqual(decoding.answers(state), expected)

  @pytest.mark.fault_case("B19")
  def test_every_id_as_the_end(self):
    """huggingface/transformers#47912: an end inside a block is passed over."""
    whole = decoding.answers(plain("mixed"))
    for end in sorted({token for row in whole for token in row[:24]}):
      expected = [
        row[: row.index(end) + 1] if end in row else row for row in whole
      ]
      for name in ("right", "noisy", "ngram"):
        state = decoding.run(
          TARGET,
          DRAFTERS[name],
          sampling=SAMPLINGS["mixed"],
          eos=[end],
          new=NEW,
        )
        self.assertEqual(decoding.answers(state), expected)
        reasons = [
          stopping.Reason.EOS if end in row else stopping.Reason.LENGTH
          for row in whole
        ]
        self.assertEqual(state.reason.tolist(), reasons)

  def test_draft_lengths_by_row_and_round(self):
    self.check_lengths("right", "noisy")

  @pytest.mark.slow
  def test_draft_lengths_of_lookup(self):
    self.check_lengths("ngram")

  def check_lengths(self, *names):
    """Also turned off for some rounds and on again, in some rows only."""
    for table in (
      [[2, 1, 0], [0, 4, 8], [0, 0, 0], [3, 3, 0]],
      [[0, 0, 0], [8, 8, 8], [1, 0, 5]],
    ):
      for name in names:
        policy = decoding.Scheduled.of(table)
        state = decoding.run(
          TARGET,
          DRAFTERS[name],
          sampling=TEMPERATURES,
          policy=policy,
          new=NEW,
        )
        self.assertEqual(
          decoding.answers(state), decoding.answers(plain("temperatures"))
        )
        for row in range(3):
          drafted = decoding.counters(state, row)["drafted"]
          wanted = [table[i % len(table)][row] for i in range(len(drafted))]
          self.assertTrue(np.all(np.less_equal(drafted, wanted)))
          if name == "right":  # the last round may have less left to draft
            self.assertEqual(drafted[:-1], wanted[:-1])

  @pytest.mark.slow
  def test_rounds_of_several_widths(self):
    """A round runs in the narrowest program that holds its draft."""
    table = [[0, 0, 0], [1, 2, 0], [8, 2, 3], [4, 0, 1], [8, 8, 8]]
    policy = decoding.Scheduled.of(table, widths=(0, 3))
    state = decoding.run(
      TARGET, DRAFTERS["ngram"], sampling=TEMPERATURES, policy=policy, new=NEW
    )
    self.assertEqual(
      decoding.answers(state), decoding.answers(plain("temperatures"))
    )

  def test_new_tokens_from_none_to_thirteen(self):
    """A shorter answer is the beginning of a longer one, whatever the draft."""
    whole = decoding.answers(plain("mixed"))
    for new in range(14):
      for name in ("right", "noisy", "ngram"):
        state = decoding.run(
          TARGET,
          DRAFTERS[name],
          sampling=SAMPLINGS["mixed"],
          new=[new, 13 - new, 5],
        )
        expected = [row[:n] for row, n in zip(whole, (new, 13 - new, 5))]
        self.assertEqual(decoding.answers(state), expected)


if __name__ == "__main__":
  absltest.main()
