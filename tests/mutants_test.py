# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The proofs have teeth: each broken rule here must be found out.

Mutants are made as those of `specjax.testing.mutants`, which are tried too.
"""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import exact, sampling, streams
from specjax.testing import cases, mutants
from specjax.trees import tree
from specjax.verifiers import coupled, ratio, rejection

TARGET, DRAFT = cases.random(1, 4), cases.random(2, 4)
DRAFTS = exact.honest(DRAFT)

# Biases that a user could see; all of them are over 1e-3.
STRUCTURAL = {
  "unweighted_residual": (
    "mass = sampling.residual(p, q)",
    "mass = (p > q).astype(p.dtype)",
  ),
  "mirrored_residual": ("residual(p, q)", "residual(q, p)"),
  "one_draft_too_many": (
    "hits = (uniforms.accept * q_x < p_x) & tree.valid_nodes(draft)",
    "hits = uniforms.accept * q_x < p_x\n"
    "    hits &= jnp.arange(nodes)[None] <= draft.count[:, None]",
  ),
  "residual_after_the_last": ("(leaf < draft.count)", "(leaf <= draft.count)"),
  "no_residual_at_the_end": (
    "(leaf < draft.count)",
    "(leaf < draft.count - 1)",
  ),
  "inverted_ratio": ("accept * q_x < p_x", "accept * p_x < q_x"),
  "probability_is_enough": ("accept * q_x < p_x", "accept < p_x"),
  "next_slot": (
    "p = jnp.exp(ratio.row(log_p, leaf))",
    "p = jnp.exp(log_p[:, -1])",
  ),
}
# A race gone wrong is refused before a law is made of it.
RACES = {
  "count_instead_of_run": (
    "leaf = jnp.sum(jnp.cumprod(hits, axis=1), axis=1)",
    "leaf = jnp.sum(hits, axis=1)",
  ),
  "one_noise_for_all_depths": ("uniforms(depths,", "uniforms(depths * 0,"),
  "one_position_late": (
    "self.lengths[:, None] +",
    "1 + self.lengths[:, None] +",
  ),
  "draft_is_always_kept": (
    "hits = draft.tokens == drawn[:, :-1]",
    "hits = jnp.ones_like(draft.tokens, bool)",
  ),
  "first_draw_at_the_end": ("drawn, leaf[:, None]", "drawn, leaf[:, None] * 0"),
}
# A race over something else than the target's law has another law.
RACE_LAWS = {
  "keyed_by_depth": ("self.lengths[:, None] +", "0 * self.lengths[:, None] +"),
  "no_noise": (
    "argmax(log_p + noise)\n    hits = draft",
    "argmax(log_p)\n    hits = draft",
  ),
  "half_noise": (
    "uniforms(depths, log_p.shape[-1])",
    "0.5 * uniforms(depths, log_p.shape[-1])",
  ),
}


def distance(rule, drafts=DRAFTS) -> float:
  return mutants.distance(rule, drafts, TARGET)


def redrawn(*replacement):
  """Rejection with another draw of its numbers."""
  bases = mutants.mutate(ratio, replacement).RatioRule, rejection.Rejection
  return type("Redrawn", bases, {"decide": rejection.Rejection.decide})()


class RejectionMutantsTest(parameterized.TestCase):
  def test_the_right_rule_passes(self):
    self.assertLess(distance(rejection.Rejection()), 1e-12)
    leaf = mutants.LEAF
    same = mutants.mutate(rejection, (leaf, f"{leaf} + 0")).Rejection()
    self.assertLess(distance(same), 1e-12)

  @parameterized.parameters(
    "unweighted_residual", "one_draft_too_many", "inverted_ratio"
  )
  def test_structural(self, name):
    self.check_structural(name)

  @parameterized.parameters(*STRUCTURAL)
  @pytest.mark.slow
  def test_every_structural(self, name):
    self.check_structural(name)

  def check_structural(self, name):
    rule = mutants.mutate(rejection, STRUCTURAL[name]).Rejection()
    self.assertGreater(distance(rule), 1e-3)

  def test_one_number_for_both(self):
    rule = redrawn(
      "streams_lib.RESIDUAL, lengths", "streams_lib.ACCEPT, lengths"
    )
    self.assertGreater(distance(rule), 1e-3)

  @parameterized.parameters(*mutants.TEXTS)
  def test_those_of_the_library(self, name):
    off = distance(mutants.broken(name))
    if mutants.TEXTS[name].kind == mutants.STRUCTURAL:
      self.assertGreater(off, mutants.LEAST)
    else:
      self.assertLess(off, 1e-5)
      self.assertGreater(off, mutants.TIMES * distance(rejection.Rejection()))


class DraftMutantsTest(parameterized.TestCase):
  """The rule is right, what it is told of the draft is not."""

  @pytest.mark.fault_case("B03")
  def test_argmax_with_the_law_of_sampling(self):
    """huggingface/transformers#32867, on several rounds."""
    rule = rejection.Rejection()
    drawn = cases.best(DRAFT)
    wrong = exact.Drafts(drawn, DRAFT)
    self.assertGreater(distance(rule, wrong), 1e-2)
    self.assertLess(distance(rule, exact.honest(drawn)), 1e-12)

  @pytest.mark.fault_case("B01")
  def test_unfiltered_law_in_the_ratio(self):
    """huggingface/transformers#47932, on several rounds."""
    rule = rejection.Rejection()
    drawn = cases.sampled(cases.random(2, 4), temperature=1.0, top_k=2)
    wrong = exact.Drafts(drawn, DRAFT)
    self.assertGreater(distance(rule, wrong), 1e-2)
    self.assertLess(distance(rule, exact.honest(drawn)), 1e-12)

  def test_coupled_does_not_care(self):
    rule = coupled.Coupled()
    wrong = exact.Drafts(cases.best(DRAFT), DRAFT)
    self.assertLess(distance(rule, wrong), 1e-12)

  def test_filters_before_temperature(self):
    self.assertGreater(mutants.filters_first(), mutants.LEAST)


