# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversations in rows, and rows in an order that only the seed decides."""

import itertools

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from train import batches, conversations, packing

WIDTH = 24


def example(name, length: int, first: int = 0) -> conversations.Example:
  """Tokens that are told apart; the second half is the answer."""
  tokens = np.arange(first, first + length, dtype=np.int32)
  return conversations.Example(
    str(name), tokens, np.arange(length) >= length // 2
  )


def examples(number: int = 37) -> list[conversations.Example]:
  lengths = np.random.default_rng(0).integers(3, WIDTH + 1, number)
  return [example(i, int(n), 100 * i) for i, n in enumerate(lengths)]


def order(**changes) -> batches.Order:
  settings = {"width": WIDTH, "batch_size": 4, "seed": 7} | changes
  return batches.Order(examples(), **settings)


def take(loader, count: int) -> list[packing.Batch]:
  return list(itertools.islice(loader, count))


def tokens(found: list[packing.Batch]) -> np.ndarray:
  """[N, B, S]."""
  return np.stack([batch.tokens for batch in found])


class PackingTest(parameterized.TestCase):
  def test_a_row(self):
    """The example of the module's docstring."""
    found = [
      conversations.Example("a", np.array([7, 8, 9]), np.array([0, 1, 1])),
      conversations.Example("b", np.array([3, 4]), np.array([0, 1])),
    ]
    row = packing.fill(found, (0, 1), 6)
    for name, values in (
      ("tokens", [7, 8, 9, 3, 4, 0]),
      ("segments", [1, 1, 1, 2, 2, 0]),
      ("positions", [0, 1, 2, 0, 1, 0]),
      ("loss", [0, 1, 1, 0, 1, 0]),
      ("source", [0, 0, 0, 1, 1, -1]),
    ):
      self.assertEqual(getattr(row, name).tolist(), values, name)

  def test_nothing_is_lost_split_or_mixed(self):
    found = examples()
    members = packing.rows([len(e.tokens) for e in found], WIDTH)
    self.assertCountEqual(itertools.chain(*members), range(len(found)))
    for row_members in members:
      row = packing.fill(found, row_members, WIDTH)
      for segment, index in enumerate(row_members, 1):
        slots = np.flatnonzero(row.segments == segment)
        np.testing.assert_array_equal(row.tokens[slots], found[index].tokens)
        np.testing.assert_array_equal(row.loss[slots], found[index].loss)
        np.testing.assert_array_equal(np.diff(slots), 1)
        np.testing.assert_array_equal(
          row.positions[slots], np.arange(len(slots))
        )
        self.assertEqual(set(row.source[slots]), {index})
      padding = row.segments == 0
      self.assertFalse(row.loss[padding].any())
      self.assertTrue((row.source[padding] == -1).all())

  @parameterized.parameters(
    ([5, 5, 5, 5], [(0, 1), (2, 3)]),
    # The first row that has room, not the next.
    ([8, 6, 2, 4], [(0, 2), (1, 3)]),
    ([10, 10], [(0,), (1,)]),
    ([], []),
  )
  def test_the_first_row_that_has_room(self, lengths, expected):
    self.assertEqual(packing.rows(lengths, 10), expected)

  def test_rows_do_not_wait_forever(self):
    """At most a few rows are open; the fullest leaves."""
    members = packing.rows([6] * 40 + [5], 10)
    self.assertEqual(members[-1], (40,))
    self.assertLen(members, 41)
    members = packing.rows([7, *[6] * packing._OPEN_ROWS, 3], 10)
    self.assertEqual(members[0], (0,))

  def test_wider_than_a_row(self):
    with self.assertRaisesRegex(ValueError, "11 tokens does not fit rows"):
      packing.rows([3, 11], 10)

  def test_long_ones_lose_their_ends(self):
    """One whose answer begins behind the cut is left out, and was cut."""
    long, late = example("long", 20), example("late", 60)
    kept, shortened = packing.cut([example("a", 24), long, late], WIDTH)
    self.assertEqual([e.id for e in kept], ["a", "long"])
    self.assertEqual(shortened, 1)
    kept, shortened = packing.cut([long], 12)
    self.assertEqual(kept[0].tokens.tolist(), long.tokens[:12].tolist())
    self.assertEqual(kept[0].loss.tolist(), long.loss[:12].tolist())
    self.assertEqual(shortened, 1)


class OrderTest(parameterized.TestCase):
  def test_every_row_once_an_epoch(self):
    """Rows that do not fill a batch are left over, others in each epoch."""
    made = order(batch_size=3)
    count = made.steps_per_epoch
    members = packing.rows([len(e.tokens) for e in examples()], WIDTH)
    self.assertEqual(count, len(members) // 3)
    self.assertNotEqual(len(members) % 3, 0)
    found = tokens(take(made.batches(0), 6 * count))
    epochs = [
      {tuple(row) for batch in epoch for row in batch}
      for epoch in np.split(found, 6)
    ]
    for epoch in epochs:
      self.assertLen(epoch, 3 * count)
    self.assertLen(set.union(*epochs), len(members))
    first, second = np.split(found, 6)[:2]
    self.assertFalse(np.array_equal(first, second))

  def test_the_seed_decides(self):
    first = tokens(take(order().batches(0), 4))
    np.testing.assert_array_equal(first, tokens(take(order().batches(0), 4)))
    other = tokens(take(order(seed=8).batches(0), 4))
    self.assertFalse(np.array_equal(first, other))

  @parameterized.parameters(1, 5, 23)
  def test_a_step_is_all_that_a_resumed_run_needs(self, start):
    whole = tokens(take(order().batches(0), start + 3))
    resumed = tokens(take(order().batches(start), 3))
    np.testing.assert_array_equal(resumed, whole[start:])

  @parameterized.parameters(2, 4)
  def test_processes_share_the_rows_of_a_batch(self, processes):
    whole = tokens(take(order().batches(3), 3))
    parts = [
      tokens(take(order().batches(3, process, processes), 3))
      for process in range(processes)
    ]
    together = np.stack(parts, axis=2).reshape(whole.shape)
    np.testing.assert_array_equal(together, whole)

  @parameterized.parameters(1, 3)
  @pytest.mark.slow
  def test_workers_change_nothing(self, workers):
    whole = tokens(take(order().batches(2), 9))
    loader = order(workers=workers).batches(2)
    np.testing.assert_array_equal(tokens(take(loader, 9)), whole)

  def test_mistakes(self):
    with self.assertRaisesRegex(ValueError, "batch_size is 99 but there are"):
      order(batch_size=99)
    with self.assertRaisesRegex(ValueError, "4 does not divide among 3"):
      next(order().batches(0, 0, 3))

  def test_all_rows(self):
    """Held-out rows: each once, in order, the last batch filled up."""
    found = list(batches.all_rows(examples(), WIDTH, 4))
    sources = np.concatenate([batch.source for batch in found])
    self.assertEqual(sources.shape, (4 * len(found), WIDTH))
    self.assertEqual(
      set(sources[sources >= 0].tolist()), set(range(len(examples())))
    )
    total = sum(int(batch.loss.sum()) for batch in found)
    self.assertEqual(total, sum(int(e.loss.sum()) for e in examples()))
    members = packing.rows([len(e.tokens) for e in examples()], WIDTH)
    empty = (sources == -1).all(axis=1)
    self.assertEqual(empty.sum(), 4 * len(found) - len(members))


if __name__ == "__main__":
  absltest.main()
