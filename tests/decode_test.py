# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop: what is compiled anew, donation, settings inside a block."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax.decoding import decode, stopping
from specjax.drafters import draft_model, empty, ngram
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled, rejection
from tests import decoding, reference, toys

CYCLE = toys.cycle(16)


class TracesTest(parameterized.TestCase):
  @pytest.mark.fault_case("B69")
  def test_data_compiles_nothing(self):
    """vllm-project/vllm#16726: it recompiles silently.

    Prompts, their lengths, seeds, settings, weights, draft lengths, stop ids
    and budgets are data; shapes, dtypes and which settings exist are not.
    """
    drafter = draft_model.DraftModel(toys.part(16), 4)
    settings = sampling_lib.Sampling(temperature=jnp.array([0, 0.5, 1]))
    # A capacity of its own: what other tests compile must not matter.
    defaults: dict[str, Any] = {
      "sampling": settings,
      "length": 4,
      "capacity": 90,
    }
    run = lambda target=CYCLE, drafter=drafter, **options: decoding.run(
      target, drafter, **(defaults | options)
    )
    run()
    before = decoding.compiled()
    run(prompts=[[1], [2, 3, 4], [5] * 16])
    run(seed=5, indices=[7, 8, 9])
    run(length=2)
    run(length=0)
    run(eos=[3, 4, 5])
    run(new=[0, 1, 17])
    run(sampling=jax.tree.map(lambda x: x + 0.1, settings))
    run(target=toys.skip(16))
    run(drafter=dataclasses.replace(drafter, model=toys.skip(16)))
    run(rounds=3)
    self.assertEqual(decoding.compiled(), before)
    run(sampling=sampling_lib.Sampling())
    self.assertEqual(decoding.compiled(), (before[0] + 1, before[1] + 1))

  @pytest.mark.fault_case("B69")
  def test_prompts_of_every_length_up_to_the_models_maximum(self):
    """A maximum of 19 is no power of two; no position lies above 18."""
    config = dataclasses.replace(toys.TINY_CONFIG, max_position=19)
    target = dataclasses.replace(toys.tiny(), config=config)
    text = np.random.default_rng(0).integers(0, 64, 18).tolist()
    last_logits = toys.last_logits(toys.tiny())
    after, counts = {}, []
    for length in range(1, 19, 3):
      prompts = [text[:n] for n in range(length, length + 3)]
      new = [19 - len(prompt) for prompt in prompts]
      state = decoding.run(target, ngram.NGram(4), prompts, new=new)
      counts.append(decoding.compiled())
      for row, prompt in enumerate(prompts):
        after[len(prompt)] = decoding.answers(state)[row]
    # The last batch is wider than the others' 16 slots: one more `start`.
    self.assertEqual({count[1] for count in counts}, {counts[0][1]})
    self.assertEqual(counts[-1][0], counts[0][0] + 1)
    for length, answer in after.items():
      expected, _ = reference.generate(
        last_logits,
        text[:length],
        19 - length,
        key=reference.row_key(0),
        temperature=0,
      )
      self.assertEqual(answer, expected)


class DonationTest(absltest.TestCase):
  @pytest.mark.fault_case("B70")
  def test_a_state_is_used_once(self):
    """marin-community/levanter#1290: a donated cache is used again."""
    sampling = sampling_lib.Sampling()
    state, rest = decoding.start(CYCLE, ngram.NGram(3), sampling=sampling)
    advance = lambda state: decode.advance(
      CYCLE, ngram.NGram(3), coupled.Coupled(), state, *rest, 2
    )
    copy = jax.tree.map(jnp.copy, state)
    first = decoding.fetch(advance(state))
    with self.assertRaisesRegex((RuntimeError, ValueError), "delete|donate"):
      advance(state)
    again = decoding.fetch(advance(copy))
    jax.tree.map(np.testing.assert_array_equal, first, again)


class TemperatureTest(parameterized.TestCase):
  @pytest.mark.fault_case("B11")
  def test_temperatures_near_zero(self):
    """vllm-project/vllm#27077: nothing but zero itself was tested."""
    sampling = decoding.settings([0, 1e-6, 1e-3])
    drafter = draft_model.DraftModel(toys.part(16), 3)
    for verifier in (coupled.Coupled(), rejection.Rejection()):
      state = decoding.run(
        CYCLE,
        drafter,
        [[1], [5], [13]],
        verifier=verifier,
        sampling=sampling,
        new=6,
      )
      self.assertEqual(
        decoding.answers(state),
        [[(at + i) % 16 for i in range(1, 7)] for at in (1, 5, 13)],
      )
      accepted = state.stats.accepted
      self.assertTrue(np.all((accepted >= 0) & (accepted <= 3)))
      self.assertTrue(np.all(np.isfinite(state.log_probs)))

  @pytest.mark.fault_case("B14")
  def test_default_settings_do_not_make_it_greedy(self):
    self.check_uniform(rejection.Rejection())

  @pytest.mark.slow
  def test_coupled_is_not_greedy_either(self):
    self.check_uniform(coupled.Coupled())

  def check_uniform(self, verifier):
    """EricLBuehler/mistral.rs#2424: temperature has no effect.

    400 tokens of a uniform law over four: each 60 to 140 times, which is more
    than four standard deviations.
    """
    uniform = toys.row([0.25] * 4)
    state = decoding.run(
      uniform,
      draft_model.DraftModel(uniform, 2),
      [[0]] * 10,
      verifier=verifier,
      sampling=sampling_lib.per_row(sampling_lib.Sampling(temperature=1), 10),
      new=40,
    )
    counts = np.bincount(np.concatenate(decoding.answers(state)), minlength=4)
    self.assertEqual(counts.sum(), 400)
    self.assertTrue(np.all((counts >= 60) & (counts <= 140)), counts)
    # A uniform law with itself as the draft is never refused.
    self.assertFalse(np.any(state.stats.rejected))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Constant(ngram.NGram):
  """Always proposes token 0."""

  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    draft = draft.replace(
      tokens=jnp.zeros_like(draft.tokens),
      count=jnp.full_like(draft.count, self.length),
    )
    return draft, state, cache


