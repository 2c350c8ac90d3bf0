# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Laws, histories, residuals: the one sampler, against plain numpy."""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax.sampling import automata, constraints, token_lists
from specjax.trees import tree
from tests import decoding, reference

Sampling = sampling_lib.Sampling
VOCAB = 37
MACHINE = constraints.Automaton(jnp.ones(9, int), jnp.array([[0, 0], [0, 1]]))
OTHER = constraints.Automaton(jnp.ones(8, int), jnp.array([[0, 0], [0, 1]]))

_log_probs = jax.jit(sampling_lib.log_probs)


def law(logits, **settings) -> np.ndarray:
  """Probabilities of one row of logits."""
  sampling = sampling_lib.per_row(Sampling(**settings), 1)
  logits = jnp.asarray(logits, jnp.float32)[None]
  return np.exp(_log_probs(logits, sampling)[0])


class LawTest(parameterized.TestCase):
  @parameterized.parameters(
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 2.0, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.7, "min_p": 0.05},
    {"temperature": 1.0, "top_k": VOCAB + 5, "top_p": 0.999},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_p": 1e-6},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 0.0, "top_k": 3},
  )
  def test_equals_the_reference(self, **settings):
    rng = np.random.default_rng(0)
    for _ in range(20):
      logits = 3 * rng.standard_normal(VOCAB).astype(np.float32)
      expected = np.exp(reference.log_probs(logits, **settings))
      got = law(logits, **settings)
      np.testing.assert_array_equal(got > 0, expected > 0)
      # float32 against float64, after a division and a sum of 37 terms.
      np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)

  def test_order_of_the_transforms(self):
    """Temperature, which decides how much top-p keeps; top-k; top-p."""
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    self.assertEqual((law(logits, temperature=1, top_p=0.65) > 0).sum(), 2)
    self.assertEqual((law(logits, temperature=5, top_p=0.65) > 0).sum(), 3)
    # 0.4 of 0.7 is above 0.55 once top-k has gone first.
    got = law(logits, temperature=1, top_k=2, top_p=0.55)
    np.testing.assert_allclose(got, [1, 0, 0, 0], atol=1e-7)

  @parameterized.parameters(1, 2, 3)
  @pytest.mark.fault_case("B14")
  def test_all_ties_at_a_threshold_are_kept(self, k):
    """vllm-project/tpu-inference#1386; our rule keeps 3 of [1, 1, 1, 0]."""
    np.testing.assert_allclose(
      law([1.0, 1, 1, 0], temperature=1.0, top_k=k),
      [1 / 3] * 3 + [0],
      rtol=1e-6,
    )
    np.testing.assert_allclose(
      law([1.0, 1, 1, 0], temperature=1.0, top_p=0.2),
      [1 / 3] * 3 + [0],
      rtol=1e-6,
    )

  def test_rows_have_their_own_settings(self):
    sampling = decoding.settings(
      [0, 0.8, 1], [0, 4, 0], [1, 0.9, 1], [0, 0, 0.3]
    )
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((3, 2, VOCAB)).astype(np.float32)
    got = np.exp(_log_probs(jnp.asarray(logits), sampling))
    rows = (
      {"temperature": 0},
      {"temperature": 0.8, "top_k": 4, "top_p": 0.9},
      {"min_p": 0.3},
    )
    for row, settings in enumerate(rows):
      for slot in range(2):
        expected = np.exp(reference.log_probs(logits[row, slot], **settings))
        np.testing.assert_allclose(got[row, slot], expected, atol=1e-6)

  @pytest.mark.fault_case("B11")
  def test_temperatures_near_zero(self):
    """vllm-project/vllm#27077: 0 and values near it divide by zero."""
    logits = np.array([1.0, 3.0, 2.5, -1e4], np.float32)
    for temperature in (0.0, 1e-30, 1e-6, 1e-3):
      got = law(logits, temperature=temperature)
      np.testing.assert_allclose(got, [0, 1, 0, 0], atol=1e-7)
    mixed = sampling_lib.per_row(Sampling(temperature=[0, 1e-6, 1e-3, 1]), 4)
    got = np.exp(
      sampling_lib.log_probs(jnp.tile(jnp.asarray(logits), (4, 1)), mixed)
    )
    self.assertTrue(np.all(np.isfinite(got)))
    np.testing.assert_allclose(got[:3], [[0, 1, 0, 0]] * 3, atol=1e-7)
    np.testing.assert_allclose(got[3], law(logits, temperature=1), atol=1e-7)

  def test_greedy_takes_the_lowest_of_equals(self):
    np.testing.assert_array_equal(law([1.0, 2, 2, 0]), [0, 1, 0, 0])

  def test_padding_of_the_vocabulary_changes_nothing(self):
    logits = np.random.default_rng(2).standard_normal(10)
    padded = np.append(logits, [-np.inf] * 6)
    settings = {"temperature": 0.9, "top_k": 6, "top_p": 0.8, "min_p": 0.01}
    got = law(padded, **settings)
    np.testing.assert_allclose(got[:10], law(logits, **settings), rtol=1e-6)
    np.testing.assert_array_equal(got[10:], 0)

  @pytest.mark.fault_case("B27")
  def test_every_slot_of_a_block_is_filtered(self):
    """vllm-project/vllm#42744: filters reach the last slot only."""
    logits = jnp.log(jnp.array([[[0.5, 0.3, 0.15, 0.05]]])) * jnp.ones(
      (1, 5, 1)
    )
    sampling = Sampling(temperature=jnp.ones(1), min_p=jnp.array([0.4]))
    got = np.exp(_log_probs(logits, sampling)[0])
    np.testing.assert_allclose(got, [[0.625, 0.375, 0, 0]] * 5, rtol=1e-6)


