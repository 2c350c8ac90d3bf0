# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft model of another tokenizer."""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing, tokenizers
from specjax.decoding import step
from specjax.drafters import cross_vocabulary, draft_model, empty
from specjax.testing import table
from specjax.verifiers import rejection
from tests import decoding, tokenizers_test, toys

TARGET = toys.tiny(0)
SAMPLING = sampling_lib.Sampling(temperature=jnp.array([0.7, 0.9, 1]))


def shuffled(model, known, seed=3):
  """The model in other ids; target ids that are not `known` are missing.

  Returns:
    The model behind the translation, and target id -> draft id.
  """
  order = np.random.default_rng(seed).permutation(toys.TINY_VOCAB)
  params = dict(model.params)
  kernel = model.params["unembed"]["kernel"]
  # Draft id order[i] is target id i.
  turned = jnp.zeros_like(kernel).at[:, order].set(kernel)
  params["unembed"] = {"kernel": turned}
  embedding = model.params["embed"]["embedding"]
  params["embed"] = {
    "embedding": jnp.zeros_like(embedding).at[order].set(embedding)
  }
  foreign = model.replace(params=params)
  outputs = np.where(np.isin(np.arange(toys.TINY_VOCAB), known), order, -1)
  return cross_vocabulary.SharedVocabulary(
    foreign,
    jnp.asarray(np.maximum(outputs, 0), jnp.int32),
    jnp.asarray(outputs, jnp.int32),
    TARGET.num_tokens,
  )


class ModelTest(parameterized.TestCase):
  def test_the_target_in_other_ids_is_never_refused(self):
    model = shuffled(TARGET, range(64))
    state = decoding.run(
      TARGET,
      draft_model.DraftModel(model, 4),
      verifier=rejection.Rejection(),
      sampling=SAMPLING,
    )
    self.assertGreater(int(state.stats.drafted.max()), 3)
    np.testing.assert_array_equal(state.stats.accepted, state.stats.drafted)

  @pytest.mark.fault_case("B44")
  def test_laws_live_on_the_shared_tokens(self):
    """sgl-project/sglang#23838: another tokenizer, taken for the same."""
    known = np.arange(0, 64, 2)
    drafter = draft_model.DraftModel(shuffled(TARGET, known), 4)
    state, settings = decoding.start(TARGET, drafter, sampling=SAMPLING)
    _, draft = jax.jit(step.propose)(
      TARGET, drafter, rejection.Rejection(), state, *settings
    )
    laws = np.exp(draft.log_q)
    np.testing.assert_array_equal(laws[..., 1::2], 0)
    np.testing.assert_allclose(laws.sum(-1), 1, atol=1e-5)
    self.assertEmpty(set(np.ravel(draft.tokens)) - set(known.tolist()))

  @pytest.mark.slow
  def test_text_is_plain_text(self):
    model = shuffled(toys.noisy(TARGET), range(48))
    plain = decoding.run(TARGET, empty.Empty(1), sampling=SAMPLING)
    state = decoding.run(
      TARGET, draft_model.DraftModel(model, 4), sampling=SAMPLING
    )
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    self.assertEqual(decoding.outcomes(state), {"none", "some", "all"})

  @pytest.mark.slow
  def test_contract(self):
    ids = jnp.arange(12)
    model = cross_vocabulary.SharedVocabulary(
      table.random(9, seed=1), ids % 9, jnp.where(ids < 7, 8 - ids, -1), 12
    )
    testing.check_drafter(draft_model.DraftModel(model, 3))


class TokenizerTest(parameterized.TestCase):
  @pytest.mark.fault_case("B44")
  def test_tokens_are_matched_by_what_they_stand_for(self):
    """ggml-org/llama.cpp#3812: equal ids, other texts.

    Two words exchanged, one missing, and special tokens of other names.
    """
    fields = tokenizers_test.byte_level()
    target = tokenizers.from_gguf(fields)
    texts = list(fields["tokenizer.ggml.tokens"])
    last = len(texts) - 1
    texts[10], texts[11], texts[last] = texts[11], texts[10], "zz"
    texts[2] = "<|end|>"
    merges = list(tokenizers_test.MERGES[:-1])
    draft = tokenizers.from_gguf(
      tokenizers_test.byte_level(tokens=texts, merges=merges)
    )
    pairs = cross_vocabulary.shared_tokens(target, draft)
    self.assertEqual((pairs[10], pairs[11], pairs[12]), (11, 10, 12))
    self.assertEqual((pairs[1], pairs[2]), (1, 2))  # Begin and end, by role.
    self.assertNotIn(last, pairs)

  def test_missing_tokens_are_read_by_their_last_piece(self):
    target = tokenizers.from_gguf(tokenizers_test.with_tokens(["ello"], [1]))
    draft = tokenizers.from_gguf(tokenizers_test.byte_level())
    new = target.num_tokens - 1
    small = toys.Table(jnp.zeros((target.num_tokens + 5,) * 2))
    made: Any = cross_vocabulary.cross_vocabulary(
      small, toys.Table(jnp.zeros((draft.num_tokens,) * 2)), target, draft, 2
    )
    self.assertEqual(int(made.model.outputs[new]), -1)
    last = draft.encode("ello", bos=False)[-1]
    self.assertEqual(int(made.model.inputs[new]), last)
    self.assertEqual(made.model.vocab_size, target.num_tokens + 5)
    np.testing.assert_array_equal(made.model.outputs[new + 1 :], -1)

  def test_nothing_shared_is_refused(self):
    one = tokenizers.from_gguf(tokenizers_test.byte_level())
    nothing: Any = decoding.Letters(())
    nothing.bos_id = None
    model = toys.Table(jnp.zeros((one.num_tokens,) * 2))
    with self.assertRaisesRegex(ValueError, "shares no token"):
      cross_vocabulary.cross_vocabulary(model, model, one, nothing, 2)


if __name__ == "__main__":
  absltest.main()
