# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Transformers loads what is saved, and what it saves is loaded."""

import pathlib
import tempfile

from absl.testing import absltest, parameterized
import chex
import numpy as np
import pytest

from specjax.models import huggingface, huggingface_save
from specjax.models import model as model_lib
from tests import family_files
from tests.parity import make_model_golden as maker

pytestmark = pytest.mark.parity


class ModelSaveTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  @parameterized.parameters(*family_files.CONFIGS)
  def test_transformers_loads_what_is_saved(self, name):
    """The same network: its logits are equal to the bit."""
    original = family_files.write(name, self.folder / "original")
    model = model_lib.Model.from_params(*huggingface.load(original))
    huggingface_save.save(model, None, self.folder / "saved")
    first, second = (
      maker.logits(maker.load(self.folder / which), maker.FAMILY_TOKENS)
      for which in ("original", "saved")
    )
    np.testing.assert_array_equal(first, second)

  @parameterized.parameters(*family_files.CONFIGS)
  def test_what_transformers_saves_is_loaded(self, name):
    """Its config.json has today's spellings: rope_parameters and all."""
    original = family_files.write(name, self.folder / "original")
    maker.load(original).save_pretrained(self.folder / "theirs")
    config, params = huggingface.load(self.folder / "theirs")
    self.assertEqual(config, family_files.EXPECTED[name])
    _, wanted = huggingface.load(original)
    chex.assert_trees_all_equal(params, wanted)


if __name__ == "__main__":
  absltest.main()
