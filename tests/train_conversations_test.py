# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversations as tokens, and which of those a draft is trained to guess."""

import dataclasses
import gzip
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import numpy as np
import pytest

from specjax import tokenizers
from specjax.models import gguf_header
from tests import runs
from train import conversations

# One letter for who speaks, an EOS behind answers alone.
TEMPLATE = (
  "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}"
  "{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
  "{% if add_generation_prompt %}a{% endif %}"
)
SYSTEM = {"role": "system", "content": "b"}
USER = {"role": "user", "content": "cd"}
ANSWER = {"role": "assistant", "content": "ef"}
CHAT = [SYSTEM, USER, ANSWER, USER, ANSWER]


def tiny_tokenizer(template: str | None = TEMPLATE) -> tokenizers.Tokenizer:
  """Of the words of `runs`."""
  with tempfile.TemporaryDirectory() as folder:
    path = runs.write_model(pathlib.Path(folder, "model.gguf"))
    tokenizer = tokenizers.from_gguf(gguf_header.read(path).metadata)
  return dataclasses.replace(tokenizer, chat_template=template)


def marked(example: conversations.Example, tokenizer) -> str:
  """The text, the tokens that count in capitals, EOS as a dot."""
  texts = []
  for token, counts in zip(example.tokens, example.loss):
    text = "." if token == 1 else tokenizer.vocabulary()[token]
    texts.append(text.upper() if counts else text)
    if counts and token == 1:
      texts[-1] = "!"
  return "".join(texts)


class FolderCase(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.tokenizer = tiny_tokenizer()

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder, "chat.jsonl")

  def write(self, *records) -> pathlib.Path:
    lines = (r if isinstance(r, str) else json.dumps(r) for r in records)
    self.path.write_text("".join(line + "\n" for line in lines))
    return self.path

  def read(self, *records, **options):
    """Marked texts, and the report."""
    examples, report = conversations.read(
      [self.write(*records)], self.tokenizer, **options
    )
    return [marked(e, self.tokenizer) for e in examples], report


class FormsTest(FolderCase):
  @parameterized.named_parameters(
    ("messages", {"messages": [USER, ANSWER]}, "ucdaEF!"),
    ("several_turns", {"messages": CHAT}, "sbucdaEF!ucdaEF!"),
    (
      "sharegpt",
      {
        "conversations": [
          {"from": "human", "value": "cd"},
          {"from": "gpt", "value": "ef"},
        ]
      },
      "ucdaEF!",
    ),
    ("unanswered_end", {"messages": [USER, ANSWER, USER]}, "ucdaEF!ucd"),
    (
      "masked",
      {"input_ids": [2, 3, 4, 1], "loss_mask": [0, 1, 0, 1]},
      "aBc!",
    ),
    ("generation", {"prompt_ids": [2, 3], "answer_ids": [4, 1]}, "abC!"),
    # The answer's letters join into one token, the template's do not reach in.
    (
      "merged",
      {"messages": [USER, {"role": "assistant", "content": "ab"}]},
      "ucdaAB!",
    ),
  )
  def test_answers_count(self, record, text):
    texts, report = self.read(record)
    self.assertEqual(texts, [text])
    self.assertEqual(str(report), "1 conversations, 0 left out")

  def test_ids_and_the_order_of_lines(self):
    whole = {"prompt_ids": [2], "answer_ids": [3]}
    told = {"messages": [USER, ANSWER]}
    path = self.write(told | {"id": "x"}, whole, told, whole | {"id": 7})
    examples, _ = conversations.read([path, path], self.tokenizer)
    self.assertEqual(
      [e.id for e in examples], ["x", "1", "2", "7", "x", "5", "6", "7"]
    )
    self.assertEqual([len(e.tokens) for e in examples[:4]], [7, 2, 7, 2])
    self.assertEqual(examples[0].tokens.dtype, np.int32)

  def test_many_are_rendered_in_parts(self):
    told = {"messages": [USER, ANSWER]}
    with mock.patch.object(conversations, "_RENDERED", 2):
      texts, _ = self.read(*[told] * 5)
    self.assertEqual(texts, ["ucdaEF!"] * 5)

  @parameterized.named_parameters(
    # Nothing ends an answer but the next message.
    ("without_ends", TEMPLATE.replace("</s>", ""), "sbucdaEFucdaEF"),
    # What a template writes behind an EOS belongs to nobody.
    ("behind_ends", TEMPLATE.replace("</s>", "</s>q"), "sbucdaEF!qucdaEF!q"),
  )
  def test_where_answers_end(self, template, text):
    tokenizer = dataclasses.replace(self.tokenizer, chat_template=template)
    path = self.write({"messages": CHAT})
    (example,), _ = conversations.read([path], tokenizer)
    self.assertEqual(marked(example, tokenizer), text)

  def test_packed_files(self):
    path = self.path.with_suffix(".json.gz")
    with gzip.open(path, "wt") as file:
      json.dump([{"messages": [USER, ANSWER]}], file)
    examples, _ = conversations.read([path], self.tokenizer)
    self.assertLen(examples, 1)

  def test_data_sets(self):
    cache = self.enter_context(tempfile.TemporaryDirectory())
    self.enter_context(mock.patch("datasets.config.HF_DATASETS_CACHE", cache))
    path = self.write({"id": "x", "messages": [USER, ANSWER]})
    examples, _ = conversations.read(
      [f"datasets:{path.parent}:train"], self.tokenizer
    )
    self.assertEqual([e.id for e in examples], ["x"])
    by_column, _ = conversations.read(
      [f"datasets:{path.parent}:train:messages"], self.tokenizer
    )
    self.assertEqual(marked(by_column[0], self.tokenizer), "ucdaEF!")
    self.assertEqual(marked(examples[0], self.tokenizer), "ucdaEF!")


