# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trees through the loop, with a toy drafter of any shape and count by row.

It stands for drafters that are not written yet: the contracts must carry them.
Axis letters: B batch, T nodes, D model width, V vocabulary.
"""

import dataclasses

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import types
from specjax.decoding import decode
from specjax.drafters import empty
from specjax.models import model as model_lib
from specjax.policies import policy as policy_lib
from specjax.verifiers import rejection
from tests import decoding, toys

TARGET = toys.tiny(0)
NEW = 40
# 12 nodes, four siblings at the root; even rows of a batch are wide, odd deep.
WIDE = (0, 0, 0, 0, 1, 1, 2, 2, 3, 5, 5, 6)
DEEP = (0, 0, 0, 0, 1, 1, 2, 4, 5, 5, 7, 7)
DEPTHS = {WIDE: (4, 9, 12), DEEP: (4, 8, 12)}  # nodes down to each depth


class Star(struct.PyTreeNode):
  """Grows a tree from the hidden state that predicted the newest token.

  A node's children are the best tokens after its own under a table of scores,
  plus the shared noise of their position. The scores of the root also look at
  the hidden state, which `observe` keeps. Rows differ in shape and in count.
  """

  scores: jax.Array  # [V, V] after each token
  readout: jax.Array  # [D, V]
  always: jax.Array  # a token proposed first everywhere, -1 for none
  num_nodes: int = struct.field(pytree_node=False, default=12)
  max_depth: int = struct.field(pytree_node=False, default=3)

  def init(self, batch: int, capacity: int) -> jax.Array:
    del capacity
    return jnp.zeros((batch, self.readout.shape[0]))

  def observe(self, state, block: types.Block, view) -> jax.Array:
    del view
    last = jnp.maximum(block.count - 1, 0)[:, None, None]
    newest = jnp.take_along_axis(block.hidden, last, axis=1)[:, 0]
    return jnp.where((block.count > 0)[:, None], newest, state)

  def propose(self, state, context: types.Context):
    batch = context.lengths.shape[0]
    even = (jnp.arange(batch) % 2 == 0)[:, None]
    parents = jnp.where(even, jnp.array(WIDE), jnp.array(DEEP))
    nodes = jnp.zeros((batch, 13), jnp.int32)

    def grow(node, known):
      tokens, depth = known
      parent = parents[:, node]
      earlier = jnp.arange(12)[None] < node
      rank = jnp.sum(earlier & (parents == parent[:, None]), axis=1)
      at = jnp.arange(batch), parent
      below = self.scores[tokens[at]]
      below = below + jnp.where((parent == 0)[:, None], state @ self.readout, 0)
      below = below + context.noise(context.lengths + depth[at], parent)
      best = jnp.argsort(-below, axis=-1)
      token = jnp.take_along_axis(best, rank[:, None], axis=1)[:, 0]
      token = jnp.where((self.always >= 0) & (rank == 0), self.always, token)
      tokens = tokens.at[:, node + 1].set(token)
      return tokens, depth.at[:, node + 1].set(depth[at] + 1)

    known = nodes.at[:, 0].set(context.last_token), nodes
    tokens, _ = jax.lax.fori_loop(0, 12, grow, known)
    # Fewer nodes in some rounds and rows; breadth first, so a prefix.
    count = 12 - (context.lengths + jnp.arange(batch)) % 4
    draft = types.Draft(tokens[:, 1:], parents, None, count, self.max_depth)
    return draft, state, context.cache


def star(seed: int = 0, always: int = -1) -> Star:
  """Its scores are the target's for a text of one token, so often right."""
  tokens = jnp.arange(toys.TINY_VOCAB)[:, None]
  cache = TARGET.init_cache(toys.TINY_VOCAB, 1, 1)
  logits = jax.jit(lambda: TARGET(tokens, cache).logits[:, 0])()
  key = jax.random.key(seed)
  readout = 0.05 * jax.random.normal(key, (32, toys.TINY_VOCAB))
  return Star(logits, readout, jnp.int32(always))


DRAFTER = star()
SAMPLING = sampling_lib.Sampling(
  temperature=jnp.array([0, 0.7, 1]), repetition=jnp.array([1.3, 1, 1.5])
)
# The longest prompt, its answer, a block: not one slot more.
CAPACITY = 13 + NEW + 13


def run(drafter, target=TARGET, **options) -> types.DecodeState:
  return decoding.run(
    target, drafter, sampling=SAMPLING, new=NEW, capacity=CAPACITY, **options
  )


def plain(target=TARGET) -> types.DecodeState:
  return run(empty.Empty(1), target)


class ShapesTest(absltest.TestCase):
  def test_the_toy_trees_are_what_they_say(self):
    for parents, ends in DEPTHS.items():
      depth = [0]
      for parent in parents:
        depth.append(depth[parent] + 1)
      self.assertEqual(depth, sorted(depth))
      self.assertEqual(tuple(np.cumsum(np.bincount(depth)[1:])), ends)


