# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts: every form that can be read, every error with its line."""

import gzip
import json
import os
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import pytest

from specjax import data

SYSTEM = {"role": "system", "content": "be terse"}
USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "hello"}


class FolderCase(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)

  def write(self, *records, name="prompts.jsonl") -> str:
    """A file of JSON objects; a str stands for itself."""
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    path = self.folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


class FormatTest(FolderCase):
  @parameterized.named_parameters(
    ("prompt", {"prompt": "hi"}, "hi", (), None),
    ("turns", {"turns": ["hi", "and?"]}, "hi", ("and?",), None),
    ("both", {"prompt": "hi", "turns": ["hi", "x"]}, "hi", ("x",), None),
    ("messages", {"messages": [SYSTEM, USER]}, (SYSTEM, USER), (), None),
    ("prompt_messages", {"prompt": [USER]}, (USER,), (), None),
    ("answered", {"messages": [USER, ANSWER]}, (USER,), (), "hello"),
    (
      "context",
      {"messages": [USER, ANSWER, USER, ANSWER]},
      (USER, ANSWER, USER),
      (),
      "hello",
    ),
    (
      "sharegpt",
      {
        "conversations": [
          {"from": "system", "value": "be terse"},
          {"from": "human", "value": "hi"},
          {"from": "gpt", "value": "hello"},
        ]
      },
      (SYSTEM, USER),
      (),
      "hello",
    ),
  )
  def test_fields(self, record, content, later, reference):
    (prompt,) = data.load_prompts(self.write(record))
    self.assertEqual(prompt.content, content)
    self.assertEqual(prompt.later_turns, later)
    self.assertEqual(prompt.reference, reference)

  def test_ids_categories_and_groups(self):
    path = self.write(
      {"id": "a", "prompt": "x", "category": "c", "group": "g"},
      {"question_id": 81, "turns": ["x"], "category": "c"},
      {"prompt": "x", "reference": ["r"]},
    )
    first, second, third = data.load_prompts(path)
    self.assertEqual((first.id, first.category, first.group), ("a", "c", "g"))
    self.assertEqual(
      (second.id, second.category, second.group), ("81", "c", "c")
    )
    self.assertEqual((third.id, third.category, third.group), ("2", "", "all"))
    self.assertEqual(third.reference, ["r"])

  def test_the_index_is_the_number_of_the_line(self):
    """Blank lines count, since the index picks the random stream."""
    path = self.write(
      {"id": "a", "prompt": "x"}, "", {"id": "b", "prompt": "y"}
    )
    self.assertEqual([p.index for p in data.load_prompts(path)], [0, 2])
    (prompt,) = data.load_prompts(path, ids=["b"])
    self.assertEqual(prompt.index, 2)

  def test_line_separators_inside_a_text_end_no_line(self):
    text = "one\u2028two\u0085three"
    path = self.write(json.dumps({"prompt": text}, ensure_ascii=False))
    (prompt,) = data.load_prompts(path)
    self.assertEqual(prompt.content, text)

  def test_packed_files_and_arrays(self):
    records = [{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "\u00e9"}]
    expected = data.load_prompts(self.write(*records))
    lines = "".join(json.dumps(r) + "\n" for r in records).encode()
    packed = self.folder / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(lines))
    self.assertEqual(data.load_prompts(packed), expected)
    array = self.folder / "p.json"
    array.write_text(json.dumps(records, indent=2))
    self.assertEqual(data.load_prompts(str(array)), expected)

  def test_texts(self):
    prompts = data.load_prompts(("hi", "there"))
    self.assertEqual([p.content for p in prompts], ["hi", "there"])
    self.assertEqual([p.id for p in prompts], ["inline/0", "inline/1"])
    self.assertEqual([p.index for p in prompts], [0, 1])
    (prompt,) = data.load_prompts("Write a story about a river. " * 50)
    self.assertEqual(prompt.index, 0)


class IsTextTest(FolderCase):
  @parameterized.parameters(
    "Hello",
    "Hello.",
    "",
    "3.14",
    "Explain package.json to me.",
    "Explain package.json",
    "What is e.g. short for?",
    "folder/name",
    "a\nb.txt",
    "a\0b",
  )
  def test_a_text(self, source):
    self.assertTrue(data.is_text(source))

  def test_a_file_and_a_data_set(self):
    for name in ("prompts.jsonl", "with space.json", "no_suffix"):
      self.assertFalse(data.is_text(self.write(name=name)))
    for source in ("datasets:a/b", "datasets:a/b:train:text.json"):
      self.assertFalse(data.is_text(source))

  @parameterized.parameters(
    "a.jsonl", "x/a.json.gz", "./a.txt", "~/a.csv", "a.JSON", "x.d/a.b"
  )
  def test_a_missing_file(self, source):
    with self.assertRaisesRegex(FileNotFoundError, "no file '.*': check the"):
      data.is_text(source)


