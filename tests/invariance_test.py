# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The width test: a token's logits do not depend on the block it stands in.

Speculation verifies several tokens in one pass, plain decoding few. Their texts
are equal token for token, and not only up to a margin, where a backend computes
the rows of a product alike however many there are. This module measures that on
the machine it runs on and prints the range of rows: `pytest -s` shows it.
"""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import sources
from tests import toys

WIDTHS = range(1, 17)
FEW = (1, 2, 3, 5, 8, 16)
LENGTH = 32
CAPACITY = 128


def logits_by_width(model, tokens, widths=WIDTHS, batch=1, shift=0):
  """{width: logits [T, V]} of tokens read in blocks of each width.

  Args:
    model: the model.
    tokens: ids [T].
    widths: of the blocks.
    batch: rows; all read the same and the first is returned.
    shift: tokens that a first, shorter block takes, so that every token stands
      in another slot of its block.
  """

  @jax.jit
  def feed(model, block, cache, count):
    output = model(block, cache)
    return output.logits[0], output.cache.commit(None, count)

  results = {}
  for width in widths:
    # One capacity for all: it decides where the last key block starts.
    cache = model.init_cache(batch, CAPACITY, width)
    rows, start = [], 0
    while start < len(tokens):
      count = min(shift % width or width if start == 0 else width, width)
      count = min(count, len(tokens) - start)
      block = np.zeros((batch, width), np.int32)
      block[:, :count] = tokens[start : start + count]
      counts = jnp.full((batch,), count, jnp.int32)
      logits, cache = feed(model, jnp.asarray(block), cache, counts)
      rows.append(np.asarray(logits[:count]))
      start += count
    results[width] = np.concatenate(rows)
  return results


def classes(results):
  """Groups of widths whose logits are equal bit for bit."""
  groups = []
  for width, logits in results.items():
    for group in groups:
      if np.array_equal(results[group[0]], logits):
        group.append(width)
        break
    else:
      groups.append([width])
  return groups


def report(name, batch, results):
  """Prints what was found and returns the group of width 2."""
  groups = classes(results)
  group = next(g for g in groups if 2 in g)
  off = max(np.abs(x - results[2]).max() for x in results.values())
  rows = [batch * width for width in group]
  print(
    f"\n{name}, {jax.default_backend()}, batch {batch}: rows {rows} are equal "
    f"bit for bit; all groups of widths {groups}; largest difference {off:.1e}"
  )
  return group


class WidthTest(parameterized.TestCase):
  def test_tiny_model(self):
    self.check_widths(FEW, batch=1, shift=3)

  @parameterized.product(batch=(1, 2), shift=(0, 3))
  @pytest.mark.slow
  def test_every_width_of_the_tiny_model(self, batch, shift):
    self.check_widths(WIDTHS, batch, shift)

  def check_widths(self, widths, batch, shift):
    model = toys.tiny(0)
    tokens = np.random.default_rng(0).integers(0, toys.TINY_VOCAB, LENGTH)
    results = logits_by_width(model, tokens, widths, batch, shift)
    group = report("tiny model", batch, results)
    if jax.default_backend() == "cpu":
      self.assertContainsSubset(set(widths) - {1}, group)
    for logits in results.values():
      # Width 1 may add in another order; it is the same model still.
      np.testing.assert_allclose(logits, results[2], atol=1e-4)

  def test_a_row_alone_and_in_a_batch(self):
    self.check_rows(widths=(2, 8), batches=(4,))

  @pytest.mark.slow
  def test_a_row_in_batches_of_every_size(self):
    self.check_rows(widths=(2, 5, 8), batches=(2, 3, 4))

  def check_rows(self, widths, batches):
    model = toys.tiny(0)
    tokens = np.random.default_rng(0).integers(0, toys.TINY_VOCAB, LENGTH)
    alone = logits_by_width(model, tokens, widths)
    # Past 32 rows (batch times width) the CPU's products add in another order.
    for batch in batches:
      together = logits_by_width(model, tokens, widths, batch)
      for width, logits in together.items():
        np.testing.assert_array_equal(logits, alone[width])

  def test_the_ruler_sees_a_difference(self):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3)).astype(np.float32)
    y = np.nextafter(x, np.float32(np.inf))
    self.assertEqual(classes({1: x, 2: y, 3: x}), [[1, 3], [2]])


@pytest.mark.slow
class RealWidthTest(parameterized.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.model, self.tokenizer = sources.load(str(real_model_path))

  def test_default_model(self):
    text = "The river rises in the hills and runs slowly through the old town."
    tokens = np.array(self.tokenizer.encode(text * 2))[:LENGTH]
    results = logits_by_width(self.model, tokens, (*WIDTHS, 24, 32, 33))
    group = report("default model", 1, results)
    if jax.default_backend() == "cpu":
      self.assertContainsSubset(range(2, 17), group)
    for logits in results.values():
      # Logits reach 35 and differ by float32 rounding.
      np.testing.assert_allclose(logits, results[2], atol=1e-3)


if __name__ == "__main__":
  absltest.main()
