# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cascades: who drafts in which row, with which law."""

import dataclasses

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing
from specjax.decoding import step
from specjax.drafters import (
  cascade,
  draft_model,
  early_exit,
  empty,
  ngram,
  suffix,
  tree_draft_model,
)
from specjax.testing import table
from specjax.verifiers import rejection
from tests import decoding, draft_heads, toys

TARGET = toys.tiny(0)
SAMPLING = sampling_lib.Sampling(temperature=jnp.array([0.7, 0.7, 0.7]))
# Row 0 ends with a pair that stands before, rows 1 and 2 do not.
PROMPTS = ((7, 8, 9, 3, 7, 8), (3,), (5, 6, 1, 2))


def lookup_or_model(model, length, copies=10, min_n=2):
  return cascade.cascade(
    ngram.NGram(copies, min_n, 4), draft_model.DraftModel(model, length)
  )


class CascadeTest(parameterized.TestCase):
  def test_rows_choose_for_themselves(self):
    drafter = lookup_or_model(toys.noisy(TARGET), 3, copies=5)
    self.assertEqual(drafter.num_nodes, 5)
    state, settings = decoding.start(
      TARGET, drafter, PROMPTS, sampling=SAMPLING
    )
    _, draft = jax.jit(step.propose)(
      TARGET, drafter, rejection.Rejection(), state, *settings
    )
    draft = jax.device_get(draft)
    np.testing.assert_array_equal(draft.count, [4, 3, 3])
    np.testing.assert_array_equal(draft.tokens[0, :4], [9, 3, 7, 8])
    mass = np.exp(draft.log_q)
    np.testing.assert_array_equal(mass[0, np.arange(4), draft.tokens[0, :4]], 1)
    # What was drawn has the law it was drawn from, and no certainty.
    np.testing.assert_allclose(mass[1:, :3].sum(-1), 1, atol=1e-5)
    self.assertLess(mass[1:, :3].max(), 0.999)

  def test_text_is_plain_text(self):
    drafter = lookup_or_model(toys.noisy(TARGET), 3, min_n=1)
    plain = decoding.run(TARGET, empty.Empty(1), sampling=SAMPLING)
    state = decoding.run(TARGET, drafter, sampling=SAMPLING)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    self.assertEqual(decoding.outcomes(state), {"none", "some", "all"})

  @pytest.mark.slow
  def test_a_model_that_slept_wakes_up_right(self):
    """The target drafts for itself, and lookup takes rounds in between."""
    drafter = cascade.Cascade(
      ngram.NGram(2, 1, 2), draft_model.DraftModel(TARGET, 4)
    )
    state = decoding.run(
      TARGET, drafter, verifier=rejection.Rejection(), sampling=SAMPLING
    )
    drafted, accepted = state.stats.drafted, state.stats.accepted
    self.assertIn(2, drafted)
    # Lookup drafts two tokens at most, so longer drafts are the model's.
    models = drafted > 2
    self.assertGreater(int(models.sum()), 3)
    np.testing.assert_array_equal(accepted[models], drafted[models])

  @parameterized.parameters("eagle3", "mtp", "early_exit")
  @pytest.mark.slow
  def test_who_comes_second(self, kind):
    """Heads get the layers that they read, through two cascades."""
    self.check_second(kind)

  def check_second(self, kind):
    target = draft_heads.target()
    if kind == "early_exit":
      second = early_exit.early_exit(target, 1, 4)
    else:
      second = draft_heads.drafter(kind, target)
    drafter = cascade.cascade(
      ngram.NGram(3, 3), cascade.cascade(suffix.suffix(4, min_match=2), second)
    )
    layers = draft_heads.FEATURE_LAYERS if kind == "eagle3" else ()
    self.assertEqual(drafter.feature_layers, layers)
    if not layers:
      target = target.replace(feature_layers=())
    plain = decoding.run(target, empty.Empty(1), sampling=SAMPLING)
    state = decoding.run(target, drafter, sampling=SAMPLING)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    # Lookup has nothing to say in the first rounds of the second row.
    self.assertGreater(int(state.stats.drafted[1, :3].max()), 1)

  def test_heads_without_their_features_are_refused(self):
    target = draft_heads.target()
    drafter = cascade.cascade(
      ngram.NGram(3), draft_heads.drafter("eagle3", target)
    )
    self.assertEqual(drafter.feature_layers, draft_heads.FEATURE_LAYERS)
    with self.assertRaisesRegex(ValueError, r"reads the .* layers \(0, 1"):
      decoding.run(target.replace(feature_layers=()), drafter)

  @pytest.mark.slow
  def test_contract(self):
    draft = draft_model.DraftModel(table.random(seed=1), 2)
    testing.check_drafter(cascade.Cascade(ngram.NGram(3, 2, 3), draft))

  def test_refuses(self):
    draft = draft_model.DraftModel(TARGET, 2)
    with self.assertRaisesRegex(ValueError, "DraftModel draws its tokens"):
      decoding.run(TARGET, cascade.Cascade(draft, ngram.NGram(2)))
    tree = tree_draft_model.static_tree(TARGET, [2, 1])
    with self.assertRaisesRegex(ValueError, "TreeDraftModel drafts trees"):
      cascade.cascade(ngram.NGram(2), tree)
    with self.assertRaisesRegex(ValueError, "TreeDraftModel drafts trees"):
      decoding.run(TARGET, cascade.Cascade(ngram.NGram(2), tree))
    with self.assertRaisesRegex(ValueError, "least is 0: use 1"):
      cascade.cascade(ngram.NGram(2), draft, least=0)
    head = draft_heads.drafter("eagle3", TARGET)
    other = head.replace(
      head=head.head.replace(
        config=dataclasses.replace(head.head.config, feature_layers=(1,))
      )
    )
    with self.assertRaisesRegex(ValueError, r"read layers \(0, 1\) and \(1,\)"):
      cascade.cascade(head, other)


if __name__ == "__main__":
  absltest.main()
