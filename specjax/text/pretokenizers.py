# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How byte-level vocabularies cut text into words before they merge.

A GGUF file gives the rule's name alone. The rules that belong to supported
models are rows of the table below, as the models' own tokenizer.json state
them; any other name is refused: a near miss would give ids that look right
until a line has two spaces in it.
"""

import dataclasses
from typing import Any

# Contractions, words with one character in front, digits in groups, symbols,
# line breaks, spaces; {digits} is the only place where families differ.
_GROUPS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
  r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclasses.dataclass(frozen=True)
class Rule:
  """One way to cut text.

  Attributes:
    pattern: regular expression of a word; None is GPT-2's.
    single_digits: each digit is cut off before words are looked for, so spaces
      before a number stand at the end of their piece, where GPT-2's rule
      treats them differently.
    compose: text is brought to Unicode's composed form (NFC) first. llama.cpp
      leaves this out; the models were trained with it.
    whole_words: a word that is a token is taken without merging.
    adds_bos: texts begin with BOS where a file does not say.
  """

  pattern: str | None = None
  single_digits: bool = False
  compose: bool = False
  whole_words: bool = False
  adds_bos: bool = False


_LLAMA3 = Rule(
  pattern=_GROUPS.format(digits=r"\p{N}{1,3}"), whole_words=True, adds_bos=True
)
_NEOX = Rule(compose=True)
# Spelling in tokenizer.ggml.pre -> rule.
RULES = {
  "gpt-2": Rule(),
  "smollm": Rule(single_digits=True),
  "llama-bpe": _LLAMA3,
  "llama3": _LLAMA3,
  "llama-v3": _LLAMA3,
  "qwen2": Rule(pattern=_GROUPS.format(digits=r"\p{N}"), compose=True),
  # Pythia's vocabulary is that of GPT-NeoX, which files name after two others
  # that took it over.
  "olmo": _NEOX,
  "mpt": _NEOX,
}


def find(name: str | None) -> Rule:
  """The rule of a name.

  Raises:
    ValueError: none is known by this name.
  """
  if name not in RULES:
    raise ValueError(
      f"unknown pre-tokenizer {name!r:.60} (tokenizer.ggml.pre): known are"
      f" {', '.join(RULES)}"
    )
  return RULES[name]


def apply(rule: Rule, encoder: Any) -> None:
  """Sets normalizer and pre-tokenizer of a `tokenizers.Tokenizer`."""
  import tokenizers
  from tokenizers import normalizers, pre_tokenizers

  if rule.compose:
    encoder.normalizer = normalizers.NFC()
  steps: list[pre_tokenizers.PreTokenizer] = []
  if rule.single_digits:
    steps.append(pre_tokenizers.Digits(individual_digits=True))
  if rule.pattern is not None:
    pattern = tokenizers.Regex(rule.pattern)
    steps.append(pre_tokenizers.Split(pattern, behavior="isolated"))
  steps.append(
    pre_tokenizers.ByteLevel(
      add_prefix_space=False, use_regex=rule.pattern is None
    )
  )
  encoder.pre_tokenizer = pre_tokenizers.Sequence(steps)