class BlockTest(parameterized.TestCase):
  """Settings that must reach every slot of a block."""

  @pytest.mark.fault_case("B25")
  def test_penalty_sees_the_tokens_of_its_own_block(self):
    self.check_penalty(coupled.Coupled())

  @pytest.mark.slow
  def test_penalty_in_a_block_of_a_ratio_rule(self):
    self.check_penalty(rejection.Rejection())

  def check_penalty(self, verifier):
    """sgl-project/sglang#28180: repetition is ignored inside a block.

    Of logits [2, 1.9, .1, 0] and a penalty of 1.5: 0, then 1 (2 / 1.5 is
    below 1.9), then 0 for ever.
    """
    sampling = sampling_lib.per_row(sampling_lib.Sampling(repetition=1.5), 3)
    for drafter in (empty.Empty(3), Constant(3)):
      state = decoding.run(
        toys.constant([2.0, 1.9, 0.1, 0]),
        drafter,
        [[3], [3], [2]],
        verifier=verifier,
        sampling=sampling,
        new=6,
      )
      self.assertEqual(decoding.answers(state), [[0, 1, 0, 0, 0, 0]] * 3)

  @pytest.mark.fault_case("B27")
  def test_filters_reach_drafted_slots(self):
    self.check_filters(rejection.Rejection())

  @pytest.mark.slow
  def test_filters_reach_slots_of_coupled_drafts(self):
    self.check_filters(coupled.Coupled())

  def check_filters(self, verifier):
    """vllm-project/vllm#42744: min-p reaches the target's own token only."""
    sampling = sampling_lib.per_row(
      sampling_lib.Sampling(temperature=1, min_p=0.5), 3
    )
    state = decoding.run(
      toys.row([0.1, 0.45, 0.45]),
      Constant(3),
      [[1], [2], [0]],
      verifier=verifier,
      sampling=sampling,
      new=40,
    )
    emitted = np.concatenate(decoding.answers(state))
    self.assertEqual(set(emitted.tolist()), {1, 2})
    self.assertEqual(int(state.stats.accepted.sum()), 0)


class NeighboursTest(absltest.TestCase):
  @pytest.mark.fault_case("B49")
  def test_seeded_row_under_rejection(self):
    """vllm-project/vllm#9441: zero-draft rounds use up a row's numbers.

    Row A alone, first and last in the batch, and beside rows that are forced
    to draft nothing in some rounds: its tokens are the same, for one sequence
    of its own draft lengths.
    """
    law = toys.row([0.4, 0.3, 0.2, 0.1])
    draft = draft_model.DraftModel(toys.row([0.1, 0.2, 0.3, 0.4]), 3)
    texts = []
    for place, others in ((0, [2, 2]), (2, [0, 3]), (1, [1, 0]), (0, [3, 0])):
      table = np.insert(np.array([others, others[::-1]]), place, 2, axis=1)
      indices = np.insert([5, 6], place, 1).tolist()
      state = decoding.run(
        law,
        draft,
        [[0]] * 3,
        verifier=rejection.Rejection(),
        sampling=sampling_lib.Sampling(temperature=jnp.ones(3)),
        policy=decoding.Scheduled.of(table.tolist(), widths=()),
        seed=7,
        indices=indices,
      )
      texts.append(decoding.answers(state)[place])
      self.assertTrue(np.any(state.stats.rejected[place]))
    self.assertEqual(texts, texts[:1] * 4)


class RoundsTest(absltest.TestCase):
  def test_advance_runs_as_many_rounds_as_asked(self):
    state, rest = decoding.start(
      CYCLE, empty.Empty(1), new=[1, 10, 10], policy=policy_lib.Fixed(0)
    )
    advance = lambda state, rounds: decode.advance(
      CYCLE, empty.Empty(1), coupled.Coupled(), state, *rest, rounds
    )
    state = advance(state, 4)
    self.assertEqual(state.round.tolist(), [1, 4, 4])
    self.assertEqual(state.done.tolist(), [True, False, False])
    state = advance(state, 100)
    self.assertEqual(state.round.tolist(), [1, 10, 10])
    self.assertEqual(state.reason.tolist(), [stopping.Reason.LENGTH] * 3)


if __name__ == "__main__":
  absltest.main()
