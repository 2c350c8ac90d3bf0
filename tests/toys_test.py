# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The toy models are what the tests that use them take them for."""

import dataclasses

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from tests import reference, toys


class TableTest(parameterized.TestCase):
  @parameterized.parameters(
    (toys.cycle, [2, 3, 4, 5, 6, 7, 0, 1]),
    (toys.skip, [3, 5, 7, 1, 3, 5, 7, 1]),
    (toys.part, [2, 3, 4, 6, 7, 0, 2, 3]),
  )
  def test_greedy_text(self, make, expected):
    table = np.asarray(make(8).table)
    after = lambda tokens: table[tokens[-1]]
    tokens, _ = reference.generate(
      after, [1], 8, key=reference.row_key(0), temperature=0
    )
    self.assertEqual(tokens, expected)

  def test_row_is_its_law_everywhere(self):
    model = toys.row([0.5, 0.3, 0.2, 0.0])
    cache = model.init_cache(1, 8, 3)
    output = model(jnp.array([[0, 3, 1]]), cache)
    np.testing.assert_allclose(
      np.exp(output.logits[0]), [[0.5, 0.3, 0.2, 0]] * 3, rtol=1e-6
    )

  def test_cache_holds_the_tokens(self):
    model = toys.cycle(8)
    cache = model.init_cache(1, 5, 3)
    cache = model(jnp.array([[4, 7, 2]]), cache).cache
    cache = cache.commit(jnp.array([[0, 2]]), jnp.array([2]))
    cache = model(jnp.array([[5]]), cache).cache.commit(None, jnp.array([1]))
    keys = np.asarray(cache.layers[0][0]).reshape(-1)
    self.assertEqual(keys[:3].tolist(), [4, 2, 5])
    self.assertEqual(cache.lengths.tolist(), [3])


class TinyTest(parameterized.TestCase):
  @parameterized.parameters(False, True)
  def test_logits_equal_the_reference(self, tied):
    config = dataclasses.replace(toys.TINY_CONFIG, tie_embeddings=tied)
    model = toys.tiny(3, config)
    tokens = [5, 9, 3, 60, 9, 1, 0, 63, 2]
    cache = model.init_cache(1, len(tokens), len(tokens))
    logits = model(jnp.array([tokens]), cache).logits[0]
    expected = reference.transformer_logits(model.params, config, tokens)
    # float32 against float64 over two layers; logits are about 2 wide.
    np.testing.assert_allclose(logits, expected, atol=2e-5)

  def test_noisy_agrees_often_but_not_always(self):
    model, draft = toys.tiny(0), toys.noisy(toys.tiny(0))
    tokens, _ = reference.generate(
      toys.last_logits(model),
      [5, 9, 3],
      40,
      key=reference.row_key(0),
      temperature=0,
    )
    self.assertGreater(len(set(tokens)), 8, "greedy text should wander")
    agree = [
      np.argmax(toys.last_logits(draft)(tokens[:n])) == tokens[n]
      for n in range(1, 40)
    ]
    self.assertBetween(np.mean(agree), 0.3, 0.9)

  def test_unknown_tokens_are_masked(self):
    logits = toys.last_logits(toys.tiny(0, num_tokens=60))([1, 2])
    self.assertTrue(np.isneginf(logits[60:]).all())
    self.assertTrue(np.isfinite(logits[:60]).all())


if __name__ == "__main__":
  absltest.main()
