# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden ids of tokenizers_test.py, made again by the live libraries."""

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
    """The vocabulary is trained anew, so another release may differ in it."""
    stored = json.loads((GOLDEN / "tokenizer_sentencepiece.json").read_text())
    self.assertEqual(make_tokenizer_golden.sentencepiece_model(), stored)


if __name__ == "__main__":
  absltest.main()
