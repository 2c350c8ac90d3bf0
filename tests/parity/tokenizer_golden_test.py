# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden ids of the tokenizers' tests, made again by the live libraries."""

import json
import pathlib

from absl.testing import absltest
import pytest

from tests.parity import make_tokenizer_golden

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


@pytest.mark.parity
class TokenizerGoldenTest(absltest.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.model = real_model_path

  def test_transformers_still_gives_the_stored_ids(self):
    stored = json.loads((GOLDEN / "tokenizer_smollm2.json").read_text())
    self.assertEqual(make_tokenizer_golden.smollm2(self.model), stored)

  def test_sentencepiece_still_gives_the_stored_ids(self):
    """The vocabularies are made anew, so another release may differ in them."""
    for name, make in (
      ("sentencepiece", make_tokenizer_golden.sentencepiece_model),
      ("gemma", make_tokenizer_golden.gemma_model),
    ):
      stored = json.loads((GOLDEN / f"tokenizer_{name}.json").read_text())
      self.assertEqual(make(), stored)


if __name__ == "__main__":
  absltest.main()
