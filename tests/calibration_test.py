# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is timed: passes, and rounds of every drafter outside of them."""

import collections
from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
from jax import experimental
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.decoding import decode
from specjax.drafters import (
  cascade,
  cross_vocabulary,
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
from specjax.policies import calibration, cost, stand_ins
from specjax.trees import tree
from tests import decoding, draft_heads, toys

TARGET = draft_heads.target()
DRAFT = toys.noisy(toys.tiny())
CONTEXT = 40


def shared_half() -> cross_vocabulary.SharedVocabulary:
  """A model of a vocabulary that shares every second token."""
  tokens = jnp.arange(toys.TINY_VOCAB)
  outputs = jnp.where(tokens % 2, -1, tokens)
  return cross_vocabulary.SharedVocabulary(
    DRAFT, tokens, outputs, TARGET.num_tokens
  )


def replayed() -> synthetic.Synthetic:
  """Plain answers, nine tokens of ten right."""
  plain = decoding.run(TARGET, empty.Empty(1), new=60)
  answers = [
    recorded.Answer(len(prompt), tuple(answer))
    for prompt, answer in zip(decoding.PROMPTS, decoding.answers(plain))
  ]
  return synthetic.Synthetic.of(answers, [0.9] * 4)


def looked_up_or(second: types.Drafter) -> cascade.Cascade:
  return cascade.Cascade(ngram.NGram(5, 2, 4), second)


# Made when they are asked for.
DRAFTERS: dict[str, Any] = {
  "empty": lambda: empty.Empty(2),
  "ngram": lambda: ngram.NGram(4),
  "suffix": lambda: suffix.suffix(4),
  "lookahead": lambda: lookahead.Lookahead(2, 3, 2),
  "draft_model": lambda: draft_model.DraftModel(DRAFT, 4),
  "draft_tree": lambda: tree_draft_model.static_tree(DRAFT, (2, 2)),
  "dynamic_tree": lambda: tree_draft_model.dynamic_tree(DRAFT, 2, 2, 2, 5),
  "eagle": lambda: draft_heads.drafter("eagle3", TARGET),
  "medusa": lambda: draft_heads.drafter("medusa", TARGET),
  "chained": lambda: draft_heads.drafter("hydra", TARGET),
  "block_parallel": lambda: draft_heads.drafter("block_parallel", TARGET),
  "cascade": lambda: cascade.cascade(
    ngram.NGram(5, 2, 4), draft_model.DraftModel(DRAFT, 3)
  ),
  "early_exit": lambda: early_exit.early_exit(TARGET, 1, 4),
  "cross_vocabulary": lambda: draft_model.DraftModel(shared_half(), 4),
  "synthetic": replayed,
}


class Clock:
  """Goes on when it is told to, in the place of the machine's."""

  def __init__(self):
    self.now = 0.0

  def perf_counter(self) -> float:
    return self.now

  def advance(self, seconds: float) -> None:
    self.now += seconds


class MedianTest(absltest.TestCase):
  def test_median_of_turns_without_the_first(self):
    """The first turn compiles, and no turn's preparation counts."""
    clock = Clock()
    # Turns of one cell take 100, 4, 8, 400; a call is a quarter of it.
    turns = iter([100, 4, 8, 400])

    def prepare(cell):
      clock.advance(1000)
      return clock.advance, next(turns)

    with absltest.mock.patch.object(calibration, "time", clock):
      seconds = calibration._medians(prepare, [(1,)], 3)
    self.assertEqual(seconds.tolist(), [2.0])


class PassesTest(parameterized.TestCase):
  @parameterized.parameters(
    ([1], [4], [253], "context 253 and a block of 4 pass the model's 256"),
    ([], [4], [8], "give one number of 1 or more"),
    ([1], [0], [8], "give one number of 1 or more"),
  )
  def test_refuses_what_cannot_be_timed(self, batches, widths, contexts, text):
    with self.assertRaisesRegex(ValueError, text) as caught:
      calibration.calibrate(toys.tiny(), batches, widths, contexts)
    self.assertNotIn("\n", str(caught.exception))


class Clockwork(struct.PyTreeNode):
  """Copies nothing, and takes 1 second to observe, 2 for each token asked."""

  clock: Clock = struct.field(pytree_node=False)
  num_nodes: int = struct.field(pytree_node=False, default=2)

  @property
  def max_depth(self) -> int:
    return self.num_nodes

  def init(self, batch: int, capacity: int) -> jax.Array:
    del batch, capacity
    return jnp.int32(0)

  def observe(
    self, state: jax.Array, block: types.Block, view: types.View | None
  ) -> jax.Array:
    del block, view
    return self._spend(state, jnp.int32(1))

  def propose(
    self, state: jax.Array, context: types.Context
  ) -> tuple[types.Draft, jax.Array, types.KVCache]:
    asked = context.draft_length
    tokens = jnp.zeros((asked.shape[0], self.num_nodes), jnp.int32)
    draft = tree.chain(tokens, jnp.zeros_like(asked))
    return draft, self._spend(state, 2 * jnp.max(asked)), context.cache

  def _spend(self, state, seconds):
    def spend(state, seconds):
      self.clock.advance(int(seconds))
      return state

    return experimental.io_callback(spend, state, state, seconds)


class ScriptTest(absltest.TestCase):
  def test_says_what_follows(self):
    """In a chain and in a tree, whatever tokens it is shown."""
    text = jnp.array([[5, 6, 7, 8, 9], [1, 2, 3, 4, 0]])
    hidden = jnp.array([[[1.0]], [[2.0]]])
    script = stand_ins.Script(toys.cycle(16), text, hidden, None)
    cache = script.init_cache(2, 8, 4).replace(lengths=jnp.array([0, 2]))
    block = jnp.zeros((2, 3), jnp.int32)
    positions = cache.lengths[:, None] + jnp.array([0, 1, 1])[None]
    for at, wanted in (
      (None, [[6, 7, 8], [4, 0, 0]]),  # and past its end, the last one
      (positions, [[6, 7, 7], [4, 0, 0]]),
    ):
      output = script(block, cache, at)
      np.testing.assert_array_equal(jnp.argmax(output.logits, -1), wanted)
      np.testing.assert_array_equal(output.hidden[:, :, 0], [[1] * 3, [2] * 3])
      np.testing.assert_array_equal(output.cache.lengths, cache.lengths)


class OutsideTest(parameterized.TestCase):
  """What is timed is what was asked for."""

  def test_what_a_drafter_does_in_a_round(self):
    """It drafts what is asked, and observes the outcome; prompts are over.

    What it copies is taken to be as long as was asked, though it finds nothing.
    """
    drafter = Clockwork(Clock())
    with (
      absltest.mock.patch.object(calibration, "time", drafter.clock),
      self.noted(),
    ):
      seconds = calibration.outside_seconds(
        toys.cycle(16), drafter, (0,), 1, CONTEXT, repetitions=1
      )
    self.assertEqual(seconds.tolist(), [1, 3, 5])
    self.assert_drafts_as_asked(drafter, together=True)

  def test_a_drafter_beyond_its_positions(self):
    drafter = draft_model.DraftModel(toys.cycle(16), 2)
    wanted = "DraftModel drafts nothing after 40 tokens: choose a shorter"
    with (
      absltest.mock.patch.object(decode, "advance", lambda *parts: parts[3]),
      self.assertRaisesRegex(ValueError, wanted) as caught,
    ):
      calibration.outside_seconds(toys.cycle(16), drafter, (0,), 1, CONTEXT)
    self.assertNotIn("\n", str(caught.exception))

  @pytest.mark.slow
  def test_such_a_drafter(self):
    draft = toys.cycle(16).replace(max_position=32)
    with self.assertRaisesRegex(ValueError, "drafts nothing after 40 tokens"):
      calibration.outside_seconds(
        toys.cycle(16), draft_model.DraftModel(draft, 2), (0,), 1, CONTEXT
      )

  @parameterized.parameters(*DRAFTERS)
  @pytest.mark.slow
  def test_policies_of_transformers(self, name):
    """Of a target that must be made to give the features that heads read."""
    self.check(toys.tiny(), DRAFTERS[name](), "pausing")

  def test_policies_of_table_models(self):
    self.check_tables("cascade", "expected_gain")

  @pytest.mark.slow
  def test_policies_of_trees_of_table_models(self):
    self.check_tables("draft_tree", "pausing")

  def check_tables(self, name, kind):
    """Whatever was measured, the text is that of plain decoding."""
    rng = np.random.default_rng(2)
    logits = 2 * rng.normal(size=(32, 32)).astype(np.float32)
    near = logits + rng.normal(size=(32, 32)).astype(np.float32)
    target, draft = (toys.Table(jnp.asarray(x)) for x in (logits, near))
    drafters: dict[str, Any] = {
      "cascade": looked_up_or(draft_model.DraftModel(draft, 3)),
      "draft_tree": tree_draft_model.static_tree(draft, (2, 2)),
    }
    self.check(target, drafters[name], kind)

  def check(self, target, drafter, kind):
    with self.noted():
      made = getattr(cost, kind)(target, drafter, 3, context=CONTEXT)
    self.assert_drafts_as_asked(drafter, together=kind == "pausing")
    target = decode.with_features(target, drafter)
    state = decoding.run(target, drafter, policy=made, new=60)
    plain = decoding.run(target, empty.Empty(1), new=60)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))

  def noted(self):
    """Keeps what timed rounds draft, by the length that is asked."""
    return absltest.mock.patch.object(decode, "advance", self.noting)

  def noting(self, *arguments):
    *_, policy, _, rounds = arguments
    state = self.advance(*arguments)
    drafted = np.asarray(state.stats.drafted)[:, 1 : rounds + 1]
    if rounds > 1:  # The first round reads the prompt, in no turn.
      self.drafted[int(policy.length)] |= set(drafted.flatten().tolist())
    return state

  def assert_drafts_as_asked(self, drafter, together):
    """A cascade's drafters were timed `together`, or each of them alone."""
    can = drafter.max_depth
    if isinstance(drafter, cascade.Cascade) and together:
      can = drafter.second.max_depth  # Nothing is found to copy.
    wanted = {n: {min(n, can)} for n in range(drafter.max_depth + 1)}
    self.assertEqual(self.drafted, wanted)

  def setUp(self):
    super().setUp()
    self.drafted: dict[int, set[int]] = collections.defaultdict(set)
    self.advance = decode.advance


if __name__ == "__main__":
  absltest.main()
