# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact laws on trees, of numbers used twice, and the command that prints them.

A right rule's distance is a few roundings of float64, so 1e-12 is a bound that
no bias passes; what a mutant is off by is a bias that a user could see.
"""

import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import pytest

from specjax import exact, run
from specjax.laws import drafts
from specjax.testing import cases, mutants, reuse
from specjax.verifiers import (
  block,
  coupled,
  k_seq,
  multi_candidate,
  multi_path,
  rejection,
  traversal,
)

TARGET, DRAFT = cases.random(1, 3), cases.random(2, 3)
# Two siblings, and two children of the first.
PARENTS = (0, 0, 1, 1)
CONFIG = pathlib.Path(__file__).parent.parent / "configs" / "exactness.py"


def distance(rule, proposal, depths=(2, 1), tokens=3, parents=PARENTS):
  law = exact.law(rule, TARGET, proposal, depths, tokens, parents)
  return exact.total_variation(law, exact.joint(TARGET, tokens))


class TreeLawTest(parameterized.TestCase):
  def test_every_kind_of_siblings_is_lossless(self):
    self.check_every_kind(coupled.Coupled())

  @parameterized.parameters(
    multi_candidate.MultiCandidate(), traversal.Traversal()
  )
  @pytest.mark.slow
  def test_every_kind_is_lossless_by_ratios(self, rule):
    self.check_every_kind(rule)

  def check_every_kind(self, rule):
    for kind, proposal in cases.KINDS.items():
      with self.subTest(kind):
        self.assertLess(distance(rule, proposal(DRAFT)), 1e-12)

  @parameterized.parameters(k_seq.KSeq(), multi_path.MultiPath())
  @pytest.mark.slow
  def test_rules_of_independent_siblings(self, rule):
    self.assertLess(distance(rule, exact.honest(DRAFT)), 1e-12)
    without = exact.honest(DRAFT, drafts.distinct)
    self.assertGreater(distance(rule, without), 1e-3)

  def test_siblings_without_renormalising(self):
    wrong = exact.Drafts(DRAFT, DRAFT, drafts.distinct, drafts.independent)
    rule = multi_candidate.MultiCandidate()
    self.assertGreater(distance(rule, wrong, (1, 2), 2), 1e-2)

  @pytest.mark.slow
  def test_a_chain_is_a_tree(self):
    rule, proposal = multi_candidate.MultiCandidate(), exact.honest(DRAFT)
    as_tree = exact.law(rule, TARGET, proposal, (2,), 2, (0, 1))
    as_chain = exact.law(rule, TARGET, proposal, (2,), 2)
    self.assertLess(exact.total_variation(as_tree, as_chain), 1e-15)

  @pytest.mark.slow
  def test_more_siblings_keep_more(self):
    rule, proposal = multi_candidate.MultiCandidate(), cases.KINDS["mixed"]
    kept = [
      exact.expected_accepted(rule, TARGET, proposal(DRAFT), 1, (0,) * n)
      for n in (1, 3)
    ]
    self.assertLess(kept[0], kept[1])
    # All three words are among the siblings.
    self.assertAlmostEqual(kept[1], 1)

  def test_what_a_race_keeps_is_not_its_own(self):
    with self.assertRaisesRegex(ValueError, "drafter's noise"):
      exact.expected_accepted(coupled.Coupled(), TARGET, exact.honest(DRAFT), 1)


class StopTest(parameterized.TestCase):
  @parameterized.parameters(rejection.Rejection(), block.Block())
  def test_a_stop_that_knows_the_token_is_biased(self, rule):
    off = lambda seen: mutants.distance(
      rule,
      mutants.anticipating(cases.random(2, 3), seen=seen),
      TARGET,
      lengths=(2,),
    )
    self.assertLess(off(False), 1e-12)
    self.assertGreater(off(True), 1e-2)


class NumbersTest(absltest.TestCase):
  def test_streams_kept_across_rounds(self):
    """Block verification alone: its tests look behind what they decide on."""
    self.assertGreater(reuse.kept_streams(block.Block()), 1e-3)

  @pytest.mark.slow
  def test_streams_of_each_round(self):
    off = reuse.kept_streams(block.Block(), kept=False)
    self.assertLess(off, 1e-12)

  def test_rows_of_a_batch(self):
    self.assertLess(reuse.batch_of_two(rejection.Rejection()), 1e-12)


class MutantsTest(absltest.TestCase):
  @pytest.mark.slow
  def test_all_are_caught(self):
    found = list(mutants.measure())
    missed = [mutant.name for mutant in found if not mutant.caught]
    self.assertEmpty(missed)
    self.assertGreaterEqual(len(found), 12)


SMALL = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("full", {str(CONFIG)!r})
full = importlib.util.module_from_spec(spec)
spec.loader.exec_module(full)

def get_config(arg):
  config = full.get_config().unlock()
  for rule in [*config.exactness.rules]:
    if rule != "multi_candidate":
      del config.exactness.rules[rule]
  config.exactness.rules.multi_candidate.structures = ("2 siblings",)
  config.exactness.rules.multi_candidate.drafters = ("mixed",)
  config.exactness.mutants = False
  return config
"""


class CommandTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(tempfile.mkdtemp())
    self.config = self.folder / "small.py"
    self.config.write_text(SMALL)

  def main(self, *overrides) -> int:
    return run.main(
      [f"--config={self.config}", f"--workdir={self.folder}/out", *overrides]
    )

  def test_a_table_and_its_file(self):
    self.assertEqual(self.main(), 0)
    found = json.loads((self.folder / "out/exactness.json").read_text())
    self.assertEmpty(found["mutants"])
    [line] = found["rules"]
    self.assertLess(line.pop("tv"), 1e-12)
    self.assertEqual(
      line,
      {
        "verifier": "multi_candidate",
        "drafter": "mixed",
        "structure": "2 siblings",
        "rounds": 2,
      },
    )

  @parameterized.parameters(
    "vocab=1",
    "memory=-1",
    "rules.multi_candidate.verifier.type=multi_candidat",
    "rules.multi_candidate.verifier.type=typical",
    # Right rules, which these trees or siblings would seem to disprove.
    "rules.multi_candidate.verifier.type=rejection",
    "rules.multi_candidate.verifier.type=k_seq",
    "rules.multi_candidate.drafters=odd",
    "rules.multi_candidate.structures=odd",
    "rule=2",
  )
  def test_mistakes_are_refused(self, override):
    self.assertEqual(self.main(f"--config.exactness.{override}"), 2)
    self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
  absltest.main()
