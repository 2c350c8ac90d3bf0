# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target answers the questions of a data set, kills notwithstanding."""

import contextlib
import dataclasses
import io
import json
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized

from specjax import tokenizers
from specjax.decoding import refill
from specjax.models import gguf_header
from tests import runs
from train import asking, conversations, questions, regenerate

TEMPLATE = (
  "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}"
  "{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
  "{% if add_generation_prompt %}a{% endif %}"
)
CONFIG = """from ml_collections import ConfigDict


def get_config(arg=""):
  return ConfigDict({{
    "target": {target!r},
    "conversations": arg,
    "temperatures": (0.0, 1.0),
    "turns": 2,
    "max_new_tokens": 10,
    "capacity": 64,
    "rows": 3,
    "reading": 2,
    "rounds": 4,
  }}).lock()
"""


def tiny_tokenizer(folder: pathlib.Path) -> tokenizers.Tokenizer:
  """That of a model with a template, which is written to a folder."""
  path = runs.write_model(folder / "model.gguf", template=TEMPLATE)
  return tokenizers.from_gguf(gguf_header.read(path).metadata)


def told(roles: str, text: str = "cd") -> list[dict[str, str]]:
  """Messages of a conversation: s, u, a or t each."""
  names = {r[0]: r for r in ("system", "user", "assistant", "tool")}
  return [{"role": names[role], "content": text} for role in roles]


def write(path: pathlib.Path, *records) -> pathlib.Path:
  path.write_text("".join(json.dumps(record) + "\n" for record in records))
  return path


