# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Features on disk are those that the target gives, whatever was stopped."""

import dataclasses
import pathlib
import tempfile

from absl.testing import absltest
import jax
import numpy as np

from tests import toys
from train import batches, conversations, features, teacher

WIDTH = 24
BOUND = features.Binding("a", "b", WIDTH, 1.0)


def examples(number=30):
  rng = np.random.default_rng(0)
  found = []
  for i in range(number):
    length = int(rng.integers(4, 20))
    tokens = rng.integers(1, 60, length).astype(np.int32)
    loss = np.arange(length) >= length // 2
    found.append(conversations.Example(str(i), tokens, loss))
  return found


class FeaturesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name) / "features"
    self.target = toys.tiny(0).replace(feature_layers=(0, 1))
    self.said = []

  def prepare(self, bound=BOUND, layers=(0, 1)):
    return features.prepare(
      self.folder,
      self.target.replace(feature_layers=layers),
      examples(),
      bound,
      self.said.append,
    )

  def assert_right(self, found):
    """Whatever other conversations a row holds."""
    order = batches.Order(examples(), WIDTH, 4, seed=3)
    batch = next(order.batches(2))
    wanted = jax.jit(teacher.read)(self.target, batch)
    given, some = found.at(batch), batch.segments > 0
    for name in ("hidden", "features"):
      got, real = (getattr(x, name)[some] for x in (given, wanted))
      # float16 keeps 11 bits of numbers of up to a few units.
      np.testing.assert_allclose(got, real, rtol=1e-3, atol=2e-3)
    answers = np.roll(batch.loss, -1, axis=1)
    answers[:, -1] = False
    np.testing.assert_allclose(
      given.log_total[answers], wanted.log_total[answers], rtol=1e-5
    )
    np.testing.assert_array_equal(given.best[answers], wanted.best[answers])

  def test_equal_the_targets(self):
    self.assert_right(self.prepare())
    size = sum(path.stat().st_size for path in self.folder.glob("*.npy"))
    promised = features.size(examples(), self.target)
    self.assertAlmostEqual(size / promised, 1, delta=0.05)
    self.assertIn("GB", self.said[0])

  def test_goes_on_where_it_was_stopped(self):
    self.prepare()
    (self.folder / "done").write_text("1")
    hidden = np.load(self.folder / "hidden.npy", mmap_mode="r+")
    first = np.array(hidden)
    hidden[:] = np.where(np.arange(len(hidden))[:, None] < 5, first, 0)
    hidden.flush()
    self.said.clear()
    self.prepare()
    again = np.load(self.folder / "hidden.npy")
    # Rows of the first batch stay as they were left, the others are made.
    redone = np.any(again != 0, axis=1)
    self.assertFalse(redone.all())
    self.assertGreater(redone.sum(), 5)
    np.testing.assert_array_equal(again[redone], first[redone])

  def test_some_of_the_layers_are_read_from_a_folder_with_more(self):
    both, second, none = (self.prepare(layers=x) for x in ((0, 1), (1,), ()))
    batch = next(batches.all_rows(examples(), WIDTH, 4))
    whole, half = (np.asarray(x.at(batch).features) for x in (both, second))
    width = self.target.config.embed_dim
    np.testing.assert_array_equal(half, whole[..., width:])
    self.assertIsNone(none.at(batch).features)

  def test_others_are_refused(self):
    self.prepare()
    changes = {"data": "c", "temperature": 0.5}
    with self.assertRaisesRegex(ValueError, "of another data, temperature: "):
      self.prepare(dataclasses.replace(BOUND, **changes))

  def test_what_float16_cannot_hold_is_refused(self):
    """Some models have outputs of layers beyond 65,504."""
    layer = self.target.params["layer_0"]["mlp"]["down"]
    layer = {"kernel": layer["kernel"] * 1e9}
    params = dict(self.target.params)
    params["layer_0"] = params["layer_0"] | {
      "mlp": params["layer_0"]["mlp"] | {"down": layer}
    }
    self.target = self.target.replace(params=params)
    with self.assertRaisesRegex(ValueError, "layer_0 has .* too large"):
      self.prepare(layers=(0,))

  def test_a_folder_gains_the_layers_that_it_lacks(self):
    self.prepare(layers=(1,))
    self.assert_right(self.prepare(layers=(0, 1)))


if __name__ == "__main__":
  absltest.main()
