# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Odd and hostile tokenizer files end in one line, and cost next to nothing."""

import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized

from specjax import tokenizers
from specjax.text import untrusted
from tests import checkpoint_files


class GgufTest(parameterized.TestCase):
  @parameterized.parameters(
    ("merges", [1, 2], r"merges\[0\] is 1, not text"),
    ("merges", 7, "merges is 7, not a list"),
    ("merges", "a b", "merges is 'a b', not a list"),
    ("pre", [1], r"pre is \[1\], not text"),
    ("model", [1], r"unknown tokenizer \[1\]"),
    ("tokens", 5, "tokens is 5, not a list"),
    ("tokens", ["a", 5], r"tokens\[1\] is 5, not text"),
    ("token_type", 5, "token_type is 5, not a list"),
    ("token_type", ["a"] * 7, r"token_type\[0\] is 'a', not a number"),
    ("bos_token_id", [1], r"bos_token_id is \[1\], not a whole number"),
    ("bos_token_id", True, "bos_token_id is True, not a whole number"),
    ("eos_token_id", 1.5, "eos_token_id is 1.5, not a whole number"),
    ("eot_token_id", "1", "eot_token_id is '1', not a whole number"),
    ("add_bos_token", "false", "add_bos_token is 'false', not true or false"),
    ("add_eos_token", 1, "add_eos_token is 1, not true or false"),
  )
  def test_a_field_of_another_kind(self, name, value, message):
    metadata = checkpoint_files.TOKENIZER | {f"tokenizer.ggml.{name}": value}
    self.assert_refused(metadata, message)

  @parameterized.parameters(
    ("scores", ["a"] * 7, r"scores\[0\] is 'a', not a number"),
    ("scores", 5, "scores is 5, not a list"),
    ("add_space_prefix", 2, "add_space_prefix is 2, not true or false"),
  )
  def test_a_field_of_sentencepiece(self, name, value, message):
    changes = {"model": "llama", "scores": [0.0] * 7} | {name: value}
    changes = {f"tokenizer.ggml.{key}": v for key, v in changes.items()}
    self.assert_refused(checkpoint_files.TOKENIZER | changes, message)

  def test_a_template_that_is_no_text(self):
    metadata = checkpoint_files.TOKENIZER | {"tokenizer.chat_template": 5}
    self.assert_refused(metadata, "tokenizer.chat_template is 5, not text")

  def test_a_long_value_makes_no_long_line(self):
    metadata = checkpoint_files.TOKENIZER | {"tokenizer.ggml.pre": "a" * 10_000}
    self.assert_refused(metadata, "unknown pre-tokenizer 'aaa")

  def assert_refused(self, metadata, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      tokenizers.from_gguf(metadata)
    self.assertNotIn("\n", str(caught.exception))
    self.assertLess(len(str(caught.exception)), 250)


class FolderTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    checkpoint_files.write_tokenizer(self.folder)

  def edit(self, name: str, **fields) -> None:
    file = self.folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))

  def assert_refused(self, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      tokenizers.from_folder(self.folder)
    self.assertNotIn("\n", str(caught.exception))

  @parameterized.parameters(
    ({"chat_template": 5}, "chat_template is 5, not text"),
    ({"chat_template": ["x"]}, "none of 1 chat templates is named default"),
    ({"chat_template": []}, "none of 0 chat templates is named default"),
    (
      {"chat_template": [{"name": ["default"], "template": "x"}]},
      "none of 1 chat templates",
    ),
    (
      {"chat_template": [{"name": "default", "template": 5}]},
      "the default chat_template is 5, not text",
    ),
    ({"chat_template": {"default": "x"}}, "chat_template is {'def.*, not text"),
    ({"chat_template": "\ud800"}, "chat_template is not valid Unicode"),
    ({"add_bos_token": "false"}, "add_bos_token is 'false', not true or false"),
    ({"add_eos_token": 0}, "add_eos_token is 0, not true or false"),
    ({"bos_token": 5}, "bos_token is 5, not text"),
    ({"eos_token": {"content": 5}}, "eos_token is 5, not text"),
    ({"pad_token": "\ud800"}, "pad_token is not valid Unicode"),
  )
  def test_a_config_of_another_kind(self, fields, message):
    self.edit("tokenizer_config.json", **fields)
    self.assert_refused(message)

  @parameterized.product(
    value=([[1]], {"a": 1}, "x", [None], True, 1.5),
    name=("config.json", "generation_config.json"),
  )
  def test_an_eos_id_that_is_no_number(self, name, value):
    self.edit(name, eos_token_id=value)
    self.assert_refused(f"/{name}: eos_token_id is .*, not a whole number")

  @parameterized.parameters(
    "tokenizer.json", "tokenizer_config.json", "config.json"
  )
  def test_deep_nesting(self, name):
    (self.folder / name).write_text("[" * 100_000)
    self.assert_refused(f"/{name}: ")

  @parameterized.parameters(
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
  )
  def test_size_and_encoding(self, name):
    (self.folder / name).write_bytes(b"{\xff}")
    self.assert_refused(f"/{name} is not UTF-8")
    (self.folder / name).write_text("a" * 2000)
    with mock.patch.object(untrusted, "MAX_BYTES", 1999):
      self.assert_refused(f"/{name} is larger than 1999 bytes")

  @parameterized.parameters(4294967295, 1 << 22)
  def test_a_short_file_makes_no_long_vocabulary(self, index):
    """A list up to the first of these ids would take 34 GB."""
    self.set_model(vocab_extra={"q": index})
    self.assert_refused(f"token id {index}: ids must be below 4194304")

  def test_holes_in_a_vocabulary_are_no_tokens(self):
    self.set_model(vocab_extra={"q": 9})
    tokenizer = tokenizers.from_folder(self.folder)
    self.assertEqual(tokenizer.num_tokens, 10)
    self.assertEqual(tokenizer.vocabulary()[6:], ("abc", "", "", "q"))

  def test_a_model_that_cannot_encode(self):
    self.set_model(unk_token="absent")
    self.assert_refused("/tokenizer.json: cannot encode 'a': .*absent")

  def set_model(self, vocab_extra=(), **fields):
    model = json.loads((self.folder / "tokenizer.json").read_text())["model"]
    vocab = model["vocab"] | dict(vocab_extra)
    vocab = {k: v for k, v in vocab.items() if k != "a"} if fields else vocab
    merges = [] if fields else model["merges"]
    changes = {"vocab": vocab, "merges": merges} | fields
    self.edit("tokenizer.json", model=model | changes)


if __name__ == "__main__":
  absltest.main()