class LeftOutTest(FolderCase):
  def test_what_teaches_nothing_is_counted(self):
    empty = {"role": "assistant", "content": " "}
    texts, report = self.read(
      {"messages": [USER]},
      {"messages": [USER, empty]},
      {"messages": [{"role": "user", "content": ""}, ANSWER]},
      {"input_ids": [2, 3], "loss_mask": [0, 0]},
      {"prompt_ids": [2], "answer_ids": []},
      {"messages": [SYSTEM, ANSWER, USER, ANSWER]},
      {"messages": [USER, ANSWER]},
    )
    self.assertEqual(texts, ["ucdaEF!"])
    self.assertEqual(
      report.left_out,
      {
        "without an answer": 3,
        "with an empty text": 2,
        "that no user begins": 1,
      },
    )
    self.assertEqual(
      str(report),
      "1 conversations, 6 left out (3 without an answer, 2 with an empty text, "
      "1 that no user begins)",
    )

  def test_licenses(self):
    told = {"messages": [USER, ANSWER]}
    lines = [told | {"license": name} for name in ("MIT", "GPL", "MIT")]
    texts, report = self.read(*lines, told, licenses=("MIT",))
    self.assertLen(texts, 2)
    self.assertEqual(str(report).split(" (")[1], "2 with another license)")

  def test_a_template_that_rewrites_what_was_said(self):
    """Answers that it drops later, or writes in another way, have no place."""
    template = (
      "{% for m in messages %}{% if loop.last or m['role'] != 'assistant' %}"
      "{{ m['content'] }}{% endif %}{% endfor %}"
    )
    tokenizer = dataclasses.replace(self.tokenizer, chat_template=template)
    path = self.write({"messages": CHAT[1:]}, {"messages": CHAT[1:3]})
    examples, report = conversations.read([path], tokenizer)
    self.assertLen(examples, 1)
    self.assertEqual(report.left_out, {"that the template rewrites": 1})


