# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""8-bit matrices: values, scales, and a model that decodes with them."""

from typing import Any

from absl.testing import absltest, parameterized
import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax.drafters import draft_model, empty
from specjax.models import int8, layers
from tests import decoding, toys


class QuantizeTest(parameterized.TestCase):
  @parameterized.product(axis=(0, 1), dtype=("float32", "bfloat16"))
  def test_each_channel_has_its_scale(self, axis, dtype):
    rng = np.random.default_rng(0)
    size = rng.uniform(0.01, 100, (24, 1) if axis else (1, 24))
    matrix = (rng.normal(size=(24, 24)) * size).astype(jnp.dtype(dtype))
    values, scale = int8.quantize(matrix, axis)
    chex.assert_shape(scale, (24,))
    self.assertEqual(values.dtype, np.int8)
    self.assertEqual(scale.dtype, matrix.dtype)
    np.testing.assert_array_equal(np.abs(values).max(axis), 127)
    wide = np.expand_dims(scale.astype(np.float64), axis)
    error = np.abs(values * wide - matrix.astype(np.float64)) / wide
    # Half a step, and a bfloat16 scale is 2^-9 off: 127 of them, a quarter.
    self.assertLessEqual(error.max(), 0.5001 if dtype == "float32" else 0.75)

  def test_a_channel_below_the_range_of_float16_divides_by_no_zero(self):
    matrix = np.full((2, 2), 1e-7, np.float16)
    values, scale = int8.quantize(matrix, 0)
    self.assertGreater(scale.min(), 0)
    np.testing.assert_array_equal(values, 0)

  def test_known_values(self):
    values, scale = int8.quantize(np.array([[2.54, 0.0], [-1.0, 0.0]]), 0)
    np.testing.assert_array_equal(values, [[127, 0], [-50, 0]])
    np.testing.assert_allclose(scale, [0.02, 1.0])

  def test_rows_past_the_first_thousand_are_the_same(self):
    matrix = np.random.default_rng(0).normal(size=(1500, 3))
    for axis in (0, 1):
      values, scale = int8.quantize(matrix, axis)
      wide = np.expand_dims(scale, axis)
      np.testing.assert_array_equal(values, np.rint(matrix / wide))

  def test_unknown_kinds_are_refused(self):
    with self.assertRaisesRegex(ValueError, "quantization 'int4' is not one"):
      int8.parse("int4")


class ModelTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.whole = toys.tiny(0)
    self.small = int8.model(self.whole)

  def dequantised(self):
    """The float model of the same numbers."""

    def wide(node):
      if int8.SCALE in node:
        name = "kernel" if "kernel" in node else "embedding"
        scale = node[int8.SCALE]
        scale = scale[None] if name == "kernel" else scale[:, None]
        rest = {k: v for k, v in node.items() if k not in (name, int8.SCALE)}
        return {name: node[name].astype(jnp.float32) * scale, **rest}
      return {k: wide(v) if isinstance(v, dict) else v for k, v in node.items()}

    return self.whole.replace(params=wide(self.small.params))

  def test_logits_are_those_of_the_dequantised_model(self):
    tokens = jnp.arange(12)[None] % toys.TINY_VOCAB
    logits = [
      m(tokens, m.init_cache(1, 32, 12)).logits
      for m in (self.small, self.dequantised(), self.whole)
    ]
    # The scale is taken before the product or after it: float32 rounding.
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4)
    self.assertGreater(np.abs(logits[0] - logits[2]).max(), 1e-2)

  def test_float16_products_with_integers_stay_in_range(self):
    """Summed raw, 64 products of 127 and 16 are past 65504."""
    linear = layers.Linear(3, int8=True)
    params = {
      "kernel": jnp.full((64, 3), 127, jnp.int8),
      "int8_scale": jnp.full((3,), 1 / 127, jnp.float16),
    }
    x = jnp.full((1, 1, 64), 16, jnp.float16)
    out: Any = linear.apply({"params": params}, x)
    self.assertEqual(out.dtype, jnp.float16)
    # 1024, and a float16 scale is 2^-11 off.
    np.testing.assert_allclose(out, 1024, rtol=1e-3)

  def test_matrices_are_a_quarter_as_large(self):
    size = lambda m: sum(x.nbytes for x in jax.tree.leaves(m.params))
    self.assertLess(size(self.small), 0.32 * size(self.whole))
    self.assertEqual(self.small.dtype, self.whole.dtype)

  def test_as_target_and_as_draft_decoding_is_exact(self):
    plain = decoding.run(self.small, empty.Empty())
    draft = int8.model(toys.noisy(self.whole))
    drafted = decoding.run(self.small, draft_model.DraftModel(draft, 3))
    self.assertEqual(decoding.answers(drafted), decoding.answers(plain))
    self.assertGreater(drafted.stats.accepted.sum(), 0)

  def test_twice_is_refused(self):
    with self.assertRaisesRegex(ValueError, "8-bit already"):
      int8.model(self.small)


if __name__ == "__main__":
  absltest.main()
