# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a head has not read yet: nothing is lost, and nothing read twice."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.decoding import decode
from specjax.drafters import unread
from specjax.verifiers import coupled
from tests import decoding, head_drafters_test


class BlockTest(parameterized.TestCase):
  def test_rows_grow_on_their_own(self):
    waits = unread.init(2, 1, jnp.float32)
    block = jnp.arange(6).reshape(2, 3)
    for count in ([3, 1], [0, 2]):
      given = block.astype(jnp.float32)[..., None]
      waits = waits.add(block, given, jnp.asarray(count))
    np.testing.assert_array_equal(waits.count, [3, 3])
    np.testing.assert_array_equal(waits.tokens[:, :3], [[0, 1, 2], [3, 3, 4]])
    np.testing.assert_array_equal(waits.features[..., 0], waits.tokens)
    self.assertFalse(waits.is_full())

  def test_a_block_that_is_not_long_fits_until_it_is_full(self):
    waits = unread.init(1, 1, jnp.float32)
    widest = max(w for w in range(99) if not unread.is_long(jnp.zeros((1, w))))
    block = jnp.ones((1, widest), jnp.int32)
    added = 0
    while not waits.is_full():
      waits = waits.add(block, block[..., None], jnp.asarray([widest]))
      added += widest
    self.assertEqual(int(waits.tokens.sum()), added)


class ReadingTest(parameterized.TestCase):
  @parameterized.parameters(1, 5, 40)
  def test_rounds_without_a_draft_are_read_as_a_prompt_is(self, rounds):
    target, step = head_drafters_test.jumps()
    drafter = head_drafters_test.eagle3_of_features(target, step)
    greedy = sampling_lib.Sampling()

    def start(prompts):
      return decoding.start(
        target,
        drafter,
        prompts,
        sampling=greedy,
        policy=decoding.Scheduled.of([[0] * rounds]),
        new=60,
        capacity=160,
      )

    state, rest = start(decoding.PROMPTS)
    state = decode.advance(
      target, drafter, coupled.Coupled(), state, *rest, rounds
    )
    # A full one is read in between.
    waits = rounds if rounds <= unread.SLOTS // 2 else rounds - 33
    self.assertEqual(int(state.drafter.unread.count[0]), waits)
    texts = [
      row[:n].tolist()
      for row, n in zip(np.asarray(state.tokens), np.asarray(state.lengths))
    ]
    known, _ = start(texts)
    read, known = map(drafter._caught_up, (state.drafter, known.drafter))
    np.testing.assert_array_equal(read.cache.lengths, state.lengths - 1)
    # Passes of another width round in another order.
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
    close(read.feature, known.feature)
    for a, b in zip(*(jax.tree.leaves(x.cache.layers) for x in (read, known))):
      for row, n in enumerate(np.asarray(read.cache.lengths)):
        close(a[row, :n], b[row, :n])


if __name__ == "__main__":
  absltest.main()