class ErrorTest(FolderCase):
  def check(self, message: str, *args, kind=ValueError, **kwargs) -> None:
    with self.assertRaisesRegex(kind, message) as caught:
      data.load_prompts(*args, **kwargs)
    self.assertNotIn("\n", str(caught.exception))

  @parameterized.named_parameters(
    ("json", '{"prompt": ', "malformed JSON"),
    ("nesting", "[" * 3 + "1", "malformed JSON"),
    ("number", "3", "not a JSON object but 3"),
    ("no_field", {"text": "x"}, "none of the fields messages"),
    ("empty", {"prompt": " \n"}, "empty text"),
    ("empty_turn", {"turns": ["x", ""]}, "empty text"),
    ("no_turns", {"turns": []}, r"turns is \[\]"),
    ("turns", {"turns": "x"}, "turns is 'x', not a list"),
    ("not_text", {"prompt": 3}, "3 is not text"),
    ("differ", {"prompt": "x", "turns": ["y"]}, "prompt and turns.0. differ"),
    ("no_messages", {"messages": []}, "empty message list"),
    ("role", {"messages": [{"role": "me", "content": "x"}]}, "role 'me'"),
    ("no_user", {"messages": [SYSTEM]}, "no message of the user"),
    ("silent", {"messages": [{"role": "user", "content": ""}]}, "empty text"),
    ("from", {"conversations": [{"from": "me"}]}, "from is 'me'"),
    ("value", {"conversations": [{"from": "human"}]}, "content None"),
    ("messages", {"messages": 5}, "must be a list of .* not 5"),
    ("message", {"messages": ["hi"]}, "message 0 is 'hi'"),
    ("a_role", {"messages": [{"role": ["a"], "content": "x"}]}, "role .'a'."),
    ("sharegpt", {"conversations": 5}, "conversations is 5, not a list"),
    ("turn", {"conversations": ["human"]}, "'human' is not {from, value}"),
    (
      "a_speaker",
      {"conversations": [{"from": ["a"], "value": "x"}]},
      r"from is \['a'\], not one of human",
    ),
    ("half_text", '{"prompt": "\\ud800"}', r"not valid Unicode: '\\ud800'"),
    ("half_turn", '{"turns": ["x", "\\ud800"]}', "not valid Unicode"),
    ("half_id", '{"id": "\\ud800", "prompt": "x"}', "not valid Unicode"),
    ("half_group", '{"group": "\\ud800", "prompt": "x"}', "not valid Unicode"),
    (
      "half_answer",
      '{"reference": {"a": ["\\ud800"]}, "prompt": "x"}',
      "not valid Unicode",
    ),
  )
  def test_the_line_is_named(self, record, message):
    path = self.write({"prompt": "fine"}, record)
    self.check(f"prompts.jsonl line 2: .*{message}", path)

  def test_files(self):
    self.check("no file", str(self.folder / "a.jsonl"), kind=FileNotFoundError)
    self.check("no file", self.folder / "a", kind=FileNotFoundError)
    self.check("no prompts", self.write("", ""))
    damaged = self.folder / "d.jsonl.gz"
    damaged.write_bytes(gzip.compress(b'{"prompt": "x"}')[:-9])
    self.check("d.jsonl.gz cannot be read", str(damaged))
    damaged.write_bytes(b'{"prompt": "x"}')
    self.check("d.jsonl.gz cannot be read", str(damaged))
    packed = bytearray(gzip.compress(b'{"prompt": "x"}' * 50))
    packed[12:20] = b"\xff" * 8
    damaged.write_bytes(packed)
    self.check("d.jsonl.gz cannot be read", str(damaged))
    latin = self.folder / "l.jsonl"
    latin.write_bytes('{"prompt": "\u00e9"}'.encode("latin-1"))
    self.check("l.jsonl cannot be read", str(latin))

  def test_lists(self):
    self.check("no prompts", ())
    self.check("prompt 1: empty text", ("x", ""))
    self.check("prompt 0: 3 is not text", (3,))
    self.check("prompt 0: empty text", "")
    self.check("prompt 1: not valid Unicode", ("x", "a\ud800"))

  def test_ids_must_be_unique(self):
    path = self.write({"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"})
    self.check("'a' stands on lines 1 and 2", path)


