# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `train.preview` shows of the tokens that a draft is trained to guess."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
import numpy as np

from specjax import tokenizers
from specjax.models import gguf_header
from tests import runs, train_runs
from train import conversations, preview


class PreviewTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.config = train_runs.write_config(self.folder)

  def call(self, *argv, status=0, terminal=False) -> str:
    environment = {"FORCE_COLOR": "1"} if terminal else {}
    output = io.StringIO()
    with (
      mock.patch.dict(os.environ, environment),
      contextlib.redirect_stdout(output),
      contextlib.redirect_stderr(output),
    ):
      found = preview.main([f"--config={self.config}", *argv])
    self.assertEqual(found, status, output.getvalue())
    return output.getvalue()

  def write(self, *records, name="train.jsonl"):
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (self.folder / name).write_text(lines)

  def test_tokens_that_count(self):
    record = {"input_ids": [2, 3, 4, 1, 2, 5], "loss_mask": [0, 1, 1, 1, 0, 1]}
    self.write(record | {"id": "x"}, record | {"id": "y"})
    text = self.call("--count=1")
    self.assertEqual(
      text,
      "a«bc</s>»a«d»\n\nx: 4 of 6 tokens count\n"
      "2 conversations, 0 left out; 0 cut to 24 tokens\n",
    )
    self.assertIn("y: 4 of 6", self.call())
    self.write(record | {"id": "z"}, name="validation.jsonl")
    self.assertIn("z: 4 of 6", self.call("--split=validation"))
    coloured = self.call(terminal=True)
    self.assertIn("\x1b[4;32mbc</s>\x1b[0m", coloured)
    self.assertNotIn("«", coloured)

  def test_a_mask_that_is_wrong_is_shown_and_refused(self):
    self.write({"input_ids": [2, 3], "loss_mask": [1, 1], "id": "x"})
    text = self.call(status=2)
    self.assertIn("«ab»", text)
    self.assertIn("error: 2 of 2 tokens are of answers", text)

  def test_mistakes(self):
    for argv, message in (
      (["--count=0"], "--count is 0"),
      (["--count=x"], "invalid int value"),
      (["--split=test"], "invalid choice: 'test'"),
      (["--config.data.train=none.jsonl"], "no file 'none.jsonl'"),
    ):
      with self.subTest(argv=argv):
        self.assertRegex(self.call(*argv, status=2), f"error: .*{message}")


class PiecesTest(absltest.TestCase):
  def test_a_character_of_both_kinds(self):
    """Its bytes are tokens of their own; it stands where the last one is."""
    with tempfile.TemporaryDirectory() as folder:
      # The two bytes of an umlaut, as byte-level vocabularies spell them.
      path = runs.write_model(
        pathlib.Path(folder, "model.gguf"),
        words=(*runs.WORDS[:21], "\u00c3", "\u00bc", "ab"),
      )
      tokenizer = tokenizers.from_gguf(gguf_header.read(path).metadata)
    example = conversations.Example(
      "x", np.array([2, 21, 22, 3, 21]), np.array([0, 0, 1, 1, 1], bool)
    )
    self.assertEqual(
      list(preview.pieces(example, tokenizer)),
      [("a", False), ("\u00fcb", True), ("\ufffd", True)],
    )


if __name__ == "__main__":
  absltest.main()