class SettingsTest(parameterized.TestCase):
  def test_unused_settings_are_none(self):
    sampling = sampling_lib.per_row(
      Sampling(temperature=[0, 0.5], top_k=0, top_p=1.0, repetition=1), 2
    )
    self.assertIsNone(sampling.top_k)
    self.assertIsNone(sampling.top_p)
    self.assertIsNone(sampling_lib.init_history(sampling, 2, 4))
    self.assertFalse(sampling.is_greedy)
    np.testing.assert_array_equal(sampling.temperature, [0, 0.5])
    self.assertTrue(sampling_lib.per_row(Sampling(temperature=0), 3).is_greedy)

  @parameterized.parameters(
    ({"temperature": -1}, "sampling.temperature is -1"),
    ({"temperature": float("nan")}, "sampling.temperature is nan"),
    ({"temperature": [0.5, float("inf")]}, "sampling.temperature is inf"),
    ({"top_k": -2}, "sampling.top_k is -2"),
    ({"top_p": 0}, "sampling.top_p is 0"),
    ({"top_p": 1.5}, "sampling.top_p is 1.5"),
    ({"min_p": 2}, "sampling.min_p is 2"),
    ({"repetition": 0}, "sampling.repetition is 0"),
    ({"presence": float("inf")}, "sampling.presence is inf"),
    ({"temperature": [1, 1, 1]}, "one for each of 2 rows"),
    ({"min_tokens": -1}, "sampling.min_tokens is -1: it must be 0"),
    ({"bias": {9: 1.0}}, "has token 9: the model's ids are 0 to 8"),
    ({"bias": {1: float("inf")}}, "bias of token 1 is inf"),
    ({"bias": [{}, {}, {}]}, "sampling.bias has 3 entries for 2 rows"),
    ({"allowed": [-1, 2]}, "has token -1: the model's ids are 0 to 8"),
    ({"bad_words": [[]]}, "bad_words has an empty one"),
    ({"bad_words": [[1, 12]]}, "bad_words has token 12"),
    ({"constraint": [None, None, MACHINE]}, "constraint has 3 for 2 rows"),
    ({"constraint": [None, "yes"]}, "rows that are no Automaton"),
    ({"constraint": [MACHINE, OTHER]}, "rows of several vocabularies"),
  )
  def test_refuses(self, settings, message):
    with self.assertRaisesRegex(ValueError, message):
      sampling_lib.per_row(Sampling(**settings), 2, vocab=9)

  def test_one_for_all_rows_or_one_a_row(self):
    bias = {2: 1.0, 5: -np.inf}
    one = Sampling(bias=bias, allowed=[2, 3], bad_words=[[1], [2, 3, 4]])
    each = Sampling(
      bias=[bias, None],
      allowed=[[2, 3], []],
      bad_words=[[[1], [2, 3, 4]], []],
    )
    both = [sampling_lib.per_row(asked, 2, vocab=9) for asked in (one, each)]
    dense = [np.asarray(asked.bias.dense(9)) for asked in both]
    words = [np.asarray(asked.bad_words) for asked in both]
    expected = np.where(np.isin(np.arange(9), [2, 3]), 0.0, -np.inf)
    expected[2] = 1
    np.testing.assert_array_equal(dense[0], [expected, expected])
    np.testing.assert_array_equal(dense[1], [expected, [0] * 9])
    np.testing.assert_array_equal(words[0][0], words[0][1])
    np.testing.assert_array_equal(words[0][0], words[1][0])
    np.testing.assert_array_equal(words[1][1], token_lists.NO_ID)

  def test_arrays_may_be_given_again(self):
    asked = Sampling(
      temperature=[0, 1],
      bias={1: 2.0},
      bad_words=[[1, 2]],
      min_tokens=3,
      constraint=[MACHINE, None],
    )
    once = sampling_lib.per_row(asked, 2, vocab=9, eos=(0, 7))
    again = sampling_lib.per_row(once, 2, vocab=9, eos=(0, 7))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    taken = once.take(np.array([1, 1, 0]))
    np.testing.assert_array_equal(taken.temperature, [1, 1, 0])
    np.testing.assert_array_equal(taken.constraint.first, [1, 1, 2])
    self.assertIs(taken.constraint.constraint, once.constraint.constraint)


