# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a comparison refuses, and its order."""

import dataclasses

from absl.testing import absltest, parameterized

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, measure
from specjax.drafters import cascade, draft_model, ngram, tree_draft_model
from specjax.verifiers import coupled, k_seq, rejection
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


class CheckTest(parameterized.TestCase):
  """Parts that do not go together are found before anything runs."""

  @parameterized.named_parameters(
    (
      "tree",
      lambda target: tree_draft_model.static_tree(target, (2, 1)),
      rejection.Rejection(),
      "methods.x: Rejection takes chains only",
    ),
    (
      "siblings",
      lambda target: tree_draft_model.static_tree(target, (2, 1)),
      k_seq.KSeq(),
      "methods.x: KSeq needs siblings that were drawn independently",
    ),
    (
      "traced",
      lambda target: cascade.cascade(
        draft_model.DraftModel(target, 2), ngram.NGram(2)
      ),
      coupled.Coupled(),
      "methods.x: DraftModel draws its tokens: put it second",
    ),
    (
      "right",
      lambda target: cascade.cascade(
        ngram.NGram(2), draft_model.DraftModel(target, 2)
      ),
      rejection.Rejection(),
      None,
    ),
  )
  def test_methods(self, make, rule, pattern):
    asked = bench()
    method = session_lib.Method(make(asked.target), rule)
    asked = dataclasses.replace(asked, methods={**asked.methods, "x": method})
    if pattern is None:
      asked.check()
      return
    with self.assertRaisesRegex(ValueError, pattern) as caught:
      asked.check()
    self.assertNotIn("\n", str(caught.exception))


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