class RefusedTest(FolderCase):
  @parameterized.named_parameters(
    ("json", '{"messages": [', "line 2: .*"),
    ("number", "3", "line 2: not a JSON object but 3"),
    ("fields", {"text": "a"}, "line 2: none of the fields messages"),
    ("role", {"messages": [{"role": "bot", "content": ""}]}, "line 2: .*'bot'"),
    ("speaker", {"conversations": [{"from": "x"}]}, "line 2: from is 'x'"),
    (
      "unicode",
      {"messages": [{"role": "user", "content": "\ud800"}]},
      "line 2: not valid Unicode",
    ),
    ("no_mask", {"input_ids": [2]}, "line 2: loss_mask must have one entry"),
    (
      "short_mask",
      {"input_ids": [2, 3], "loss_mask": [1]},
      "line 2: loss_mask must have one",
    ),
    (
      "mask_values",
      {"input_ids": [2], "loss_mask": [2]},
      "line 2: loss_mask must hold 0 and 1",
    ),
    (
      "other_target",
      {"prompt_ids": [2], "answer_ids": [999]},
      r"line 2: answer_ids has token 999, but the target's ids are 0 to 23",
    ),
    (
      "texts_as_ids",
      {"prompt_ids": ["a"], "answer_ids": [2]},
      "line 2: prompt_ids must be a list of token ids",
    ),
    (
      "no_prompt",
      {"prompt_ids": [], "answer_ids": [2]},
      "line 2: prompt_ids is empty",
    ),
  )
  def test_broken_lines_are_named(self, line, message):
    with self.assertRaisesRegex(ValueError, f"chat.jsonl {message}") as caught:
      self.read({"messages": [USER, ANSWER]}, line)
    self.assertNotIn("\n", str(caught.exception))

  def test_a_template_that_refuses_is_told_by_the_line(self):
    template = TEMPLATE.replace(
      "%}a{%", "%}{{ 1 / (messages | length - 4) }}{%"
    )
    tokenizer = dataclasses.replace(self.tokenizer, chat_template=template)
    good, bad = {"messages": CHAT[1:3]}, {"messages": CHAT}
    path = self.write(good, good, good, bad, good)
    with self.assertRaisesRegex(
      ValueError, "line 4: chat template failed: ZeroDivision"
    ):
      conversations.read([path], tokenizer)
    tokenizer = dataclasses.replace(self.tokenizer, chat_template=None)
    with self.assertRaisesRegex(ValueError, "line 1: .* no chat template"):
      conversations.read([path], tokenizer)

  def test_a_missing_file(self):
    with self.assertRaisesRegex(FileNotFoundError, "no file"):
      conversations.read([self.path], self.tokenizer)

  @parameterized.named_parameters(
    ("none", [], "no conversation to train on: 0 conversations, 0 left out"),
    ("all", [[1, 1]], "2 of 2 tokens are of answers: .* train.preview"),
    ("nothing", [[0, 0]], "0 of 2 tokens are of answers"),
  )
  def test_masks_that_teach_nothing(self, masks, message):
    examples = [
      conversations.Example("x", np.zeros(len(m), np.int32), np.array(m, bool))
      for m in masks
    ]
    with self.assertRaisesRegex(ValueError, message):
      conversations.check(examples, conversations.Report())


class DefaultModelTest(absltest.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.tokenizer = tokenizers.from_gguf(
      gguf_header.read(real_model_path).metadata
    )

  def test_answers_end_with_their_mark(self):
    """Two turns: answers with their <|im_end|>, and nothing between them."""
    tokenizer = self.tokenizer
    user = {"role": "user", "content": "Where is it?"}
    answers = ["\u00dcber the caf\u00e9.", "Nowhere, I fear.\n\n"]
    told = [user, {"role": "assistant", "content": answers[0]}]
    told += [user, {"role": "assistant", "content": answers[1]}]
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "chat.jsonl")
      path.write_text(json.dumps({"messages": told}) + "\n")
      (example,), _ = conversations.read([path], tokenizer)
    self.assertEqual(
      example.tokens.tolist(), tokenizer.encode_chat(told, answer=False)
    )
    runs_of = np.split(
      np.arange(len(example.loss)), np.flatnonzero(np.diff(example.loss)) + 1
    )
    texts = [
      tokenizer.decode(example.tokens[slots], skip_special=False)
      for slots in runs_of
      if example.loss[slots[0]]
    ]
    self.assertEqual(texts, [f"{answer}<|im_end|>" for answer in answers])


if __name__ == "__main__":
  absltest.main()
