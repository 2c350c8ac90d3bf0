# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target makes up questions, which it then answers."""

import contextlib
import dataclasses
import io
import json
from typing import Any

from absl.testing import absltest

from specjax import tokenizers
from specjax.decoding import refill
from specjax.models import gguf_header
from tests import runs, train_regenerate_test
from train import invent, inventing, regenerate

TEMPLATE = (
  "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}</s>{% endfor %}"
  "{% if add_generation_prompt %}a{% endif %}"
)
CONFIG = """from ml_collections import ConfigDict


def get_config(arg=""):
  return ConfigDict({{
    "target": {target!r},
    "systems": ("", "cd"),
    "temperatures": (0.7, 1.0),
    "limit": int(arg or 6),
    "max_new_tokens": 40,
    "capacity": 64,
    "rows": 3,
    "reading": 2,
    "rounds": 4,
  }}).lock()
"""


class FolderCase(train_regenerate_test.FolderCase):
  def setUp(self):
    super().setUp()
    self.model = runs.write_model(self.folder / "m.gguf", template=TEMPLATE)
    metadata = gguf_header.read(self.model).metadata
    self.tokenizer = tokenizers.from_gguf(metadata)


class InventingTest(FolderCase):
  def queue(self, found=(), **changes) -> inventing.Inventing:
    settings: dict[str, Any] = {
      "systems": ("", "ef"),
      "temperatures": (0.7, 1.0),
      "limit": 5,
    }
    tokenizer = changes.pop("tokenizer", self.tokenizer)
    return inventing.Inventing(tokenizer, found=found, **settings | changes)

  def answer(self, request, text, reason="eos") -> refill.Answer:
    return refill.Answer(request, tuple(self.tokenizer.encode(text)), reason)

  def test_a_user_is_about_to_speak(self):
    found = self.queue().take(9)
    self.assertEqual([r.index for r in found], [0, 1, 2, 3, 4])
    self.assertEqual([r.temperature for r in found], [0.7, 0.7, 1.0, 1.0, 0.7])
    for request, told in zip(found, ("", "ef", "", "ef", "")):
      user = [{"role": "user", "content": "gh"}]
      system = [{"role": "system", "content": told}] if told else []
      whole = self.tokenizer.encode_chat([*system, *user])
      ids = list(request.ids)
      self.assertEqual(whole[: len(ids)], ids)
      self.assertEqual(self.tokenizer.decode(whole[len(ids) :])[:2], "gh")

  def test_a_start_has_one_bos_where_texts_have_one(self):
    plain = self.queue().take(1)[0].ids
    for template in (TEMPLATE, "<s>" + TEMPLATE):
      tokenizer = dataclasses.replace(
        self.tokenizer, chat_template=template, add_bos=True
      )
      bos = tokenizer.encode("<s>", bos=False)
      self.assertEqual(bos, [tokenizer.bos_id])
      (request,) = self.queue(tokenizer=tokenizer, limit=1).take(1)
      self.assertEqual(list(request.ids), [*bos, *plain])

  def test_what_is_kept_is_a_conversation(self):
    queue = self.queue()
    first, second, *others = queue.take(5)
    line = queue.record(self.answer(second, " gh "))
    self.assertEqual(
      line,
      {
        "id": "invented-000001",
        "index": 1,
        "source": "invented",
        "temperature": 0.7,
        "messages": [
          {"role": "system", "content": "ef"},
          {"role": "user", "content": "gh"},
        ],
      },
    )
    for request, text, reason in (
      (first, "gh", "eos"),
      (others[0], "gh", "length"),
      (others[1], " ", "eos"),
    ):
      self.assertIsNone(queue.record(self.answer(request, text, reason)))
    self.assertEqual(
      queue.skipped, {"asked before": 1, "unfinished": 1, "empty": 1}
    )
    again = self.queue([line])
    self.assertEqual([r.index for r in again.take(9)], [0, 2, 3, 4])
    self.assertEqual(again.answered, 1)
    self.assertIsNone(again.record(self.answer(first, "gh")))

  def test_a_template_that_does_not_end_a_question(self):
    tokenizer = train_regenerate_test.tiny_tokenizer(self.folder)
    with self.assertRaisesRegex(ValueError, "does not end what a user says"):
      self.queue(tokenizer=tokenizer)


class CommandTest(FolderCase):
  def call(self, command, config, *argv) -> tuple[int, str]:
    argv = (f"--config={config}", *argv)
    with (
      contextlib.redirect_stdout(io.StringIO()) as output,
      contextlib.redirect_stderr(output),
    ):
      status = command.main(argv)
    return status, output.getvalue()

  def test_questions_are_answered(self):
    config = self.folder / "invent.py"
    config.write_text(CONFIG.format(target=str(self.model)))
    workdir = f"--workdir={self.folder / 'questions'}"
    status, text = self.call(invent, f"{config}:12", workdir)
    self.assertEqual(status, 0, text)
    path = self.folder / "questions" / "questions.jsonl"
    first = path.read_text().splitlines()
    status, text = self.call(invent, f"{config}:24", workdir)
    self.assertEqual(status, 0, text)
    lines = path.read_text().splitlines()
    self.assertEqual(lines[: len(first)], first)
    self.assertGreater(len(lines), 2)
    self.assertIn(f"{len(first)} were there before", text)
    asked = self.folder / "regenerate.py"
    content = train_regenerate_test.CONFIG.format(target=str(self.model))
    asked.write_text(content)
    status, text = self.call(
      regenerate, f"{asked}:{path}", f"--workdir={self.folder / 'answers'}"
    )
    self.assertEqual(status, 0, text)
    answers = (self.folder / "answers" / "answers.jsonl").read_text()
    ids = {json.loads(line)["id"] for line in answers.splitlines()}
    self.assertEqual(ids, {json.loads(line)["id"] for line in lines})

  def test_mistakes(self):
    config = self.folder / "invent.py"
    config.write_text(CONFIG.format(target=str(self.model)))
    for argv, message in (
      (["--config.limit=0"], "limit is 0: use 1 or more"),
      (["--config.systems=()"], "systems is .*: give at least one text"),
      (["--config.turns=2"], "unknown config key 'turns'"),
      (["--config.temperatures=(-1.0,)"], "temperatures is .*0 or more"),
    ):
      with self.subTest(argv=argv):
        folder = self.folder / "new"
        status, text = self.call(invent, config, f"--workdir={folder}", *argv)
        self.assertEqual(status, 2, text)
        self.assertRegex(text.splitlines()[-1], message)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
  absltest.main()
