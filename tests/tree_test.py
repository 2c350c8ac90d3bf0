# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draft trees: layout, truncation, acceptance."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.trees import tree
from specjax.verifiers import coupled, ratio, rejection

# Row 0: two children of the root, one below each, and one more below slot 3.
# Row 1: a chain in the same shape.
PARENTS = [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
TOKENS = [[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]]


def branched(count=(5, 3)) -> types.Draft:
  """One more node than row 1 is deep, so that it counts as a tree."""
  pad = lambda rows, last: jnp.asarray([[*row, last] for row in rows])
  return types.Draft(
    pad(TOKENS, 99), pad(PARENTS, 0), None, jnp.asarray(count), max_depth=5
  )


def ancestors_by_walking(parents) -> np.ndarray:
  slots = len(parents) + 1
  seen = np.eye(slots, dtype=bool)
  for slot in range(1, slots):
    at = slot
    while at:
      at = parents[at - 1]
      seen[slot, at] = True
  return seen


class ShapeTest(parameterized.TestCase):
  def test_from_ranks(self):
    shape = tree.from_ranks([(0, 1), (1,), (0, 0, 0), (0,), (0, 0)])
    self.assertEqual(shape.paths, ((0,), (1,), (0, 0), (0, 1), (0, 0, 0)))
    self.assertEqual(shape.parents, (0, 0, 1, 1, 3))
    self.assertEqual(shape.ranks, (0, 1, 0, 1, 0))
    self.assertEqual(shape.depths, (1, 1, 2, 2, 3))
    self.assertEqual((shape.depth, shape.width), (3, 2))

  def test_from_widths(self):
    shape = tree.from_widths((3, 1))
    self.assertEqual(shape.parents, (0, 0, 0, 1, 2, 3))
    self.assertEqual(tree.from_widths((1, 1, 1)).parents, (0, 1, 2))
    self.assertEqual(tree.from_config([3, 1]), shape)
    self.assertEqual(tree.from_config([list(p) for p in shape.paths]), shape)

  @parameterized.parameters(
    ((), "the tree has no node"),
    (((0,), (0,)), r"path \(0,\) stands twice"),
    (((), (0,)), r"path \(\) stands twice"),
    (((0,), (1, 0)), r"path \(1, 0\) needs path \(1,\): add it"),
    (((0,), (2,)), r"path \(2,\) needs path \(1,\): add it"),
    ((0, 1), "path 0 is no list of ranks: write one as"),
    (((0,), (-1,)), r"path \(-1,\) is no list of ranks"),
  )
  def test_mistakes(self, paths, message):
    with self.assertRaisesRegex(ValueError, message):
      tree.from_ranks(paths)

  @parameterized.parameters(((),), ((2, 0),), ((2.5, 1),), ((True, 1),))
  def test_widths_that_draft_nothing(self, widths):
    with self.assertRaisesRegex(ValueError, "use whole numbers from 1"):
      tree.from_widths(widths)

  @parameterized.parameters(
    ((4, (0,)), "tree path 4 is no list of ranks"),
    (((0,), (0.0,)), r"tree path \(0.0,\) is no list of ranks"),
    (("a", "b"), "tree path 'a' is no list of ranks"),
    (((0,), None), "tree path None is no list of ranks"),
    ((2.0,), r"tree widths \(2.0,\) draft nothing: use whole numbers from 1"),
    ("21", "tree is '21': give widths, as"),
    (3, "tree is 3: give widths, as"),
  )
  def test_a_config_that_is_no_tree(self, given, message):
    with self.assertRaisesRegex(ValueError, message):
      tree.from_config(given)

  @parameterized.parameters(
    ([], 3, r"acceptance has \[\]: give shares from 0 to 1 by rank"),
    ([[0.5], []], 3, r"acceptance has \[\]: give shares"),
    ([0.5, 0.4], 3, "acceptance has 0.5: give shares"),
    ([["a"]], 3, r"acceptance has \['a'\]: give shares"),
    ([[0.5, 1.5]], 3, r"acceptance has \[0.5, 1.5\]: give shares"),
    ([[float("nan")]], 3, r"acceptance has \[nan\]: give shares"),
    ([[0.5]], 0, "the tree has no node"),
  )
  def test_acceptance_that_makes_no_tree(self, table, nodes, message):
    with self.assertRaisesRegex(ValueError, message):
      tree.from_acceptance(table, nodes)

  def test_from_acceptance_is_the_best_of_all_trees(self):
    """Against every tree of up to 5 nodes, on random tables."""
    rng = np.random.default_rng(0)
    for _ in range(5):
      table = np.sort(rng.uniform(0, 0.5, (3, 3)))[:, ::-1]

      def value(paths, table=table):
        worth = [[table[d, r] for d, r in enumerate(path)] for path in paths]
        return sum(map(np.prod, worth))

      trees = {frozenset()}
      for nodes in range(1, 6):
        trees = {known | {new} for known in trees for new in additions(known)}
        best = max(map(value, trees))
        found = tree.from_acceptance(table.tolist(), nodes).paths
        self.assertLen(found, nodes)
        self.assertAlmostEqual(value(found), best)

  def test_from_acceptance_ends_with_the_table(self):
    shape = tree.from_acceptance([[0.5, 0.0], [0.4]], nodes=99)
    self.assertEqual(shape.paths, ((0,), (1,), (0, 0), (1, 0)))


def additions(paths) -> set[tuple[int, ...]]:
  """Nodes that a tree of ranks below 3 and depth 3 can take next."""
  above = [path for path in ((), *paths) if len(path) < 3]
  children = ((*path, rank) for path in above for rank in range(3))
  return {
    path
    for path in children
    if path not in paths
    and (path[-1] == 0 or (*path[:-1], path[-1] - 1) in paths)
  }


class LayoutTest(parameterized.TestCase):
  def test_depth_and_ancestors(self):
    draft = branched()
    depth, ancestors = tree.layout(draft)
    for row in range(2):
      expected = ancestors_by_walking(np.asarray(draft.parents[row]).tolist())
      np.testing.assert_array_equal(ancestors[row], expected)
      np.testing.assert_array_equal(depth[row], expected.sum(-1) - 1)

  def test_chain_is_the_tree_of_one_branch(self):
    chain = tree.chain(jnp.zeros((2, 4), jnp.int32), jnp.array([4, 2]))
    self.assertTrue(chain.is_chain)
    depth, ancestors = tree.layout(chain)
    np.testing.assert_array_equal(depth, [[0, 1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(
      ancestors, [ancestors_by_walking([0, 1, 2, 3])] * 2
    )

  def test_empty_draft(self):
    draft = tree.chain(jnp.zeros((2, 0), jnp.int32), jnp.zeros(2, jnp.int32))
    depth, ancestors = tree.layout(draft)
    np.testing.assert_array_equal(depth, [[0], [0]])
    np.testing.assert_array_equal(ancestors, [[[True]], [[True]]])
    np.testing.assert_array_equal(tree.drafted_depth(draft), [0, 0])

  def test_random_trees(self):
    rng = np.random.default_rng(0)
    for _ in range(20):
      # Breadth first: parents never fall.
      parents = np.sort([rng.integers(0, i + 1) for i in range(7)])
      parents = np.minimum(parents, np.arange(7))
      expected = ancestors_by_walking(parents.tolist())
      deepest = int(expected.sum(-1).max()) - 1
      draft = types.Draft(
        jnp.zeros((1, 7), jnp.int32),
        jnp.asarray(parents[None]),
        None,
        jnp.array([7]),
        max_depth=deepest,
      )
      np.testing.assert_array_equal(tree.layout(draft)[1][0], expected)
      np.testing.assert_array_equal(tree.drafted_depth(draft), [deepest])


class TruncateTest(parameterized.TestCase):
  @parameterized.parameters(
    ((0, 0), (0, 0)), ((1, 1), (2, 1)), ((2, 2), (4, 2)), ((5, 5), (5, 3))
  )
  def test_length_is_a_depth(self, length, count):
    """Contract pitfall 18: depth 1 keeps all nodes of depth 1."""
    draft = tree.truncate(branched(), jnp.array(length))
    np.testing.assert_array_equal(draft.count, count)
    depth = np.minimum(length, [3, 3])
    np.testing.assert_array_equal(tree.drafted_depth(draft), depth)

  def test_chain(self):
    chain = tree.chain(jnp.zeros((3, 4), jnp.int32), jnp.array([4, 2, 0]))
    cut = tree.truncate(chain, jnp.array([1, 3, 3]))
    np.testing.assert_array_equal(cut.count, [1, 2, 0])

  def test_narrow(self):
    log_q = jnp.arange(24.0).reshape(2, 4, 3)
    chain = tree.chain(jnp.arange(8).reshape(2, 4), jnp.array([2, 0]), log_q)
    cut = tree.narrow(chain, 2)
    self.assertTrue(cut.is_chain)
    np.testing.assert_array_equal(cut.tokens, [[0, 1], [4, 5]])
    np.testing.assert_array_equal(cut.log_q, log_q[:, :2])
    np.testing.assert_array_equal(cut.count, [2, 0])
    self.assertIs(tree.narrow(chain, 4), chain)

  @parameterized.parameters(0, 1, 4, 6)
  def test_a_narrow_tree_keeps_what_the_tree_keeps(self, nodes):
    parents = jnp.array([[0, 0, 0, 1, 1, 4]] * 3)
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]] * 3)
    count = jnp.minimum(jnp.array([6, 4, 3]), nodes)
    wide = types.Draft(tokens, parents, None, count, max_depth=3)
    cut = tree.narrow(wide, nodes)
    self.assertEqual(cut.tokens.shape, (3, nodes))
    self.assertEqual(cut.is_chain, nodes < 2)
    depth, ancestors = tree.layout(cut)
    for given, whole in zip((depth, ancestors), tree.layout(wide)):
      within = (slice(None), *[slice(nodes + 1)] * (given.ndim - 1))
      np.testing.assert_array_equal(given, whole[within])
    kept = [tree.accept(draft, count, jnp.full(3, 9)) for draft in (cut, wide)]
    for name in ("count", "accepted", "rejected"):
      np.testing.assert_array_equal(*(getattr(k, name) for k in kept))
    for row, count in enumerate(kept[0].count):
      for name in ("path", "tokens"):
        np.testing.assert_array_equal(
          *(getattr(k, name)[row, :count] for k in kept)
        )

  def test_widths(self):
    """Of a tree only nodes that cannot be taken for a chain."""
    rows = jnp.zeros((1, 6), jnp.int32)
    widths = lambda depth, wanted: tree.widths(
      types.Draft(rows, rows, None, jnp.zeros(1, jnp.int32), depth), wanted
    )
    self.assertEqual(widths(3, (4, 0)), [0, 4, 6])
    self.assertEqual(widths(3, (1, 3)), [1, 6])
    self.assertEqual(widths(3, (2, 6)), [6])
    self.assertEqual(widths(6, (2, 3)), [2, 3, 6])


class AcceptTest(parameterized.TestCase):
  def test_paths_of_a_tree(self):
    draft = branched(count=(5, 5))
    got = tree.accept(draft, jnp.array([5, 2]), jnp.array([77, 78]))
    np.testing.assert_array_equal(got.accepted, [3, 2])
    np.testing.assert_array_equal(got.count, [4, 3])
    self.assertEqual(got.path[0, :4].tolist(), [0, 1, 3, 5])
    self.assertEqual(got.path[1, :3].tolist(), [0, 1, 2])
    self.assertEqual(got.tokens[0, :4].tolist(), [10, 12, 14, 77])
    self.assertEqual(got.tokens[1, :3].tolist(), [20, 21, 78])
    # Slot 5 of row 0 is a leaf; slot 2 of row 1 had slot 3 below it.
    np.testing.assert_array_equal(got.rejected, [False, True])

  def test_children_that_are_not_valid_were_not_rejected(self):
    draft = branched(count=(2, 2))
    got = tree.accept(draft, jnp.array([2, 2]), jnp.array([77, 78]))
    np.testing.assert_array_equal(got.rejected, [False, False])

  def test_chain(self):
    chain = tree.chain(
      jnp.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), jnp.array([3, 3, 0])
    )
    got = tree.accept(chain, jnp.array([3, 1, 0]), jnp.array([70, 71, 72]))
    np.testing.assert_array_equal(got.count, [4, 2, 1])
    self.assertEqual(got.tokens[0].tolist(), [1, 2, 3, 70])
    self.assertEqual(got.tokens[1, :2].tolist(), [4, 71])
    self.assertEqual(got.tokens[2, :1].tolist(), [72])
    np.testing.assert_array_equal(got.rejected, [False, True, False])

  def test_law_of_given_tokens_is_one_hot(self):
    draft = tree.chain(jnp.array([[2, 0]]), jnp.array([2]))
    law = np.exp(tree.draft_law(draft, 3, jnp.float32))
    np.testing.assert_array_equal(law, [[[0, 0, 1], [1, 0, 0]]])


