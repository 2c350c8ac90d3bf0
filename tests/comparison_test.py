# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The order of a comparison."""

import dataclasses

from absl.testing import absltest, parameterized

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, measure
from tests.benches import bench


class PlanTest(parameterized.TestCase):
  @parameterized.parameters(1, 2)
  def test_every_method_meets_every_batch_in_every_run(self, batch_size):
    asked = bench(batch_size, runs=3)
    plan = list(measure.plan(asked, session_lib.Method()))
    entries = [
      (run, name, index) for run, batch, name, _ in plan for index in batch
    ]
    self.assertLen(set(entries), len(entries))
    self.assertLen(entries, asked.answers)
    names = {name for _, name, _ in entries}
    self.assertEqual(names, {"a", "b", "plain", "plain_reference"})

  def test_methods_take_turns_within_a_batch(self):
    """Between two batches of one method stand all the others."""
    plan = [
      (run, batch[0], name)
      for run, batch, name, _ in measure.plan(bench(), session_lib.Method())
      if name != "plain_reference"
    ]
    for at in range(0, len(plan), 3):
      places = {(run, batch) for run, batch, _ in plan[at : at + 3]}
      self.assertLen(places, 1)
    first = {name for _, _, name in plan[::3]}
    self.assertEqual(first, {"a", "b", "plain"})

  @parameterized.parameters((1, 2), (2, 1), (3, 1))
  def test_the_reference_has_at_least_two_rows(self, batch_size, width):
    method = measure.reference_method(bench(batch_size))
    self.assertEqual(method.block, width)


class SpreadTest(parameterized.TestCase):
  @parameterized.parameters(
    (0, ()),
    (1, (0,)),
    (2, (0, 2)),
    (3, (0, 2, 5)),
    (5, (0, 2, 5, 1, 3)),
    (9, (0, 2, 5, 1, 3, 4)),
  )
  def test_replayed_batches_come_from_all_groups(self, count, expected):
    prompts = tuple(
      data.Prompt(f"p{i}", i, "x", group=group)
      for i, group in enumerate("aabbbc")
    )
    settings = session_lib.Settings()
    asked = dataclasses.replace(
      bench(), task=build.Task(prompts, ((1,),) * 6, settings)
    )
    found = [batch[0] for batch in asked.spread(count)]
    self.assertEqual(tuple(found), expected)


if __name__ == "__main__":
  absltest.main()
