# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookahead: the tree of window and n-grams, and what it learns."""

from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing, types
from specjax.drafters import empty, lookahead
from tests import decoding, toys


def propose(drafter, state, tokens, lengths) -> types.Draft:
  """The draft after the first tokens of each row."""
  unused: Any = None
  context = types.Context(
    tokens=tokens,
    lengths=jnp.asarray(lengths),
    history=None,
    sampling=unused,
    noise=unused,
    draft_length=jnp.asarray(lengths),
    cache=unused,
    policy=unused,
    policy_state=None,
  )
  return drafter.propose(state, context)[0]


class TreeTest(parameterized.TestCase):
  def test_window_and_ngrams_are_branches(self):
    """The picture of the module, with one n-gram beside it."""
    drafter = lookahead.Lookahead(3, 4, 1, pool=4)
    state = lookahead.State(
      jnp.array([[[11, 12, 13], [21, 22, 23], [31, 32, 33]]]),
      jnp.array([[[5, 1, 1, 1], [7, 1, 2, 3], [5, 4, 5, 6], [-1] * 4]]),
    )
    draft = propose(drafter, state, jnp.array([[9, 5, 0]]), [2])
    self.assertEqual(drafter.max_depth, 5)
    texts = {}
    for slot, (token, parent) in enumerate(
      zip(draft.tokens[0].tolist(), draft.parents[0].tolist()), start=1
    ):
      texts[slot] = [*texts.get(parent, []), token]
    for path in (
      [11, 12, 13, 23, 33],
      [11, 12, 22, 32],
      [11, 21, 31],
      [4, 5, 6],
    ):
      self.assertIn(path, texts.values())

  def test_newest_ngrams_stay_and_none_comes_twice(self):
    pool = jnp.array([[-1, -1], [1, 2], [3, 4]])
    pool = lookahead._remember(pool, jnp.array([[1, 2]]))
    np.testing.assert_array_equal(pool, [[-1, -1], [3, 4], [1, 2]])
    pool = lookahead._remember(pool, jnp.array([[5, 6], [5, 6], [7, 8]]))
    np.testing.assert_array_equal(pool, [[1, 2], [5, 6], [7, 8]])

  @parameterized.parameters(
    ({"window": 0, "ngram": 3, "guesses": 1}, "window is 0"),
    ({"window": 2, "ngram": 1, "guesses": 1}, "ngram is 1"),
    ({"window": 2, "ngram": 2, "guesses": 1, "pool": 1}, "pool is 1"),
    ({"window": 2, "ngram": 2, "guesses": 9, "pool": 8}, "pool is 8: use 9"),
  )
  def test_refuses(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      lookahead.Lookahead(**options)


class DecodingTest(parameterized.TestCase):
  @pytest.mark.slow
  def test_contract(self):
    testing.check_drafter(
      lookahead.Lookahead(2, 3, 1, pool=8), learns_from_rejected=True
    )

  def test_text_is_plain_text(self):
    target = toys.tiny(0)
    sampling = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 0]))
    plain = decoding.run(target, empty.Empty(1), sampling=sampling, new=60)
    state = decoding.run(
      target, lookahead.Lookahead(3, 3, 2), sampling=sampling, new=60
    )
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    self.assertGreater(int(state.stats.accepted.sum()), 5)

  def test_a_cycle_is_learnt(self):
    """The target counts to 7 over and over, and the prompt shows nothing.

    A pass of Jacobi iteration gets at least one more token right, and a cycle
    that has been guessed once is in the pool.
    """
    state = decoding.run(
      toys.cycle(7), lookahead.Lookahead(3, 4, 1, pool=16), [[1]] * 3, new=60
    )
    expected = [(2 + i) % 7 for i in range(60)]
    self.assertEqual(decoding.answers(state), [expected] * 3)
    emitted = np.array(decoding.counters(state, 0)["emitted"])
    # Nothing at first; then the whole n-gram, or more, until the end.
    self.assertGreaterEqual(int(emitted[8:-1].min()), 4)


if __name__ == "__main__":
  absltest.main()
