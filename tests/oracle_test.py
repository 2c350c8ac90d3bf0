# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every setting of the sampler under every rule, against a slow oracle.

The rows of a batch ask for different things. Under the coupled rule all texts
are the oracle's, under the others those at temperature 0. Under all of them the
law that a rule is given at each node of a draft is the oracle's after the path
to it, and where the target drafts for itself so is the law the draft reports.
"""

import functools
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.decoding import step as step_lib
from specjax.decoding import stopping
from specjax.drafters import draft_model, empty, ngram, tree_draft_model
from specjax.trees import plans, tree
from specjax.verifiers import (
  block,
  coupled,
  k_seq,
  multi_candidate,
  multi_path,
  rejection,
  traversal,
)
from tests import decoding, oracle, toys

NOISE = 0.4 * np.random.default_rng(5).standard_normal(oracle.TABLE.shape)
# A draft of the target itself, and one that is often wrong; one program each.
TABLES = {"right": oracle.TABLE, "noisy": oracle.TABLE + NOISE}
MODELS = {
  name: toys.Table(jnp.asarray(table, jnp.float32))
  for name, table in TABLES.items()
}
TARGET = MODELS["right"]
SHAPE = tree.from_ranks([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
PLANS: dict[str, plans.Plan] = {
  "static": plans.Static(SHAPE),
  "independent": plans.Static(SHAPE, siblings=plans.INDEPENDENT),
  "dynamic": plans.Dynamic(3, 2, 2, 6, 1.0),
}
RULES: dict[str, Any] = {
  "coupled": coupled.Coupled(),
  "rejection": rejection.Rejection(),
  "block": block.Block(),
  "multi_candidate": multi_candidate.MultiCandidate(),
  "traversal": traversal.Traversal(),
  "k_seq": k_seq.KSeq(),
  "multi_path": multi_path.MultiPath(),
}
TREE_RULES = ("coupled", "multi_candidate", "traversal")
PRODUCT = (
  *(("plain", rule) for rule in ("coupled", "rejection")),
  *(("ngram", rule) for rule in ("coupled", "rejection", "multi_candidate")),
  *(("chain", rule) for rule in RULES),
  *(("static", rule) for rule in TREE_RULES),
  *(("dynamic", rule) for rule in TREE_RULES),
  *(("independent", rule) for rule in [*RULES][3:]),
)
# Structures whose drafts report laws, if the rule asks for them.
HONEST = ("chain", "static", "independent")
_step = jax.jit(step_lib.step)


def drafter(structure: str, model: str) -> Any:
  if structure in PLANS:
    return tree_draft_model.TreeDraftModel(MODELS[model], PLANS[structure])
  if structure == "chain":
    return draft_model.DraftModel(MODELS[model], 3)
  return ngram.NGram(3, min_n=1) if structure == "ngram" else empty.Empty(1)


@functools.cache
def settings():
  return oracle.sampling()


class Rounds:
  """A batch of the table, decoded round by round."""

  def __init__(self, structure: str, rule: str, batch: int, model: str):
    rows = len(oracle.PROMPTS)
    self.indices = range(batch * rows, (batch + 1) * rows)
    made = drafter(structure, model)
    state, rest = decoding.start(
      TARGET,
      made,
      oracle.PROMPTS,
      sampling=settings().take(np.asarray(self.indices)),
      indices=self.indices,
      new=oracle.NEW,
      eos=(0,),
    )
    self.laws = self.drafted = 0
    while not np.all(state.done):
      before = decoding.fetch(state)
      state, happened = _step(TARGET, made, RULES[rule], state, *rest)
      happened = jax.device_get(happened)
      for row in map(int, np.flatnonzero(~before.done)):
        laws = self._check_laws(row, before, happened)
        if model == "right" and happened.draft.log_q is not None:
          self._check_draft(row, happened.draft, happened.draft.log_q, laws)
    self.state = decoding.fetch(state)
    self.answers = decoding.answers(self.state)

  def _check_laws(
    self, row: int, before: types.DecodeState, happened: step_lib.Round
  ) -> dict[int, np.ndarray]:
    """The oracle's law by slot, to which the rule's must be equal."""
    index = self.indices[row]
    known = tuple(before.tokens[row, : before.lengths[row]].tolist())
    laws = {}
    for slot, path in enumerate(_paths(happened.draft, row)):
      tokens = (*known, *path)
      ends = range(len(known) + 1, len(tokens) + 1)
      # Below a token that may not stand there, and below EOS, no law counts.
      if all(oracle.is_possible(index, tokens[:end]) for end in ends):
        laws[slot] = oracle.law(index, tokens)
        _assert_equal(happened.log_p[row, slot], laws[slot], index, tokens)
    self.laws += len(laws)
    return laws

  def _check_draft(
    self,
    row: int,
    draft: types.Draft,
    log_q: jax.Array,
    laws: dict[int, np.ndarray],
  ) -> None:
    """The first of siblings is drawn from the law of their parent."""
    parents = draft.parents[row, : draft.count[row]].tolist()
    for node, parent in enumerate(parents):
      if parent in laws and parent not in parents[:node]:
        law = laws[parent]
        _assert_equal(log_q[row, node], law, self.indices[row], node)
        self.drafted += 1


def _assert_equal(log_law, law, index, where):
  # float32 against float64, after penalties, a division and a sum.
  np.testing.assert_allclose(
    np.exp(log_law),
    law,
    rtol=1e-4,
    atol=1e-6,
    err_msg=f"row {index}: {oracle.ROWS[index]}, at {where}",
  )


def _paths(draft: types.Draft, row: int) -> list[list[int]]:
  """Tokens from below the root to each valid slot, the root the first."""
  paths: list[list[int]] = [[]]
  for node in range(int(draft.count[row])):
    above = paths[int(draft.parents[row, node])]
    paths.append([*above, int(draft.tokens[row, node])])
  return paths


class OracleTest(parameterized.TestCase):
  def check(self, structure: str, rule: str, batch: int, model: str) -> Rounds:
    rounds = Rounds(structure, rule, batch, model)
    emitted = 0
    for row, index in enumerate(rounds.indices):
      answer = rounds.answers[row]
      emitted += len(answer)
      greedy = not oracle.ROWS[index].get("temperature")
      if rule == "coupled" or greedy:
        self.assertEqual(answer, oracle.answer(index), f"row {index}")
      known = oracle.prompt(index)
      for at, token in enumerate(answer):
        self.assertGreater(oracle.law(index, (*known, *answer[:at]))[token], 0)
      ends = bool(answer) and answer[-1] == 0
      self.assertEqual(rounds.state.reason[row] == stopping.Reason.EOS, ends)
    # At least the law of every token that was emitted.
    self.assertGreaterEqual(rounds.laws, emitted)
    return rounds

  @parameterized.parameters(
    ("plain", "coupled"),
    ("chain", "coupled"),
    ("dynamic", "coupled"),
    ("static", "traversal"),
  )
  @pytest.mark.fault_case("B27")
  def test_several_settings_a_row(self, structure, rule):
    """vllm-project/vllm#38202: every setting reaches every drafted slot."""
    rounds = self.check(structure, rule, 0, "noisy")
    if structure == "chain":
      self.assertEqual(decoding.outcomes(rounds.state), {"none", "some", "all"})
    if structure in HONEST:
      rounds = self.check(structure, rule, 0, "right")
      # An honest draft knows the settings, along its own path.
      self.assertEqual(decoding.outcomes(rounds.state), {"all"})
      self.assertGreater(rounds.drafted, 20)

  @parameterized.parameters(*PRODUCT)
  @pytest.mark.slow
  def test_the_whole_product(self, structure, rule):
    """Every setting alone, with every way to draw, and the mixed rows."""
    laws = drafted = 0
    for batch in range(oracle.BATCHES):
      laws += self.check(structure, rule, batch, "noisy").laws
      if structure in HONEST and rule != "coupled":
        drafted += self.check(structure, rule, batch, "right").drafted
    print(f"{structure} x {rule}: {laws} laws, {drafted} of drafts")

  def test_no_setting_is_idle(self):
    """Each changes the text of its row."""
    rows = len(oracle.PROMPTS)
    for index, row in enumerate(oracle.ROWS[:rows]):
      for left_out in set(row) - {"temperature"}:
        others = {k: v for k, v in row.items() if k != left_out}
        text = oracle.text(index, others)
        self.assertNotEqual(text, oracle.answer(index), f"{index} {left_out}")
    for name, feature in oracle.FEATURES.items():
      having = [
        index
        for index, row in enumerate(oracle.ROWS[rows:], rows)
        if feature.items() <= row.items()
      ]
      self.assertLen(having, len(oracle.FILTERS), name)
      last = next(iter(feature))
      changed = sum(
        oracle.answer(index)
        != oracle.text(
          index, {k: v for k, v in oracle.ROWS[index].items() if k != last}
        )
        for index in having
      )
      self.assertGreater(changed, 1, name)


if __name__ == "__main__":
  absltest.main()
