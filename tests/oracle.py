# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A slow oracle for everything that the sampler can be asked.

It reads lists of ids, one token after the other; it knows no blocks, no trees
and no arrays of states. What a row asks for stands in one table, which becomes
the library's settings as well.

Axis letters: B batch, V vocabulary.
"""

import functools
import itertools
import re
from typing import Any

import numpy as np

from specjax import sampling as sampling_lib
from specjax.sampling import automata
from tests import decoding, reference

LETTERS: Any = decoding.Letters(
  ("<e>", "a", "b", "c", "ab", "bc", "aa", "d", "e", "cab", "f", "g"), (0,)
)
VOCAB = LETTERS.num_tokens
TABLE = 1.5 * np.random.default_rng(3).standard_normal((VOCAB, VOCAB))
NEW = 20
# One for each row of a batch.
PROMPTS = ((7, 8, 4, 7, 8), (3, 4), (5, 6, 5, 6, 5, 6), (1,), (9, 2))
CHOICES = ("abcab", "ab", "bca", "cabcabcab")
PATTERN = "(ab|c)+d?(e|ef){2,3}"
# Several settings a row, all of them at once in a batch.
MIXED: tuple[dict[str, Any], ...] = (
  {
    "repetition": 2.0,
    "bias": {3: 2.0, 5: -np.inf, 0: 3.0},
    "min_tokens": 10,
    "bad_words": ((7, 8, 4), (3, 10, 3)),
  },
  {
    "temperature": 0.8,
    "presence": 0.3,
    "frequency": 0.4,
    "bad_words": ((2,), (1, 1), (3, 4, 3), (6, 6)),
    "top_k": 5,
    "min_p": 0.1,
  },
  {
    "temperature": 1.2,
    "allowed": (0, 1, 3, 5, 6, 8),
    "bias": {6: 0.5, 2: 9.0},
    "min_tokens": 9,
    "top_p": 0.9,
  },
  {"temperature": 1.0, "constraint": "choices", "presence": 3.0},
  {"temperature": 0.7, "constraint": "regex", "frequency": 2.0},
)
# Each alone, and each with every way to draw.
FEATURES: dict[str, dict[str, Any]] = {
  "repetition": {"repetition": 2.0},
  "presence": {"presence": 1.5},
  "frequency": {"frequency": 0.8},
  "bias": {"bias": {3: 2.0, 7: 1.0, 5: -np.inf}},
  "bad_words": {"bad_words": ((7, 8, 4), (6,), (9,), (1, 1))},
  "allowed": {"allowed": (0, 1, 3, 5, 6, 8)},
  # Without the bias no answer would end as early.
  "min_tokens": {"min_tokens": 8, "bias": {0: 4.0}},
  "choices": {"constraint": "choices"},
  "regex": {"constraint": "regex"},
}
FILTERS: dict[str, dict[str, Any]] = {
  "greedy": {},
  "warm": {"temperature": 0.8},
  "top_k": {"temperature": 1.2, "top_k": 4},
  "top_p": {"temperature": 1.0, "top_p": 0.8},
  "min_p": {"temperature": 1.5, "min_p": 0.2},
}
# Each batch has five features, and five ways to draw.
ALONE = tuple(
  {**feature, **list(FILTERS.values())[(turn + place) % len(FILTERS)]}
  for turn in range(len(FILTERS))
  for place, feature in enumerate(FEATURES.values())
)
ROWS = (*MIXED, *ALONE)
BATCHES = len(ROWS) // len(PROMPTS)
OFF = {
  "temperature": 0.0,
  "top_k": 0,
  "top_p": 1.0,
  "min_p": 0.0,
  "repetition": 1.0,
  "presence": 0.0,
  "frequency": 0.0,
  "min_tokens": 0,
}


def sampling() -> sampling_lib.Sampling:
  """The settings of all rows; those of a batch have the same shapes."""
  machines = {
    "choices": automata.choices(CHOICES, LETTERS),
    "regex": automata.regex(PATTERN, LETTERS),
  }
  settings: dict[str, Any] = {
    name: [row.get(name, off) for row in ROWS] for name, off in OFF.items()
  }
  for name in ("bias", "allowed", "bad_words"):
    settings[name] = [row.get(name) for row in ROWS]
  settings["constraint"] = [
    machines.get(row.get("constraint", "")) for row in ROWS
  ]
  return sampling_lib.per_row(
    sampling_lib.Sampling(**settings), len(ROWS), vocab=VOCAB, eos=(0,)
  )


ENDINGS = [
  "".join(letters)
  for n in range(4)
  for letters in itertools.product("abcdef", repeat=n)
]


@functools.cache
def may_write(kind: str, text: str, complete: bool) -> bool:
  """Whether an answer may be `text`, or else begin with it."""
  if kind == "choices":
    return any(c == text if complete else c.startswith(text) for c in CHOICES)
  endings = [""] if complete else ENDINGS
  return any(re.fullmatch(PATTERN, text + end) for end in endings)


def forbidden(row: dict[str, Any], prompt: list[int], answer: list[int]):
  """Ids that may not follow."""
  text = "".join(LETTERS.texts[t] for t in answer)
  for token in range(VOCAB):
    if "allowed" in row and token not in row["allowed"]:
      yield token
    longer = [*prompt, *answer, token]
    if any(
      tuple(longer[-len(word) :]) == word for word in row.get("bad_words", ())
    ):
      yield token
    if token == 0 and len(answer) < row.get("min_tokens", 0):
      yield token
    if "constraint" in row:
      after = text + (LETTERS.texts[token] if token else "")
      if not may_write(row["constraint"], after, complete=token == 0):
        yield token


def scores(row: dict[str, Any], prompt_length: int):
  """A function: ids -> logits after them, as the settings of a row want it."""

  def logits(tokens):
    tokens = list(tokens)
    x = TABLE.astype(np.float32)[tokens[-1]].astype(np.float64)
    counts = np.bincount(tokens, minlength=VOCAB)
    factor = row.get("repetition", 1.0)
    x = np.where(counts > 0, np.where(x > 0, x / factor, x * factor), x)
    x = x - row.get("presence", 0) * (counts > 0)
    x = x - row.get("frequency", 0) * counts
    for token, value in row.get("bias", {}).items():
      x[token] += value
    prompt, answer = tokens[:prompt_length], tokens[prompt_length:]
    x[list(forbidden(row, prompt, answer))] = -np.inf
    return x

  return logits


def filters(row: dict[str, Any]) -> dict[str, Any]:
  """As `reference.log_probs` takes them."""
  names = ("temperature", "top_k", "top_p", "min_p")
  return {name: row.get(name, OFF[name]) for name in names}


def prompt(index: int) -> tuple[int, ...]:
  """Of a row of the table."""
  return PROMPTS[index % len(PROMPTS)]


def text(index: int, row: dict[str, Any]) -> list[int]:
  """The answer to a row's prompt, with its settings or others."""
  return reference.generate(
    scores(row, len(prompt(index))),
    prompt(index),
    NEW,
    key=reference.row_key(0, index),
    eos={0},
    **filters(row),
  )[0]


@functools.cache
def answer(index: int) -> list[int]:
  """Of a row of the table."""
  return text(index, ROWS[index])


@functools.cache
def law(index: int, tokens: tuple[int, ...]) -> np.ndarray:
  """[V] what may follow prompt and answer of a row of the table."""
  logits = scores(ROWS[index], len(prompt(index)))(tokens)
  return np.exp(reference.log_probs(logits, **filters(ROWS[index])))


@functools.cache
def is_possible(index: int, tokens: tuple[int, ...]) -> bool:
  """Whether the answer's last token may stand there, and has one after it."""
  logits = scores(ROWS[index], len(prompt(index)))(tokens[:-1])
  return tokens[-1] != 0 and np.isfinite(logits[tokens[-1]])
