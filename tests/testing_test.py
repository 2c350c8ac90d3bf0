# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""`specjax.testing` passes what is right and finds what is wrong."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import pytest

from experiments.plugins import bigram, matching
from specjax import sampling, testing
from specjax import streams as streams_lib
from specjax.drafters import draft_model, rollout
from specjax.testing import cases, rules, table
from specjax.trees import tree
from specjax.verifiers import coupled, k_seq, rejection
from tests import toys

# Two tokens or more span two rounds of one draft.
SHORT = (((1,), 2),)


class RightRulesTest(parameterized.TestCase):
  def test_passes(self):
    rule = matching.Matching()
    found = testing.check_exact(rule, rounds=SHORT, trees=())
    self.assertLen(found, 10)
    self.assertLess(max(found.values()), 1e-12)

  def test_passes_on_trees(self):
    rule, trees = coupled.Coupled(), rules.TREES[:1]
    found = testing.check_exact(rule, rounds=(), trees=trees)
    self.assertLen(found, 4 * len(cases.KINDS))
    self.assertLess(max(found.values()), 1e-12)

  @pytest.mark.slow
  def test_kinds_that_a_rule_is_not_made_for_are_found(self):
    with self.assertRaisesRegex(
      AssertionError, "KSeq: total variation .* mixed siblings, parents .0, 0."
    ):
      testing.check_exact(
        k_seq.KSeq(),
        rounds=(),
        trees=rules.TREES[:1],
        kinds=("mixed",),
      )

  @parameterized.parameters(
    rejection.Rejection(), coupled.Coupled(), matching.Matching()
  )
  @pytest.mark.slow
  def test_passes_on_more_rounds_and_words(self, rule):
    """On trees too, where the rule takes them."""
    self.assertLess(max(testing.check_exact(rule, vocab=4).values()), 1e-12)

  def test_unknown_kinds_are_refused(self):
    with self.assertRaisesRegex(ValueError, "holds 'indep': use 'independent'"):
      testing.check_exact(rejection.Rejection(), kinds=("indep",))

  def test_a_rule_that_claims_nothing_is_refused(self):
    class Lossy(matching.Matching):
      lossless = False

    with self.assertRaisesRegex(ValueError, "claims nothing"):
      testing.check_exact(Lossy())


def drawn(log_p, uniforms):
  return sampling.inverse_cdf(jnp.exp(log_p), uniforms)


class Best(matching.Matching):
  """Takes the most likely token in place of a drawn one."""

  def verify(self, log_p, draft, uniforms):
    return super().verify(log_p, draft, uniforms * 0)


class Diagonal(matching.Matching):
  """Compares a sum of two numbers: its outcomes hold on no boxes."""

  def verify(self, log_p, draft, uniforms):
    mixed = (uniforms + jnp.roll(uniforms, 1, axis=1)) % 1
    return super().verify(log_p, draft, mixed)


class FromDraftStream(matching.Matching):
  def draw(self, streams, lengths, draft):
    slots = jnp.arange(draft.tokens.shape[1] + 1)[None]
    return streams.uniform(streams_lib.DRAFT, lengths[:, None] + slots, slots)


class FromSampleStream(matching.Matching):
  def draw(self, streams, lengths, draft):
    slots = jnp.arange(draft.tokens.shape[1] + 1)[None]
    return streams.uniform(streams_lib.SAMPLE, lengths[:, None] + slots, slots)


class SharedNoise(matching.Matching):
  def noise(self, streams, vocab):
    return streams_lib.Noise(streams, vocab, shared=True)


class Twice(matching.Matching):
  """Reads the first number again and does nothing with it."""

  def draw(self, streams, lengths, draft):
    streams.uniform(
      streams_lib.ACCEPT, lengths[:, None], jnp.zeros((1, 1), int)
    )
    return super().draw(streams, lengths, draft)


class NeverRejects(matching.Matching):
  def verify(self, log_p, draft, uniforms):
    kept = super().verify(log_p, draft, uniforms)
    return kept.replace(rejected=jnp.zeros_like(kept.rejected))


class BeyondCount(matching.Matching):
  """Keeps slots past the draft that hold the right token by chance."""

  def verify(self, log_p, draft, uniforms):
    nodes = draft.tokens.shape[1]
    whole = draft.replace(count=jnp.full_like(draft.count, nodes))
    return super().verify(log_p, whole, uniforms)


class ShortestRow(matching.Matching):
  """Keeps no more than the row that keeps least."""

  def verify(self, log_p, draft, uniforms):
    kept = super().verify(log_p, draft, uniforms).accepted
    leaf = jnp.full_like(kept, jnp.min(kept))
    tokens = drawn(log_p, uniforms)
    token = jnp.take_along_axis(tokens, leaf[:, None], axis=1)[:, 0]
    return tree.accept(draft, leaf, token)


