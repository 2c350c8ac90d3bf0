# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading prompts: chunks, ragged rows, further turns, what drafters see."""

from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import types
from specjax.decoding import decode, prefill, stopping
from specjax.drafters import draft_model, empty
from specjax.models import model as model_lib
from specjax.policies import policy as policy_lib
from specjax.trees import tree
from specjax.verifiers import coupled
from tests import decoding, toys

TARGET = toys.tiny(0)
PROMPTS = ((9, 4, 1, 7, 30), (3,), tuple(range(20, 33)))


class Witness(struct.PyTreeNode):
  """Proposes nothing and writes down every token and hidden it is told of."""

  dim: int = struct.field(pytree_node=False)
  num_nodes: int = struct.field(pytree_node=False, default=2)
  max_depth: int = struct.field(pytree_node=False, default=2)

  def init(self, batch: int, capacity: int):
    return (
      jnp.zeros((batch, capacity), jnp.int32),
      jnp.zeros((batch, capacity, self.dim)),
      jnp.zeros((batch,), jnp.int32),
    )

  def observe(self, state, block: types.Block, view):
    del view
    tokens, hidden, seen = state
    steps = jnp.arange(block.tokens.shape[1])
    kept = steps[None] < block.count[:, None]
    index = jnp.where(kept, seen[:, None] + steps[None], tokens.shape[1])
    write = jax.vmap(lambda x, i, new: x.at[i].set(new, mode="drop"))
    return (
      write(tokens, index, block.tokens),
      write(hidden, index, block.hidden),
      seen + block.count,
    )

  def propose(self, state, context: types.Context):
    """Right now and then: the newest token again."""
    tokens = jnp.tile(context.last_token[:, None], (1, 2))
    draft = tree.chain(tokens, jnp.full(tokens.shape[:1], 2))
    return draft, state, context.cache


def read(drafter, chunk, prompts=PROMPTS, capacity=48) -> types.DecodeState:
  tokens, counts = decoding.pad(prompts)
  return decode.start(
    TARGET,
    drafter,
    tokens,
    counts,
    decoding.keys(0, range(len(prompts))),
    sampling_lib.Sampling(),
    policy_lib.Fixed(0),
    stopping.make_stop((), [8] * len(prompts)),
    capacity=capacity,
    chunk=chunk,
  )


def forward(tokens) -> types.Output:
  batch, width = tokens.shape
  return jax.jit(model_lib.Model.__call__)(
    TARGET, jnp.asarray(tokens), TARGET.init_cache(batch, width, width)
  )


