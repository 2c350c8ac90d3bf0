# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all rules that test ratios share: their laws on trees, and their edges.

Laws are found by enumeration in float64; a right rule is off by a few roundings
(measured: under 1e-15), so 1e-12 is a bound that no bias passes.
"""

import dataclasses

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import exact, streams, testing, types
from specjax.decoding import decode, stopping
from specjax.drafters import draft_model, empty, tree_draft_model
from specjax.laws import drafts as drafts_lib
from specjax.testing import cases
from specjax.trees import tree
from specjax.verifiers import (
  block,
  k_seq,
  multi_candidate,
  multi_path,
  ratio,
  rejection,
  traversal,
)
from tests import decoding, toys

TOLERANCE = 1e-12
BLOCK, PATHS = block.Block(), multi_path.MultiPath()
MANY, SEQ = multi_candidate.MultiCandidate(), k_seq.KSeq()
TRAVERSAL, TOKEN = traversal.Traversal(), rejection.Rejection()
CHAINS = (TOKEN, BLOCK, MANY, SEQ, TRAVERSAL, PATHS)
TARGET = cases.random(1, 3)
DRAFT = cases.random(2, 3)
PAIR, TREE, WIDE, DEEP = (0, 0), (0, 0, 1, 1), (0, 0, 0, 1, 1, 2), (0, 0, 1, 3)
GIVEN = exact.Drafts(DRAFT, None)
ALIKE = exact.honest(DRAFT)
DISTINCT = exact.honest(DRAFT, drafts_lib.distinct)
RANKED = exact.honest(DRAFT, drafts_lib.ranked)
MIXED = exact.honest(DRAFT, drafts_lib.mixed)
START = np.zeros((1, 0), int)
ROWS = 512  # of a batch of chains


def distance(rule, drafts, parents, lengths=(2,), tokens=3, target=TARGET):
  law = exact.law(rule, target, drafts, lengths, tokens, parents)
  return exact.total_variation(law, exact.joint(target, tokens))


def accepted(rule, drafts, target=TARGET, length=2, nodes=None):
  """Expected tokens kept of the first `nodes` nodes of TREE (of a PAIR)."""
  parents = PAIR if rule == SEQ else TREE
  if nodes is not None:
    cut = lambda prefix, tokens: np.full(len(tokens), nodes)
    drafts = dataclasses.replace(drafts, cut=cut)
  length = min(length, 1 if rule == SEQ else 2)
  return exact.expected_accepted(rule, target, drafts, length, parents)


class NarrowTest(parameterized.TestCase):
  @parameterized.parameters(*CHAINS)
  def test_a_round_without_nodes_is_the_targets_own_draw(self, rule):
    none = jnp.zeros((3, 0), jnp.int32)
    draft = types.Draft(none, none, None, jnp.zeros(3, jnp.int32), max_depth=0)
    law = jnp.asarray([[0.2, 0.5, 0.3]] * 3)
    uniforms = ratio.Uniforms(none, jnp.asarray([0.1, 0.6, 0.9]))
    kept = rule.verify(jnp.log(law)[:, None], draft, uniforms)
    np.testing.assert_array_equal(kept.tokens[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(kept.count, 1)
    np.testing.assert_array_equal(kept.accepted, 0)
    np.testing.assert_array_equal(kept.rejected, False)

  def test_trees_and_rounds_of_width_one(self):
    """A policy that may turn drafting off, as `expected_gain` does."""
    self.check_width_one(TRAVERSAL)

  @pytest.mark.slow
  def test_width_one_by_recursive_rejection(self):
    self.check_width_one(MANY)

  def check_width_one(self, rule):
    drafter = tree_draft_model.static_tree(toys.tiny(0), (2, 1))
    policy = decoding.Scheduled.of([[2] * 3, [0] * 3, [1] * 3], widths=(0, 3))
    state = decoding.run(
      toys.tiny(0), drafter, verifier=rule, policy=policy, new=12
    )
    self.assertFalse(np.any(state.stats.rejected))
    plain = decoding.run(toys.tiny(0), empty.Empty(1), new=12)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))

  @parameterized.parameters(SEQ, PATHS)
  def test_siblings_without_replacement_are_refused(self, rule):
    tiny = toys.tiny(0)
    stop = stopping.make_stop((), [4], ())
    with self.assertRaisesRegex(ValueError, "siblings that were drawn indep"):
      decode.check(
        tiny,
        tree_draft_model.static_tree(tiny, (2, 1)),
        rule,
        np.array([3]),
        stop,
        64,
      )
    chain = draft_model.DraftModel(tiny, 2)
    decode.check(tiny, chain, rule, np.array([3]), stop, 64)


class TreeLawTest(parameterized.TestCase):
  @parameterized.product(
    rule=(MANY, TRAVERSAL), drafts=(ALIKE, DISTINCT, MIXED)
  )
  def test_two_rounds_on_a_tree(self, rule, drafts):
    self.assertLess(distance(rule, drafts, TREE, (1, 2), 2), TOLERANCE)

  @parameterized.parameters((PATHS, TREE, (1, 2)), (SEQ, PAIR, (1,)))
  def test_two_rounds_of_independent_siblings(self, rule, parents, lengths):
    self.assertLess(distance(rule, ALIKE, parents, lengths, 2), TOLERANCE)

  @parameterized.product(
    rule=(MANY, TRAVERSAL),
    drafts=(ALIKE, DISTINCT, RANKED, MIXED, GIVEN),
    parents=(TREE, WIDE, DEEP),
  )
  @pytest.mark.slow
  def test_more_trees(self, rule, drafts, parents):
    off = distance(rule, drafts, parents, (3, 1, 2), 3)
    self.assertLess(off, TOLERANCE)

  @parameterized.parameters(
    (PATHS, TREE),
    (PATHS, WIDE),
    (PATHS, DEEP),
    (PATHS, (0, 0, 0)),
    (PATHS, (0, 0, 1, 2, 3, 4)),
    (SEQ, TREE),
    (SEQ, DEEP),
  )
  @pytest.mark.slow
  def test_more_trees_of_independent_siblings(self, rule, parents):
    off = distance(rule, ALIKE, parents, (3, 1, 2), 3)
    self.assertLess(off, TOLERANCE)

  @parameterized.parameters(BLOCK, MANY, SEQ, TRAVERSAL, PATHS)
  @pytest.mark.slow
  def test_the_public_check(self, rule):
    kinds = ("independent",) if rule in (SEQ, PATHS) else tuple(cases.KINDS)
    testing.check_exact(rule, kinds=kinds)
    self.assertLess(distance(rule, ALIKE, None, (1, 2, 0, 3), 4), TOLERANCE)

  @pytest.mark.fault_case("B08")
  def test_refused_siblings_leave_the_law(self):
    """SafeAILab/EAGLE#329: fixed siblings, each one's law on itself alone."""
    self.check_refused(MANY)

  @pytest.mark.slow
  def test_refused_siblings_leave_the_law_of_traversal(self):
    self.check_refused(TRAVERSAL)

  def check_refused(self, rule):
    p = cases.constant([0.2, 0.5, 0.3])
    fixed = exact.Drafts(
      cases.constant([0.5, 0.3, 0.2]), None, drafts_lib.ranked
    )
    law = exact.law(rule, p, fixed, (1,), 1, TREE)
    np.testing.assert_allclose(law, [0.2, 0.5, 0.3], atol=TOLERANCE)
    self.assertAlmostEqual(accepted(rule, fixed, p, length=1), 0.7)

  @parameterized.parameters(MANY, TRAVERSAL)
  def test_unmodified_laws_of_siblings_are_told_apart(self, rule):
    """Contract: log_q of a sibling is what earlier ones left."""
    wrong = exact.Drafts(
      DRAFT, DRAFT, drafts_lib.distinct, drafts_lib.independent
    )
    self.assertGreater(distance(rule, wrong, TREE, (1,), 1), 1e-3)


