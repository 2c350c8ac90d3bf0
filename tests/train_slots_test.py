# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums in chunks equal sums at once, and so do their gradients."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import slots

N, D, V = 23, 5, 11


def inputs(seed=0):
  rng = np.random.default_rng(seed)
  params = {"w": jnp.asarray(rng.normal(size=(D, V)), jnp.float32)}
  known = {"x": jnp.asarray(rng.normal(size=(N, D)), jnp.float32)}
  label = jnp.asarray(rng.integers(0, V, N))
  return params, known, label


def losses(params, label, known, index, valid):
  """Cross entropy, and how many slots and hits there were."""
  label = jnp.take(label, index, mode="clip")
  laws = jax.nn.log_softmax(known["x"] @ params["w"])
  loss = -jnp.take_along_axis(laws, label[:, None], axis=1)[:, 0]
  hits = jnp.argmax(laws, axis=1) == label
  sum_of = lambda x: jnp.sum(jnp.where(valid, x, 0))
  return sum_of(loss), {"count": sum_of(1), "hits": sum_of(hits.astype(int))}


class SlotsTest(parameterized.TestCase):
  @parameterized.parameters((4, 0.4), (64, 0.0))
  def test_chunks_give_the_same(self, chunk, share):
    self.check(chunk, share)

  @parameterized.product(chunk=(1, 4, 23, 64), share=(0.0, 0.4, 1.0))
  @pytest.mark.slow
  def test_any_chunk_gives_the_same(self, chunk, share):
    self.check(chunk, share)

  def check(self, chunk, share):
    params, known, label = inputs()
    counts = jnp.asarray(np.random.default_rng(1).random(N) < share)

    def in_chunks(params, known):
      loss, others = slots.total(losses, params, label, known, counts, chunk)
      return 3 * loss, others

    def at_once(params, known):
      loss, others = losses(params, label, known, jnp.arange(N), counts)
      return 3 * loss, others

    (value, others), grads = jax.jit(
      jax.value_and_grad(in_chunks, argnums=(0, 1), has_aux=True)
    )(params, known)
    (wanted, expected), wanted_grads = jax.value_and_grad(
      at_once, argnums=(0, 1), has_aux=True
    )(params, known)
    # float32 sums of up to 23 terms in another order.
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, others, expected)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
      grads,
      wanted_grads,
    )
    plain = jax.jit(
      lambda p, k: slots.total(losses, p, label, k, counts, chunk)
    )(params, known)
    np.testing.assert_allclose(3 * plain[0], value, rtol=1e-6)

  def test_slots_that_do_not_count_are_not_touched(self):
    """Not even by NaN: `where` after the fact would spoil the gradient."""
    params, known, label = inputs()
    counts = jnp.arange(N) % 3 == 0
    spoilt = {"x": jnp.where(counts[:, None], known["x"], jnp.nan)}
    loss = lambda p, k: slots.total(losses, p, label, k, counts, 8)[0]
    value, grads = jax.value_and_grad(loss)(params, spoilt)
    wanted, wanted_grads = jax.value_and_grad(loss)(params, known)
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_array_equal(grads["w"], wanted_grads["w"])

  def test_integers_of_slots_are_not_differentiated(self):
    """Chained heads know the tokens that follow a slot."""
    params, known, label = inputs()
    counts = jnp.ones((N,), bool)

    def function(params, frozen, known, index, valid):
      del frozen
      return losses(params, label, known, index, valid)

    def loss(params, known):
      both = {**known, "token": label}
      return slots.total(function, params, None, both, counts, 8)[0]

    grads = jax.grad(loss, argnums=(0, 1))(params, known)
    wanted = jax.grad(
      lambda p, k: slots.total(losses, p, label, k, counts, 8)[0], (0, 1)
    )(params, known)
    jax.tree.map(np.testing.assert_array_equal, grads, wanted)

  def test_of_each_slot(self):
    _, known, _ = inputs()
    counts = jnp.arange(N) % 4 != 1
    found = jax.jit(
      lambda x: slots.each(lambda x: (2 * x["x"], x["x"][:, 0]), x, counts, 5)
    )(known)
    wanted = jnp.where(counts[:, None], 2 * known["x"], 0)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], wanted[:, 0] / 2)

  def test_logits_exist_for_one_chunk(self):
    """The largest array of the compiled program is no [N, V] of logits."""
    wide = {"w": jnp.zeros((D, 1000))}
    many = {"x": jnp.zeros((4096, D))}
    labels = jnp.zeros((4096,), int)
    counts = jnp.ones((4096,), bool)
    step = jax.jit(
      jax.grad(
        lambda p, k: slots.total(losses, p, labels, k, counts, 64)[0], (0, 1)
      )
    )
    used = step.lower(wide, many).compile().memory_analysis()
    assert used is not None
    self.assertLess(used.temp_size_in_bytes, 4096 * 1000 * 4 / 8)


if __name__ == "__main__":
  absltest.main()
