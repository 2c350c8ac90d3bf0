# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What two configs share is loaded once."""

import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized

from specjax.bench import loading
from specjax.models import sources
from tests import runs


class LoadingTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    cls.other = cls.folder / "other.gguf"
    cls.other.write_bytes(cls.model.read_bytes())

  def config(self, *overrides: str, draft: pathlib.Path | None = None) -> Any:
    methods = runs.METHODS
    if draft is not None:
      drafter = {"type": "draft_model", "length": 2, "model": str(draft)}
      methods = methods | {"d": {"drafter": drafter}}
    path = runs.write_config(
      self.folder / "config.py", self.model, methods=methods
    )
    return runs.read_config(path, *overrides)

  def test_a_setting_of_the_methods_loads_nothing(self):
    config = self.config(draft=self.other)
    first = loading.load(config)
    changed = self.config(
      "methods.d.drafter.length=3", "max_new_tokens=4", draft=self.other
    )
    with absltest.mock.patch.object(
      sources, "load", side_effect=AssertionError
    ):
      second = loading.load(changed, first)
    self.assertIs(second.target, first.target)
    self.assertEqual(list(second.drafts), [(str(self.other), "none")])
    self.assertTrue(loading.fits(changed, first))

  def test_a_draft_that_is_missing_is_added(self):
    first = loading.load(self.config())
    self.assertEmpty(first.drafts)
    second = loading.load(self.config(draft=self.other), first)
    self.assertIs(second.target, first.target)
    (draft,) = second.drafts.values()
    self.assertIsNot(draft.model, first.target.model)
    self.assertEqual(draft.fingerprint, first.target.fingerprint)

  def test_the_target_drafts_for_itself_without_a_copy(self):
    loaded = loading.load(self.config(draft=self.model))
    (draft,) = loaded.drafts.values()
    self.assertIs(draft.model, loaded.target.model)

  def test_another_dtype_is_another_target(self):
    first = loading.load(self.config())
    config = self.config("dtype=bfloat16")
    self.assertFalse(loading.fits(config, first))
    second = loading.load(config, first)
    self.assertNotEqual(second.target.fingerprint, first.target.fingerprint)

  def test_an_8_bit_target_is_another_than_its_draft_of_the_same_file(self):
    first = loading.load(self.config(draft=self.model))
    config = self.config("quantization=int8", draft=self.model)
    self.assertFalse(loading.fits(config, first))
    loaded = loading.load(config, first)
    self.assertEqual(loaded.target.quantization, "int8")
    (draft,) = loaded.drafts.values()
    self.assertEqual(draft.quantization, "none")
    self.assertEqual(draft.fingerprint, first.target.fingerprint)
    self.assertNotEqual(draft.fingerprint, loaded.target.fingerprint)
    both = self.config(
      "quantization=int8",
      "methods.d.drafter.quantization=int8",
      draft=self.model,
    )
    again = loading.load(both, loaded)
    self.assertIs(again.drafts[str(self.model), "int8"], loaded.target)


if __name__ == "__main__":
  absltest.main()