class DegenerateLawTest(parameterized.TestCase):
  @parameterized.parameters(
    (MANY, ALIKE.siblings),
    (MANY, DISTINCT.siblings),
    (TRAVERSAL, ALIKE.siblings),
    (TRAVERSAL, DISTINCT.siblings),
    (PATHS, ALIKE.siblings),
    (SEQ, ALIKE.siblings),
  )
  def test_the_target_drafts_for_itself(self, rule, siblings):
    kept = accepted(rule, exact.honest(TARGET, siblings))
    self.assertAlmostEqual(kept, 1 if rule == SEQ else 2, places=12)

  @parameterized.product(
    rule=(MANY, TRAVERSAL, PATHS, SEQ), case=("holes", "disjoint", "greedy")
  )
  def test_laws_with_zeros(self, rule, case):
    target = cases.constant([0.5, 0.5, 0])
    draft = {
      "holes": cases.constant([0, 0.4, 0.6]),
      "disjoint": cases.constant([0, 0, 1]),
      "greedy": DRAFT,
    }[case]
    if case == "greedy":
      target = cases.best(TARGET)
    parents, depth = (PAIR, 1) if rule == SEQ else (TREE, 2)
    drafts = exact.honest(draft)
    off = distance(rule, drafts, parents, (depth,), depth, target)
    self.assertLess(off, TOLERANCE)

  @parameterized.parameters(*CHAINS)
  @pytest.mark.fault_case("B06")
  def test_empty_residuals(self, rule):
    """vllm-project/vllm#2336: equal laws, a rounding apart, and disjoint."""
    even = np.array([0.2, 0.3, 0.5], np.float32)
    more = np.nextafter(even, np.float32(1))
    one, two = np.eye(3, dtype=np.float32)[:2]
    # A refusal (a number of 1, which none is) leaves p, never a uniform draw.
    cases = [
      (even, q, u, r) for q in (even, more) for u in (0, 1) for r in (0, 1)
    ]
    cases += [(two, one, u, r) for u in (0, 1) for r in (0, 1)]
    p, q, u, r = (jnp.asarray(np.array(x), jnp.float32) for x in zip(*cases))
    draft = tree.chain(
      jnp.zeros((len(p), 1), jnp.int32),
      jnp.ones(len(p), jnp.int32),
      jnp.log(q)[:, None],
    )
    numbers = ratio.Uniforms(u[:, None], r * (1 - 2.0**-24))
    log_p = jnp.log(jnp.stack([p, p], axis=1))
    kept = jax.jit(rule.verify)(log_p, draft, numbers)
    np.testing.assert_array_equal(
      kept.accepted, [1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    )
    np.testing.assert_array_equal(
      kept.tokens[:, 0], [0, 0, 0, 2, 0, 0, 0, 2, 1, 1, 1, 1]
    )


class SiblingsTest(parameterized.TestCase):
  @parameterized.product(rule=(MANY, TRAVERSAL, PATHS, SEQ), seed=(0, 1))
  def test_one_more_never_shortens_what_is_kept(self, rule, seed):
    target = cases.random(10 + seed, 3)
    draft = cases.random(20 + seed, 3)
    alike = rule in (PATHS, SEQ)
    drafts = exact.honest(draft, (ALIKE if alike else DISTINCT).siblings)
    most = 2 if rule == SEQ else 4
    kept = [accepted(rule, drafts, target, nodes=n + 1) for n in range(most)]
    overlap = np.minimum(np.exp(target(START)), np.exp(draft(START))).sum()
    self.assertAlmostEqual(kept[0], overlap, places=12)
    self.assertTrue(np.all(np.diff(kept) > -TOLERANCE), kept)

  def test_traversal_keeps_more_than_recursive_rejection(self):
    kept = [accepted(rule, DISTINCT) for rule in (MANY, TRAVERSAL)]
    self.assertGreater(kept[1], kept[0] + 1e-3)


def example(seed, rows, vocab=5, chain=False):
  """Random laws and honest drafts, rows of two shapes and all counts."""
  rng = np.random.default_rng(seed)
  shapes = ((0, 1, 2, 3),) if chain else ((0, 0, 1, 2), (0, 0, 1, 3))
  parents = jnp.asarray([shapes[row % len(shapes)] for row in range(rows)])
  log_p, log_q = (
    jax.nn.log_softmax(
      jnp.asarray(rng.normal(size=(rows, n, vocab)), jnp.float32)
    )
    for n in (5, 4)
  )
  # One law for siblings, as all rules want it.
  log_q = jnp.take_along_axis(log_q, parents[:, :, None], axis=1)
  noise = rng.gumbel(size=log_q.shape)
  tokens = jnp.argmax(log_q + noise, axis=-1).astype(jnp.int32)
  count = jnp.asarray(np.arange(rows) % 5, jnp.int32)
  depth = 4 if chain else 3
  draft = types.Draft(tokens, parents, log_q, count, max_depth=depth)
  if chain:
    draft = tree.chain(tokens, count, log_q)
  keys = streams.row_keys(seed, jnp.arange(rows), jnp.zeros((rows,), int))
  source = streams.Streams(keys, jnp.zeros((rows,), jnp.int32))
  return log_p, draft, MANY.draw(source, jnp.arange(rows) + 3, draft)


class RowsTest(parameterized.TestCase):
  @parameterized.parameters(MANY, TRAVERSAL, PATHS, SEQ)
  def test_rows_keep_valid_paths_whatever_their_neighbours(self, rule):
    arguments = example(0, 64)
    draft = arguments[1]
    verify = jax.jit(rule.verify)
    kept = jax.device_get(verify(*arguments))
    self.assertGreater(len(set(kept.accepted.tolist())), 2)
    parents, tokens = np.asarray(draft.parents), np.asarray(draft.tokens)
    for row in range(64):
      end = kept.accepted[row]
      path = kept.path[row, : end + 1]
      self.assertEqual(path[0], 0)
      self.assertLessEqual(path.max(), draft.count[row])
      for step in range(end):
        node = path[step + 1] - 1
        self.assertEqual(parents[row, node], path[step])
        self.assertEqual(tokens[row, node], kept.tokens[row, step])
    # The same row among many copies of another one.
    for row in (3, 4, 7):
      index = np.full(64, 19)
      index[5] = row
      among = verify(*jax.tree.map(lambda x, i=index: x[i], arguments))
      jax.tree.map(
        lambda a, b, row=row: np.testing.assert_array_equal(a[5], b[row]),
        among,
        kept,
      )

  @parameterized.parameters(*CHAINS)
  def test_bad_logits_end_nowhere_else(self, rule):
    """NaN laws: no hang, no id out of range, and the other rows as before."""
    log_p, draft, uniforms = example(2, ROWS, chain=True)
    verify = jax.jit(rule.verify)
    clean = verify(log_p, draft, uniforms)
    kept = verify(log_p.at[3].set(jnp.nan), draft, uniforms)
    self.assertTrue(np.all((kept.tokens >= 0) & (kept.tokens < 5)))
    others = np.arange(ROWS) != 3
    np.testing.assert_array_equal(kept.tokens[others], clean.tokens[others])

  @parameterized.parameters((SEQ, "KSeq"), (PATHS, "MultiPath"))
  def test_rules_that_need_laws_say_so(self, rule, name):
    log_p, draft, uniforms = example(2, 8)
    message = f"{name} needs the law .* use multi_candidate or traversal"
    with self.assertRaisesRegex(ValueError, message):
      rule.verify(log_p, draft.replace(log_q=None), uniforms)

  def test_chain_forms_keep_the_same(self):
    """On a chain the rules fall into two, number by number."""
    arguments = example(3, ROWS, chain=True)
    kept = {type(rule): jax.jit(rule.verify)(*arguments) for rule in CHAINS}
    for group in (
      (rejection.Rejection, type(MANY)),
      (block.Block, type(TRAVERSAL), type(PATHS)),
    ):
      for other in group[1:]:
        jax.tree.map(np.testing.assert_array_equal, kept[group[0]], kept[other])
    apart = kept[block.Block].accepted != kept[rejection.Rejection].accepted
    self.assertTrue(np.any(apart))


class RoundsTest(parameterized.TestCase):
  @parameterized.parameters(BLOCK, TRAVERSAL)
  def test_the_target_drafts_for_itself_round_after_round(self, rule):
    logits = np.random.default_rng(0).normal(size=(16, 16))
    self.all_kept(toys.Table(jnp.asarray(logits, jnp.float32)), rule)

  @parameterized.parameters(*CHAINS)
  @pytest.mark.slow
  def test_a_transformer_drafts_for_itself(self, rule):
    self.all_kept(toys.tiny(0), rule)

  def all_kept(self, target, rule):
    state = decoding.run(
      target,
      draft_model.DraftModel(target, 3),
      verifier=rule,
      sampling=decoding.settings([0.0, 0.7, 1.0], top_k=[0, 0, 9]),
      new=48,
    )
    for row in range(3):
      counters = decoding.counters(state, row)
      self.assertEqual(counters["accepted"], [3] * 12)
      self.assertEqual(sum(counters["rejected"]), 0)


if __name__ == "__main__":
  absltest.main()
