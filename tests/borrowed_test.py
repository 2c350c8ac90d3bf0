# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that have their vocabulary of another one, and damaged folders."""

import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import jax
import numpy as np

from specjax.models import borrowed, sources
from specjax.models import model as model_lib
from tests import runs


class BorrowedTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
    cls.folder = folder
    cls.name = str(runs.write_model(folder / "lender.gguf"))
    cls.lender, _ = sources.load(cls.name)
    config = cls.lender.truncate(1).config
    new = model_lib.Model.init(config, jax.random.key(3)).params
    lent = {k: x for k, x in cls.lender.params.items() if k in ("embed",)}
    if "unembed" in cls.lender.params:
      lent["unembed"] = cls.lender.params["unembed"]
    cls.model = model_lib.Model.from_params(
      config, new | lent, cls.lender.num_tokens, None
    )
    borrowed.save(cls.model, cls.name, folder / "small", "float32")

  def changed(self, **entries) -> str:
    """A copy of the folder with other entries in its config.json."""
    copy = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    raw = json.loads((self.folder / "small" / "config.json").read_text())
    for key, value in entries.items():
      inner = raw["specjax_layers"]
      place = inner if key in inner else raw
      place[key] = value
    (copy / "config.json").write_text(json.dumps(raw))
    weights = (self.folder / "small" / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights)
    return str(copy)

  def test_an_equal_model_is_read_back(self):
    found, tokenizer = sources.load(self.folder / "small")
    self.assertEqual(found.config, self.model.config)
    self.assertEqual(tokenizer.num_tokens, self.lender.num_tokens)
    jax.tree.map(np.testing.assert_array_equal, found.params, self.model.params)

  def test_only_its_layers_are_stored(self):
    size = (self.folder / "small" / "model.safetensors").stat().st_size
    own = {k: x for k, x in self.model.params.items() if k not in ("embed",)}
    own.pop("unembed", None)
    numbers = sum(x.size for x in jax.tree.leaves(own))
    self.assertLess(size, 4 * numbers + 4096)

  def test_one_that_borrows_lends_nothing(self):
    chained = self.changed(vocabulary_of=str(self.folder / "small"))
    with self.assertRaisesRegex(ValueError, "which borrows too"):
      sources.load(chained)

  @parameterized.parameters(
    ({"vocabulary_of": ""}, "names no model"),
    ({"vocabulary_of": 3}, "names no model"),
    ({"vocabulary_of": "./none.gguf"}, "no such file"),
    ({"vocab_size": 47}, "trained with an embedding of 47 tokens"),
    ({"num_layers": 99}, "too few for 99 layers"),
    ({"num_layers": 2}, "lacks tensors 'layer_1"),
    ({"mlp_dim": 8}, "has shape"),
    ({"specjax_layers": 4}, "it has no configuration"),
  )
  def test_what_does_not_fit_is_one_line(self, entries, message):
    with self.assertRaisesRegex((ValueError, FileNotFoundError), message) as c:
      sources.load(self.changed(**entries))
    self.assertNotIn("\n", str(c.exception))

  def test_int8_has_no_embedding_to_lend(self):
    with self.assertRaisesRegex(ValueError, "use quantization = 'none'"):
      sources.load(self.folder / "small", quantization="int8")


if __name__ == "__main__":
  absltest.main()