class TreeDecodingTest(parameterized.TestCase):
  def test_text_is_plain_text_at_exact_capacity(self):
    """Contract pitfall 3: without room for the block nodes lose their keys.

    Pitfall 2 as well: each node has its own history for the penalties.
    """
    state = run(DRAFTER)
    self.assertEqual(decoding.answers(state), decoding.answers(plain()))
    self.assertContainsSubset({"none", "some", "all"}, self.depths(state))
    self.assertTrue(decoding.rows_differ(state))
    np.testing.assert_allclose(state.log_probs, plain().log_probs, atol=1e-4)

  def depths(self, state) -> set[str]:
    seen = set()
    for row in range(3):
      stats = decoding.counters(state, row)
      for accepted, drafted in zip(stats["accepted"], stats["drafted"]):
        if drafted:
          some = "some" if accepted else "none"
          seen.add("all" if accepted == drafted else some)
    return seen

  def test_one_slot_less_is_refused(self):
    with self.assertRaisesRegex(ValueError, f"use at least {CAPACITY}"):
      decoding.run(TARGET, DRAFTER, new=NEW, capacity=CAPACITY - 1)

  def test_chain_rules_refuse_trees(self):
    tokens, counts = decoding.pad(decoding.PROMPTS)
    with self.assertRaisesRegex(ValueError, "Rejection takes chains only"):
      decode.decode(
        TARGET,
        DRAFTER,
        rejection.Rejection(),
        tokens,
        counts,
        decoding.keys(0, range(3)),
        SAMPLING,
        policy_lib.Fixed(3),
        decode.types.Stop(
          jnp.array([-1]), jnp.full(3, NEW), jnp.zeros((0, 0), jnp.int32)
        ),
        capacity=CAPACITY,
      )

  @parameterized.parameters(0, 1, 2)
  def test_cut_to_a_depth(self, depth):
    """Contract pitfall 18: a draft length is a depth, not a node count."""
    state = run(DRAFTER, length=depth)
    self.assertEqual(decoding.answers(state), decoding.answers(plain()))
    for row in range(3):
      stats = decoding.counters(state, row)
      left = NEW - np.cumsum([0, *stats["emitted"]])[:-1]
      wanted = np.minimum(depth, left - 1).tolist()
      self.assertEqual(stats["drafted"], wanted)
      self.assertLessEqual(max(stats["accepted"]), depth)
    if depth:
      self.assertGreater(int(state.stats.accepted.sum()), 0)

  def test_rounds_of_several_widths(self):
    """A tree of depth 1 has 4 nodes, of depth 2 nine: programs of their own."""
    table = [[0, 0, 0], [1, 0, 1], [3, 1, 2], [1, 1, 1], [2, 2, 0]]
    wide = run(DRAFTER, policy=decoding.Scheduled.of(table))
    narrow = run(DRAFTER, policy=decoding.Scheduled.of(table, widths=(0, 4)))
    self.assertEqual(decoding.answers(narrow), decoding.answers(plain()))
    for name in ("emitted", "drafted", "accepted", "rejected"):
      np.testing.assert_array_equal(
        getattr(narrow.stats, name), getattr(wide.stats, name)
      )
    self.assertGreater(int(narrow.stats.accepted.sum()), 0)

  def test_cache_after_commits_is_that_of_a_fresh_forward(self):
    state = run(DRAFTER)
    length = int(state.lengths.max())
    fresh = jax.jit(model_lib.Model.__call__)(
      TARGET,
      jnp.asarray(state.tokens[:, :length]),
      TARGET.init_cache(3, length, length),
    ).cache
    np.testing.assert_array_equal(state.cache.lengths, state.lengths - 1)
    for kept, new in zip(
      jax.tree.leaves(state.cache.layers), jax.tree.leaves(fresh.layers)
    ):
      for row, end in enumerate(state.cache.lengths):
        # Blocks of other widths may sum in another order.
        np.testing.assert_allclose(kept[row, :end], new[row, :end], atol=1e-5)

  def test_rows_alone(self):
    """Row 0's tree is the same alone; others take the shape of an even row."""
    batch = run(DRAFTER)
    for row in range(3):
      alone = decoding.run(
        TARGET,
        DRAFTER,
        decoding.PROMPTS[row : row + 1] * 3,
        sampling=jax.tree.map(lambda x, row=row: x[jnp.full(3, row)], SAMPLING),
        indices=[row] * 3,
        new=NEW,
        capacity=CAPACITY,
      )
      self.assertEqual(
        decoding.answers(alone), [decoding.answers(batch)[row]] * 3
      )

  @pytest.mark.fault_case("B19")
  def test_end_inside_a_path(self):
    """huggingface/transformers#47912: an end inside a block is passed over."""
    whole = decoding.answers(plain())
    for end in sorted({row[i] for row in whole for i in (3, 9, 14)}):
      state = run(DRAFTER, eos=[end])
      expected = [
        row[: row.index(end) + 1] if end in row else row for row in whole
      ]
      self.assertEqual(decoding.answers(state), expected)
      np.testing.assert_array_equal(state.cache.lengths, state.lengths - 1)

  def test_keys_of_a_bad_token_spoil_nobody(self):
    """Contract pitfall 15: a NaN embedding, proposed, never emitted."""
    answers = decoding.answers(plain())
    used = {token for row in answers for token in row}
    used |= {token for prompt in decoding.PROMPTS for token in prompt}
    bad = min(set(range(toys.TINY_VOCAB)) - used)
    params = {**TARGET.params}
    table = params["embed"]["embedding"].at[bad].set(jnp.nan)
    params["embed"] = {"embedding": table}
    target = dataclasses.replace(TARGET, params=params)
    state = run(dataclasses.replace(DRAFTER, always=jnp.int32(bad)), target)
    self.assertEqual(decoding.answers(state), answers)
    self.assertTrue(np.all(np.isfinite(state.log_probs)))


if __name__ == "__main__":
  absltest.main()