class CoupledMutantsTest(parameterized.TestCase):
  def test_the_right_rule_passes(self):
    self.assertLess(distance(coupled.Coupled()), 1e-12)

  @parameterized.parameters(*RACES)
  def test_text_depends_on_the_draft(self, name):
    rule = mutants.mutate(coupled, RACES[name]).Coupled()
    with self.assertRaisesRegex(ValueError, "depends on the draft"):
      distance(rule)

  @parameterized.parameters(*RACE_LAWS)
  def test_another_law(self, name):
    rule = mutants.mutate(coupled, RACE_LAWS[name]).Coupled()
    self.assertGreater(distance(rule), 1e-3)


# Faults between rows or between streams need production numbers.
ROWS = 100_000


def first_tokens(verifier, batch=1):
  """Counts [V] of the first emitted token, one draft, rows in `batch`es."""
  p = jnp.asarray(TARGET(np.zeros((1, 0), int))[0], jnp.float32)
  q = jnp.asarray(DRAFT(np.zeros((1, 0), int))[0], jnp.float32)
  vocab = len(p)

  def one(keys):
    rows = keys.shape[0]
    source = streams.Streams(keys, jnp.zeros((rows,), jnp.int32))
    lengths = jnp.full((rows,), 5)
    zeros = jnp.zeros((rows, 1), jnp.int32)
    noise = verifier.noise(source, vocab)(lengths[:, None], zeros)
    tokens = sampling.argmax(q[None, None] + noise)
    log_q = jnp.broadcast_to(q, (rows, 1, vocab))
    draft = tree.chain(tokens, jnp.ones((rows,), jnp.int32), log_q)
    log_p = jnp.broadcast_to(p, (rows, 2, vocab))
    uniforms = verifier.draw(source, lengths, draft)
    return verifier.verify(log_p, draft, uniforms).tokens[:, 0]

  index = jnp.arange(ROWS)
  keys = streams.row_keys(11, index, index * 0).reshape(-1, batch)
  tokens = jax.jit(jax.vmap(one))(keys)
  return np.bincount(np.asarray(tokens).ravel(), minlength=vocab)


def largest_z(counts):
  """Largest deviation of a token's count, in standard deviations."""
  p = np.exp(TARGET(np.zeros((1, 0), int))[0])
  return np.max(np.abs(counts - ROWS * p) / np.sqrt(ROWS * p * (1 - p)))


class StreamMutantsTest(parameterized.TestCase):
  @parameterized.product(
    rule=(rejection.Rejection(), coupled.Coupled()), batch=(1, 2)
  )
  def test_the_right_rules_pass(self, rule, batch):
    # Level 1e-4 for four tokens, on a fixed seed.
    self.assertLess(largest_z(first_tokens(rule, batch)), 4.3)

  def test_accept_test_knows_what_drew_the_token(self):
    rule = redrawn("streams_lib.ACCEPT,", "streams_lib.DRAFT,")
    self.assertGreater(largest_z(first_tokens(rule)), 10)

  def test_shortest_row_cuts_the_others_and_draws_anew(self):
    leaf = mutants.LEAF
    cut = leaf + "\n    leaf = jnp.full_like(leaf, jnp.min(leaf))"
    rule = mutants.mutate(rejection, (leaf, cut)).Rejection()
    self.assertLess(largest_z(first_tokens(rule, batch=1)), 4.3)
    self.assertGreater(largest_z(first_tokens(rule, batch=2)), 10)


if __name__ == "__main__":
  absltest.main()