class HistoryTest(parameterized.TestCase):
  def test_penalties_follow_their_formulas(self):
    logits = jnp.array([[2.0, 1.0, -1.0, -2.0]])
    history = sampling_lib.History(jnp.array([[3, 0, 1, 0]]))
    sampling = sampling_lib.per_row(
      Sampling(temperature=1, repetition=2, presence=0.5, frequency=0.25), 1
    )
    got = np.exp(_log_probs(logits, sampling, history)[0])
    # 2 / 2 - 0.5 - 0.75, 1, -1 * 2 - 0.5 - 0.25, -2
    expected = np.exp([-0.25, 1, -2.75, -2])
    np.testing.assert_allclose(got, expected / expected.sum(), rtol=1e-6)

  def test_needs_a_history(self):
    sampling = sampling_lib.per_row(Sampling(presence=1), 1)
    with self.assertRaisesRegex(ValueError, "need a History with counts"):
      sampling_lib.log_probs(jnp.zeros((1, 4)), sampling)

  def test_counts_of_a_prompt(self):
    tokens = jnp.array([[1, 1, 3, 9], [2, 0, 0, 0]])
    history = sampling_lib.History(jnp.zeros((2, 4), jnp.int32))
    history = history.read_prompt(
      tokens, jnp.arange(4)[None] < jnp.array([[3], [1]])
    )
    np.testing.assert_array_equal(history.counts, [[0, 2, 0, 1], [0, 0, 1, 0]])
    history = history.extend(
      jnp.array([[3, 0], [3, 3]]), jnp.array([[True, False], [True, True]])
    )
    np.testing.assert_array_equal(history.counts, [[0, 2, 0, 2], [0, 0, 1, 2]])

  def test_each_slot_sees_its_own_ancestors(self):
    """Contract pitfall 2: and the root, counted already, only once."""
    draft = tree.types.Draft(
      jnp.array([[2, 1, 2, 3]]),
      jnp.array([[0, 0, 1, 2]]),
      None,
      jnp.array([4]),
      max_depth=2,
    )
    _, ancestors = tree.layout(draft)
    history = sampling_lib.History(jnp.array([[1, 0, 0, 5]]))
    block = jnp.array([[0, 2, 1, 2, 3]])
    got: Any = history.on_tree(block, ancestors).counts
    np.testing.assert_array_equal(
      got[0],
      [[1, 0, 0, 5], [1, 0, 1, 5], [1, 1, 0, 5], [1, 0, 2, 5], [1, 1, 0, 6]],
    )

  def test_reading_again_forgets_what_was_cut(self):
    """A stop string takes tokens back: all parts follow."""
    machine = automata.choices(("abab",), decoding.Letters("eab", (0,)))
    asked = Sampling(
      presence=1, bad_words=[[1, 2, 1]], min_tokens=2, constraint=machine
    )
    sampling = sampling_lib.per_row(asked, 2, vocab=3, eos=(0,))
    blank: Any = sampling_lib.init_history(sampling, 2, 3)
    tokens = jnp.array([[2, 2, 1, 2, 1, 2], [1, 1, 2, 1, 0, 0]])

    def read(prompt, length):
      at = jnp.arange(6)[None]
      is_prompt = at < jnp.array(prompt)[:, None]
      known = blank.read_prompt(tokens, is_prompt)
      return known.extend(
        tokens, ~is_prompt & (at < jnp.array(length)[:, None])
      )

    whole, short = read([2, 1], [6, 4]), read([2, 1], [3, 3])
    np.testing.assert_array_equal(whole.counts, [[0, 2, 4], [0, 3, 1]])
    np.testing.assert_array_equal(whole.recent[:, -2:], [[1, 2], [2, 1]])
    np.testing.assert_array_equal(whole.written, [4, 3])
    np.testing.assert_array_equal(short.written, [1, 2])
    cut = whole.reread(tokens, jnp.array([2, 1]), jnp.array([3, 3]))
    jax.tree.map(np.testing.assert_array_equal, cut, short)
    # A new prompt: the text goes on, the answer starts anew.
    turn = whole.read_prompt(tokens[:, :1], jnp.ones((2, 1), bool))
    np.testing.assert_array_equal(turn.written, [0, 0])
    np.testing.assert_array_equal(turn.constraint.state, [1, 1])
    np.testing.assert_array_equal(turn.recent[:, -2:], [[2, 2], [1, 1]])

  def test_nothing_possible(self):
    """Then nothing is forbidden, and the slot is known to be stuck."""
    sampling = sampling_lib.per_row(
      Sampling(temperature=1, allowed=[1], min_tokens=3), 2, eos=(1,)
    )
    history = sampling_lib.History(written=jnp.array([[2, 3], [0, 9]]))
    logits = jnp.zeros((2, 2, 4))
    law = np.exp(sampling_lib.log_probs(logits, sampling, history))
    np.testing.assert_allclose(law[:, 0], 0.25, rtol=1e-6)
    np.testing.assert_array_equal(law[:, 1], [[0, 1, 0, 0]] * 2)
    np.testing.assert_array_equal(
      sampling_lib.stuck(logits, sampling, history), [[True, False]] * 2
    )


