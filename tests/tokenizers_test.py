# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers against the reference libraries' ids, and their own promises."""

import json
import pathlib
import tempfile
import time

from absl.testing import absltest, parameterized
import pytest

from specjax import tokenizers
from specjax.models import gguf_header
from specjax.text import vocabulary as vocabulary_lib

GOLDEN = pathlib.Path(__file__).parent / "golden"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (
  "\u0120 \u0120",  # Two spaces become one token.
  "1 2",
  "12 3",
  "h e",
  "l l",
  "he ll",
  "hell o",
)
TEMPLATE = (
  "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}"
  "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def byte_level(**fields) -> dict:
  """GGUF metadata of a tiny byte-level vocabulary; fields replace keys."""
  alphabet = sorted(
    vocabulary_lib.byte_alphabet().items(), key=lambda item: item[1]
  )
  tokens = [*SPECIAL, *(character for character, _ in alphabet)]
  tokens += [merge.replace(" ", "") for merge in MERGES]
  metadata = {
    "model": "gpt2",
    "pre": "smollm",
    "tokens": tokens,
    "token_type": [3] * 3 + [1] * (len(tokens) - 3),
    "merges": list(MERGES),
    "bos_token_id": 1,
    "eos_token_id": 2,
  } | fields
  return {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}


def with_tokens(texts: list[str], types: list[int], **fields) -> dict:
  """The tiny vocabulary with further tokens at its end."""
  plain = byte_level()
  return byte_level(
    tokens=plain["tokenizer.ggml.tokens"] + texts,
    token_type=plain["tokenizer.ggml.token_type"] + types,
    **fields,
  )


def sentencepiece(**fields) -> dict:
  """GGUF metadata of the golden SentencePiece vocabulary."""
  metadata = json.loads((GOLDEN / "tokenizer_sentencepiece.json").read_text())
  changes = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
  return metadata["metadata"] | changes


def pieces(tokenizer: tokenizers.Tokenizer, text: str) -> list[bytes]:
  return [tokenizer.token_bytes(i) for i in tokenizer.encode(text, bos=False)]


class ByteLevelTest(parameterized.TestCase):
  @parameterized.parameters("smollm", "gpt-2", "llama-bpe", "qwen2", "olmo")
  def test_any_text_comes_back(self, pre):
    tokenizer = tokenizers.from_gguf(byte_level(pre=pre))
    for text in (
      "",
      " ",
      "hello  hell 123\n\n",
      "caf\u00e9 \U0001f600\u200d x",
    ):
      ids = tokenizer.encode(text, bos=False)
      self.assertEqual(tokenizer.decode(ids), text)
      self.assertEqual(b"".join(pieces(tokenizer, text)), text.encode())

  @parameterized.parameters(
    ("smollm", "h  123", [b"h", b"  ", b"1", b"2", b"3"]),
    ("gpt-2", "h  123", [b"h", b" ", b" ", b"123"]),
    ("llama-bpe", "h  123", [b"h", b" ", b" ", b"123"]),
    ("llama-bpe", "h  \n", [b"h", b"  ", b"\n"]),
    ("llama3", "3312 hello", [b"3", b"3", b"1", b"2", b" ", b"hello"]),
    ("gpt-2", "3312 hello", [b"3", b"3", b"12", b" ", b"hello"]),
    ("qwen2", "3312 hello", [b"3", b"3", b"1", b"2", b" ", b"hello"]),
    ("qwen2", "h  \n", [b"h", b"  ", b"\n"]),
    ("olmo", "h  123", [b"h", b" ", b" ", b"123"]),
    # Letter and accent become one character, which llama.cpp leaves apart.
    ("qwen2", "e\u0301", [b"\xc3", b"\xa9"]),
    ("mpt", "e\u0301", [b"\xc3", b"\xa9"]),
    ("llama3", "e\u0301", [b"e", b"\xcc", b"\x81"]),
  )
  def test_the_named_rule_cuts_words(self, pre, text, expected):
    metadata = byte_level(pre=pre)
    self.assertEqual(pieces(tokenizers.from_gguf(metadata), text), expected)

  def test_llama3_takes_a_word_that_is_a_token_unmerged(self):
    extra = with_tokens(["zebra"], [1], pre="llama-bpe")
    self.assertEqual(pieces(tokenizers.from_gguf(extra), "zebra"), [b"zebra"])
    extra["tokenizer.ggml.pre"] = "gpt-2"
    self.assertLen(pieces(tokenizers.from_gguf(extra), "zebra"), 5)

  def test_special_tokens_in_text_are_read_as_such(self):
    tokenizer = tokenizers.from_gguf(byte_level())
    ids = tokenizer.encode("<|im_start|>hello<|im_end|>")
    self.assertEqual([ids[0], ids[-1]], [1, 2])
    self.assertLen(ids, 3)
    self.assertEqual(tokenizer.decode(ids), "hello")
    self.assertEqual(
      tokenizer.decode(ids, skip_special=False), "<|im_start|>hello<|im_end|>"
    )
    self.assertEqual(tokenizer.token_bytes(2), b"<|im_end|>")

  def test_user_defined_tokens_are_whole_and_are_text(self):
    tokenizer = tokenizers.from_gguf(with_tokens(["<a b>\u00e9"], [4]))
    last = tokenizer.num_tokens - 1
    ids = tokenizer.encode("he<a b>\u00e9ll")
    self.assertEqual(ids[1], last)
    self.assertNotIn(last, tokenizer.special_ids)
    self.assertEqual(tokenizer.decode(ids), "he<a b>\u00e9ll")

  def test_unused_ids_at_the_end_are_not_known(self):
    plain = tokenizers.from_gguf(byte_level())
    padded = tokenizers.from_gguf(with_tokens(["[PAD0]", "[PAD1]"], [5, 5]))
    self.assertEqual(padded.num_tokens, plain.num_tokens)
    self.assertEqual(padded.fingerprint(), plain.fingerprint())
    with self.assertRaisesRegex(ValueError, "id 266 .* 266 known tokens"):
      padded.decode([padded.num_tokens])
    with self.assertRaisesRegex(ValueError, "id -1 "):
      padded.token_bytes(-1)

  def test_turn_ends_count_as_eos(self):
    metadata = with_tokens(
      ["<|eot_id|>", "<|other|>"], [3, 3], eos_token_id=0, eot_token_id=1
    )
    eot = len(metadata["tokenizer.ggml.tokens"]) - 2
    tokenizer = tokenizers.from_gguf(metadata)
    self.assertEqual(tokenizer.eos_ids, (0, 1, 2, eot))

  def test_text_that_is_not_unicode_is_refused(self):
    tokenizer = tokenizers.from_gguf(byte_level())
    with self.assertRaisesRegex(ValueError, "not valid Unicode"):
      tokenizer.encode("a\ud800")

  @parameterized.named_parameters(
    ("model", {"model": "rwkv"}, "'rwkv'.*known are gpt2, llama"),
    ("pre", {"pre": "qwen3"}, "'qwen3'.*known are gpt-2"),
    ("default", {"pre": "default"}, "unknown pre-tokenizer 'default'"),
    ("no_pre", {"pre": None}, "None.*tokenizer.ggml.pre"),
    ("no_tokens", {"tokens": None}, "no tokenizer.ggml.tokens"),
    ("no_merges", {"merges": None}, "no tokenizer.ggml.merges"),
    ("types", {"token_type": [1]}, "token_type has 1 entries for 266"),
    ("merge", {"merges": ["ab"]}, r"merges\[0\] is 'ab'"),
    ("unknown_part", {"merges": ["h zz"]}, "merges do not fit"),
    ("not_text", {"tokens": [b"a"], "token_type": [1]}, r"tokens\[0\]"),
    ("eos", {"eos_token_id": 266}, "id 266 is not one of 266"),
    ("bos", {"bos_token_id": None, "add_bos_token": True}, "no BOS token"),
  )
  def test_fields_that_do_not_fit_are_refused(self, fields, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      tokenizers.from_gguf(byte_level(**fields))
    self.assertNotIn("\n", str(caught.exception))


class SentencePieceTest(parameterized.TestCase):
  def test_ids_equal_those_of_the_library(self):
    tokenizer = tokenizers.from_gguf(sentencepiece())
    golden = json.loads((GOLDEN / "tokenizer_sentencepiece.json").read_text())
    for case in golden["cases"]:
      with self.subTest(text=case["text"]):
        ids = tokenizer.encode(case["text"], bos=False)
        self.assertEqual(ids, case["ids"])
        self.assertEqual(tokenizer.decode(ids), case["text"])

  def test_prefix_space_is_a_setting(self):
    on = tokenizers.from_gguf(sentencepiece())
    off = tokenizers.from_gguf(sentencepiece(add_space_prefix=False))
    self.assertEqual(pieces(on, "the"), [b" the"])
    self.assertEqual(b"".join(pieces(off, "the")), b"the")
    for tokenizer in (on, off):
      for text in ("the river", " the", "  the"):
        self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

  def test_bytes_stand_for_characters_without_a_token(self):
    tokenizer = tokenizers.from_gguf(sentencepiece())
    self.assertEqual(
      pieces(tokenizer, "\U0001f600"),
      [b" ", b"\xf0", b"\x9f", b"\x98", b"\x80"],
    )
    self.assertEqual(tokenizer.vocabulary()[3 + 10], "<0x0A>")
    self.assertEqual(tokenizer.token_bytes(3 + 10), b"\n")

  def test_bos_is_the_custom(self):
    tokenizer = tokenizers.from_gguf(sentencepiece())
    self.assertEqual(tokenizer.encode("the")[0], 1)
    self.assertEqual(tokenizer.encode(""), [1])
    silent = tokenizers.from_gguf(sentencepiece(add_bos_token=False))
    self.assertNotEqual(silent.encode("the")[0], 1)


class BosTest(parameterized.TestCase):
  @pytest.mark.fault_case("B59")
  def test_one_bos_whoever_writes_it(self):
    """vllm-project/vllm#27486, sgl-project/sglang#888."""
    messages = [{"role": "user", "content": "hello"}]
    for template in (TEMPLATE, TEMPLATE.replace("{{ bos_token }}", "")):
      metadata = byte_level(add_bos_token=True)
      metadata["tokenizer.chat_template"] = template
      tokenizer = tokenizers.from_gguf(metadata)
      ids = tokenizer.encode_chat(messages)
      self.assertEqual(ids[0], 1)
      self.assertEqual(ids.count(1), 1)
      # What training sees is what inference sees, the answer following it.
      answered = [*messages, {"role": "assistant", "content": "hell"}]
      whole = tokenizer.encode_chat(answered, answer=False)
      self.assertEqual(whole[: len(ids)], ids)
    for text in ("hello", "<|im_start|>hello"):
      ids = tokenizer.encode(text)
      self.assertEqual(ids[0], 1)
      self.assertEqual(ids.count(1), 1)
    self.assertEqual(tokenizer.encode("hello", bos=False).count(1), 0)

  def test_no_bos_where_it_is_not_the_custom(self):
    metadata = byte_level(add_bos_token=False)
    metadata["tokenizer.chat_template"] = "{{ messages[0]['content'] }}"
    tokenizer = tokenizers.from_gguf(metadata)
    messages = [{"role": "user", "content": "hello"}]
    self.assertNotIn(1, tokenizer.encode("hello"))
    self.assertNotIn(1, tokenizer.encode_chat(messages))

  @parameterized.parameters(("llama-bpe", 1), ("smollm", 0), ("qwen2", 0))
  def test_the_custom_of_files_that_do_not_say(self, pre, count):
    tokenizer = tokenizers.from_gguf(byte_level(pre=pre))
    self.assertEqual(tokenizer.encode("hello").count(1), count)

  def test_eos_at_the_end_of_texts_but_not_of_chats(self):
    metadata = byte_level(add_eos_token=True)
    metadata["tokenizer.chat_template"] = TEMPLATE
    tokenizer = tokenizers.from_gguf(metadata)
    self.assertEqual(tokenizer.encode("hello").count(2), 1)
    self.assertEqual(tokenizer.encode("hello<|im_end|>").count(2), 1)
    chat = tokenizer.encode_chat([{"role": "user", "content": "hello"}])
    self.assertEqual(chat.count(2), 0)

  def test_messages_need_a_template(self):
    tokenizer = tokenizers.from_gguf(byte_level())
    with self.assertRaisesRegex(ValueError, "no chat template: give prompts"):
      tokenizer.encode_chat([{"role": "user", "content": "hello"}])


class DetokenizerTest(parameterized.TestCase):
  @parameterized.parameters("byte_level", "sentencepiece")
  def test_pieces_are_whole_characters_and_add_up(self, kind):
    metadata = byte_level() if kind == "byte_level" else sentencepiece()
    tokenizer = tokenizers.from_gguf(metadata)
    text = " \u00e9\U0001f600 hello \u4f60\u597d"
    ids = tokenizer.encode(text)
    for width in (1, 2, 3, len(ids)):
      detokenizer = tokenizer.detokenizer()
      parts = [
        detokenizer.push(ids[start : start + width])
        for start in range(0, len(ids), width)
      ]
      self.assertNotIn("\ufffd", "".join(parts))
      self.assertEqual("".join(parts), text)
      self.assertEqual(detokenizer.flush(), "")

  def test_text_comes_with_the_last_byte_of_a_character(self):
    tokenizer = tokenizers.from_gguf(byte_level())
    detokenizer = tokenizer.detokenizer()
    ids = tokenizer.encode("\U0001f600")
    self.assertEqual(
      [detokenizer.push([i]) for i in ids], ["", "", "", "\U0001f600"]
    )

  def test_broken_bytes_are_shown(self):
    tokenizer = tokenizers.from_gguf(byte_level())
    start = tokenizer.encode("\U0001f600")[:2]
    detokenizer = tokenizer.detokenizer()
    self.assertEqual(detokenizer.push(start), "")
    self.assertEqual(detokenizer.flush(), "\ufffd")
    self.assertEqual(
      tokenizer.decode(start + tokenizer.encode("hello")), "\ufffdhello"
    )

  def test_only_the_first_space_is_taken_away(self):
    tokenizer = tokenizers.from_gguf(sentencepiece())
    detokenizer = tokenizer.detokenizer()
    ids = tokenizer.encode("the river")
    self.assertEqual(ids[0], tokenizer.bos_id)
    self.assertEqual("".join(detokenizer.push([i]) for i in ids), "the river")


class FolderTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.gguf = tokenizers.from_gguf(byte_level())
    self.folder = pathlib.Path(
      self.enter_context(tempfile.TemporaryDirectory())
    )
    self.gguf.words.encoder.save(str(self.folder / "tokenizer.json"))
    # The decoder tells which spelling the tokens have.
    self.edit("tokenizer.json", decoder={"type": "ByteLevel"} | BYTE_LEVEL)

  def edit(self, name: str, **fields) -> None:
    file = self.folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))

  def test_same_vocabulary_same_tokenizer(self):
    tokenizer = tokenizers.from_folder(self.folder)
    self.assertEqual(tokenizer.fingerprint(), self.gguf.fingerprint())
    self.assertEqual(tokenizer.special_ids, self.gguf.special_ids)
    text = "<|im_start|>hello  12\U0001f600"
    self.assertEqual(tokenizer.encode(text), self.gguf.encode(text))
    self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text[12:])

  def test_eos_is_the_union_of_all_files(self):
    self.edit("tokenizer_config.json", eos_token={"content": "<|im_end|>"})
    self.edit("generation_config.json", eos_token_id=[1, 2])
    self.edit("config.json", eos_token_id=0)
    self.assertEqual(tokenizers.from_folder(self.folder).eos_ids, (2, 1, 0))

  def test_special_tokens_map_fills_what_the_config_leaves_out(self):
    self.edit("special_tokens_map.json", bos_token="<|im_start|>")
    tokenizer = tokenizers.from_folder(self.folder)
    self.assertEqual(tokenizer.bos_id, 1)
    self.assertFalse(tokenizer.add_bos)

  @parameterized.parameters((None, 1), (True, 1), (False, 0))
  def test_post_processor_adds_bos_unless_the_config_says_no(self, stated, n):
    processor = {
      "type": "TemplateProcessing",
      "single": [
        {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
      ],
      "pair": [],
      "special_tokens": {
        "<|im_start|>": {
          "id": "<|im_start|>",
          "ids": [1],
          "tokens": ["<|im_start|>"],
        }
      },
    }
    self.edit("tokenizer.json", post_processor=processor)
    self.edit("tokenizer_config.json", bos_token="<|im_start|>")
    if stated is not None:
      self.edit("tokenizer_config.json", add_bos_token=stated)
    tokenizer = tokenizers.from_folder(self.folder)
    self.assertEqual(tokenizer.encode("hello").count(1), n)
    self.assertEqual(tokenizer.encode("<|im_start|>hello").count(1), 1)

  def test_settings_of_a_training_run_do_not_cut_prompts(self):
    self.edit(
      "tokenizer.json",
      truncation={
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
      },
      padding={
        "strategy": {"Fixed": 50},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
      },
    )
    tokenizer = tokenizers.from_folder(self.folder)
    self.assertEqual(tokenizer.encode("h1h1h1"), self.gguf.encode("h1h1h1"))

  def test_template_file_before_config_and_default_before_others(self):
    self.assertIsNone(tokenizers.from_folder(self.folder).chat_template)
    several = [
      {"name": "tool_use", "template": "t"},
      {"name": "default", "template": "d"},
    ]
    self.edit("tokenizer_config.json", chat_template=several)
    self.assertEqual(tokenizers.from_folder(self.folder).chat_template, "d")
    (self.folder / "chat_template.jinja").write_text("file")
    self.assertEqual(tokenizers.from_folder(self.folder).chat_template, "file")

  @parameterized.parameters(
    "tokenizer.json", "tokenizer_config.json", "generation_config.json"
  )
  def test_a_damaged_file_is_named(self, name):
    (self.folder / name).write_text('{"half": ')
    with self.assertRaisesRegex(ValueError, name) as caught:
      tokenizers.from_folder(self.folder)
    self.assertNotIn("\n", str(caught.exception))

  def test_a_missing_file_and_an_unknown_kind_are_named(self):
    self.edit("tokenizer.json", decoder={"type": "WordPiece"} | WORDPIECE)
    with self.assertRaisesRegex(ValueError, "WordPiece.*neither"):
      tokenizers.from_folder(self.folder)
    (self.folder / "tokenizer.json").unlink()
    with self.assertRaisesRegex(FileNotFoundError, "no tokenizer.json"):
      tokenizers.from_folder(self.folder)


BYTE_LEVEL = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
WORDPIECE = {"prefix": "##", "cleanup": True}


class MismatchTest(parameterized.TestCase):
  @pytest.mark.fault_case("B44")
  def test_equal_sizes_do_not_make_equal_vocabularies(self):
    """sgl-project/sglang#23838, ggml-org/llama.cpp#3812."""
    plain = byte_level()
    tokens = list(plain["tokenizer.ggml.tokens"])
    tokens[10], tokens[11] = tokens[11], tokens[10]
    first = tokenizers.from_gguf(plain)
    second = tokenizers.from_gguf(byte_level(tokens=tokens))
    problem = tokenizers.mismatch(first, second)
    self.assertRegex(
      str(problem), r"2 ids: 10 \('ć' and 'Ĉ'\), 11 \('Ĉ' and 'ć'\)"
    )
    self.assertNotEqual(first.fingerprint(), second.fingerprint())
    # The option speaks of special tokens alone.
    self.assertIsNotNone(tokenizers.mismatch(first, second, allow_special=True))

  @pytest.mark.fault_case("B44")
  def test_another_special_token_needs_the_option(self):
    """sgl-project/sglang#23838, ggml-org/llama.cpp#3812."""
    plain = byte_level()
    tokens = list(plain["tokenizer.ggml.tokens"])
    tokens[0] = "<|pad|>"
    first = tokenizers.from_gguf(plain)
    second = tokenizers.from_gguf(byte_level(tokens=tokens))
    problem = tokenizers.mismatch(first, second)
    self.assertRegex(
      str(problem), "special tokens differ at 1 ids: 0 .*<.pad.>"
    )
    self.assertIsNone(tokenizers.mismatch(first, second, allow_special=True))

  def test_padding_does_not_count_but_tokens_do(self):
    first = tokenizers.from_gguf(byte_level())
    padded = tokenizers.from_gguf(with_tokens(["[PAD0]"], [5]))
    longer = tokenizers.from_gguf(with_tokens(["<more>"], [3]))
    self.assertIsNone(tokenizers.mismatch(first, padded))
    self.assertEqual(
      tokenizers.mismatch(first, longer), "266 and 267 known tokens"
    )


class DefaultModelTest(absltest.TestCase):
  @pytest.fixture(autouse=True)
  def _read(self, real_model_path):
    self.metadata = gguf_header.read(real_model_path).metadata

  def test_ids_equal_those_of_transformers(self):
    golden = json.loads((GOLDEN / "tokenizer_smollm2.json").read_text())
    start = time.process_time()
    tokenizer = tokenizers.from_gguf(self.metadata)
    # Measured 0.1 s; the bound is the promise for a slow or busy machine.
    self.assertLess(time.process_time() - start, 1.0)
    self.assertEqual(tokenizer.num_tokens, 49152)
    self.assertEqual(tokenizer.eos_ids, (2,))
    for case in golden["cases"]:
      with self.subTest(text=case["text"]):
        ids = tokenizer.encode(case["text"])
        self.assertEqual(ids, case["ids"])
        self.assertEqual(
          tokenizer.decode(ids, skip_special=False), case["decoded"]
        )
    for case in golden["chats"]:
      self.assertEqual(tokenizer.render(case["messages"]), case["text"])
      self.assertEqual(tokenizer.encode_chat(case["messages"]), case["ids"])

  def test_the_digit_rule_is_what_the_golden_file_says(self):
    """Guards the golden file: without the rule four of its texts differ."""
    golden = json.loads((GOLDEN / "tokenizer_smollm2.json").read_text())
    differing = [c for c in golden["cases"] if "without_digit_rule" in c]
    self.assertLen(differing, 4)
    plain = self.metadata | {"tokenizer.ggml.pre": "gpt-2"}
    tokenizer = tokenizers.from_gguf(plain)
    for case in differing:
      self.assertEqual(
        tokenizer.encode(case["text"]), case["without_digit_rule"]
      )


if __name__ == "__main__":
  absltest.main()
