# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every drafter with every policy gives the text of plain decoding.

Drafters by short name, on chains and trees that never change or follow the
draft, with every policy by short name, greedy and coupled, in ragged batches
whose rows end at different times. One program a drafter and structure serves
all policies, so the whole product is run.

Chains must agree token for token. On trees the margin rule holds, and each
difference is printed with its margin.
"""

import functools
from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import pytest

from specjax import types
from specjax.bench import parts
from specjax.drafters import (
  assisted_model,
  cascade,
  draft_model,
  early_exit,
  empty,
  lookahead,
  ngram,
  recorded,
  suffix,
  synthetic,
  tree_draft_model,
)
from specjax.policies import gain, policy
from specjax.trees import plans, tree
from tests import cross_vocabulary_test, decoding, draft_heads, margins, toys

TARGET = draft_heads.target()
NOISY = toys.noisy(TARGET, 0.2)
LENGTH = 4
NEW = (40, 9, 40)
SHAPE = tree.from_ranks([(0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (0, 1, 0)])
PLANS = {
  "chain": draft_heads.CHAIN,
  "static": plans.Static(SHAPE),
  "independent": plans.Static(SHAPE, siblings=plans.INDEPENDENT),
  "dynamic": plans.Dynamic(depth=4, width=3, branch=3, nodes=9),
}
# Heads that were never trained still guess the hot row, by the shared noise.
SAMPLINGS = {
  "greedy": decoding.settings([0] * 3),
  "mixed": decoding.settings(
    [0, 0.8, 6], [0, 10, 0], [1, 0.9, 1], [0.05, 0, 0]
  ),
}


def answers(sampling: str) -> list[recorded.Answer]:
  rows = zip(decoding.PROMPTS, plain(sampling))
  return [recorded.Answer(len(prompt), tuple(row)) for prompt, row in rows]


# What drafts chains only, by short name.
CHAINS = {
  "empty": lambda sampling: empty.Empty(LENGTH),
  "ngram": lambda sampling: ngram.NGram(LENGTH),
  "suffix": lambda sampling: suffix.suffix(LENGTH, store=64),
  "early_exit": lambda sampling: early_exit.early_exit(TARGET, 1, LENGTH),
  "assisted_model": lambda sampling: assisted_model.assisted_model(
    NOISY, LENGTH, copies=3
  ),
  "cascade": lambda sampling: cascade.cascade(
    ngram.NGram(3, 1, 2), draft_model.DraftModel(NOISY, LENGTH)
  ),
  "cross_vocabulary": lambda sampling: draft_model.DraftModel(
    cross_vocabulary_test.shuffled(NOISY, range(48)), LENGTH
  ),
  "synthetic": lambda sampling: synthetic.Synthetic.of(
    answers(sampling), [0.8] * LENGTH
  ),
  "draft_model": lambda sampling: draft_model.DraftModel(NOISY, LENGTH),
}
# Kinds of heads by the short name of their drafter.
HEADS = {
  "medusa": ("medusa", "medusa_shared"),
  "chained": ("hydra", "recurrent", "mlp"),
  "eagle": ("eagle", "eagle3", "mtp"),
  "block_parallel": ("block_parallel",),
}
CASES = [
  *((name, "chain", "") for name in CHAINS),
  ("lookahead", "static", ""),
  ("draft_tree", "static", ""),
  ("draft_tree", "independent", ""),
  ("dynamic_tree", "dynamic", ""),
  *(
    (name, plan, kind)
    for name, kinds in HEADS.items()
    for kind in kinds
    for plan in ("chain", "static", "dynamic")
  ),
]


def drafter(name: str, plan: str, kind: str, sampling: str) -> Any:
  if name in CHAINS:
    return CHAINS[name](sampling)
  if name == "lookahead":
    return lookahead.Lookahead(3, 3, 2, pool=16)
  if name in HEADS:
    return draft_heads.drafter(kind, TARGET, PLANS[plan])
  return tree_draft_model.TreeDraftModel(NOISY, PLANS[plan])


class Chosen(struct.PyTreeNode):
  """All policies in one program; a number says which of them decides."""

  policies: tuple[types.Policy, ...]
  which: jax.Array
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=())

  def init(self, batch: int) -> tuple:
    return tuple(each.init(batch) for each in self.policies)

  def draft_length(self, state: tuple) -> jax.Array:
    pairs = zip(self.policies, state, strict=True)
    return jnp.stack([one.draft_length(own) for one, own in pairs])[self.which]

  def keep_drafting(self, state: tuple, law: jax.Array) -> jax.Array:
    pairs = zip(self.policies, state, strict=True)
    wants = [one.keep_drafting(own, law) for one, own in pairs]
    return jnp.stack(wants)[self.which]

  def update(self, state: tuple, acceptance, draft_length) -> tuple:
    pairs = zip(self.policies, state, strict=True)
    return tuple(
      one.update(own, acceptance, draft_length) for one, own in pairs
    )


def policies(depth: int) -> dict[str, types.Policy]:
  """Every policy by short name, with thresholds that decide both ways."""
  seconds = 1 + 0.1 * jnp.arange(depth + 1, dtype=jnp.float32)
  fixed = policy.Fixed(depth)
  return {
    "fixed": fixed,
    "heuristic": policy.Heuristic(depth, min(2, depth)),
    "confidence": policy.Confidence(depth, least=0.2),
    "entropy": policy.Entropy(depth, least=0.3, scale=0.2),
    "expected_gain": gain.ExpectedGain(seconds),
    "pausing": gain.Pausing(fixed, least=1.6, pause=1, longest=4),
  }


def run(made: types.Drafter, sampling: str, chosen: Any = None):
  return decoding.run(
    TARGET, made, sampling=SAMPLINGS[sampling], policy=chosen, new=NEW
  )


@functools.cache
def plain(sampling: str) -> list[list[int]]:
  return decoding.answers(run(empty.Empty(1), sampling))


class EveryDrafterTest(parameterized.TestCase):
  def test_none_is_left_out(self):
    self.assertEqual({name for name, *_ in CASES}, {*parts.NAMES["drafter"]})
    self.assertEqual({*policies(LENGTH)}, {*parts.NAMES["policy"]})
    kinds = {kind for kinds in HEADS.values() for kind in kinds}
    self.assertEqual(kinds, {*draft_heads.KINDS})

  @parameterized.parameters(*CASES)
  @pytest.mark.slow
  def test_text_is_plain_text(self, name, plan, kind):
    seen, found, runs = set(), [], 0
    for sampling in SAMPLINGS:
      made = drafter(name, plan, kind, sampling)
      named = policies(made.max_depth)
      for which, label in enumerate(named):
        chosen = Chosen(tuple(named.values()), jnp.int32(which))
        state = run(made, sampling, chosen)
        with self.subTest(f"{sampling} {label}"):
          found += self.assert_plain_text(state, sampling, plan == "chain")
        seen |= decoding.outcomes(state)
        runs += 1
    margin = max((each.margin for each in found), default=0.0)
    print(
      f"{name} {plan} {kind}: {runs} runs, rounds that kept "
      f"{sorted(seen)}, {len(found)} differences, largest margin {margin:.1e}"
    )
    self.assertLessEqual(len(found), 1)
    if name != "empty":
      self.assertEqual(seen, {"none", "some", "all"})

  def assert_plain_text(self, state, sampling, is_chain):
    """What differs, which the margin rule must forgive."""
    got, expected = decoding.answers(state), plain(sampling)
    if is_chain:
      self.assertEqual(got, expected)
    found = [
      *margins.differences(
        TARGET, SAMPLINGS[sampling], decoding.PROMPTS, got, expected
      )
    ]
    for each in found:
      print(each)
      self.assertLess(each.margin, margins.MOST)
    return found


if __name__ == "__main__":
  absltest.main()
