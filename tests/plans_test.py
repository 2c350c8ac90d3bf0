# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Growing trees on a table of laws: what is drafted, from which noise.

Axis letters: B batch, F nodes of a level, V vocabulary.
"""

import functools
import heapq
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.policies import policy as policy_lib
from specjax.testing import recording, table
from specjax.trees import growth, plans, tree
from specjax.verifiers import coupled
from tests import decoding

VOCAB, ROWS = 12, 2048
MODEL = table.random(VOCAB)
SMALL = plans.Static(tree.from_ranks([(0,), (1,), (0, 0), (1, 0), (0, 0, 0)]))
# The same and one more sibling here and there.
LARGE = plans.Static(
  tree.from_ranks([*SMALL.shape.paths, (2,), (0, 1), (1, 1), (0, 0, 1)])
)
HALF = jnp.arange(ROWS) % 2 == 0  # every second row is greedy
DRAWN = sampling_lib.Sampling(temperature=jnp.where(HALF, 0, 0.8))
GREEDY = sampling_lib.Sampling(temperature=jnp.zeros(ROWS))


def context(sampling, length, shared, note=None) -> types.Context:
  """Rows that know one token each."""
  keys = streams.row_keys(0, jnp.arange(ROWS), jnp.zeros(ROWS, int))
  source = streams.Streams(keys, jnp.zeros(ROWS, jnp.int32))
  if note is not None:
    source = recording.Recorder(source.keys, source.round, note=note)
  policy = policy_lib.Fixed(length)
  ones = jnp.ones(ROWS, jnp.int32)
  tokens = (jnp.arange(ROWS) % VOCAB)[:, None]
  return types.Context(
    tokens=tokens,
    lengths=ones,
    history=None,
    sampling=sampling,
    noise=streams.Noise(source, VOCAB, shared=shared),
    draft_length=ones * length,
    cache=MODEL.init_cache(1, 1, 1),
    policy=policy,
    policy_state=policy.init(ROWS),
  )


@functools.partial(jax.jit, static_argnames="plan")
def grow(plan, known):
  """A draft whose laws depend on the last token alone."""

  def expand(state, level):
    return MODEL.table[level.tokens], state

  limit = jnp.full(ROWS, plan.max_depth)
  logits = MODEL.table[known.last_token]
  return growth.grow(plan, expand, (), logits, limit, known)[0]


def paths(draft, row) -> dict[tuple, int]:
  """Tokens along the path of each valid node -> its slot."""
  found: list[tuple] = [()]
  for node in range(int(draft.count[row])):
    above = found[int(draft.parents[row, node])]
    found.append((*above, int(draft.tokens[row, node])))
  return {path: slot for slot, path in enumerate(found[1:], 1)}


def best_paths(token, plan, top=VOCAB) -> list[tuple]:
  """By a heap: the most likely paths of a node budget, in float64."""
  log_q = np.asarray(jax.nn.log_softmax(MODEL.table.astype(jnp.float32)))
  queue: list[Any] = [(0.0, ())]
  found = []
  while len(found) <= plan.nodes:
    score, path = heapq.heappop(queue)
    found.append(path)
    if len(path) < plan.depth:
      law = log_q[(token, *path)[-1]]
      for child in np.argsort(-law)[:top]:
        heapq.heappush(queue, (score - law[child], (*path, int(child))))
  return found[1:]


class StaticTest(parameterized.TestCase):
  @parameterized.parameters(True, False)
  def test_the_tree_is_that_of_the_shape(self, shared):
    draft = grow(LARGE, context(DRAWN, 3, shared))
    np.testing.assert_array_equal(draft.count, len(LARGE.shape.paths))
    np.testing.assert_array_equal(
      draft.parents, np.tile(LARGE.shape.parents, (ROWS, 1))
    )
    for row in range(16):
      # Contract pitfall 12: rows of temperature 0 have no equal siblings.
      self.assertLen(paths(draft, row), len(LARGE.shape.paths))

  @parameterized.parameters(True, False)
  def test_filtered_tokens_come_last(self, shared):
    """In the order of their scores, at any temperature above 0 and at 0."""
    cold = jnp.asarray([1e-5, 0, 1.0, 0.7] * (ROWS // 4))
    sampling = sampling_lib.Sampling(cold, top_k=jnp.full(ROWS, 2, jnp.int32))
    plan = plans.Static(tree.from_widths((5,)))
    draft = jax.device_get(grow(plan, context(sampling, 1, shared)))
    order = np.argsort(-np.asarray(MODEL.table), axis=1)[:, :5]
    for row in range(4 * VOCAB):
      drawn, wanted = draft.tokens[row].tolist(), order[row % VOCAB].tolist()
      self.assertEqual({*drawn[:2]}, {*wanted[:2]})
      self.assertEqual(drawn[2:], wanted[2:])
      if cold[row] < 0.1:
        self.assertEqual(drawn, wanted)
      law = np.exp(draft.log_q[row])
      np.testing.assert_array_equal(law[range(1, 5), drawn[1:]], 1)

  @parameterized.parameters(0, 1, 2, 3)
  def test_depth_is_what_was_asked_for(self, length):
    draft = grow(LARGE, context(DRAWN, length, True))
    expected = sum(len(path) <= length for path in LARGE.shape.paths)
    np.testing.assert_array_equal(draft.count, expected)

  def test_laws_are_those_of_the_draws(self):
    """Given its parent and its earlier siblings; greedy rows take as given.

    `beta` is for the coupled rule alone.
    """
    plan = plans.Static(LARGE.shape, beta=2)
    draft = jax.device_get(grow(plan, context(DRAWN, 3, False)))
    law = np.exp(draft.log_q, dtype=np.float64)
    np.testing.assert_allclose(law.sum(-1), 1, atol=1e-5)
    hit = draft.tokens[..., None] == np.arange(VOCAB)
    np.testing.assert_array_equal(law[HALF], hit[HALF])
    law, hit = law[~HALF], hit[~HALF]
    self.assertFalse(np.any(hit & (law == 0)))
    mean, spread = law.sum(0), np.sqrt((law * (1 - law)).sum(0))
    often = mean > 10
    z = (hit.sum(0) - mean)[often] / spread[often]
    # 100 counts of 1024 draws: under 1e-4 for an honest law.
    self.assertLess(np.abs(z).max(), 5)
    # Siblings come in this order and each is removed for those behind it.
    first, second = (LARGE.shape.paths.index((rank,)) for rank in (0, 1))
    at = np.arange(len(law)), draft.tokens[~HALF][:, first]
    np.testing.assert_array_equal(law[:, second][at], 0)
    self.assertGreater(law[:, first][at].min(), 0)

  def test_one_more_sibling_never_shortens_a_path(self):
    known = context(DRAWN, 3, True)
    rng = np.random.default_rng(0)
    # A target that differs; its own law depends on the last token too.
    target = MODEL.table + jnp.asarray(rng.normal(size=(VOCAB, VOCAB)))
    rule = coupled.Coupled()

    @jax.jit
    def verify(target, known, draft):
      block = jnp.concatenate([known.last_token[:, None], draft.tokens], 1)
      log_p = sampling_lib.log_probs(target[block], known.sampling)
      uniforms = rule.draw(known.noise.streams, known.lengths, draft)
      return rule.verify(log_p, draft, uniforms).accepted

    few, many = (
      verify(target, known, grow(plan, known)) for plan in (SMALL, LARGE)
    )
    self.assertTrue(np.all(many >= few))
    self.assertTrue(np.any(many > few))
    self.assertTrue(np.any(few == 3))

  def test_noise_is_drawn_once_a_depth(self):
    """Contract pitfall 20: shared noise is one vector a position and row."""
    read: list[Any] = []
    draft = grow(LARGE, context(DRAWN, 3, True, read.append))
    jax.block_until_ready(draft)
    jax.effects_barrier()
    self.assertLen(read, 3 * ROWS)
    self.assertLen({(at.row, at.position) for at in read}, 3 * ROWS)
    self.assertEqual({at.tag for at in read}, {streams.SAMPLE})
    self.assertEqual({at.position for at in read}, {1, 2, 3})

  def test_noise_of_ratio_rules_is_one_vector_a_parent(self):
    read: list[Any] = []
    draft = grow(LARGE, context(DRAWN, 3, False, read.append))
    jax.block_until_ready(draft)
    jax.effects_barrier()
    self.assertEqual({at.tag for at in read}, {streams.DRAFT})
    self.assertLen({*read}, len(read))
    self.assertLen(read, ROWS * plans.places(LARGE))

  def test_errors(self):
    with self.assertRaisesRegex(ValueError, "beta 0 is not above 0"):
      plans.Static(SMALL.shape, beta=0)


class DynamicTest(parameterized.TestCase):
  def test_wide_levels_are_best_first(self):
    self.check_best_first(3, 9)

  @parameterized.parameters((4, 20), (2, 3))
  @pytest.mark.slow
  def test_more_wide_levels_are_best_first(self, depth, nodes):
    self.check_best_first(depth, nodes)

  def check_best_first(self, depth, nodes):
    """With width = nodes the tree is what a heap would have grown."""
    plan = plans.Dynamic(depth, nodes, min(nodes, VOCAB), nodes)
    draft = grow(plan, context(GREEDY, depth, True))
    np.testing.assert_array_equal(draft.count, nodes)
    for row in range(VOCAB):
      wanted = best_paths(row, plan)
      self.assertEqual({*paths(draft, row)}, {*wanted})

  def test_narrow_levels_keep_the_best(self):
    """Every level is grown from its two best nodes alone."""
    plan = plans.Dynamic(depth=4, width=2, branch=3, nodes=8)
    draft = grow(plan, context(GREEDY, 4, True))
    log_q = np.asarray(jax.nn.log_softmax(MODEL.table), np.float64)
    for row in range(VOCAB):
      level, pool = [(0.0, ())], []
      for _ in range(4):
        below = [
          (score - log_q[(row, *path)[-1], child], (*path, int(child)))
          for score, path in level
          for child in np.argsort(-log_q[(row, *path)[-1]])[:3]
        ]
        pool += below
        level = sorted(below)[:2]
      wanted = {path for _, path in sorted(pool)[:8]}
      self.assertEqual({*paths(draft, row)}, wanted)

  @parameterized.parameters(True, False)
  def test_rows_differ_and_come_breadth_first(self, shared):
    plan = plans.Dynamic(depth=4, width=3, branch=3, nodes=10)
    draft = jax.device_get(grow(plan, context(DRAWN, 4, shared)))
    self.assertIsNone(draft.log_q)
    self.assertGreater(len({*map(tuple, draft.parents.tolist())}), 2)
    depth, _ = tree.layout(draft)
    self.assertTrue(np.all(np.diff(depth, axis=1) >= 0))
    self.assertTrue(np.all(np.diff(draft.parents, axis=1) >= 0))
    self.assertTrue(np.all(draft.parents <= np.arange(10)))
    for row in range(32):
      self.assertLen(paths(draft, row), 10)

  def test_a_short_draft_spends_the_budget_above(self):
    plan = plans.Dynamic(depth=4, width=3, branch=6, nodes=12)
    draft = grow(plan, context(GREEDY, 1, True))
    np.testing.assert_array_equal(draft.count, 6)
    draft = grow(plan, context(GREEDY, 2, True))
    np.testing.assert_array_equal(draft.count, 12)
    np.testing.assert_array_equal(tree.drafted_depth(draft), 2)

  @parameterized.parameters(
    ((4, 2, 2, 4), "4 nodes are a chain at depth 4"),
    ((2, 0, 2, 4), "tree width 0 is not 1 or more"),
    ((2, 1, 2, 9), "9 nodes cannot be chosen of 4"),
  )
  def test_errors(self, sizes, message):
    with self.assertRaisesRegex(ValueError, message):
      plans.Dynamic(*sizes)


class WithinTest(parameterized.TestCase):
  @parameterized.parameters(
    (SMALL, [0, 2, 4, 5]),
    (plans.Static(tree.from_widths((1, 1))), [0, 1, 2]),
    # The root's three children, then three of each of two nodes a level.
    (plans.Dynamic(depth=3, width=2, branch=3, nodes=12), [0, 3, 9, 12]),
    (plans.Dynamic(depth=2, width=8, branch=2, nodes=5), [0, 2, 5]),
    # Two children have four.
    (plans.Dynamic(depth=3, width=8, branch=2, nodes=12), [0, 2, 6, 12]),
  )
  def test_most_nodes_down_to_a_depth(self, plan, most):
    found = [plan.within(depth) for depth in range(plan.max_depth + 1)]
    self.assertEqual(found, most)


class PolicyTest(absltest.TestCase):
  def test_it_is_asked_before_each_level(self):
    """It sees the law of the best node and stops rows one by one."""

    class Unsure(decoding.Scheduled):
      def keep_drafting(self, state, law):
        return jnp.max(law, axis=-1) > jnp.log(0.5)

    policy = Unsure.of([[3] * ROWS])
    known = context(GREEDY, 3, True)
    known = known.replace(policy=policy, policy_state=policy.init(ROWS))
    draft = grow(SMALL, known)
    best = np.asarray(jax.nn.softmax(MODEL.table)).max(-1)
    after = np.asarray(MODEL.table).argmax(-1)
    for row in range(VOCAB):
      token, depth = row, 0
      while depth < 3 and best[token] > 0.5:
        token, depth = after[token], depth + 1
      self.assertEqual(int(tree.drafted_depth(draft)[row]), depth)
    self.assertGreater(len({*np.asarray(draft.count).tolist()}), 1)


if __name__ == "__main__":
  absltest.main()