class FolderCase(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.path = self.folder / "chat.jsonl"


class QuestionsTest(FolderCase):
  @parameterized.parameters(
    ("ua", ["u"]),
    ("suaua", ["su", "u"]),
    # A question that nobody answered yet is one as well.
    ("uau", ["u", "u"]),
    ("uuau", ["uu", "u"]),
    # New answers need not lead to what followed a tool.
    ("uatau", ["u"]),
    ("uaaua", ["u"]),
    ("au", []),
    ("sa", []),
  )
  def test_what_users_say(self, roles, expected):
    turns = questions.split(told(roles))
    found = ["".join(m["role"][0] for m in turn) for turn in turns]
    self.assertEqual(found, expected)

  def test_forms_and_counts(self):
    write(
      self.path,
      {"messages": told("uau"), "source": "x", "license": "MIT"},
      {"prompt": "ef", "license": "MIT"},
      {"turns": ["ef", "gh"], "license": "MIT"},
      {"messages": told("ua"), "license": "other"},
      {"messages": told("au"), "license": "MIT"},
      {"messages": told("ua", " "), "license": "MIT"},
    )
    found, report = questions.read([self.path], ("MIT",))
    by_index = {q.index: q for q in found}
    self.assertEqual(
      {i: len(q.turns) for i, q in by_index.items()}, {0: 2, 1: 1, 2: 2}
    )
    self.assertEqual(by_index[0].about, {"source": "x", "license": "MIT"})
    self.assertEqual(
      [m["content"] for m in by_index[2].messages(["kl"])], ["ef", "kl", "gh"]
    )
    self.assertEqual(
      report.left_out,
      {
        "with another license": 1,
        "that no user begins": 1,
        "with an empty text": 1,
      },
    )

  def test_the_order_is_that_of_no_source(self):
    records = [{"id": f"q{i}", "prompt": "cd"} for i in range(40)]
    first, _ = questions.read([write(self.path, *records)])
    ids = [q.id for q in first]
    self.assertNotEqual(ids, [r["id"] for r in records])
    again, _ = questions.read([write(self.path, *reversed(records))])
    self.assertEqual([q.id for q in again], ids)

  def test_a_digest_is_that_of_what_is_asked(self):
    records = [{"id": f"q{i}", "prompt": f"c{i}"} for i in range(4)]
    digest = lambda *r: questions.digest(
      questions.read([write(self.path, *r)])[0]
    )
    first = digest(*records)
    self.assertEqual(digest(*records), first)
    # Other random streams.
    self.assertNotEqual(digest(*reversed(records)), first)
    self.assertNotEqual(digest(*records[1:]), first)
    self.assertNotEqual(
      digest({**records[0], "prompt": "d"}, *records[1:]), first
    )

  def test_broken_lines(self):
    self.path.write_text('{"prompt": "a"}\n{"prompt"')
    with self.assertRaisesRegex(ValueError, "chat.jsonl line 2"):
      questions.read([self.path])


class AskingTest(FolderCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    with tempfile.TemporaryDirectory() as folder:
      cls.tokenizer = tiny_tokenizer(pathlib.Path(folder))

  def queue(self, *turns, **changes) -> asking.Asking:
    asked = [
      questions.Questions(f"q{i}", i, tuple(map(tuple, t)), {"license": "MIT"})
      for i, t in enumerate(turns)
    ]
    settings: dict[str, Any] = {
      "temperatures": (0.0, 0.7),
      "turns": 2,
      "room": 9,
      "found": {},
    }
    return asking.Asking(asked, self.tokenizer, **settings | changes)

  def ids(self, text: str) -> tuple[int, ...]:
    return tuple(self.tokenizer.encode(text))

  def test_temperatures_and_lengths(self):
    queue = self.queue(
      [told("u", "cdef")], [told("u", "cd")], [told("u", "cdefghij")]
    )
    found = queue.take(3)
    self.assertEqual(
      [(r.index, r.temperature, r.ids) for r in found],
      [(1, 0.7, self.ids("ucda")), (0, 0.0, self.ids("ucdefa"))],
    )
    self.assertEqual(queue.skipped, {"too long": 1})
    self.assertEmpty(queue.take(3))

  def test_what_a_template_refuses_is_skipped(self):
    refusal = "{% if messages | length == 2 %}{{ 1 / 0 }}{% endif %}"
    self.tokenizer = dataclasses.replace(
      self.tokenizer, chat_template=refusal + TEMPLATE
    )
    queue = self.queue([told("u")], [told("su")], [told("u")])
    self.assertEqual([r.index for r in queue.take(3)], [0, 2])
    self.assertEqual(queue.skipped, {"that the template refuses": 1})

  @parameterized.parameters(
    ("ef", "eos", True), ("ef", "length", False), ("", "eos", False)
  )
  def test_the_next_question_follows_the_answer(self, text, reason, follows):
    queue = self.queue([told("u"), told("u", "gh")], room=20)
    (first,) = queue.take(4)
    answer = refill.Answer(first, (*self.ids(text), 1), reason)
    line = queue.record(answer)
    self.assertEqual(
      line,
      {
        "id": "q0",
        "index": 0,
        "turn": 0,
        "license": "MIT",
        "temperature": 0.0,
        "reason": reason,
        "prompt_ids": list(first.ids),
        "answer_ids": list(answer.tokens),
      },
    )
    found = queue.take(4)
    self.assertLen(found, int(follows))
    if follows:
      self.assertEqual(found[0].ids, self.ids("ucdaef</s>ugha"))
      self.assertEqual(found[0].sample, 1)
    # A run that finds the line goes on at the same place.
    again = self.queue(
      [told("u"), told("u", "gh")], room=20, found={(0, 0): line}
    )
    self.assertEqual(again.take(4), found)
    self.assertEqual(again.answered, 1)

  def test_other_conversations_than_before(self):
    line = {"id": "x", "index": 0, "turn": 0}
    with self.assertRaisesRegex(ValueError, "0 was 'x' .* is 'q0'"):
      self.queue([told("u")], found={(0, 0): line}).take(1)


class CommandTest(FolderCase):
  def setUp(self):
    super().setUp()
    tiny_tokenizer(self.folder)
    target = str(self.folder / "model.gguf")
    self.config = self.folder / "config.py"
    self.config.write_text(CONFIG.format(target=target))
    texts = ["cd", "ef", "cdefg", "h", "ijk", "klmn", "b"]
    records = [{"id": f"q{t}", "turns": [t, "cd"]} for t in texts]
    write(self.path, *records, {"prompt": "c" * 60})

  def call(self, *argv, workdir="out", config=None) -> tuple[int, str]:
    """The exit status and what was printed."""
    argv = (
      f"--config={config or f'{self.config}:{self.path}'}",
      f"--workdir={self.folder / workdir}",
      *argv,
    )
    with (
      contextlib.redirect_stdout(io.StringIO()) as output,
      contextlib.redirect_stderr(output),
    ):
      status = regenerate.main(argv)
    return status, output.getvalue()

  def lines(self, workdir="out") -> list[str]:
    text = (self.folder / workdir / "answers.jsonl").read_text()
    return text.splitlines()

  def test_answers_and_a_killed_run(self):
    status, text = self.call()
    self.assertEqual(status, 0, text)
    whole = self.lines()
    self.assertRegex(text, "8 are asked, sha256 [0-9a-f]{64}")
    self.assertRegex(text, f"{len(whole)} lines, .* 1 skipped, 1 too long")
    parsed = {(r["id"], r["turn"]): r for r in map(json.loads, whole)}
    self.assertLen(parsed, len(whole))
    self.assertEqual({r["reason"] for r in parsed.values()}, {"eos", "length"})
    self.assertEqual({turn for _, turn in parsed}, {0, 1})
    for (name, turn), record in parsed.items():
      if turn:
        before = parsed[name, 0]
        known = before["prompt_ids"] + before["answer_ids"]
        self.assertEqual(record["prompt_ids"][: len(known)], known)
    # Killed while it wrote a line.
    killed = self.folder / "out" / "answers.jsonl"
    killed.write_text("\n".join(whole[:4]) + "\n" + whole[4][:20])
    status, text = self.call("--config.rounds=3")
    self.assertEqual(status, 0, text)
    self.assertIn("4 were there before", text)
    self.assertCountEqual(self.lines(), whole)
    # What training reads.
    tokenizer = tiny_tokenizer(self.folder)
    examples, _ = conversations.read([killed], tokenizer)
    self.assertLen(examples, len(whole))

  def test_a_part_and_then_the_rest(self):
    status, text = self.call()
    self.assertEqual(status, 0, text)
    whole = self.lines()
    status, text = self.call("--config.limit=3", workdir="part")
    self.assertEqual(status, 0, text)
    self.assertContainsSubset(self.lines("part"), whole)
    self.assertLess(len(self.lines("part")), len(whole))
    self.call(workdir="part")
    self.assertCountEqual(self.lines("part"), whole)

  def test_mistakes(self):
    (self.folder / "old").mkdir()
    (self.folder / "old" / "answers.jsonl").write_text("{}\n")
    runs.write_model(self.folder / "base.gguf")
    for argv, message in (
      (["--config.turns=0"], "turns is 0: use 1 or more"),
      (["--config.mesh.data=0"], "mesh.data is 0: use 1 or more"),
      (["--config.target=none.gguf"], "none.gguf"),
      (["--config.temperature=1"], "did you mean 'temperatures'"),
      (["--config.temperatures=(-1.0,)"], "temperatures is .*0 or more"),
      (["--config.temperatures=()"], "at least one number"),
      (["--config.capacity=10"], "capacity is 10, which leaves no room"),
      (["--config.conversations=none.jsonl"], "no file 'none.jsonl'"),
      (["--config.licenses=('MIT',)"], "no conversation to answer: .*license"),
      (["--rows=3"], "unknown argument"),
      ([f"--config.target={self.folder}/base.gguf"], "has no chat template"),
    ):
      with self.subTest(argv=argv):
        status, text = self.call(*argv, workdir="new")
        self.assertEqual(status, 2, text)
        self.assertRegex(text.splitlines()[-1], message)
        # Else the right command would be one of another config.
        self.assertFalse((self.folder / "new").exists())
    status, text = self.call(config=self.config)
    self.assertEqual(status, 2)
    self.assertIn("conversations is empty: name a file", text)
    status, text = self.call(workdir="old")
    self.assertEqual(status, 2)
    self.assertIn("lines without a config.json", text)

  def test_another_config(self):
    out = self.folder / "out"
    out.mkdir()
    config = {"target": "x", "rows": 1}
    (out / "config.json").write_text(json.dumps(config))
    status, text = self.call()
    self.assertEqual(status, 2)
    self.assertRegex(text, "was begun with another capacity, .* --overwrite")


if __name__ == "__main__":
  absltest.main()
