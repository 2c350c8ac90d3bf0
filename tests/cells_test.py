# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cells of functions whose volumes are known, and the drafts of proofs."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from specjax import exact
from specjax.laws import cells, drafts
from specjax.testing import cases


def decisions(rows, u):
  """A chain of decisions: which number is read depends on earlier ones."""
  edge = rows[:, 0]
  deep = jnp.where(u[:, 2] < 0.25, 2, jnp.where(u[:, 2] < 0.5, 3, 4))
  inner = jnp.where(u[:, 1] < 1e-5, 1, deep)
  return jnp.where(u[:, 0] < edge, 0, inner)[:, None]


def last_success(rows, u):
  """A later success overrides earlier failures."""
  hits = u < rows
  return jnp.max(jnp.where(hits, jnp.arange(1, 5)[None], 0), 1)[:, None]


def folded(rows, u):
  return ((3 * u[:, :1]) % 1 < rows[:, :1]).astype(int)


def diagonal(rows, u):
  return (u[:, :1] + u[:, 1:2] < rows[:, :1]).astype(int)


def volumes(function, rows, size):
  """[N, outcomes] volume of each outcome."""
  with jax.enable_x64(True):
    owner, volume, outcome = cells.split(function, np.asarray(rows), size)
  found = np.zeros((len(rows), outcome.max() + 1))
  np.add.at(found, (owner, outcome[:, 0]), volume)
  return found


class CellsTest(absltest.TestCase):
  """Edges are found to float64: a few roundings in all, so 1e-14."""

  def test_numbers_that_are_read_now_and_then(self):
    found = volumes(decisions, [[0.3], [0.9]], 4)
    for row, edge in zip(found, (0.3, 0.9)):
      deep = (1 - edge) * (1 - 1e-5)
      wanted = [edge, (1 - edge) * 1e-5, deep / 4, deep / 4, deep / 2]
      np.testing.assert_allclose(row, wanted, atol=1e-14)

  def test_the_last_success(self):
    h = np.array([0.3, 0.0, 0.6, 0.1])
    found = volumes(last_success, [h], 4)
    fails = np.append(np.cumprod((1 - h)[::-1])[::-1][1:], 1)
    np.testing.assert_allclose(found[0, 1:], h * fails, atol=1e-14)

  def test_an_outcome_on_several_intervals(self):
    found = volumes(folded, [[0.4]], 1)
    np.testing.assert_allclose(found, [[0.6, 0.4]], atol=1e-14)

  def test_no_boxes(self):
    with self.assertRaisesRegex(ValueError, "hold on boxes"):
      volumes(diagonal, [[0.7]], 2)


class DraftsTest(parameterized.TestCase):
  LAW = np.log(np.array([[0.5, 0.2, 0.3]]))

  @parameterized.parameters(
    (drafts.independent, [], [0.5, 0.2, 0.3]),
    (drafts.independent, [0], [0.5, 0.2, 0.3]),
    (drafts.distinct, [], [0.5, 0.2, 0.3]),
    (drafts.distinct, [0], [0, 0.4, 0.6]),
    (drafts.distinct, [2, 0], [0, 1, 0]),
    (drafts.ranked, [], [1, 0, 0]),
    (drafts.ranked, [0], [0, 0, 1]),
    (drafts.mixed, [], [1, 0, 0]),
    (drafts.mixed, [0], [0, 0.4, 0.6]),
  )
  def test_what_siblings_leave(self, siblings, earlier, wanted):
    law = siblings(self.LAW, np.array([earlier], int))
    np.testing.assert_allclose(np.exp(law), [wanted], atol=1e-15)

  @parameterized.parameters(drafts.distinct, drafts.ranked)
  def test_a_law_without_mass_gives_a_token_not_taken(self, siblings):
    greedy = np.array([[-np.inf, 0.0, -np.inf]])
    law = siblings(greedy, np.array([[1, 0]]))
    np.testing.assert_array_equal(np.exp(law), [[0, 0, 1]])

  @parameterized.product(kind=tuple(cases.KINDS), depth=(0, 1, 2))
  def test_all_drafts_of_a_prefix_are_certain_together(self, kind, depth):
    law = cases.random(1, 3)
    rows = drafts.enumerate_all(
      law, cases.KINDS[kind](law), (0, 0, 1), depth, drafts.sequences(3, 1)
    )
    mass = np.bincount(rows.source, rows.weight)
    np.testing.assert_allclose(mass, np.ones(3), atol=1e-15)
    self.assertEqual(set(rows.draft.count.tolist()), {(0, 2, 3)[depth]})
    self.assertEqual(rows.draft.max_depth, 2)

  def test_a_slot_has_the_law_behind_its_own_path(self):
    law = cases.random(1, 3)
    rows = drafts.enumerate_all(
      law, exact.honest(law), (0, 0, 1), 2, drafts.sequences(3, 1)
    )
    first, _, grandchild = rows.draft.tokens.T
    path = np.stack([rows.source, first, grandchild], axis=1)
    np.testing.assert_array_equal(rows.log_p[:, 3], law(path))
    log_q = np.asarray(rows.draft.log_q)
    np.testing.assert_array_equal(log_q[:, 2], law(path[:, :2]))


if __name__ == "__main__":
  absltest.main()
