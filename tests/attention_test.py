# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The gradient of attention over a cache equals that of a dense softmax."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import attention, model
from tests import toys

B, N, K, H = 2, 4, 2, 8
SCALE = 0.3


def dense(q, k, v, seen):
  """Softmax over the slots that `seen` [B, T, S] allows; one matrix."""
  k, v = (jnp.repeat(x, N // K, axis=2) for x in (k, v))
  scores = jnp.einsum("btnh,bsnh->bnts", q, k) * SCALE
  scores = jnp.where(seen[:, None], scores, -jnp.inf)
  return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores, axis=-1), v)


def inputs(block, capacity):
  rng = np.random.default_rng(block)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  q, weights = (normal(B, block, N, H) for _ in range(2))
  k, v = (normal(B, capacity, K, H) for _ in range(2))
  return q, k, v, weights


class AttentionTest(parameterized.TestCase):
  def assert_same_gradients(self, attend, seen, q, k, v, weights):
    def loss(function):
      return jax.grad(
        lambda q, k, v: jnp.sum(weights * function(q, k, v)), argnums=(0, 1, 2)
      )

    got = jax.jit(loss(attend))(q, k, v)
    wanted = loss(lambda q, k, v: dense(q, k, v, seen))(q, k, v)
    for name, a, b in zip("qkv", got, wanted):
      # float32 sums of up to 150 terms in two orders.
      np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4, err_msg=name)

  @parameterized.parameters(((70, 3), None, 100), ((0, 0), 20, 192))
  def test_of_a_chain(self, lengths, window, capacity):
    self.check_chain(lengths, window, capacity)

  @parameterized.product(
    lengths=((0, 0), (70, 3)), window=(None, 1, 20), capacity=(100, 192)
  )
  @pytest.mark.slow
  def test_of_more_chains(self, lengths, window, capacity):
    self.check_chain(lengths, window, capacity)

  def check_chain(self, lengths, window, capacity):
    """Several key blocks, ragged rows; a capacity that blocks do not divide."""
    q, k, v, weights = inputs(30, capacity)
    starts = jnp.asarray(lengths, jnp.int32)
    positions = starts[:, None] + jnp.arange(30)[None]
    slots, own = np.arange(capacity), np.asarray(positions)[..., None]
    seen = slots <= own
    if window is not None:
      seen &= slots > own - window

    def attend(q, k, v):
      return attention.attend(
        q, k, v, starts, positions, None, scale=SCALE, window=window
      )

    self.assert_same_gradients(attend, seen, q, k, v, weights)

  def test_of_packed_texts(self):
    """Two texts in one row: a mask over the whole block, nothing before it."""
    q, k, v, weights = inputs(90, 90)
    starts = jnp.zeros((B,), jnp.int32)
    text = np.arange(90) >= np.array([[40], [66]])
    mask = (text[:, :, None] == text[:, None]) & np.tril(
      np.ones((90, 90), bool)
    )
    positions = jnp.broadcast_to(jnp.arange(90), (B, 90))

    def attend(q, k, v):
      return attention.attend(
        q, k, v, starts, positions, jnp.asarray(mask), scale=SCALE
      )

    self.assert_same_gradients(attend, mask, q, k, v, weights)

  def test_of_a_model(self):
    """By central differences along one direction, through all layers."""
    network = toys.tiny(0)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 60, (2, 12)))

    @jax.jit
    def loss(params):
      cache = network.init_cache(2, 12, 12)
      logits = network.replace(params=params)(tokens, cache).logits
      laws = jax.nn.log_softmax(logits[:, :-1])
      return -jnp.mean(jnp.take_along_axis(laws, tokens[:, 1:, None], axis=2))

    gradient = jax.jit(jax.grad(loss))(network.params)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    step = lambda h: jax.tree.map(
      lambda x, g: x + h * g / size, network.params, gradient
    )
    slope = (loss(step(1e-2)) - loss(step(-1e-2))) / 2e-2
    # Third derivatives, and rounding of a loss near 4 over a step of 0.01.
    np.testing.assert_allclose(slope, size, rtol=1e-2)
    self.assertIsInstance(network, model.Model)


if __name__ == "__main__":
  absltest.main()
