# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes golden ids of the tokenizers' tests with the reference libraries.

  python tests/parity/make_tokenizer_golden.py MODEL.gguf RANKS tests/golden

needs the extra `parity`, `sentencepiece` and `tiktoken`. Four files:

tokenizer_smollm2.json: ids by Transformers for the default model's vocabulary.
  Its GGUF reader leaves out the digit rule that the file names (`smollm`) and
  that the model's own tokenizer.json has; the rule is put back here, and
  `without_digit_rule` keeps the other ids where they differ.
tokenizer_sentencepiece.json: a small vocabulary trained by SentencePiece with
  Llama 2's settings, and its ids.
tokenizer_gemma.json: the same with Gemma's settings.
tokenizer_qwen.json: ids by tiktoken for Qwen's vocabulary, whose ranks (RANKS)
  a wheel carries (QWEN).
"""

import base64
import io
import json
import pathlib
import random
import sys
from typing import Any
import unicodedata

# Distribution, version, file and its hash: Qwen's vocabulary, Apache-2.0.
QWEN = (
  "dashscope",
  "2.0.2",
  "dashscope/resources/qwen.tiktoken",
  "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
)
QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Qwen2's rule, as the vocabulary's own project writes it.
QWEN_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = (
  "",
  " ",
  "  ",
  "Hello world",
  " Hello  world ",
  "hello\nworld\n\n\nend\n",
  "tabs\tand\r\nwindows lines",
  "I'm sure they'll say it's fine, don't you think? WE'VE seen it.",
  "1234567890 12 345 6 7.89 1,000,000",
  "a  12 and   345",
  "x=1;y =  2;z\t=\t3",
  "def area(r):\n    return 3.14159 * r ** 2  # in cm^2\n",
  "for (int i = 0; i < 10; ++i) { a[i] = b[i] >> 2; }",
  "<html><body class='x'>&amp;</body></html>",
  '{"key": [1, 2.5e-3, null], "other": "\\u00e9"}',
  "caf\u00e9 na\u00efve fa\u00e7ade \u00c5ngstr\u00f6m \u00df",
  "e\u0301 combining, \u200bzero width, \u00a0no-break",
  "\u4f60\u597d\uff0c\u4e16\u754c\uff01 2024\u5e74",
  "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
  "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4",
  "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0407\u0436",
  "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0645 \u0663\u0664",
  "\u0939\u093f\u0928\u094d\u0926\u0940 \u0967\u0968\u0969",
  "emoji \U0001f600\U0001f44d\U0001f3fd \U0001f1ea\U0001f1fa \u2764\ufe0f",
  "\u00bd \u2167 \u00b2 \u2460 superscripts",
  "!!!???...---___***",
  "snake_case camelCase PascalCase kebab-case SCREAMING",
  "https://example.org/a?b=c&d=%20#frag",
  "\\frac{a}{b} \\sum_{i=1}^{n} i^2",
  "        eight spaces of indent",
  "trailing spaces   ",
  "<|im_start|>user\nhi<|im_end|>\n",
  "text<|endoftext|>more<|im_end|>",
  "<|im_start |> <|IM_END|> <repo_name>x",
  "<s>[INST] hi [/INST]</s>",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
)
CHATS = (
  [{"role": "user", "content": "What is 12 + 30?"}],
  [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Name a river.\n"},
    {"role": "assistant", "content": "The Danube."},
    {"role": "user", "content": "Another one?"},
  ],
)
# What the small SentencePiece vocabulary is trained on.
CORPUS = """The river rises in the hills and runs slowly through the old town.
Every morning the baker opens the shop at five and lights the big oven.
In 1987 there were 24 mills along the river; today only 3 are left.
def mean(values): return sum(values) / len(values)
She said that the train to the coast leaves at 10:45 and arrives at 12:30.
They walked along the river until the path turned into the forest again.
If the oven is cold, the bread will not rise; if it is hot, the crust burns.
What is left of the town wall was built of stones from the river bed."""


def smollm2(path: pathlib.Path) -> dict:
  """Ids of the default model's vocabulary."""
  from tokenizers import pre_tokenizers
  from transformers import AutoTokenizer

  reference = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
  plain = [reference(text).input_ids for text in TEXTS]
  reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  cases = []
  for text, without in zip(TEXTS, plain):
    case = {"text": text, "ids": reference(text).input_ids}
    case["decoded"] = reference.decode(case["ids"])
    if without != case["ids"]:
      case["without_digit_rule"] = without
    cases.append(case)
  chats = []
  for messages in CHATS:
    text = reference.apply_chat_template(
      messages, tokenize=False, add_generation_prompt=True
    )
    ids = reference(text, add_special_tokens=False).input_ids
    chats.append({"messages": messages, "text": text, "ids": ids})
  return {"cases": cases, "chats": chats}


