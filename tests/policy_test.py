# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: draft lengths as data."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from specjax import policy as policy_lib
from specjax.drafters import draft_model, ngram
from tests import decoding, toys


class FixedTest(parameterized.TestCase):
  def test_length_is_data_and_widths_are_not(self):
    structure = lambda *args: jax.tree.structure(policy_lib.Fixed(*args))
    self.assertEqual(structure(1), structure(7))
    self.assertNotEqual(structure(1), structure(1, (0, 1)))

  def test_one_trace_for_all_lengths(self):
    traced = []

    @jax.jit
    def lengths(policy):
      traced.append(policy)
      return policy.draft_length(policy.init(3))

    for length in (0, 3, 8):
      got = lengths(policy_lib.Fixed(length))
      np.testing.assert_array_equal(got, [length] * 3)
    self.assertLen(traced, 1)

  @parameterized.parameters(-1, np.int64(-3))
  def test_refuses_negative_lengths(self, length):
    with self.assertRaisesRegex(ValueError, f"draft length {length} is neg"):
      policy_lib.Fixed(length)

  @parameterized.parameters(0, 2, 5, 99)
  def test_drafts_are_that_long(self, length):
    """Or as long as the drafter can, and the rest of the answer allows."""
    target = toys.cycle(32)
    state = decoding.run(
      target,
      draft_model.DraftModel(target, 6),
      [[1], [9], [20]],
      length=length,
      new=28,
    )
    kept = min(length, 6)
    rounds, rest = divmod(28, kept + 1)
    drafted = [kept] * rounds + [rest - 1] * (rest > 0)
    for row in range(3):
      self.assertEqual(decoding.counters(state, row)["drafted"], drafted)


class Stopper(policy_lib.Fixed):
  """Goes on only while the draft is sure of its token."""

  def keep_drafting(self, state, law):
    del state
    return jnp.max(law, axis=-1) > jnp.log(0.5)


class KeepDraftingTest(absltest.TestCase):
  def test_asked_before_each_token(self):
    """The law alone decides, so the drawn token cannot bend the output."""
    table = np.asarray(toys.cycle(32).table).copy()
    table[[4, 15]] = 0  # nobody is sure of what follows 4 or 15
    draft = draft_model.DraftModel(toys.Table(jnp.asarray(table)), 6)
    sampling = decoding.settings([1.0] * 3)
    state = decoding.run(
      toys.cycle(32),
      draft,
      [[1], [15], [20]],
      policy=Stopper(6),
      sampling=sampling,
      new=10,
    )
    first = state.stats.drafted[:, 0].tolist()
    self.assertEqual(first, [3, 0, 6])
    plain = decoding.run(
      toys.cycle(32),
      ngram.NGram(6),
      [[1], [15], [20]],
      sampling=sampling,
      new=10,
    )
    self.assertEqual(decoding.answers(state), decoding.answers(plain))


if __name__ == "__main__":
  absltest.main()