class WrongRulesTest(parameterized.TestCase):
  @parameterized.parameters(
    (Best, "total variation .* honest draft, draft lengths .1,., 2 tokens"),
    (FromDraftStream, "reads the DRAFT stream"),
    (BeyondCount, "more than was drafted"),
    (ShortestRow, "a row alone"),
  )
  def test_is_found(self, rule, pattern):
    self.check(rule, pattern)

  @parameterized.parameters(
    (Diagonal, "do not hold on boxes of the uniforms"),
    (FromSampleStream, "reads the SAMPLE stream"),
    (SharedNoise, "the target's own, but it tests with uniforms"),
    (Twice, "one number of a stream twice"),
    (NeverRejects, "Acceptance.rejected"),
  )
  @pytest.mark.slow
  def test_others_are_found(self, rule, pattern):
    self.check(rule, pattern)

  def check(self, rule, pattern):
    with self.assertRaisesRegex(
      AssertionError, f"{rule.__name__}: .*{pattern}"
    ):
      testing.check_exact(rule(), rounds=SHORT)


TABLE = table.random()
DRAFT = table.Table(0.7 * TABLE.table + 0.3 * table.random(seed=4).table)


class RightDraftersTest(parameterized.TestCase):
  @pytest.mark.slow
  def test_with_laws(self):
    found = testing.check_drafter(draft_model.DraftModel(DRAFT, 3))
    self.assertGreater(found["plain"], 0.1)
    self.assertLess(found["honesty"], 5.5)
    self.assertGreater(found["streams"], 30)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Copies:
  """The last token again; mutants change one thing of it."""

  num_nodes: int = 3
  max_depth: int = 3

  def init(self, batch, capacity) -> Any:
    del capacity
    return jnp.zeros((batch,), jnp.int32)

  def observe(self, state, block, view) -> Any:
    del block, view
    return state

  def tokens(self, context, state):
    del state
    return jnp.repeat(context.last_token[:, None], self.num_nodes, axis=1)

  def propose(self, state, context) -> Any:
    tokens = self.tokens(context, state)
    return self.chain(tokens), state, context.cache

  def chain(self, tokens):
    return tree.chain(tokens, jnp.full(len(tokens), self.num_nodes))


class CountsTooMany(Copies):
  def chain(self, tokens):
    draft = super().chain(tokens)
    return draft.replace(count=draft.count + 1)


class OutOfRange(Copies):
  def tokens(self, context, state):
    return super().tokens(context, state) + 1


class WrongParents(Copies):
  def chain(self, tokens):
    draft = super().chain(tokens)
    return draft.replace(parents=draft.parents * 0)


class WrongDepth(Copies):
  def chain(self, tokens):
    return super().chain(tokens).replace(max_depth=2)


class FloatTokens(Copies):
  def chain(self, tokens):
    return super().chain(tokens.astype(jnp.float32))


class Squeezes(Copies):
  """Loses the axis of the rows where there is one row."""

  def chain(self, tokens):
    draft = super().chain(tokens)
    return draft.replace(count=jnp.squeeze(draft.count))


class NoLaw(Copies):
  def chain(self, tokens):
    log_q = jnp.zeros((*tokens.shape, 12))
    return super().chain(tokens).replace(log_q=log_q)


class GrowingState(Copies):
  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    return draft, jnp.append(state, 0), cache


class Commits(Copies):
  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    return draft, state, cache.commit(None, jnp.ones_like(state))


class Overwrites(Copies):
  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    return draft, state, jax.tree.map(lambda x: x + (x.ndim == 4), cache)


class ReadsAccept(Copies):
  def tokens(self, context, state):
    at = context.lengths[:, None] + jnp.arange(3)[None]
    streams = context.noise.streams
    coin = streams.uniform(streams_lib.ACCEPT, at, jnp.zeros_like(at))
    return jnp.where(coin < 0.5, super().tokens(context, state), 0)


class OneNoiseForAll(Copies):
  def tokens(self, context, state):
    at = jnp.repeat(context.lengths[:, None], 3, axis=1)
    return jnp.argmax(context.noise(at, jnp.zeros_like(at)), axis=-1)


class NeighbourTokens(Copies):
  def tokens(self, context, state):
    return jnp.broadcast_to(super().tokens(context, state)[:1], (len(state), 3))


class CountsRounds(Copies):
  """Drafts what was rejected again, as one that learns from drafts would."""

  def observe(self, state, block, view):
    return state + (0 if view is None else block.count > 0)

  def tokens(self, context, state):
    return (super().tokens(context, state) + state[:, None]) % 12