class ResidualTest(parameterized.TestCase):
  @parameterized.parameters(
    ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
    ([0.0, 1.0], [1.0, 0.0], [0.0, 1.0]),
    ([0.5, 0.3, 0.2], [0.2, 0.4, 0.4], [1.0, 0.0, 0.0]),
    ([0.5, 0.5, 0.0], [0.1, 0.3, 0.6], [2 / 3, 1 / 3, 0.0]),
  )
  @pytest.mark.fault_case("B06")
  def test_is_a_law(self, p, q, expected):
    """vllm-project/vllm#2336: an empty residual turns into a uniform draw."""
    got = jax.jit(sampling_lib.residual)(
      jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)

  @pytest.mark.fault_case("B06")
  def test_laws_one_rounding_apart(self):
    p = np.array([0.2, 0.3, 0.5], np.float32)
    for towards in (np.float32(1), np.float32(0)):
      q = np.nextafter(p, towards)
      got = np.asarray(sampling_lib.residual(jnp.asarray(p), jnp.asarray(q)))
      self.assertTrue(np.all(np.isfinite(got)))
      self.assertAlmostEqual(float(got.sum()), 1, places=6)
      self.assertTrue(np.all(got >= 0))

  def test_inverse_cdf_counts_as_the_law_says(self):
    mass = jnp.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    u = jnp.arange(400) / 400
    got = sampling_lib.inverse_cdf(jnp.tile(mass, (400, 1)), u)
    self.assertEqual(
      np.bincount(got, minlength=6).tolist(), [0, 100, 0, 200, 100, 0]
    )
    self.assertTrue(np.all(np.diff(got) >= 0))

  def test_inverse_cdf_never_picks_what_has_no_mass(self):
    """The sum may round below what a uniform near 1 asks for."""
    rng = np.random.default_rng(0)
    mass = rng.random((200, 50)).astype(np.float32)
    mass[:, 40:] = 0
    mass[:, 0] = 0
    for u in (0.0, 1 - 2**-24):
      got = sampling_lib.inverse_cdf(jnp.asarray(mass), jnp.full(200, u))
      self.assertTrue(np.all((got > 0) & (got < 40)))


class ArgmaxTest(absltest.TestCase):
  @pytest.mark.fault_case("B07")
  def test_lowest_of_equals_and_never_out_of_range(self):
    """vllm-project/vllm#53029: a row of NaN became an id past the last."""
    x = jnp.array(
      [[1.0, 5, 5, 0], [jnp.nan] * 4, [-jnp.inf] * 4, [0, jnp.nan, 9, 1]]
    )
    got = np.asarray(sampling_lib.argmax(x))
    self.assertEqual(got[0], 1)
    self.assertTrue(np.all((got >= 0) & (got < 4)))


if __name__ == "__main__":
  absltest.main()
