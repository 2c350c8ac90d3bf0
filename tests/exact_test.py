# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rules' exact output laws, found on their own code.

A right rule's distance is a few roundings of float64 (measured: under 1e-15),
so 1e-12 is a bound that no bias passes.
"""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import exact, streams, types
from specjax import sampling as sampling_lib
from specjax.decoding import decode
from specjax.drafters import draft_model
from specjax.policies import policy
from specjax.testing import cases
from specjax.trees import tree
from specjax.verifiers import coupled, rejection
from tests import reference, toys

TOLERANCE = 1e-12
RULES = (rejection.Rejection(), coupled.Coupled())
TARGET = cases.random(1, 4)
DRAFT = cases.random(2, 4)


def distance(verifier, target, drafts, lengths, tokens):
  law = exact.law(verifier, target, drafts, lengths, tokens)
  return exact.total_variation(law, exact.joint(target, tokens))


class LawTest(parameterized.TestCase):
  @parameterized.product(
    verifier=RULES,
    case=(((2,), 3), ((1, 2, 0, 1), 4), ((0, 2), 3), ((3,), 2)),
  )
  def test_output_law_of_several_rounds_is_the_target(self, verifier, case):
    lengths, tokens = case
    drafts = exact.honest(DRAFT)
    law = exact.law(verifier, TARGET, drafts, lengths, tokens)
    self.assertEqual(law.shape, (4,) * tokens)
    joint = exact.joint(TARGET, tokens)
    self.assertLess(exact.total_variation(law, joint), TOLERANCE)

  @parameterized.product(
    verifier=RULES,
    drafts=(
      exact.Drafts(cases.best(DRAFT), None),
      exact.Drafts(DRAFT, None),
      exact.honest(cases.best(DRAFT)),
      exact.honest(TARGET),
      exact.honest(cases.constant([0, 0.5, 0.5, 0])),
    ),
  )
  def test_every_honest_draft_is_lossless(self, verifier, drafts):
    self.assertLess(distance(verifier, TARGET, drafts, (2, 1), 3), TOLERANCE)

  @parameterized.parameters(*RULES)
  def test_filters_and_penalties_on_both_sides(self, verifier):
    settings = dict(temperature=0.9, top_k=3, repetition=1.4)
    target = cases.sampled(cases.random(1, 4), **settings)
    drafts = exact.honest(cases.sampled(cases.random(2, 4), **settings))
    off = distance(verifier, target, drafts, (1, 2, 0, 1), 3)
    self.assertLess(off, TOLERANCE)

  @parameterized.parameters(*RULES)
  def test_law_equals_an_independent_sampler(self, verifier):
    settings = dict(temperature=0.8, top_p=0.85, min_p=0.05)
    follow = cases.random(3, 4)
    target = cases.sampled(follow, **settings)
    drafts = exact.honest(cases.sampled(cases.random(2, 4), **settings))
    law = exact.law(verifier, target, drafts, (2,), 3)
    own = lambda prefix: np.array(
      [reference.log_probs(x, **settings) for x in follow(prefix)]
    )
    # The library's laws are float32, the reference's float64.
    off = exact.total_variation(law, exact.joint(own, 3))
    self.assertLess(off, 1e-6)

  @parameterized.parameters(*RULES)
  def test_greedy_target_emits_its_best_tokens(self, verifier):
    target = cases.best(TARGET)
    drafts = exact.honest(DRAFT)
    law = exact.law(verifier, target, drafts, (2,), 3)
    np.testing.assert_allclose(law, exact.joint(target, 3), atol=TOLERANCE)
    self.assertEqual(np.count_nonzero(law > 0.5), 1)

  @pytest.mark.fault_case("B01")
  def test_filtered_draft_law(self):
    """huggingface/transformers#47932: q is the law after top-k."""
    p = cases.constant([2 / 3, 1 / 3, 0, 0])
    q = cases.constant([0.375, 0.625, 0, 0])
    rule = rejection.Rejection()
    law = exact.law(rule, p, exact.honest(q), (1,), 1)
    np.testing.assert_allclose(law, [2 / 3, 1 / 3, 0, 0], atol=TOLERANCE)
    self.assertAlmostEqual(_acceptance(p, q, q), 0.7083, places=4)
    # The faulty ratio gives the report's numbers, so the ruler is right.
    raw = cases.constant([0.3, 0.5, 0.1, 0.1])
    law = exact.law(rule, p, exact.Drafts(q, raw), (1,), 1)
    self.assertAlmostEqual(law[0], 0.5833, places=4)
    self.assertAlmostEqual(_acceptance(p, q, raw), 0.7917, places=4)

  @pytest.mark.fault_case("B03")
  def test_greedy_draft_is_one_hot(self):
    """huggingface/transformers#32867: an argmax draft has no softmax law."""
    p, q = cases.constant([0.5, 0.5]), cases.constant([0.6, 0.4])
    rule, drawn = rejection.Rejection(), cases.best(q)
    law = exact.law(rule, p, exact.Drafts(drawn, None), (1,), 1)
    np.testing.assert_allclose(law, [0.5, 0.5], atol=TOLERANCE)
    self.assertAlmostEqual(_acceptance(p, drawn, drawn), 0.5)
    law = exact.law(rule, p, exact.Drafts(drawn, q), (1,), 1)
    np.testing.assert_allclose(law, [5 / 6, 1 / 6], atol=TOLERANCE)

  def test_overlap_is_accepted(self):
    p, q = TARGET(np.zeros((1, 0), int)), DRAFT(np.zeros((1, 0), int))
    overlap = np.minimum(np.exp(p), np.exp(q)).sum()
    self.assertAlmostEqual(_acceptance(TARGET, DRAFT, DRAFT), overlap)


