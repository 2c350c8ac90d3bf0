# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cache: what append and commit write, and what they leave alone."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import cache as cache_lib
from specjax.models import model as model_lib
from tests import toys


def filled(lengths, capacity=8) -> cache_lib.KVCache:
  """Slot s of every row holds s, up to its length 0..S-1 and beyond."""
  rows = len(lengths)
  slots = jnp.broadcast_to(
    jnp.arange(capacity, dtype=jnp.float32), (rows, capacity)
  )
  slots = slots[:, :, None, None]
  return cache_lib.KVCache(
    ((slots, slots + 100),), jnp.asarray(lengths, jnp.int32)
  )


def block(*rows) -> jax.Array:
  return jnp.asarray(rows, jnp.float32)[:, :, None, None]


def keys(cache: cache_lib.KVCache) -> list[list[float]]:
  return np.asarray(cache.layers[0][0][:, :, 0, 0]).tolist()


class AppendTest(parameterized.TestCase):
  def test_writes_after_each_rows_length(self):
    new = block([50, 51], [60, 61])
    cache = filled([1, 3], 6).append(0, new, new + 100)
    self.assertEqual(keys(cache), [[0, 50, 51, 3, 4, 5], [0, 1, 2, 60, 61, 5]])
    np.testing.assert_array_equal(cache.layers[0][1], cache.layers[0][0] + 100)
    np.testing.assert_array_equal(cache.lengths, [1, 3])

  @parameterized.parameters(True, False)
  @pytest.mark.fault_case("B32")
  def test_never_moves_back_from_the_end(self, compiled):
    """jax-ml/jax#9083: a window that sticks out is moved, not cut."""
    append = lambda cache, new: cache.append(0, new, new)
    append = jax.jit(append) if compiled else append
    cache = append(filled([6]), block([50, 51, 52, 53]))
    self.assertEqual(keys(cache), [[0, 1, 2, 3, 4, 5, 50, 51]])

  def test_other_layers_stay(self):
    cache = cache_lib.init(1, 4, 2, 1, 1, jnp.float32)
    cache = cache.append(1, block([1, 2]), block([3, 4]))
    self.assertEqual(np.asarray(cache.layers[0]).sum(), 0)
    self.assertEqual(np.asarray(cache.layers[1]).sum(), 10)

  def test_layers_are_arrays_of_their_own(self):
    """A donated array may not stand in a state twice."""
    cache = cache_lib.init(2, 4, 3, 1, 1, jnp.float32)
    pointers = {
      x.unsafe_buffer_pointer() for x in jax.tree.leaves(cache.layers)
    }
    self.assertLen(pointers, 6)

  def test_values_that_are_not_finite_are_stored_as_zero(self):
    """Contract pitfall 15: 0 * NaN spoils rows that mask the key."""
    new = block([np.nan, 7, np.inf, -np.inf])
    cache = filled([0]).append(0, new, new)
    self.assertEqual(keys(cache), [[0, 7, 0, 0, 4, 5, 6, 7]])


class CommitTest(parameterized.TestCase):
  def test_none_moves_nothing(self):
    cache = filled([2, 3]).commit(None, jnp.array([3, 0]))
    self.assertEqual(keys(cache), keys(filled([2, 3])))
    np.testing.assert_array_equal(cache.lengths, [5, 3])

  @parameterized.parameters(True, False)
  def test_path_is_compacted(self, compiled):
    """The example of the module's docstring, and rows of other counts."""
    commit = lambda cache, path, count: cache.commit(path, count)
    commit = jax.jit(commit) if compiled else commit
    path = jnp.array([[0, 2, 3], [0, 1, 2], [0, 3, 0]])
    cache = commit(filled([3, 3, 4]), path, jnp.array([2, 1, 2]))
    np.testing.assert_array_equal(cache.lengths, [5, 4, 6])
    self.assertEqual(
      keys(cache),
      [
        [0, 1, 2, 3, 5, 5, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 7, 6, 7],
      ],
    )

  def test_count_zero_leaves_the_last_slot(self):
    """Contract pitfall 4: a negative index wraps instead of being dropped."""
    path = jnp.array([[0, 2, 1]])
    for lengths in ([0], [5], [8]):
      cache = filled(lengths).commit(path, jnp.array([0]))
      self.assertEqual(keys(cache), keys(filled(lengths)))
      np.testing.assert_array_equal(cache.lengths, lengths)

  def test_path_at_the_end(self):
    cache = filled([6]).commit(jnp.array([[0, 1, 4]]), jnp.array([2]))
    self.assertEqual(keys(cache), keys(filled([6])))
    np.testing.assert_array_equal(cache.lengths, [8])


class BlocksTest(parameterized.TestCase):
  @parameterized.parameters(
    ([1] * 8,), ([2] * 4,), ([8],), ([1, 7],), ([4, 1, 3],)
  )
  @pytest.mark.fault_case("B35")
  def test_any_split_gives_the_logits_of_a_full_forward(self, widths):
    """google/flax#5591: the causal mask is not shifted by the length."""
    model = toys.tiny()
    tokens = [9, 4, 1, 7, 30, 2, 2, 61]
    expected = toys.reference.transformer_logits(
      model.params, model.config, tokens
    )
    cache, logits, at = model.init_cache(1, 16, 8), [], 0
    forward = jax.jit(model_lib.Model.__call__)
    for width in widths:
      output = forward(model, jnp.array([tokens[at : at + width]]), cache)
      cache = output.cache.commit(None, jnp.array([width]))
      logits.append(output.logits[0])
      at += width
    # Two float32 layers against float64.
    np.testing.assert_allclose(np.concatenate(logits), expected, atol=1e-4)

  @pytest.mark.fault_case("B34")
  def test_windows_agree_with_and_without_jit(self):
    """jax-ml/jax#40849: nested slices out of range differ under jit."""
    cache = filled([7, 2])
    path = jnp.array([[0, 3, 2], [0, 5, 6]])
    new = block([50, 51, 52, 53], [60, 61, 62, 63])

    def both(cache):
      cache = cache.append(0, new, new).commit(path, jnp.array([3, 3]))
      return cache.append(0, new, new)

    jax.tree.map(
      np.testing.assert_array_equal, jax.jit(both)(cache), both(cache)
    )


class CheckTest(parameterized.TestCase):
  @parameterized.parameters(
    ([], [], 1, 100, "there is no prompt"),
    ([3, 0], [1, 1], 1, 100, "prompt 1 is empty"),
    ([60, 3], [5, 9], 1, 200, "needs? 65 positions but the model has 64"),
    ([10], [6], 5, 20, "capacity 20 cannot hold 16 .* block of 5: .* 21"),
  )
  def test_refuses(self, prompts, limits, block, capacity, message):
    with self.assertRaisesRegex(ValueError, message):
      cache_lib.check_capacity(
        np.array(prompts, int), np.array(limits, int), block, capacity, 64
      )

  def test_accepts_the_exact_capacity(self):
    cache_lib.check_capacity(np.array([10]), np.array([6]), 5, 21, 16)


if __name__ == "__main__":
  absltest.main()
