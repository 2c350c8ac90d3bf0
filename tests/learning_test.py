# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drafter with a store learns within a run of a comparison, and no further.

The target counts upwards from any token, so an answer tells what follows in the
next one, and a prompt alone tells nothing.
"""

import copy
import dataclasses
from typing import Any

from absl.testing import absltest
import numpy as np

from specjax import session as session_lib
from specjax.bench import comparison, measure, streaming, trace
from specjax.drafters import cascade, empty, ngram, suffix
from specjax.policies import policy
from tests import benches, toys

PROMPTS = ((5,), (3,), (6,), (4,), (7,))
PLAIN = session_lib.Method(empty.Empty(1))
# Grown only as far as the longest answer, whatever was looked up.
STORE = suffix.suffix(3, offset=3.0, store=64)


class Memory:
  """As much of a folder as `comparison` asks for while methods answer."""

  def __init__(self, records=()):
    self.records: Any = [copy.deepcopy(record) for record in records]

  def append(self, *records):
    self.records += records


def bench(drafter=STORE, batch_size=2) -> measure.Bench:
  made = benches.bench(batch_size, ids=PROMPTS)
  target: Any = toys.cycle(64)
  return dataclasses.replace(
    made,
    target=target,
    methods={
      "s": session_lib.Method(
        drafter, policy=policy.Fixed(drafter.max_depth, widths=())
      )
    },
  )


def answer_all(asked, records=()) -> list[dict[str, Any]]:
  folder: Any = Memory(records)
  comparison._answer_all(asked, folder, PLAIN, lambda steps, what: None)
  return folder.records


def outcome(record) -> tuple[Any, ...]:
  """All of a record but its times."""
  names = ("run", "method", "question_id", "tokens", "drafted", "accepted")
  return tuple(record[name] for name in names)


def drafted(records, run=0, name="s") -> list[int]:
  """Tokens drafted for each prompt."""
  chosen = [r for r in records if (r["run"], r["method"]) == (run, name)]
  chosen.sort(key=lambda record: record["question_id"])
  return [sum(record["drafted"]) for record in chosen]


class LearningTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.bench = bench()
    cls.records = answer_all(cls.bench)

  def test_answers_of_a_run_help_the_next_ones(self):
    cold = drafted(answer_all(bench(suffix.suffix(3, offset=3.0))))
    self.assertEqual(cold, [0] * 5)
    first = drafted(self.records)
    self.assertEqual(first[:2], [0, 0])
    self.assertGreater(min(first[2:]), 2)
    texts = {
      name: [r["tokens"] for r in self.records if r["method"] == name]
      for name in ("s", "plain")
    }
    self.assertCountEqual(texts["s"], texts["plain"])

  def test_every_run_begins_with_an_empty_store(self):
    self.assertEqual(drafted(self.records, 1), drafted(self.records, 0))

  def test_a_warm_store_is_kept_beside(self):
    """A cascade hands on what is remembered."""
    warm = STORE.remember([[3, 4, 5, 6, 7, 8, 9]])
    records = answer_all(bench(cascade.Cascade(ngram.NGram(2, 2), warm)))
    for run in (0, 1):
      self.assertGreater(min(drafted(records, run)), 2)

  def test_a_killed_run_goes_on_as_if_it_had_not_been(self):
    """Cut where the method answers, within batches too."""
    expected = sorted(map(outcome, self.records))
    cuts = [i for i, r in enumerate(self.records) if r["method"] == "s"]
    self.assertLen(cuts, 10)
    for kept in cuts:
      resumed = answer_all(self.bench, self.records[:kept])
      self.assertEqual(sorted(map(outcome, resumed)), expected, kept)

  def test_later_passes_show_what_was_timed(self):
    """Traces and streams see the stores of the first run."""
    (method,) = self.bench.methods.values()
    lines = list(trace.lines(self.bench, "s", method, self.records))
    traced = {}
    for line in lines:
      name = line["question_id"]
      traced[name] = traced.get(name, 0) + len(line["drafted"])
    self.assertEqual(
      [traced[name] for name in sorted(traced)], drafted(self.records)
    )
    (last,) = streaming.measure_all(
      self.bench, {"s": method}, [range(4, 5)], records=self.records
    )["s"]
    (same,) = [
      r["choices"][0]["accept_lengths"]
      for r in self.records
      if (r["run"], r["method"], r["question_id"]) == (0, "s", "p4")
    ]
    np.testing.assert_array_equal(last.gap_tokens, same[1:])

  def test_a_method_that_learns_nothing_stays_itself(self):
    self.assertIs(
      measure.informed(self.bench, self.records, 1, range(2, 4), "s", PLAIN),
      PLAIN,
    )


if __name__ == "__main__":
  absltest.main()
