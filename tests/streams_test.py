# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random streams: which key serves which decision, and that none serves two."""

import collections
from unittest import mock

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import step
from specjax.drafters import draft_model, ngram
from specjax.verifiers import coupled, rejection
from tests import decoding, reference, toys

TAGS = (streams.SAMPLE, streams.DRAFT, streams.ACCEPT, streams.RESIDUAL)


def make(rounds=(0, 0, 0), seed=0, indices=(0, 1, 2), silent=False):
  keys = decoding.keys(seed, indices)
  return streams.Streams(keys, jnp.asarray(rounds, jnp.int32), silent)


class KeysTest(parameterized.TestCase):
  def test_row_keys_are_the_documented_ones(self):
    keys = streams.row_keys(7, jnp.array([3, 4]), jnp.array([0, 2]))
    for row, (index, sample) in enumerate(((3, 0), (4, 2))):
      expected = reference.row_key(7, index, sample)
      np.testing.assert_array_equal(
        jax.random.key_data(keys)[row], jax.random.key_data(expected)
      )

  def test_sample_noise_is_the_documented_one(self):
    """Keyed by the absolute position alone; round and slot do not matter."""
    positions = jnp.array([[5, 6], [5, 6], [9, 5]])
    slots = jnp.array([[0, 1], [3, 4], [0, 0]])
    got = make((0, 4, 9)).gumbel(streams.SAMPLE, positions, slots, 11)
    for row in range(3):
      key = jax.random.fold_in(reference.row_key(0, row), 0)
      for column in range(2):
        at = jax.random.fold_in(key, positions[row, column])
        np.testing.assert_array_equal(
          got[row, column], jax.random.gumbel(at, (11,), jnp.float32)
        )

  @parameterized.parameters(*TAGS[1:])
  def test_other_streams_carry_round_position_and_slot(self, tag):
    where = jnp.array([[5, 5, 6, 6]] * 3)
    slots = jnp.array([[0, 1, 0, 1]] * 3)
    drawn = [
      np.asarray(make((r, r, r)).uniform(tag, where, slots)) for r in (0, 1)
    ]
    self.assertLen(np.unique(drawn), 2 * 3 * 4)
    self.assertTrue(np.all((np.array(drawn) >= 0) & (np.array(drawn) < 1)))

  def test_tags_are_streams_of_their_own(self):
    where, slots = jnp.full((3, 1), 5), jnp.zeros((3, 1), int)
    drawn = [np.asarray(make().uniform(tag, where, slots)) for tag in TAGS]
    self.assertLen(np.unique(drawn), 4 * 3)

  @pytest.mark.fault_case("B49")
  def test_place_in_the_batch_does_not_matter(self):
    """vllm-project/vllm#6038: neighbours change a seeded row."""
    where = jnp.array([[5, 6]] * 3)
    slots = jnp.zeros_like(where)
    together = make((1, 2, 3)).uniform(streams.ACCEPT, where, slots)
    moved = make((3, 1, 2), indices=(2, 0, 1)).uniform(
      streams.ACCEPT, where, slots
    )
    np.testing.assert_array_equal(moved, together[jnp.array([2, 0, 1])])
    alone = make((2,), indices=(1,)).uniform(
      streams.ACCEPT, where[:1], slots[:1]
    )
    np.testing.assert_array_equal(alone[0], together[1])

  def test_padded_vocabulary_starts_with_the_same_noise(self):
    where, slots = jnp.array([[5], [6], [7]]), jnp.zeros((3, 1), int)
    short = make().gumbel(streams.SAMPLE, where, slots, 60)
    padded = make().gumbel(streams.SAMPLE, where, slots, 72)
    np.testing.assert_array_equal(padded[..., :60], short)

  def test_silent_streams_cost_nothing(self):
    where, slots = jnp.array([[5], [6], [7]]), jnp.zeros((3, 1), int)
    silent = make(silent=True)
    text = str(jax.make_jaxpr(lambda s: s.gumbel(0, where, slots, 9))(silent))
    self.assertNotIn("random", text)
    self.assertTrue(np.all(silent.gumbel(0, where, slots, 9) == 0))
    self.assertTrue(np.all(silent.uniform(2, where, slots) == 0.5))

  def test_noise_of_drafts(self):
    """The target's own under the coupled rule, one of its own under others."""
    where, slots = jnp.array([[5], [6], [7]]), jnp.ones((3, 1), int)
    shared = coupled.Coupled().noise(make(), 9)
    own = rejection.Rejection().noise(make(), 9)
    for noise, tag in ((shared, streams.SAMPLE), (own, streams.DRAFT)):
      np.testing.assert_array_equal(
        noise(where, slots), make().gumbel(tag, where, slots, 9)
      )
    self.assertTrue(shared.shared)
    self.assertFalse(own.shared)


