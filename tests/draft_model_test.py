# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The draft model's cache, its laws, and its limits."""

import dataclasses

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax.decoding import decode, step
from specjax.drafters import draft_model, empty
from specjax.models import model as model_lib
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled, rejection
from tests import decoding, reference, toys

TARGET = toys.tiny(0)
SELF = draft_model.DraftModel(TARGET, 4)
WARM = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))

_step = jax.jit(step.step)


def cache_of(model, tokens) -> list[np.ndarray]:
  """Keys and values of a fresh forward over tokens [B, S]."""
  batch, width = tokens.shape
  output = jax.jit(model_lib.Model.__call__)(
    model, jnp.asarray(tokens), model.init_cache(batch, width, width)
  )
  return [np.asarray(x) for x in jax.tree.leaves(output.cache.layers)]


class AcceptanceTest(parameterized.TestCase):
  @pytest.mark.fault_case("B12")
  def test_greedy_draft_of_the_target_itself(self):
    """ggml-org/llama.cpp#5657: at temperature 0 drafting dies."""
    state = decoding.run(TARGET, SELF, new=20)
    last_logits = toys.last_logits(TARGET)
    for row, prompt in enumerate(decoding.PROMPTS):
      expected, _ = reference.generate(
        last_logits, prompt, 20, key=reference.row_key(0), temperature=0
      )
      self.assertEqual(decoding.answers(state)[row], expected)
      stats = decoding.counters(state, row)
      self.assertEqual(stats["emitted"], [5] * 4)
      self.assertEqual(stats["accepted"], stats["drafted"])

  def test_nothing_is_refused_while_lengths_change(self):
    self.check_lengths(coupled.Coupled())

  @pytest.mark.slow
  def test_rejection_refuses_nothing_either(self):
    self.check_lengths(rejection.Rejection())

  def check_lengths(self, verifier):
    """Contract pitfall 17: a caught-up drafter must not read a pad's logits.

    Some rows sleep for rounds while others draft; the draft is the target, so
    an honest law is never refused under either rule.
    """
    for table in ([[0, 4, 2], [4, 0, 0], [0, 0, 0], [3, 3, 0]], [[4, 0, 1]]):
      policy = decoding.Scheduled.of(table)
      state = decoding.run(
        TARGET, SELF, verifier=verifier, sampling=WARM, policy=policy
      )
      self.assertGreater(int(state.stats.drafted[:, 0].max()), 0)
      self.assertFalse(np.any(state.stats.rejected))
      np.testing.assert_array_equal(state.stats.accepted, state.stats.drafted)


class Spoiled(draft_model.DraftModel):
  """Exchanges the second drafted token, as if the model had been wrong."""

  is_spoiled: jax.Array = struct.field(default=False)

  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    wrong = (draft.tokens[:, 1] + 1) % toys.TINY_VOCAB
    second = jnp.where(self.is_spoiled, wrong, draft.tokens[:, 1])
    tokens = draft.tokens.at[:, 1].set(second)
    return draft.replace(tokens=tokens), state, cache


class CacheTest(parameterized.TestCase):
  def rounds(self, drafter, rounds, force=()):
    """States after each round; in rounds of `force` a draft is spoiled."""
    state, (sampling, policy, stop) = decoding.start(TARGET, drafter, new=70)
    for round_ in range(rounds):
      used = Spoiled(drafter.model, drafter.length, jnp.bool_(round_ in force))
      state, seen = _step(
        TARGET, used, coupled.Coupled(), state, sampling, policy, stop
      )
      yield decoding.fetch(state), seen

  @pytest.mark.fault_case("B29")
  def test_refusals_do_not_decay_acceptance(self):
    """lablup/mlxcel#994: the draft's cache is rewound too far."""
    accepted = []
    for state, seen in self.rounds(SELF, 12, force=(1, 3, 5)):
      accepted.append(seen.acceptance.accepted.tolist())
      np.testing.assert_array_equal(state.cache.lengths, state.lengths - 1)
      # The draft lacks the newest token, and the last draft if all were kept.
      lacking = state.lengths - state.drafter.cache.lengths
      all_kept = np.asarray(seen.acceptance.accepted) == 4
      np.testing.assert_array_equal(lacking, 1 + all_kept)
      fresh = cache_of(TARGET, state.tokens)
      for kept, new in zip(jax.tree.leaves(state.drafter.cache.layers), fresh):
        for row, end in enumerate(state.drafter.cache.lengths):
          np.testing.assert_allclose(kept[row, :end], new[row, :end], atol=1e-5)
    expected = [[1] * 3 if r in (1, 3, 5) else [4] * 3 for r in range(12)]
    self.assertEqual(accepted, expected)

  @pytest.mark.fault_case("B30")
  def test_full_acceptance_gives_one_token_more(self):
    """vllm-project/vllm#5765: the last draft is missing from the cache."""
    for length in (1, 3, 4):
      state = decoding.run(TARGET, SELF, length=length, new=6 * (length + 1))
      for row in range(3):
        stats = decoding.counters(state, row)
        self.assertEqual(stats["emitted"], [length + 1] * 6)

  @pytest.mark.slow
  @pytest.mark.fault_case("B30")
  def test_laws_of_a_round_are_those_of_a_full_forward(self):
    """Also the first round's, whose prompt is longer than a catch-up pass."""
    noisy = toys.noisy(TARGET)
    drafter = draft_model.DraftModel(noisy, 3)
    prompt = np.random.default_rng(0).integers(0, 64, 70).tolist()
    state, (_, policy, stop) = decoding.start(
      TARGET, drafter, [prompt, [5], prompt[:66]], new=20
    )
    for _ in range(3):
      before = decoding.fetch(state)
      state, seen = _step(
        TARGET, drafter, rejection.Rejection(), state, WARM, policy, stop
      )
      for row, temperature in ((1, 0.7), (2, 1.0)):
        text = before.tokens[row, : before.lengths[row]].tolist()
        for node in range(3):
          logits = reference.transformer_logits(
            noisy.params, noisy.config, text
          )[-1]
          expected = reference.log_probs(logits, temperature=temperature)
          # Two float32 layers against float64, divided by the temperature.
          np.testing.assert_allclose(
            seen.draft.log_q[row, node], expected, atol=1e-4
          )
          text.append(int(seen.draft.tokens[row, node]))