def _acceptance(target, drawn, reported):
  """Probability that one drafted token is kept by the rejection rule."""
  drafts = exact.Drafts(drawn, reported)
  return exact.expected_accepted(rejection.Rejection(), target, drafts, 1)


class NoiseTest(parameterized.TestCase):
  def test_coupled_noise_is_keyed_by_position_alone(self):
    """What makes a position that is verified twice come out the same."""
    keys = streams.row_keys(3, jnp.arange(2), jnp.zeros((2,), int))
    draft = tree.chain(jnp.zeros((2, 3), int), jnp.array([3, 1]))
    rule = coupled.Coupled()

    def noise(round_, lengths, depths):
      source = streams.Streams(keys, jnp.full((2,), round_))
      drawn = rule.draw(source, jnp.array(lengths), draft)
      return np.asarray(drawn(jnp.array(depths), 16))

    early = noise(0, [5, 9], [0, 1, 2, 3])
    for round_, back in ((1, 1), (2, 2), (7, 3)):
      later = noise(round_, [5 + back, 9 + back], [0])
      np.testing.assert_array_equal(later[:, 0], early[:, back])
    self.assertFalse(np.any(early[:, :-1] == early[:, 1:]))

  def test_drafters_get_the_same_noise(self):
    keys = streams.row_keys(3, jnp.arange(2), jnp.zeros((2,), int))
    source = streams.Streams(keys, jnp.zeros((2,), int))
    draft = tree.chain(jnp.zeros((2, 3), int), jnp.array([3, 3]))
    rule = coupled.Coupled()
    drawn = rule.draw(source, jnp.array([5, 9]), draft)(jnp.arange(3), 16)
    positions = jnp.array([[5, 6, 7], [9, 10, 11]])
    asked = rule.noise(source, 16)(positions, jnp.arange(3)[None])
    np.testing.assert_array_equal(drawn, asked)


# Two drafts, then the loop's own way: rows reach four tokens in 2 to 4 rounds.
ROWS, DRAWS, TOKENS = 30_000, 2, 4


def chi_square(counts, law):
  """(statistic - mean) in normal units; cells under 5 expected are merged."""
  expected = law.ravel() * counts.sum()
  counts = counts.ravel()
  small = expected < 5
  observed = np.append(counts[~small], counts[small].sum())
  expected = np.append(expected[~small], expected[small].sum())
  if expected[-1] < 5:
    observed, expected = observed[:-1], expected[:-1]
  degrees = len(observed) - 1
  statistic = np.sum((observed - expected) ** 2 / expected)
  # Wilson and Hilferty's cube root makes it normal.
  spread = 2 / (9 * degrees)
  return (np.cbrt(statistic / degrees) - 1 + spread) / np.sqrt(spread)


class MonteCarloTest(parameterized.TestCase):
  def test_whole_loop_with_production_streams(self):
    self.check_loop(rejection.Rejection())

  @pytest.mark.slow
  def test_whole_loop_of_the_coupled_rule(self):
    self.check_loop(coupled.Coupled())

  def check_loop(self, verifier):
    rng = np.random.default_rng(5)
    target = toys.Table(jnp.asarray(rng.normal(size=(4, 4)), jnp.float32))
    draft = toys.Table(jnp.asarray(rng.normal(size=(4, 4)), jnp.float32))
    table = np.asarray(jax.nn.log_softmax(target.table), np.float64)
    law = np.exp(table[0])
    for _ in range(TOKENS - 1):
      law = law[..., None] * np.exp(table)
    drafter = draft_model.DraftModel(draft, 2)
    counts = np.zeros((4,) * TOKENS)
    for seed in range(DRAWS):
      np.add.at(counts, tuple(_run(target, drafter, verifier, seed).T), 1)
    # Level 1e-4 on a fixed seed.
    self.assertLess(chi_square(counts, law), 3.72)
    # The ruler has teeth: a law this close is told apart.
    other = 0.97 * law + 0.03 / law.size
    self.assertGreater(chi_square(counts, other), 3.72)


def _run(target, drafter, verifier, seed):
  """[ROWS, TOKENS] the first tokens after a prompt of token 0."""
  rows = jnp.arange(ROWS)
  ones = jnp.ones((ROWS,), jnp.int32)
  sampling = sampling_lib.per_row(sampling_lib.Sampling(temperature=1.0), ROWS)
  stop = types.Stop(
    jnp.full((1,), -1, jnp.int32),
    ones * TOKENS,
    jnp.full((0, 1), -1, jnp.int32),
  )
  state = decode.decode(
    target,
    drafter,
    verifier,
    jnp.zeros((ROWS, 1), jnp.int32),
    ones,
    streams.row_keys(seed, rows, rows * 0),
    sampling,
    policy.Fixed(2),
    stop,
    capacity=8,
    chunk=1,
  )
  return np.asarray(state.tokens[:, 1 : 1 + TOKENS])


class EagerNoiseTest(absltest.TestCase):
  def test_noise_drawn_too_early_is_named(self):
    class Eager(coupled.Coupled):
      def draw(self, streams, lengths, draft):
        zeros = jnp.zeros_like(lengths)
        return streams.gumbel(0, lengths, zeros, 4)

    uniform = lambda prefix: np.full((len(prefix), 4), np.log(0.25))
    drafts = exact.honest(uniform)
    with self.assertRaisesRegex(ValueError, "hand on the streams"):
      exact.law(Eager(), uniform, drafts, [1], 1)


if __name__ == "__main__":
  absltest.main()