class Recorder:
  """Notes what every call of a stream draws, outside of jit."""

  def __init__(self):
    self.drawn = []  # (row, tag, round, position, slot) of every number

  def wrap(self, draw):
    def recorded(stream, tag, positions, slots, *rest):
      if isinstance(positions, jax.core.Tracer):
        # Only the shape of a result is asked for: nothing is drawn.
        return draw(stream, tag, positions, slots, *rest)
      slots = np.broadcast_to(slots, positions.shape)
      rounds = np.asarray(stream.round)
      for index in np.ndindex(*positions.shape):
        at = int(positions[index]), int(slots[index])
        self.drawn.append((index[0], tag, int(rounds[index[0]]), *at))
      return draw(stream, tag, positions, slots, *rest)

    return recorded


TARGET = toys.Table(jax.random.normal(jax.random.key(0), (16, 16)))


def record(drafter, verifier, rounds: int) -> tuple[list, types.DecodeState]:
  """What each round drew, and the state at the end; all rows sample."""
  # Compiled as always up to here; the rounds themselves run op by op.
  state, (_, policy, stop) = decoding.start(
    TARGET, drafter, sampling=decoding.settings([0.9] * 3), seed=1
  )
  sampling = sampling_lib.Sampling(temperature=jnp.full(3, 0.9))
  calls = []
  for _ in range(rounds):
    recorder = Recorder()
    with (
      jax.disable_jit(),
      mock.patch.object(
        streams.Streams, "gumbel", recorder.wrap(streams.Streams.gumbel)
      ),
      mock.patch.object(
        streams.Streams, "uniform", recorder.wrap(streams.Streams.uniform)
      ),
    ):
      state, _ = step.step(
        TARGET, drafter, verifier, state, sampling, policy, stop
      )
    calls.append(recorder.drawn)
  return calls, state


class RecorderTest(parameterized.TestCase):
  """Contract pitfalls 7 and 20, on the code that runs."""

  @parameterized.parameters("draft_model", "ngram")
  def test_no_number_serves_two_decisions(self, name):
    """Under rejection: drafts, accept tests and residuals, over rounds."""
    if name == "draft_model":
      drafter = draft_model.DraftModel(toys.Table(0.5 * TARGET.table), 3)
    else:
      drafter = ngram.NGram(3)
    calls, _ = record(drafter, rejection.Rejection(), 3)
    for drawn in calls:
      for row in range(3):
        tags = collections.Counter(at[1] for at in drawn if at[0] == row)
        self.assertEqual(tags[streams.SAMPLE], 0)
        self.assertEqual(tags[streams.RESIDUAL], 1)
        self.assertEqual(tags[streams.ACCEPT], 3)
        if name == "draft_model":
          self.assertEqual(tags[streams.DRAFT], 3)
    everything = [at for drawn in calls for at in drawn]
    repeated = [
      at for at, n in collections.Counter(everything).items() if n > 1
    ]
    self.assertEmpty(repeated)

  def test_coupled_draws_one_vector_a_depth(self):
    calls, state = record(ngram.NGram(3), coupled.Coupled(), 2)
    for drawn in calls:
      self.assertLen(drawn, 3 * 4)  # P = 4 vectors for each of 3 rows
      self.assertEqual({at[1] for at in drawn}, {streams.SAMPLE})
    positions = [{at[3] for at in drawn if at[0] == 0} for drawn in calls]
    first = len(decoding.PROMPTS[0])
    self.assertEqual(positions[0], set(range(first, first + 4)))
    self.assertEqual(min(positions[1]), first + int(state.stats.emitted[0, 0]))


if __name__ == "__main__":
  absltest.main()