class SelectionTest(FolderCase):
  def setUp(self):
    super().setUp()
    self.path = self.write(*({"id": i, "prompt": i} for i in "abcd"))

  def ids(self, content: str) -> str:
    path = self.folder / "ids"
    path.write_text(content)
    return str(path)

  @parameterized.parameters(
    "d\n\nb\n",
    '["d", "b"]',
    '{"about": "x", "groups": {"g": ["d"], "h": ["b"]}}',
  )
  def test_ids_select_and_order(self, content):
    prompts = data.load_prompts(self.path, self.ids(content))
    self.assertEqual([(p.id, p.index) for p in prompts], [("d", 3), ("b", 1)])

  @parameterized.parameters(
    "",
    "{}",
    "[3]",
    '{"groups": 3}',
    '{"groups": {"a": null}}',
    '{"groups": {"a": "bc"}}',
  )
  def test_a_file_without_ids(self, content):
    with self.assertRaisesRegex(ValueError, "does not list ids"):
      data.load_prompts(self.path, self.ids(content))

  def test_ids_are_valid_unicode(self):
    with self.assertRaisesRegex(ValueError, "ids: not valid Unicode"):
      data.load_prompts(self.path, self.ids('["\\ud800"]'))

  @parameterized.parameters(
    (["a", "x", "y"], "2 ids are not among the prompts: 'x', 'y'"),
    (["a", "b", "a"], "'a' is listed twice"),
    ([], "empty list of ids"),
  )
  def test_ids_that_do_not_fit(self, ids, message):
    with self.assertRaisesRegex(ValueError, message):
      data.load_prompts(self.path, ids)

  def test_a_missing_file(self):
    with self.assertRaisesRegex(FileNotFoundError, "no file"):
      data.load_prompts(self.path, self.folder / "absent")


class DatasetTest(FolderCase):
  def setUp(self):
    super().setUp()
    cache = self.enter_context(tempfile.TemporaryDirectory())
    self.enter_context(
      absltest.mock.patch("datasets.config.HF_DATASETS_CACHE", cache)
    )
    rows = [
      {"id": "a", "prompt": "x", "title": "t", "chat": [USER, ANSWER]},
      {"id": "b", "prompt": "y", "title": "u", "chat": [USER]},
    ]
    self.write(*rows, name="train.jsonl")
    self.name = str(self.folder)

  @parameterized.parameters(
    ("a/b", ("a/b", None, None)),
    ("a/b@1f", ("a/b", None, "1f")),
    ("a/b/main", ("a/b", "main", None)),
    ("a/b/main@1f", ("a/b", "main", "1f")),
    ("squad@v1", ("squad", None, "v1")),
  )
  def test_address_of_a_data_set(self, name, expected):
    self.assertEqual(data._address(name), expected)

  def test_rows_are_read_as_lines_are(self):
    prompts = data.load_prompts(f"datasets:{self.name}")
    self.assertEqual([p.id for p in prompts], ["a", "b"])
    self.assertEqual([p.content for p in prompts], ["x", "y"])
    self.assertEqual([p.index for p in prompts], [0, 1])

  def test_a_column_holds_the_prompt(self):
    texts = data.load_prompts(f"datasets:{self.name}:train:title")
    self.assertEqual([p.content for p in texts], ["t", "u"])
    chats = data.load_prompts(f"datasets:{self.name}:train:chat")
    self.assertEqual(chats[0].content, (USER,))
    self.assertEqual(chats[0].reference, "hello")

  def test_what_is_missing_is_named(self):
    for source, message in (
      (f"datasets:{self.name}/absent", "absent' cannot be read"),
      (f"datasets:{self.name}:test", "cannot be read: .*test"),
      (f"datasets:{self.name}:train:body", "no column 'body': id, prompt"),
    ):
      with self.assertRaisesRegex(ValueError, message) as caught:
        data.load_prompts(source)
      self.assertNotIn("\n", str(caught.exception))

  def test_several_splits_need_a_name(self):
    self.write({"id": "c", "prompt": "z"}, name="test.jsonl")
    with self.assertRaisesRegex(
      ValueError, "splits train, test: datasets:NAME:SPLIT"
    ):
      data.load_prompts(f"datasets:{self.name}")


SIZES = {
  "spec_bench": 480,
  "mt_bench": 80,
  "humaneval": 164,
  "gsm8k": 200,
  "mbpp": 500,
  "self_instruct": 252,
  "oasst": 261,
  "long_summarization": 45,
  "rag_multi_doc": 100,
}


@pytest.mark.skipif(
  "SPECJAX_DATA" not in os.environ,
  reason="SPECJAX_DATA names no folder of evaluation prompts",
)
class EvaluationPromptsTest(absltest.TestCase):
  def test_every_file_loads(self):
    folder = pathlib.Path(os.environ["SPECJAX_DATA"])
    self.assertEqual({p.stem for p in folder.glob("*.jsonl")}, set(SIZES))
    for name, size in SIZES.items():
      self.assertLen(data.load_prompts(folder / f"{name}.jsonl"), size)

  def test_the_small_spec_bench_has_eight_of_each_group(self):
    folder = pathlib.Path(os.environ["SPECJAX_DATA"])
    prompts = data.load_prompts(
      folder / "spec_bench.jsonl", folder / "spec_bench_small.json"
    )
    groups = [prompt.group for prompt in prompts]
    self.assertLen(prompts, 48)
    self.assertLen(set(groups), 6)
    self.assertEqual({groups.count(group) for group in groups}, {8})


if __name__ == "__main__":
  absltest.main()
