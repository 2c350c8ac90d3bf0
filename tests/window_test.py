# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sliding windows: masks over a full-length cache, on chains and on trees.

The reference is a dense softmax over every slot in float64.
"""

import dataclasses

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import attention, model, transformer

N, K, H = 4, 2, 8
CONFIG = transformer.TransformerConfig(
  vocab_size=32,
  embed_dim=16,
  num_layers=3,
  num_heads=N,
  num_kv_heads=K,
  head_dim=H,
  mlp_dim=32,
  max_position=512,
  norm_eps=1e-6,
  rope_theta=1e4,
  rope_factors=None,
  tie_embeddings=True,
  windows=(5, None, 5),
  rope_local_theta=100.0,
)


def dense(q, k, v, seen):
  """Softmax over the slots that `seen` [B, T, S] allows."""
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  k, v = (np.repeat(x, N // K, axis=2) for x in (k, v))
  scores = np.einsum("btnh,bsnh->bnts", q, k) * H**-0.5
  scores = np.where(seen[:, None], scores, -np.inf)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  return np.einsum("bnts,bsnh->btnh", weights, v)


class WindowTest(parameterized.TestCase):
  def inputs(self, block, lengths, capacity=256):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    rows = len(lengths)
    q = normal(rows, block, N, H)
    k, v = (normal(rows, capacity, K, H) for _ in range(2))
    return q, k, v, jnp.asarray(lengths, jnp.int32)

  @parameterized.parameters(
    (1, (130, 128)),
    (3, (0, 200)),
    (64, (130, 128)),
    (65, (0, 200)),
    (1000, (7, 3)),
  )
  def test_a_chain_sees_its_window(self, window, lengths):
    self.check_chain(window, lengths)

  @parameterized.product(
    window=(1, 3, 64, 65, 1000), lengths=((130, 128), (0, 200), (7, 3))
  )
  @pytest.mark.slow
  def test_every_chain_sees_its_window(self, window, lengths):
    self.check_chain(window, lengths)

  def check_chain(self, window, lengths):
    q, k, v, starts = self.inputs(5, lengths)
    positions = starts[:, None] + jnp.arange(5)[None]
    out = attention.attend(
      q, k, v, starts, positions, None, scale=H**-0.5, window=window
    )
    slots, own = np.arange(256), np.asarray(positions)[..., None]
    seen = (slots <= own) & (slots > own - window)
    # float32 sums of up to 200 terms against float64.
    np.testing.assert_allclose(out, dense(q, k, v, seen), atol=2e-6)

  @parameterized.parameters(2, 3, 4)
  def test_a_tree_counts_positions_not_slots(self, window):
    """Root 0, its children 1 and 2, and 3 below 2: slot 3 has position 2."""
    q, k, v, starts = self.inputs(4, (20, 9))
    depth = np.array([0, 1, 1, 2])
    positions = starts[:, None] + jnp.asarray(depth)[None]
    ancestors = np.array(
      [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], bool
    )
    mask = jnp.broadcast_to(ancestors, (2, 4, 4))
    out = attention.attend(
      q, k, v, starts, positions, mask, scale=H**-0.5, window=window
    )
    seen = np.zeros((2, 4, 256), bool)
    for row, start in enumerate(np.asarray(starts)):
      for node in range(4):
        nearest = start + depth[node] - window
        seen[row, node, max(nearest + 1, 0) : start] = True
        near = depth > depth[node] - window
        seen[row, node, start : start + 4] = ancestors[node] & near
    np.testing.assert_allclose(out, dense(q, k, v, seen), atol=2e-6)

  def test_blocks_before_every_window_are_not_read(self):
    """A NaN would spoil a row even with weight 0, were it read."""
    q, k, v, starts = self.inputs(2, (200, 190))
    positions = starts[:, None] + jnp.arange(2)[None]
    attend = lambda v: attention.attend(
      q, k, v, starts, positions, None, scale=1.0, window=16
    )
    first = (190 + 1 - 16) // attention.KEY_BLOCK * attention.KEY_BLOCK
    out = jax.jit(attend)(v.at[:, :first].set(jnp.nan))
    np.testing.assert_array_equal(out, jax.jit(attend)(v))
    out = jax.jit(attend)(v.at[:, first].set(jnp.nan))
    self.assertTrue(np.isnan(out).any())

  @parameterized.parameters(0, 3, 150, 220)
  def test_a_neighbours_length_changes_nothing(self, neighbour):
    run = jax.jit(
      lambda q, k, v, starts: attention.attend(
        q,
        k,
        v,
        starts,
        starts[:, None] + jnp.arange(2)[None],
        None,
        scale=1.0,
        window=16,
      )
    )
    expected = run(*self.inputs(2, (200, 190)))
    out = run(*self.inputs(2, (200, neighbour)))
    np.testing.assert_array_equal(out[0], expected[0])

  def test_a_split_gives_the_same_logits(self):
    self.check_split(3, 1, 4)

  @parameterized.parameters((8,), (4, 4), (1, 7))
  @pytest.mark.slow
  def test_any_split_gives_the_same_logits(self, *splits):
    self.check_split(*splits)

  def check_split(self, *splits):
    network = model.Model.init(CONFIG, jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 32, (2, 24)))
    cache = network.init_cache(2, 64, 24)
    run = jax.jit(lambda tokens, cache: network(tokens, cache))
    whole = run(tokens, cache).logits
    start, parts = 0, []
    for width in (16, *splits):
      output = run(tokens[:, start : start + width], cache)
      cache = output.cache.commit(None, jnp.full((2,), width))
      parts.append(output.logits)
      start += width
    # float32: products over blocks of another width.
    np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, atol=1e-5)

  def test_a_window_changes_what_lies_behind_it_alone(self):
    network = model.Model.init(CONFIG, jax.random.key(0))
    tokens = jnp.arange(24)[None] % 32

    def logits(windows):
      config = dataclasses.replace(
        CONFIG, windows=windows, rope_local_theta=None
      )
      cache = network.init_cache(1, 64, 24)
      other = network.replace(config=config)
      return jax.jit(lambda tokens: other(tokens, cache).logits)(tokens)

    difference = np.abs(logits((5, None, 5)) - logits(None)).max(-1)[0]
    np.testing.assert_array_equal(difference[:5], 0)
    self.assertGreater(difference[5:].min(), 1e-4)

  def test_truncation_keeps_the_windows_of_its_layers(self):
    network = model.Model.init(CONFIG, jax.random.key(0)).truncate(2)
    self.assertEqual(network.config.windows, (5, None))


if __name__ == "__main__":
  absltest.main()