class VocabularyTest(parameterized.TestCase):
  @pytest.mark.fault_case("B42")
  def test_paddings_of_different_size(self):
    """vllm-project/vllm#7252: one tokenizer, embeddings padded differently."""
    self.check_laws(64, 72)

  @pytest.mark.slow
  def test_a_target_of_more_rows(self):
    self.check_laws(72, 64)

  @parameterized.parameters((64, 72), (72, 64))
  @pytest.mark.slow
  def test_text_of_different_paddings(self, target_width, draft_width):
    target, draft = self.models(target_width, draft_width)
    last_logits = toys.last_logits(target)
    got = decoding.answers(decoding.run(target, draft, new=12))
    for row, prompt in enumerate(decoding.PROMPTS):
      expected, _ = reference.generate(
        last_logits, prompt, 12, key=reference.row_key(0), temperature=0
      )
      self.assertEqual(got[row], expected)

  def models(self, target_width, draft_width):
    """The padded rows would win: they are the draft's and target's best."""

    def model(width, seed):
      config = dataclasses.replace(toys.TINY_CONFIG, vocab_size=width)
      made = toys.tiny(seed, config, num_tokens=60)
      kernel = made.params["unembed"]["kernel"]
      wide = jnp.where(jnp.arange(width) >= 60, 50 * kernel, kernel)
      params = {**made.params, "unembed": {"kernel": wide}}
      return dataclasses.replace(made, params=params)

    draft = draft_model.DraftModel(model(draft_width, 5), 3)
    return model(target_width, 0), draft

  def check_laws(self, target_width, draft_width):
    target, draft = self.models(target_width, draft_width)
    state, (_, policy, stop) = decoding.start(target, draft, new=12)
    _, seen = _step(
      target, draft, rejection.Rejection(), state, WARM, policy, stop
    )
    self.assertEqual(seen.draft.log_q.shape[-1], target_width)
    laws = np.exp(seen.draft.log_q)
    np.testing.assert_allclose(laws.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(laws[..., 60:], 0)
    np.testing.assert_array_equal(np.exp(seen.log_p)[..., 60:], 0)
    self.assertLess(int(seen.draft.tokens.max()), 60)


class ContextTest(absltest.TestCase):
  @pytest.mark.fault_case("B38")
  def test_draft_with_a_shorter_context(self):
    """vllm-project/vllm#24662: crashes or nonsense past the draft's maximum."""
    config = dataclasses.replace(toys.TINY_CONFIG, max_position=16)
    short = dataclasses.replace(TARGET, config=config)
    prompts = [list(range(3, 15)), [9, 4], list(range(40, 53))]
    drafter = draft_model.DraftModel(short, 3)
    state = decoding.run(TARGET, drafter, prompts, new=20)
    base = decoding.run(TARGET, empty.Empty(1), prompts, new=20)
    self.assertEqual(decoding.answers(state), decoding.answers(base))
    for row, prompt in enumerate(prompts):
      stats, length = decoding.counters(state, row), len(prompt)
      for emitted, drafted in zip(stats["emitted"], stats["drafted"]):
        # Feeding the token at position 15 gives the last one: the 17th.
        self.assertLessEqual(drafted, max(17 - length, 0))
        length += emitted
      self.assertEqual(stats["drafted"][-1], 0)
      self.assertGreater(max(stats["drafted"]), 0)

  @pytest.mark.slow
  @pytest.mark.fault_case("B37")
  def test_positions_end_with_the_models(self):
    """vllm-project/vllm#42533: drafts run past the maximum."""
    config = dataclasses.replace(toys.TINY_CONFIG, max_position=18)
    target = dataclasses.replace(TARGET, config=config)
    drafter = draft_model.DraftModel(target, 4)
    state = decoding.run(target, drafter, new=[13, 17, 5])
    whole = decoding.run(TARGET, SELF, new=[13, 17, 5])
    self.assertEqual(decoding.answers(state), decoding.answers(whole))
    with self.assertRaisesRegex(ValueError, "19 positions .* model has 18"):
      decoding.run(target, drafter, new=[13, 17, 6])


class LazyTest(absltest.TestCase):
  def test_prompt_is_read_when_first_asked(self):
    """Nothing is spent on a draft model while drafting is off."""
    off = policy_lib.Fixed(0, widths=())
    state, (sampling, _, stop) = decoding.start(TARGET, SELF, policy=off)
    np.testing.assert_array_equal(state.drafter.cache.lengths, 0)
    state = decode.advance(
      TARGET, SELF, coupled.Coupled(), state, sampling, off, stop, 96
    )
    plain = decoding.run(TARGET, empty.Empty(1))
    self.assertEqual(
      decoding.answers(decoding.fetch(state)), decoding.answers(plain)
    )


if __name__ == "__main__":
  absltest.main()