class CountsIdleRounds(CountsRounds):
  """Takes a block of no tokens for a round of its row."""

  def observe(self, state, block, view):
    return state + (view is not None)


class KnowsJit(Copies):
  def tokens(self, context, state):
    traced = isinstance(context.lengths, jax.core.Tracer)
    return super().tokens(context, state) * traced


@jax.tree_util.register_static
class ByIdentity(Copies):
  __hash__ = object.__hash__

  def __eq__(self, other):
    return self is other


class Greedy(struct.PyTreeNode):
  """Takes the best token of its law, and reports the law."""

  model: table.Table
  num_nodes = max_depth = 3

  def init(self, batch, capacity):
    del batch, capacity

  def observe(self, state, block, view):
    del block, view
    return state

  def propose(self, state, context):
    silent = context.noise.streams.replace(silent=True)
    noise = context.noise.replace(streams=silent)
    context = context.replace(noise=noise)
    limit = jnp.full_like(context.lengths, 3)
    follow = lambda state, token: (self.model.table[token], state)
    draft, _ = rollout.chain(
      follow, (), self.model.table[context.last_token], limit, context, 3
    )
    return draft, state, context.cache


class OnlyCoupledHarm(Copies):
  """Spoils the target's cache where only the text shows it."""

  def propose(self, state, context):
    draft, state, cache = super().propose(state, context)
    if context.noise.shared:
      cache = jax.tree.map(lambda x: x * (1 if x.ndim < 4 else -1), cache)
    return draft, state, cache


for kind in (*Copies.__subclasses__(), CountsIdleRounds):
  if kind is not ByIdentity:
    jax.tree_util.register_static(kind)


class WrongDraftersTest(parameterized.TestCase):
  @parameterized.parameters(
    (CountsTooMany, "shapes: Draft.count is"),
    (OutOfRange, "shapes: a token is none of the 12"),
    (WrongParents, "shapes: Draft.parents are no slots"),
    (WrongDepth, "shapes: Draft.max_depth is 2, the drafter's 3"),
    (FloatTokens, "shapes: Draft.tokens is float32"),
    (Squeezes, r"shapes: Draft.count is int32 \(\), not integers \(1,\)"),
    (NoLaw, "shapes: Draft.log_q is no law"),
    (GrowingState, "shapes: propose returns a state of other shapes"),
    (Commits, "cache: propose changed the lengths"),
    (Overwrites, "cache: propose wrote over committed slots"),
    (ReadsAccept, "streams: it reads another stream"),
    (OneNoiseForAll, "streams: it reads the noise of one place twice"),
    (NeighbourTokens, "rows: in round 0 row 2 drafts"),
    (CountsRounds, "rounds: row 0 drafts"),
  )
  def test_is_found(self, drafter, pattern):
    self.check(drafter, pattern)

  @parameterized.parameters(
    (KnowsJit, "eager: it drafts"),
    (ByIdentity, "traces: an equal drafter compiles another program"),
  )
  @pytest.mark.slow
  def test_is_found_at_last(self, drafter, pattern):
    self.check(drafter, pattern)

  def check(self, drafter, pattern):
    name = drafter.__name__
    with self.assertRaisesRegex(AssertionError, f"{name}: {pattern}"):
      testing.check_drafter(drafter())

  def test_the_right_one_passes(self):
    testing.check_drafter(Copies())

  @pytest.mark.slow
  def test_what_the_text_shows(self):
    with self.assertRaisesRegex(AssertionError, "plain: row 0 is"):
      testing.check_drafter(OnlyCoupledHarm(), toys.tiny())

  def test_what_is_learnt_from_rejected_drafts_may_be_kept(self):
    testing.check_drafter(CountsRounds(), learns_from_rejected=True)

  @pytest.mark.slow
  def test_a_row_that_is_done_must_keep_its_state(self):
    with self.assertRaisesRegex(
      AssertionError, "CountsIdleRounds: idle: row 0, which is done, drafts"
    ):
      testing.check_drafter(CountsIdleRounds(), learns_from_rejected=True)

  @pytest.mark.fault_case("B03")
  def test_argmax_with_the_law_of_sampling(self):
    """huggingface/transformers#32867: found at the drafter itself."""
    with self.assertRaisesRegex(AssertionError, "honesty: .* off what log_q"):
      testing.check_drafter(Greedy(TABLE))


class ExamplesTest(absltest.TestCase):
  @pytest.mark.slow
  def test_bigram(self):
    found = testing.check_drafter(bigram.Bigram(12, 3))
    self.assertGreater(found["plain"], 0)
    self.assertGreater(found["shapes"], 10)
    self.assertEqual(found["streams"], 0)
    self.assertIsNone(found["honesty"])


if __name__ == "__main__":
  absltest.main()
