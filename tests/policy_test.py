# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: draft lengths as data."""

from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import session, types
from specjax.decoding import step
from specjax.drafters import draft_model, empty, ngram
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled
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

  def test_rows_may_differ(self):
    policy = policy_lib.Fixed(jnp.array([2, 0, 5]))
    np.testing.assert_array_equal(policy.init(3), [2, 0, 5])


def outcome(accepted, rejected) -> types.Acceptance:
  """What rounds of these rows kept."""
  accepted, none = jnp.asarray(accepted), jnp.zeros((len(accepted), 0), int)
  return types.Acceptance(
    none, none, accepted + 1, accepted, jnp.asarray(rejected, bool)
  )


class HeuristicTest(parameterized.TestCase):
  @parameterized.parameters(
    ([5, 7, 8], [False] * 3, [7, 8, 8]),  # all kept: two more, up to the most
    ([4, 0, 0], [True] * 3, [4, 3, 2]),  # a rejection: one less
    ([0, 0, 0], [True] * 3, [4, 3, 2]),
    ([2, 0, 2], [False] * 3, [5, 5, 5]),  # the drafter found no more, or a stop
  )
  def test_lengths(self, accepted, rejected, wanted):
    policy = policy_lib.Heuristic(8, 5)
    state, lengths = policy.init(1), []
    for kept, refused in zip(accepted, rejected):
      length = policy.draft_length(state)
      state = policy.update(state, outcome([kept], [refused]), length)
      lengths.append(int(policy.draft_length(state)[0]))
    self.assertEqual(lengths, wanted)

  def test_never_below_one(self):
    policy = policy_lib.Heuristic(8, 2)
    state = policy.init(1)
    for _ in range(4):
      state = policy.update(state, outcome([0], [True]), state)
    self.assertEqual(int(state[0]), 1)

  @parameterized.parameters(
    (lambda: policy_lib.Heuristic(8, 0), "first is 0: use 1 to 8"),
    (lambda: policy_lib.Heuristic(8, 9), "first is 9: use 1 to 8"),
    (lambda: policy_lib.Confidence(8, least=1.5), "least is 1.5: use 0 to 1"),
    (lambda: policy_lib.Confidence(-2), "draft length -2 is negative"),
    (lambda: policy_lib.Entropy(8, least=2), "least is 2: use -inf to 1"),
    (lambda: policy_lib.Entropy(8, scale=-1.0), "scale is -1.0: use 0 to inf"),
  )
  def test_refuses_settings_out_of_range(self, make, message):
    with self.assertRaisesRegex(ValueError, message):
      make()


class NothingToDraftTest(parameterized.TestCase):
  @parameterized.parameters("fixed", "heuristic", "confidence", "entropy")
  def test_every_policy_is_plain_decoding(self, name):
    """Of the empty drafter, whose draft is 0 tokens long at most."""
    policy = getattr(policy_lib, name)(empty.Empty())
    state = policy.init(2)
    for _ in range(2):
      length = policy.draft_length(state)
      np.testing.assert_array_equal(length, [0, 0])
      state = policy.update(state, outcome([0, 0], [False] * 2), length)


class WidthsTest(parameterized.TestCase):
  @parameterized.parameters((), (0,), (1,), (0, 3), (3, 3, 0))
  def test_three_programs_are_fine(self, *widths):
    policy_lib.check_widths(widths)

  @parameterized.parameters((0, 1, 3), (-1,))
  def test_refuses_more_and_less(self, *widths):
    policy = policy_lib.Fixed(4, widths)
    with self.assertRaisesRegex(ValueError, "at most 2 node counts") as caught:
      session.Method(ngram.NGram(4), policy=policy)
    self.assertNotIn("\n", str(caught.exception))

  def test_unknown_length(self):
    for make in (policy_lib.fixed, policy_lib.confidence, policy_lib.entropy):
      self.assertEqual(make(ngram.NGram(4)).length, 4)
      with self.assertRaisesRegex(ValueError, "length is 5 but its drafter"):
        make(ngram.NGram(4), 5)


class LawTest(absltest.TestCase):
  LAWS = jnp.log(
    jnp.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4], jnp.float32)
  )

  def test_confidence_is_the_largest_probability(self):
    for least, wanted in (
      (0.0, [True, True, True]),
      (0.4, [True, True, False]),
      (0.6, [True, False, False]),
    ):
      keep = policy_lib.Confidence(4, least=least).keep_drafting(
        None, self.LAWS
      )
      self.assertEqual(keep.tolist(), wanted)

  def test_entropy_bound(self):
    """1 - sqrt(0.2 ln 2) is 0.628, 1 - sqrt(0.2 ln 4) is 0.473."""
    for least, wanted in (
      (0.47, [True, True, True]),
      (0.48, [True, True, False]),
      (0.63, [True, False, False]),
    ):
      keep = policy_lib.Entropy(4, least=least).keep_drafting(None, self.LAWS)
      self.assertEqual(keep.tolist(), wanted)


class Noting(policy_lib.Fixed):
  """Tells which laws it was shown."""

  note: Any = struct.field(pytree_node=False, default=print)

  def keep_drafting(self, state, law):
    jax.debug.callback(self.note, law, ordered=True)
    return jnp.ones(law.shape[:1], bool)


class KeepDraftingTest(parameterized.TestCase):
  @parameterized.parameters(0.0, 1.0)
  def test_asked_before_each_token(self, temperature):
    """The law alone decides, so the drawn token cannot bend the output.

    It is the drafter's own: greedy rows would be sure of everything else.
    """
    table = np.asarray(toys.cycle(80).table).copy()
    table[[4, 15]] = 0  # nobody is sure of what follows 4 or 15
    draft = draft_model.DraftModel(toys.Table(jnp.asarray(table)), 6)
    sampling = sampling_lib.Sampling(jnp.full((3,), temperature))
    state = decoding.run(
      toys.cycle(80),
      draft,
      [[1], [15], [20]],
      policy=policy_lib.Confidence(6, least=0.5),
      sampling=sampling,
      new=10,
    )
    first = state.stats.drafted[:, 0].tolist()
    self.assertEqual(first, [3, 0, 6])
    plain = decoding.run(
      toys.cycle(80),
      empty.Empty(1),
      [[1], [15], [20]],
      sampling=sampling,
      new=10,
    )
    self.assertEqual(decoding.answers(state), decoding.answers(plain))

  def test_no_drawn_token_is_seen(self):
    """Each law is that of a token to come, given those before it alone."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(32, 32)).astype(np.float32)
    target = toys.Table(jnp.asarray(table))
    laws = []
    state, rest = decoding.start(
      target,
      draft_model.DraftModel(target, 4),
      policy=Noting(4, note=laws.append),
      sampling=sampling_lib.Sampling(jnp.array([0.0, 0.7, 1.0])),
    )
    rule = coupled.Coupled()
    _, draft = jax.jit(step.propose)(
      target, draft_model.DraftModel(target, 4), rule, state, *rest
    )
    jax.effects_barrier()
    roots = [[prompt[-1]] for prompt in decoding.PROMPTS]
    before = np.concatenate([roots, np.asarray(draft.tokens)], axis=1)
    self.assertLen(laws, 4)
    for depth, law in enumerate(laws):
      wanted = jax.nn.log_softmax(table[before[:, depth]])
      np.testing.assert_allclose(law, wanted, atol=1e-5)  # float32 sums


if __name__ == "__main__":
  absltest.main()