class ChunksTest(parameterized.TestCase):
  @parameterized.parameters(8, 13)
  def test_chunks_of_any_width(self, chunk):
    self.check_chunks(chunk)

  @parameterized.parameters(4, 16)
  @pytest.mark.slow
  def test_chunks_of_more_widths(self, chunk):
    self.check_chunks(chunk)

  def check_chunks(self, chunk):
    """Contract pitfall 6: each row advances by its own prompt less one.

    The drafter is told all tokens, each with the hidden that predicted it.
    """
    state = read(Witness(32), chunk)
    np.testing.assert_array_equal(state.lengths, [5, 1, 13])
    np.testing.assert_array_equal(state.cache.lengths, [4, 0, 12])
    fresh = forward(np.asarray(state.tokens[:, :13]))
    for kept, new in zip(
      jax.tree.leaves(state.cache.layers), jax.tree.leaves(fresh.cache.layers)
    ):
      for row, end in enumerate((4, 0, 12)):
        # Chunks of other widths may sum in another order.
        np.testing.assert_allclose(kept[row, :end], new[row, :end], atol=1e-5)
    tokens, hidden, seen = state.drafter
    np.testing.assert_array_equal(seen, [5, 1, 13])
    for row, prompt in enumerate(PROMPTS):
      n = len(prompt)
      self.assertEqual(tokens[row, :n].tolist(), list(prompt))
      np.testing.assert_array_equal(hidden[row, 0], 0)
      np.testing.assert_allclose(
        hidden[row, 1:n], fresh.hidden[row, : n - 1], atol=1e-5
      )

  def test_drafter_is_told_the_answer_as_well(self):
    drafter = Witness(32)
    state = read(drafter, 8)
    stop = stopping.make_stop((), [20] * 3)
    state = decoding.fetch(
      decode.advance(
        TARGET,
        drafter,
        coupled.Coupled(),
        state,
        sampling_lib.Sampling(),
        policy_lib.Fixed(2, widths=()),
        stop,
        48,
      )
    )
    tokens, hidden, seen = state.drafter
    np.testing.assert_array_equal(seen, state.lengths)
    np.testing.assert_array_equal(tokens, state.tokens)
    fresh = forward(state.tokens[:, :33])
    for row, end in enumerate(state.lengths):
      np.testing.assert_allclose(
        hidden[row, 1:end], fresh.hidden[row, : end - 1], atol=1e-4
      )

  def test_prompt_that_fills_its_chunks(self):
    """Lengths around a chunk's border."""
    for length in (8, 9, 10):
      prompts = [list(range(1, length + 1))] * 3
      state = read(empty.Empty(1), 8, prompts)
      np.testing.assert_array_equal(state.cache.lengths, [length - 1] * 3)


class ConversationTest(parameterized.TestCase):
  def test_next_turn_is_as_if_read_at_once(self):
    self.check_turn(draft_model.DraftModel(toys.noisy(TARGET), 2))

  @parameterized.parameters(empty.Empty(2), Witness(32))
  @pytest.mark.slow
  def test_next_turn_with_other_drafters(self, drafter):
    self.check_turn(drafter)

  def check_turn(self, drafter):
    sampling = sampling_lib.Sampling(
      temperature=jnp.array([0, 0.7, 1]), presence=jnp.array([0.5, 0, 1])
    )
    state, (_, policy, stop) = decoding.start(
      TARGET, drafter, PROMPTS, sampling=sampling, new=8
    )
    rule = coupled.Coupled()
    advance = lambda state, stop: decode.advance(
      TARGET, drafter, rule, state, sampling, policy, stop, 96
    )
    state = advance(state, stop)
    first = decoding.answers(decoding.fetch(state))
    turn = ((8, 8, 1), (40,), (6, 5, 4, 3))
    tokens, counts = decoding.pad(turn)
    stop = stopping.make_stop((), [9, 0, 12])
    state = decode.prefill(TARGET, drafter, state, tokens, counts, stop.limit)
    np.testing.assert_array_equal(state.cache.lengths, state.lengths - 1)
    np.testing.assert_array_equal(state.stats.rounds, 0)
    self.assertEqual(state.done.tolist(), [False, True, False])
    end: Any = decoding.fetch(advance(state, stop))
    whole = [
      [*prompt, *answer, *more]
      for prompt, answer, more in zip(PROMPTS, first, turn)
    ]
    fresh: Any = decoding.run(
      TARGET, drafter, whole, sampling=sampling, new=[9, 0, 12]
    )
    self.assertEqual(decoding.answers(end), decoding.answers(fresh))
    np.testing.assert_array_equal(end.history.counts, fresh.history.counts)
    np.testing.assert_array_equal(end.prompt_lengths, [16, 10, 25])


class StateTest(absltest.TestCase):
  def test_fresh_state_has_no_array_twice(self):
    """A donated array may not stand in a state twice."""
    state = read(empty.Empty(1), 8)
    leaves = jax.tree.leaves(state.replace(keys=None))
    self.assertLen({x.unsafe_buffer_pointer() for x in leaves}, len(leaves))

  def test_default_chunk(self):
    self.assertEqual(prefill.CHUNK, 64)


if __name__ == "__main__":
  absltest.main()