# Pieces that meet at random in texts.
PIECES = (
  "a",
  "Z",
  "the",
  "river",
  "\n",
  "\n\n",
  "\t",
  "\r\n",
  "1",
  "23",
  "\u0663",
  "\xbd",
  "'s",
  "'LL",
  "'",
  "!",
  "?!",
  "...",
  "_",
  "\xe9",
  "e\u0301",
  "\u4f60\u597d",
  "\U0001f600",
  "\U0001f44d\U0001f3fd",
  "\u200b",
  "\xa0",
  "\u2028",
  "\u0130",
  "\xdf",
  "\u0645\u0631",
  "\u0939\u093f",
  "<td>",
  "</td>",
  "x=",
  "{",
  "}",
  " ",
  "  ",
  "   ",
  "      ",
)


def stress(count: int = 150) -> list[str]:
  """Texts of pieces that meet at random."""
  rng = random.Random(0)
  return [
    "".join(rng.choice(PIECES) for _ in range(rng.randint(2, 12)))
    for _ in range(count)
  ]


def _train(**settings: Any) -> Any:
  """A small SentencePiece vocabulary with byte fallback."""
  import sentencepiece

  blob = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(CORPUS.splitlines()),
    model_writer=blob,
    model_type="bpe",
    byte_fallback=True,
    split_digits=True,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    allow_whitespace_only_pieces=True,
    minloglevel=2,
    **settings,
  )
  return sentencepiece.SentencePieceProcessor(model_proto=blob.getvalue())


def _metadata(model: Any, user_defined: tuple[str, ...] = ()) -> dict[str, Any]:
  """What llama.cpp's converter writes of a vocabulary."""
  size = model.get_piece_size()
  pieces = [model.id_to_piece(i) for i in range(size)]
  scores = [model.get_score(i) for i in range(size)]

  def kind(index: int) -> int:
    if pieces[index] in user_defined:
      return 4
    tests = (
      (model.is_unknown, 2),
      (model.is_control, 3),
      (model.is_unused, 5),
      (model.is_byte, 6),
    )
    return next((value for test, value in tests if test(index)), 1)

  kinds = [kind(i) for i in range(size)]
  for index in (i for i, kind in enumerate(kinds) if kind == 4):
    pieces[index] = pieces[index].replace("\u2581", " ")
    scores[index] = -1000.0
  return {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": pieces,
    "tokenizer.ggml.scores": scores,
    "tokenizer.ggml.token_type": kinds,
    "tokenizer.ggml.bos_token_id": model.bos_id(),
    "tokenizer.ggml.eos_token_id": model.eos_id(),
    "tokenizer.ggml.unknown_token_id": model.unk_id(),
  }


def _cases(model: Any, texts: list[str]) -> list[dict[str, Any]]:
  # Marks of control tokens are plain text to SentencePiece itself.
  plain = [t for t in texts if "<s>" not in t] + CORPUS.splitlines()
  return [{"text": t, "ids": model.encode(t)} for t in plain]


def sentencepiece_model() -> dict:
  """A small vocabulary as GGUF metadata, and its ids by SentencePiece."""
  model = _train(vocab_size=420)
  return {"metadata": _metadata(model), "cases": _cases(model, list(TEXTS))}


def gemma_model() -> dict:
  """The same, with runs of spaces and line breaks and marks as tokens."""
  runs = [character * n for character in "\n\t" for n in range(1, 4)]
  spaces = ["\u2581" * n for n in range(2, 6)]
  user_defined = (*runs, *spaces, "<td>", "</td>")
  model = _train(
    vocab_size=450,
    add_dummy_prefix=False,
    user_defined_symbols=list(user_defined),
  )
  metadata = _metadata(model, user_defined)
  metadata["tokenizer.ggml.add_space_prefix"] = False
  return {"metadata": metadata, "cases": _cases(model, [*TEXTS, *stress()])}


def read_ranks(path: pathlib.Path) -> dict[bytes, int]:
  """Bytes and rank of each token of a tiktoken file."""
  lines = [line.split() for line in path.read_bytes().splitlines() if line]
  return {base64.b64decode(token): int(rank) for token, rank in lines}


def qwen(path: pathlib.Path) -> dict:
  """Ids of Qwen's vocabulary; texts are composed first, as Qwen2 has it."""
  import tiktoken

  ranks = read_ranks(path)
  encoding = tiktoken.Encoding(
    "qwen",
    pat_str=QWEN_WORDS,
    mergeable_ranks=ranks,
    special_tokens={t: len(ranks) + i for i, t in enumerate(QWEN_SPECIAL)},
  )
  return {
    "cases": [
      {
        "text": text,
        "ids": encoding.encode(
          unicodedata.normalize("NFC", text), allowed_special="all"
        ),
      }
      for text in [*TEXTS, *stress()]
    ]
  }


def main(arguments: list[str]) -> None:
  if len(arguments) != 3:
    raise SystemExit(__doc__)
  model, ranks, folder = map(pathlib.Path, arguments)
  for name, golden in (
    ("tokenizer_smollm2", smollm2(model)),
    ("tokenizer_sentencepiece", sentencepiece_model()),
    ("tokenizer_gemma", gemma_model()),
    ("tokenizer_qwen", qwen(ranks)),
  ):
    lines = json.dumps(golden, indent=None)
    (folder / f"{name}.json").write_text(lines + "\n")


if __name__ == "__main__":
  main(sys.argv[1:])
