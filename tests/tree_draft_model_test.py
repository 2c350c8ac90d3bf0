# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trees of a draft model through the whole loop.

Static and dynamic trees, ragged rows, draft lengths that change by row and
round; compared with plain decoding in blocks of two slots.
"""

import dataclasses
import functools

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing, types
from specjax.drafters import empty, tree_draft_model
from specjax.models import model as model_lib
from specjax.testing import table
from specjax.trees import plans, tree
from specjax.verifiers import multi_candidate, traversal
from tests import decoding, margins, toys

TARGET = toys.tiny(0)
NOISY = toys.noisy(TARGET, 0.2)
NEW = 40
PLANS = {
  "static": plans.Static(
    tree.from_ranks([(0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (0, 1, 0)])
  ),
  "regular": plans.Static(tree.from_widths((3, 2, 1))),
  "dynamic": plans.Dynamic(depth=4, width=3, branch=3, nodes=9),
  "best_first": plans.Dynamic(depth=3, width=8, branch=4, nodes=8, beta=1.2),
}
SAMPLINGS = {
  "greedy": decoding.settings([0, 0, 0]),
  "mixed": decoding.settings([0, 0.8, 1], [0, 10, 0], [1, 0.9, 1], [0, 0, 0.1]),
}
PENALISED = sampling_lib.Sampling(
  temperature=jnp.array([0, 0.8, 1]), repetition=jnp.array([1.3, 1.5, 1])
)
# All of the tree in each round; and lengths by row and round, 0 among them.
LENGTHS = {
  "full": [[4, 4, 4]],
  "scheduled": [[2, 1, 0], [0, 4, 4], [0, 0, 0], [3, 3, 1]],
}


def drafter(plan: str, model=NOISY) -> tree_draft_model.TreeDraftModel:
  return tree_draft_model.TreeDraftModel(model, PLANS[plan])


@functools.cache
def run(
  plan: str, sampling: str, lengths: str, own: bool = False
) -> types.DecodeState:
  """At the least capacity; with `own` the draft is the target itself."""
  settings = PENALISED if sampling == "penalised" else SAMPLINGS[sampling]
  made = drafter(plan, TARGET if own else NOISY)
  return decoding.run(
    TARGET,
    made,
    sampling=settings,
    policy=decoding.Scheduled.of(LENGTHS[lengths], widths=()),
    new=NEW,
    # Contract pitfall 3: the longest prompt, its answer, a block, no more.
    capacity=13 + NEW + made.num_nodes + 1,
  )


@functools.cache
def plain(sampling: str) -> types.DecodeState:
  settings = PENALISED if sampling == "penalised" else SAMPLINGS[sampling]
  return decoding.run(TARGET, empty.Empty(1), sampling=settings, new=NEW)


class TextTest(parameterized.TestCase):
  def assert_plain_text(self, state, sampling):
    """Token for token, up to the margin."""
    found = margins.differences(
      TARGET,
      SAMPLINGS[sampling],
      decoding.PROMPTS,
      decoding.answers(state),
      decoding.answers(plain(sampling)),
    )
    for each in found:
      print(each)
      self.assertLess(each.margin, margins.MOST)

  @parameterized.parameters(("mixed", "full"), ("greedy", "scheduled"))
  def test_text_is_plain_text(self, sampling, lengths):
    self.check_text("dynamic", sampling, lengths)

  @pytest.mark.slow
  def test_text_of_a_static_tree(self):
    self.check_text("static", "mixed", "scheduled")

  def check_text(self, plan, sampling, lengths):
    state = run(plan, sampling, lengths)
    self.assert_plain_text(state, sampling)
    self.assertTrue(decoding.rows_differ(state))
    accepted = np.asarray(state.stats.accepted)
    self.assertGreater(accepted.sum(), 10)
    self.assertGreater(accepted.max(), 1)

  @pytest.mark.slow
  def test_every_combination(self):
    for plan in PLANS:
      for sampling in SAMPLINGS:
        for lengths in LENGTHS:
          with self.subTest(f"{plan} {sampling} {lengths}"):
            self.assert_plain_text(run(plan, sampling, lengths), sampling)

  @parameterized.parameters(*PLANS)
  @pytest.mark.slow
  def test_every_node_has_its_own_history(self, plan):
    """Contract pitfall 2: a self-draft with penalties is never refused."""
    state = run(plan, "penalised", "full", own=True)
    self.assertEqual(
      decoding.answers(state), decoding.answers(plain("penalised"))
    )
    self.assertFalse(np.any(state.stats.rejected))

  @pytest.mark.slow
  def test_rows_alone(self):
    for plan in ("static", "dynamic"):
      batch = run(plan, "mixed", "full")
      for row in range(3):
        one = lambda x, row=row: x[row : row + 1]
        alone = decoding.run(
          TARGET,
          drafter(plan),
          decoding.PROMPTS[row : row + 1],
          sampling=jax.tree.map(one, SAMPLINGS["mixed"]),
          indices=[row],
          policy=decoding.Scheduled.of([[4]], widths=()),
          new=NEW,
        )
        self.assertEqual(
          decoding.answers(alone)[0], decoding.answers(batch)[row]
        )
        self.assertEqual(
          decoding.counters(alone, 0), decoding.counters(batch, row)
        )

  @parameterized.parameters("static", "dynamic")
  @pytest.mark.slow
  def test_windows(self, plan):
    """Positions, not slots, decide what a node of a tree still sees."""
    config = dataclasses.replace(toys.TINY_CONFIG, windows=(3, None))
    target = toys.tiny(0, config)
    for model in (toys.noisy(target, 0.2), target):
      state = decoding.run(
        target, drafter(plan, model), sampling=SAMPLINGS["mixed"], new=NEW
      )
      base = decoding.run(
        target, empty.Empty(1), sampling=SAMPLINGS["mixed"], new=NEW
      )
      self.assertEqual(decoding.answers(state), decoding.answers(base))
      self.assertGreater(int(state.stats.accepted.sum()), 20)
    self.assertFalse(np.any(state.stats.rejected))


class AcceptanceTest(parameterized.TestCase):
  def test_the_target_never_refuses_itself(self):
    self.check("dynamic")

  @pytest.mark.slow
  def test_the_target_never_refuses_its_static_tree(self):
    self.check("static")

  def check(self, plan):
    """Contract pitfall 17 too: lengths change and some rows sleep.

    Under shared noise a first child is the target's own token. Its siblings
    score less, so it is drafted wherever a node has children.
    """
    for lengths in LENGTHS:
      state = run(plan, "mixed", lengths, own=True)
      self.assertEqual(
        decoding.answers(state), decoding.answers(plain("mixed"))
      )
      self.assertFalse(np.any(state.stats.rejected))
      accepted = state.stats.accepted
      self.assertTrue(np.all((accepted > 0) == (state.stats.drafted > 0)))
      self.assertGreaterEqual(int(accepted.max()), 2)

  @parameterized.product(
    plan=("static", "regular"),
    rule=(multi_candidate.MultiCandidate(), traversal.Traversal()),
  )
  @pytest.mark.slow
  def test_ratio_rules_accept_the_target(self, plan, rule):
    """Its laws are honest: nothing is ever refused, round 12 like round 1."""
    state = decoding.run(
      TARGET,
      drafter(plan, TARGET),
      verifier=rule,
      sampling=SAMPLINGS["mixed"],
      new=NEW,
    )
    self.assertFalse(np.any(state.stats.rejected))
    greedy = decoding.answers(plain("mixed"))[0]
    self.assertEqual(decoding.answers(state)[0], greedy)
    self.assertGreater(int(state.stats.accepted.sum()), NEW)


class CacheTest(parameterized.TestCase):
  def test_both_caches_are_those_of_a_fresh_forward(self):
    self.check("dynamic", "full")

  @pytest.mark.slow
  def test_both_caches_after_static_trees(self):
    self.check("static", "scheduled")

  def check(self, plan, lengths):
    state = run(plan, "mixed", lengths)
    np.testing.assert_array_equal(state.cache.lengths, state.lengths - 1)
    # A draft model lags behind by what was accepted but never fed.
    own = state.drafter.cache
    lag = state.lengths - own.lengths
    self.assertTrue(np.all((lag >= 0) & (lag <= PLANS[plan].max_depth + 1)))
    for model, cache in ((TARGET, state.cache), (NOISY, own)):
      end = int(state.lengths.max())
      fresh = jax.jit(model_lib.Model.__call__)(
        model, jnp.asarray(state.tokens[:, :end]), model.init_cache(3, end, end)
      ).cache
      for kept, new in zip(
        jax.tree.leaves(cache.layers), jax.tree.leaves(fresh.layers)
      ):
        for row, length in enumerate(cache.lengths):
          # Blocks of other widths may sum in another order.
          np.testing.assert_allclose(
            kept[row, :length], new[row, :length], atol=1e-5
          )


class ContractTest(parameterized.TestCase):
  @parameterized.parameters(*PLANS)
  @pytest.mark.slow
  def test_check_drafter(self, plan):
    model = table.random(12, seed=3)
    found = testing.check_drafter(drafter(plan, model))
    self.assertGreater(found["plain"], 0.1)

  @pytest.mark.fault_case("B41")
  def test_trees_deeper_or_wider_than_the_draft(self):
    """FasterDecoding/Medusa#63, #81: such trees read past the candidates."""
    shape = tree.from_ranks([(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)])
    with self.assertRaisesRegex(
      ValueError, r"path \(0, 0, 0, 0\) is 4 deep .* drafts 3 tokens"
    ):
      shape.check(depth=3, width=4)
    shape = tree.from_widths((7,))
    with self.assertRaisesRegex(ValueError, r"path \(4,\) asks for rank 4"):
      shape.check(depth=3, width=4)
    with self.assertRaisesRegex(ValueError, r"path \(64,\) .* ranks 64 tokens"):
      tree_draft_model.static_tree(TARGET, (65,))
    with self.assertRaisesRegex(ValueError, "branch 65 is more than the 64"):
      tree_draft_model.dynamic_tree(TARGET, 2, 2, 65, 8)

  def test_what_a_config_says(self):
    made = tree_draft_model.static_tree(TARGET, [2, 1])
    self.assertEqual(made.plan, plans.Static(tree.from_widths((2, 1))))
    self.assertEqual(
      made, tree_draft_model.static_tree(TARGET, [[1], [0], [1, 0], [0, 0]])
    )
    self.assertEqual((made.num_nodes, made.max_depth), (4, 2))


if __name__ == "__main__":
  absltest.main()
