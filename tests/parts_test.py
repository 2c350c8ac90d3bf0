# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A policy for each drafter of a cascade."""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.decoding import step
from specjax.drafters import cascade, draft_model, empty, ngram
from specjax.policies import gain, parts, policy
from specjax.verifiers import coupled
from tests import decoding, toys

TARGET = toys.tiny(0)
# Row 0 ends with a pair that stands before, rows 1 and 2 do not.
PROMPTS = ((7, 8, 9, 3, 7, 8), (3,), (5, 6, 1, 2))
CASCADE = cascade.cascade(
  ngram.NGram(5, 2, 4), draft_model.DraftModel(toys.noisy(TARGET), 3)
)


def gained(length: int) -> gain.ExpectedGain:
  """A policy that drafts at first, in rounds that cost nearly nothing more."""
  seconds = jnp.array([1.0, *[1.2] * length], jnp.float32)
  return gain.ExpectedGain(seconds, jnp.float32(1.1), widths=(0,))


def outcome(part, accepted, rejected) -> types.Acceptance:
  """Of rounds whose drafts were `part`'s."""
  accepted = jnp.asarray(accepted)
  none = jnp.zeros((len(accepted), 0), jnp.int32)
  return types.Acceptance(
    none,
    none,
    accepted + 1,
    accepted,
    jnp.asarray(rejected),
    jnp.asarray(part),
  )


class PartsTest(parameterized.TestCase):
  def test_evidence_is_of_the_part_that_drafted(self):
    """Rows: the first kept 2, the second kept 1 of more, nobody had any."""
    made = parts.Parts((gained(5), gained(3)))
    state = made.init(3)
    np.testing.assert_array_equal(made.draft_length(state), [5, 5, 5])
    seen = outcome([0, 1, 1], [2, 1, 0], [True, True, False])
    first, second = made.update(state, seen, jnp.array([5, 5, 5]))
    np.testing.assert_array_equal(first.tested.sum(1), [3, 0, 0])
    np.testing.assert_array_equal(first.kept.sum(1), [2, 0, 0])
    # Those that had nothing were asked; the second was not, in the first row.
    np.testing.assert_array_equal(first.asked, [1, 1, 1])
    np.testing.assert_array_equal(first.drafted, [1, 0, 0])
    np.testing.assert_array_equal(second.tested.sum(1), [0, 2, 0])
    np.testing.assert_array_equal(second.asked, [0, 1, 1])
    np.testing.assert_array_equal(second.drafted, [0, 1, 0])

  def test_who_was_not_asked_keeps_what_it_knows(self):
    """While the first serves, the second's evidence does not fade."""
    made = parts.Parts((gained(5), gained(3)))
    asked = outcome([1, 1], [0, 3], [True, False])
    _, known = state = made.update(made.init(2), asked, jnp.array([5, 5]))
    served = outcome([0, 0], [1, 1], [False, False])
    for _ in range(5):
      state = made.update(state, served, jnp.array([5, 5]))
    jax.tree.map(np.testing.assert_array_equal, state[1], known)
    self.assertGreater(float(state[0].tested.sum()), 9)

  def test_who_is_off_forgets(self):
    """Or it would never try again."""
    made = parts.Parts((gained(5), gained(3)))
    refused = outcome([1], [0], [True])
    state = made.init(1)
    while int(made.policies[1].draft_length(state[1])[0]):
      state = made.update(state, refused, made.draft_length(state))
    served = outcome([0], [5], [False])
    rounds = 0
    while not int(made.policies[1].draft_length(state[1])[0]):
      state = made.update(state, served, made.draft_length(state))
      rounds += 1
      self.assertLess(rounds, 500)
    self.assertGreater(rounds, 1)
    np.testing.assert_array_equal(made.draft_length(state), [5])

  @parameterized.parameters(
    # Lengths of the two, then what rows 0 and 1 draft.
    ((5, 3), (4, 3)),
    ((2, 3), (2, 3)),
    ((5, 0), (4, 0)),
    ((0, 2), (2, 2)),
    ((0, 0), (0, 0)),
  )
  def test_each_part_drafts_as_its_own_policy_says(self, lengths, drafted):
    made = parts.Parts(tuple(policy.Fixed(n, (0, 3)) for n in lengths))
    self.assertEqual(made.widths, (0, 3))
    draft = self.propose(CASCADE, made)
    np.testing.assert_array_equal(draft.count[:2], drafted)
    np.testing.assert_array_equal(draft.part, [int(not lengths[0]), 1, 1])

  def propose(self, drafter, made) -> Any:
    state, settings = decoding.start(TARGET, drafter, PROMPTS, policy=made)
    _, draft = jax.jit(step.propose)(
      TARGET, drafter, coupled.Coupled(), state, *settings
    )
    return jax.device_get(draft)

  def test_cascades_within_a_cascade(self):
    """The inner one is one part: the outer one says who it was."""
    inner = cascade.cascade(ngram.NGram(4, 1, 1), CASCADE.second)
    drafter = cascade.cascade(CASCADE.first, inner)
    made = parts.Parts((policy.Fixed(1), policy.Fixed(2)))
    draft = self.propose(drafter, made)
    np.testing.assert_array_equal(draft.count, [1, 2, 2])
    np.testing.assert_array_equal(draft.part, [0, 1, 1])

  @parameterized.parameters(1, 3)
  def test_what_was_found_decides_however_little_is_wanted(self, length):
    """Row 0 finds 4 to copy, of which its policy wants fewer than `least`."""
    drafter = CASCADE.replace(least=3)
    made = parts.Parts((policy.Fixed(length), policy.Fixed(3)))
    draft = self.propose(drafter, made)
    np.testing.assert_array_equal(draft.part, [0, 1, 1])
    np.testing.assert_array_equal(draft.count, [length, 3, 3])

  @parameterized.parameters(
    (policy.Fixed(3, (0, 3)), "widths .*use the same"),
    (parts.Parts((policy.Fixed(1), policy.Fixed(2))), "within another"),
  )
  def test_policies_that_do_not_fit(self, other, message):
    with self.assertRaisesRegex(ValueError, message):
      parts.Parts((policy.Fixed(1), other)).init(2)

  def test_a_drafter_of_one_part_is_refused(self):
    made = parts.Parts((policy.Fixed(1), policy.Fixed(2)))
    with self.assertRaisesRegex(ValueError, "give it to a cascade"):
      decoding.run(TARGET, CASCADE.first, policy=made)

  def test_text_is_that_of_plain_decoding(self):
    made = parts.Parts((gained(5), gained(3)))
    state = decoding.run(TARGET, CASCADE, policy=made)
    plain = decoding.run(TARGET, empty.Empty(1))
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    first, second = jax.device_get(state.policy)
    self.assertGreater(first.drafted.sum(), 0)
    self.assertGreater(second.drafted.sum(), 0)


if __name__ == "__main__":
  absltest.main()
