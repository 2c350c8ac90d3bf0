# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Siblings drawn independently: what is drawn, what is told, what is kept.

Axis letters: B rows, T nodes, V vocabulary.
"""

import functools
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict
import numpy as np
import pytest

from specjax import exact, testing
from specjax import sampling as sampling_lib
from specjax.bench import parts
from specjax.decoding import decode, stopping
from specjax.drafters import medusa, tree_draft_model
from specjax.testing import cases, table
from specjax.trees import branching, plans, tree
from specjax.verifiers import k_seq, multi_candidate, multi_path, traversal
from tests import decoding, draft_heads, plans_test, toys

SHAPE = tree.from_widths((2, 2))
INDEPENDENT = plans.Static(SHAPE, siblings=plans.INDEPENDENT)
RULES = {
  "k_seq": k_seq.KSeq(),
  "multi_path": multi_path.MultiPath(),
  "multi_candidate": multi_candidate.MultiCandidate(),
  "traversal": traversal.Traversal(),
}


class DrawTest(absltest.TestCase):
  """2048 rows of a table of laws; every second one is greedy."""

  @functools.cached_property
  def draft(self) -> Any:
    known = plans_test.context(plans_test.DRAWN, 2, False)
    return jax.device_get(plans_test.grow(INDEPENDENT, known))

  def test_every_law_is_that_of_the_parent(self):
    roots = np.arange(plans_test.ROWS)[:, None] % plans_test.VOCAB
    above = np.concatenate([roots, self.draft.tokens], axis=1)
    above = np.take_along_axis(above, self.draft.parents, axis=1)
    laws = sampling_lib.log_probs(
      plans_test.MODEL.table[above], plans_test.DRAWN
    )
    # One function on the same numbers, compiled elsewhere: a few roundings.
    np.testing.assert_allclose(
      np.exp(self.draft.log_q), np.exp(laws), rtol=1e-4, atol=1e-7
    )

  def test_tokens_are_drawn_from_it(self):
    drawn = ~np.asarray(plans_test.HALF)
    law = np.exp(self.draft.log_q[drawn], dtype=np.float64)
    hit = self.draft.tokens[drawn][..., None] == np.arange(plans_test.VOCAB)
    mean, spread = law.sum(0), np.sqrt((law * (1 - law)).sum(0))
    often = mean > 10
    z = (hit.sum(0) - mean)[often] / spread[often]
    # 60 counts of 1024 draws: under 1e-4 for an honest law.
    self.assertLess(np.abs(z).max(), 5)

  def test_no_two_nodes_share_their_noise(self):
    """Equal as often as independent draws of their laws are."""
    drawn = ~np.asarray(plans_test.HALF)
    law = np.exp(self.draft.log_q[drawn], dtype=np.float64)
    tokens = self.draft.tokens[drawn]
    for i in range(INDEPENDENT.num_nodes):
      for j in range(i):
        alike = np.sum(law[:, i] * law[:, j], axis=1)
        equal = np.sum(tokens[:, i] == tokens[:, j])
        z = (equal - alike.sum()) / np.sqrt(np.sum(alike * (1 - alike)))
        self.assertLess(abs(z), 5, f"nodes {j} and {i}")

  def test_greedy_siblings_are_equal(self):
    tokens = self.draft.tokens[np.asarray(plans_test.HALF)]
    np.testing.assert_array_equal(tokens[:, 0], tokens[:, 1])

  @pytest.mark.slow
  def test_the_coupled_rule_gets_the_best(self):
    known = plans_test.context(plans_test.DRAWN, 2, True)
    best = plans_test.grow(plans.Static(SHAPE), known)
    draft = plans_test.grow(INDEPENDENT, known)
    np.testing.assert_array_equal(draft.tokens, best.tokens)


class AcceptedTest(parameterized.TestCase):
  @parameterized.parameters(*RULES.values())
  def test_rules_take_them(self, rule):
    tiny = toys.tiny(0)
    check = functools.partial(
      decode.check,
      tiny,
      verifier=rule,
      prompt_lengths=np.array([3]),
      stop=stopping.make_stop((), [4], ()),
      capacity=64,
    )
    check(
      drafter=tree_draft_model.static_tree(tiny, (2, 1), 1.0, "independent")
    )
    distinct = (
      tree_draft_model.static_tree(tiny, (2, 1)),
      tree_draft_model.dynamic_tree(tiny, 2, 2, 2, 4),
    )
    for drafter in distinct:
      if getattr(rule, "independent_siblings", False):
        with self.assertRaisesRegex(ValueError, "TreeDraftModel are not: use"):
          check(drafter=drafter)
      else:
        check(drafter=drafter)

  @parameterized.parameters(k_seq.KSeq(), multi_path.MultiPath())
  @pytest.mark.slow
  def test_chains_may_be_taken_as_given(self, rule):
    """They have no siblings; then the rule is as exact as on any chain."""
    target, draft = cases.random(1, 3), cases.random(2, 3)
    given = exact.Drafts(draft, None)
    law = exact.law(rule, target, given, (2, 1), 3)
    # Roundings of float64.
    self.assertLess(exact.total_variation(law, exact.joint(target, 3)), 1e-12)

  def test_a_config_names_them(self):
    section = ConfigDict({"type": "draft_tree", "tree": (2, 1), "beta": 1.0})
    given = {"model": toys.tiny(0)}
    make = lambda siblings: parts.build(
      "d", "drafter", ConfigDict({**section, "siblings": siblings}), given
    )
    self.assertTrue(make("independent").independent_siblings)
    self.assertFalse(make("distinct").independent_siblings)
    with self.assertRaisesRegex(ValueError, "'alike': use 'distinct' or"):
      make("alike")
    keys = parts.keys("d", "drafter", "medusa")
    self.assertEqual(keys["siblings"], ("distinct", (str,)))

  @parameterized.parameters(((),), ((2, 1),))
  def test_no_such_siblings(self, paths):
    """Of a chain too, which has none."""
    with self.assertRaisesRegex(ValueError, "'alike': use 'distinct' or"):
      branching.plan(2, paths, 0, 2, 3, 1.0, 8, "alike")
    with self.assertRaisesRegex(ValueError, "beta"):
      branching.plan(2, paths, 0, 2, 3, -1.0, 8)

  def test_a_tree_that_grows_has_none(self):
    with self.assertRaisesRegex(ValueError, "in place of nodes = 6"):
      branching.plan(2, (), 6, 2, 3, 1.0, 8, "independent")

  def test_more_children_than_tokens(self):
    with self.assertRaisesRegex(ValueError, "branch 10 is more than the 8 tok"):
      branching.plan(2, (), 6, 2, 10, 1.0, 8)


class Shifted(tree_draft_model.TreeDraftModel):
  """Reports of each node the law of the node before it."""

  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    assert draft.log_q is not None
    log_q = jnp.roll(draft.log_q, 1, axis=1)
    return draft.replace(log_q=log_q), state, cache


class TextTest(parameterized.TestCase):
  """20,000 answers of four tokens, over two rounds or more."""

  VOCAB, NEW, ROWS = 4, 4, 20_000
  SMALL = table.random(VOCAB, 4)
  PLAN = plans.Static(tree.from_widths((3, 1)), siblings=plans.INDEPENDENT)

  def off(self, rule, drafter) -> float:
    """Standard deviations of chi-square from what plain decoding gives."""
    target = table.random(self.VOCAB, 3)
    state = decoding.run(
      target,
      drafter,
      [[0]] * self.ROWS,
      verifier=rule,
      sampling=decoding.settings([1.0] * self.ROWS),
      new=self.NEW,
      capacity=32,
    )
    tokens = np.asarray(state.tokens)[:, 1 : self.NEW + 1]
    place = np.ravel_multi_index(tokens.T, (self.VOCAB,) * self.NEW)
    seen = np.bincount(place, minlength=self.VOCAB**self.NEW)
    law = np.exp(jax.nn.log_softmax(target.table), dtype=np.float64)
    chance = law[0]
    for _ in range(self.NEW - 1):
      chance = chance[..., None] * law
    wanted = self.ROWS * chance.ravel()
    # Rare texts are counted as one.
    rare = wanted < 5
    join = lambda x: np.append(x[~rare], x[rare].sum())
    seen, wanted = join(seen), join(wanted)
    chi, free = np.sum((seen - wanted) ** 2 / wanted), len(wanted) - 1
    return float((chi - free) / np.sqrt(2 * free))

  @parameterized.parameters(*RULES)
  @pytest.mark.slow
  def test_is_that_of_plain_decoding(self, name):
    """Streams and drafter as in production; 5 deviations are under 1e-4."""
    drafter = tree_draft_model.TreeDraftModel(self.SMALL, self.PLAN)
    self.assertLess(abs(self.off(RULES[name], drafter)), 5)

  @parameterized.parameters("k_seq", "multi_path")
  @pytest.mark.slow
  def test_a_law_of_another_node_is_found(self, name):
    drafter = Shifted(self.SMALL, self.PLAN)
    self.assertGreater(self.off(RULES[name], drafter), 20)


class WiderTest(parameterized.TestCase):
  """Vocabularies of 4 and 5; elsewhere the laws are proven with 3 words."""

  @parameterized.product(
    case=(
      ("multi_candidate", "without replacement", (0, 0, 1)),
      ("traversal", "mixed", (0, 0, 1)),
      ("k_seq", "independent", (0, 0)),
      ("multi_path", "independent", (0, 0)),
    ),
    vocab=(4, 5),
  )
  @pytest.mark.slow
  def test_two_rounds_on_a_tree(self, case, vocab):
    name, kind, parents = case
    target, draft = cases.random(1, vocab), cases.random(2, vocab)
    law = exact.law(
      RULES[name], target, cases.KINDS[kind](draft), (1, 2), 2, parents
    )
    # Roundings of float64.
    self.assertLess(exact.total_variation(law, exact.joint(target, 2)), 1e-12)


class DrafterTest(absltest.TestCase):
  """The public check: streams, honesty and all the rest."""

  @pytest.mark.slow
  def test_a_draft_model(self):
    drafter = tree_draft_model.static_tree(
      table.random(12, 1), (3, 1), 1.0, "independent"
    )
    testing.check_drafter(drafter)

  @pytest.mark.slow
  def test_heads(self):
    target = draft_heads.target()
    drafter = medusa.Medusa(draft_heads.head("medusa"), target, INDEPENDENT)
    testing.check_drafter(drafter, target)


if __name__ == "__main__":
  absltest.main()