class LeadingRunTest(parameterized.TestCase):
  """huggingface/transformers#28508: accepts anywhere in the block counted."""

  @parameterized.parameters(
    ("TFT", 1), ("FTT", 0), ("TTF", 2), ("TTT", 3), ("FFF", 0)
  )
  @pytest.mark.fault_case("B04")
  def test_only_the_leading_run_counts(self, mask, accepted):
    """Also which slot the last token comes from: the next, 4 at a full run.

    Slot i's law gives i half of its mass and 7 the other half; drafts are i
    where they should pass and 6, of no mass, where not.
    """
    half = lambda token: 0.5 * jax.nn.one_hot(token, 8)
    p = half(jnp.arange(4)) + half(jnp.full(4, 7))
    tokens = jnp.array([[i if m == "T" else 6 for i, m in enumerate(mask)]])
    draft = tree.chain(tokens, jnp.array([3]))
    uniforms = ratio.Uniforms(jnp.full((1, 3), 0.4), jnp.array([0.1]))
    got = rejection.Rejection().verify(jnp.log(p)[None], draft, uniforms)
    self.assertEqual(int(got.accepted[0]), accepted)
    self.assertEqual(int(got.count[0]), accepted + 1)
    # A residual number below one half picks the row's own token.
    self.assertEqual(int(got.tokens[0, accepted]), accepted)

    noise = -jax.nn.one_hot(jnp.full((1, 4), 7), 8)
    got = coupled.match(jnp.log(p)[None], noise, draft)
    self.assertEqual(int(got.accepted[0]), accepted)
    self.assertEqual(int(got.tokens[0, accepted]), accepted)

  def test_of_equal_siblings_one_path_is_kept(self):
    draft = types.Draft(
      jnp.array([[5, 5, 1, 2]]),
      jnp.array([[0, 0, 1, 2]]),
      None,
      jnp.array([4]),
      max_depth=2,
    )
    drawn = jnp.array([5, 3, 2, 0, 4])
    log_p = jnp.log(jax.nn.one_hot(drawn, 8))[None]
    got = coupled.match(log_p, jnp.zeros((1, 3, 8)), draft)
    # Slot 2 wants 2, which slot 4 proposes: the deeper of two equal paths.
    self.assertEqual(got.tokens[0].tolist(), [5, 2, 4])
    self.assertEqual(got.path[0].tolist(), [0, 2, 4])


if __name__ == "__main__":
  absltest.main()
