# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a trace says of trees, and the tree that is chosen by it.

The target counts upwards; the draft ranks the right token as a list says, so
the right table follows from counting alone.
"""

import dataclasses
import json
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax import types
from specjax.bench import trace
from specjax.drafters import empty, tree_draft_model
from specjax.testing import table
from specjax.trees import search
from tests import benches, toys

VOCAB, NEW = 64, 20
# Rank of t + 1 behind token t; 3 is not among the children.
RANKS = np.random.default_rng(0).integers(0, 4, VOCAB)
WIDTHS = (3, 2)
PROMPTS = ((5,), (3,), (18,), (6,))


def ranked() -> table.Table:
  """Logits that put t + 1 at its rank, and t + 2, t + 3, ... elsewhere."""
  logits = np.zeros((VOCAB, VOCAB), np.float32)
  for token, rank in enumerate(RANKS):
    order = [(token + 2 + i) % VOCAB for i in range(VOCAB - 1)]
    order.insert(rank, (token + 1) % VOCAB)
    logits[token, order] = -np.arange(VOCAB)
  return table.Table(jnp.asarray(logits))


def traced(
  drafter: types.Drafter, temperature: float = 0.0
) -> list[dict[str, Any]]:
  made = benches.bench(2, ids=PROMPTS)
  target: Any = toys.cycle(VOCAB)
  method = session_lib.Method(drafter)
  settings = session_lib.Settings(
    sampling_lib.Sampling(temperature=temperature), max_new_tokens=NEW
  )
  asked = dataclasses.replace(
    made,
    target=target,
    task=dataclasses.replace(made.task, settings=settings),
    methods={"t": method},
    capacity=64,
  )
  return list(trace.lines(asked, "t", method))


TREE = tree_draft_model.static_tree(ranked(), WIDTHS)


def counted() -> tuple[np.ndarray, np.ndarray]:
  """Tries and hits [depth, rank] of all rounds, by a walk along the text."""
  tries, hits = np.zeros((2, 3)), np.zeros((2, 3))
  for (first,) in PROMPTS:
    last, left = first, NEW
    while left:
      # The round's last token is the target's own.
      for depth, width in enumerate(WIDTHS[: left - 1]):
        tries[depth, :width] += 1
        rank = RANKS[last % VOCAB]
        if rank >= width:
          break
        hits[depth, rank] += 1
        last, left = last + 1, left - 1
      last, left = last + 1, left - 1
  return tries, hits


class RankTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.lines = traced(TREE)
    cls.table = trace.by_rank(cls.lines)

  def test_the_table_is_what_counting_gives(self):
    tries, hits = counted()
    self.assertGreater(tries[:, 0].min(), 10)
    for depth, width in enumerate(WIDTHS):
      wanted = hits[depth, :width] / tries[depth, :width]
      np.testing.assert_allclose(self.table[depth], wanted)
    measures = trace.acceptance(self.lines)
    self.assertEqual(measures["acceptance_by_rank"], self.table)

  def test_laws_are_those_of_each_nodes_own_slot(self):
    """The target is sure of the next token (10 nats above 63 others)."""
    for line in self.lines:
      kept = line["emitted"][: line["accepted"]]
      known = dict(zip(line["drafted"], line["log_p"]))
      for token in kept:
        self.assertGreater(known[token], -0.01)

  @pytest.mark.slow
  def test_margins_are_those_of_plain_decoding(self):
    """A slot's noise is that of its depth, wherever it stands in the block."""

    def margins(drafter):
      return {
        (line["question_id"], line["position"] + i): margin
        for line in traced(drafter, 3.0)
        for i, margin in enumerate(line["margin"])
      }

    plain, ours = margins(empty.Empty(1)), margins(TREE)
    self.assertEqual(plain.keys(), ours.keys())
    for place, margin in ours.items():
      # One table of logits and one noise, summed in programs of their own.
      self.assertAlmostEqual(margin, plain[place], places=4)

  def test_the_best_tree_of_a_run(self):
    summary = {"methods": {"t": {"acceptance_by_rank": [[0.2, 0.5], [0.9]]}}}
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "summary.json")
      path.write_text(json.dumps(summary))
      found = search.from_run(folder, "t", 3)
    self.assertEqual(found, ((0,), (1,), (1, 0)))


class MistakesTest(parameterized.TestCase):
  @parameterized.parameters(
    ("a", {}, "no acceptance by rank of 'a': run it with --config.trace"),
    ("b", {}, "has no method 'b': use a"),
    ("a", {"acceptance_by_rank": []}, "no acceptance by rank"),
  )
  def test_what_was_not_measured(self, method, measures, message):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "summary.json")
      path.write_text(json.dumps({"methods": {"a": measures}}))
      with self.assertRaisesRegex(ValueError, message):
        search.from_run(folder, method, 4)

  def test_no_run(self):
    with self.assertRaisesRegex(FileNotFoundError, "with trace on"):
      search.from_run("no/such/folder", "a", 4)


if __name__ == "__main__":
  absltest.main()
