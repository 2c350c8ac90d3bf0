# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Choices and regular expressions as automata over the tokens of a vocabulary.

A text may be split into tokens in any way; what is fixed are its bytes. Where
an answer is complete EOS is allowed, and elsewhere it is not, so answers end
well-formed unless `max_new_tokens` cuts them short.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from specjax.sampling import constraints

_START = b"\x00"
MOST_STATES = 4096  # times the vocabulary: what a table may take while built


class Words(Protocol):
  """What of a tokenizer is needed; `tokenizers.Tokenizer` has it."""

  @property
  def num_tokens(self) -> int: ...
  @property
  def eos_ids(self) -> Sequence[int]: ...
  @property
  def special_ids(self) -> Collection[int]: ...
  def token_bytes(self, token: int) -> bytes: ...


def choices(texts: Sequence[str], tokenizer: Words) -> constraints.Automaton:
  """The answer is one of `texts`.

  Raises:
    ValueError: there is no text, or no EOS or tokens to write one with.
  """
  if isinstance(texts, str) or not texts or not all(texts):
    raise ValueError(f"choices is {texts!r}: give one or several texts")
  spelt = [text.encode() for text in texts]
  words = _spellings(tokenizer)
  longest = max(len(word) for word in words)
  # A state is what has been written of a choice.
  states = [b""]
  seen = {b"": 0}
  transitions: list[dict[int, int]] = []
  for written in states:
    transitions.append({})
    rests = {c[len(written) :] for c in spelt if c.startswith(written)}
    pieces = {r[:n] for r in rests for n in range(1, min(len(r), longest) + 1)}
    for piece in sorted(pieces & words.keys()):
      following = written + piece
      if following not in seen:
        seen[following] = len(states)
        states.append(following)
      to = seen[following]
      transitions[-1] |= dict.fromkeys(words[piece], to)
  accepting = {seen[text] for text in spelt if text in seen}
  return _compile(f"choices {texts!r:.60}", transitions, accepting, tokenizer)


def regex(pattern: str, tokenizer: Words) -> constraints.Automaton:
  """The whole answer matches a regular expression.

  Syntax is that of Rust's `regex` crate: no look-around, no back-references.
  `^` and `$` are implied. Unicode classes such as \\w take hundreds of states:
  [A-Za-z] is far smaller.

  Raises:
    ValueError: the package `outlines-core` is missing, the pattern is wrong or
      too large, or there are no EOS or tokens to write an answer with.
  """
  try:
    import outlines_core
  except ImportError:
    raise ValueError(
      f"regex {pattern!r:.60} needs the package outlines-core: "
      "pip install 'specjax[constraints]'"
    ) from None
  # Ids that no token has, of marks at the end and at the start. The library
  # searches a leftmost match, which drops "ab" from "a|ab" unless the text must
  # end there; and it refuses such an end where a pattern may be empty, unless
  # something stands before it.
  end = tokenizer.num_tokens
  words = _spellings(tokenizer)
  words[_START] = [*words.get(_START, []), end + 1]
  anchored = rf"\x00(?:{pattern.removeprefix('^')})\z"
  try:
    index = outlines_core.Index(anchored, outlines_core.Vocabulary(end, words))
  except ValueError as error:
    reason = str(error).strip().splitlines()[-1]
    raise ValueError(
      f"regex {pattern!r:.60} cannot be used: {reason}"
    ) from None
  found = index.get_transitions()
  finals = index.get_final_states()
  start = found[index.get_initial_state()][end + 1]
  names = [start, *({*found, *finals} - {start})]
  number = {name: i for i, name in enumerate(names)}
  transitions = [
    {
      token: number[to]
      for token, to in found.get(name, {}).items()
      if token < end
    }
    for name in names
  ]
  accepting = {number[name] for name in finals}
  return _compile(f"regex {pattern!r:.60}", transitions, accepting, tokenizer)


def _spellings(tokenizer: Words) -> dict[bytes, list[int]]:
  """Ids by their bytes; special tokens are marks and spell nothing."""
  words: dict[bytes, list[int]] = {}
  marks = {*tokenizer.special_ids, *tokenizer.eos_ids}
  for token in range(tokenizer.num_tokens):
    if token not in marks and (spelt := tokenizer.token_bytes(token)):
      words.setdefault(spelt, []).append(token)
  return words


def _compile(
  what: str,
  transitions: Sequence[Mapping[int, int]],
  accepting: Collection[int],
  tokenizer: Words,
) -> constraints.Automaton:
  """An automaton of states 0, 1, ... (the first is the start).

  Raises:
    ValueError: nothing can be written, or too much.
  """
  if not tokenizer.eos_ids:
    raise ValueError(f"{what} needs an EOS id to end answers: give one")
  if len(transitions) > MOST_STATES:
    raise ValueError(
      f"{what} has {len(transitions)} states, more than {MOST_STATES}: make "
      "it simpler"
    )
  columns = np.zeros((len(transitions) + 1, tokenizer.num_tokens), np.int32)
  for state, row in enumerate(transitions, start=1):
    columns[state, list(row)] = np.fromiter(row.values(), int, len(row)) + 1
  ends = np.array(sorted(accepting), int) + 1
  columns[ends[:, None], np.array(tokenizer.eos_ids)] = ends[:, None]
  columns = _without_dead_ends(columns, ends)
  if not columns[1].any():
    raise ValueError(
      f"{what} cannot be written with this vocabulary: its bytes are in no "
      "tokens"
    )
  return constraints.automaton(columns)


def _without_dead_ends(columns: np.ndarray, ends: np.ndarray) -> np.ndarray:
  """Drops steps into states from which no accepting one can be reached."""
  steps = np.unique(columns, axis=1)
  alive = np.zeros(len(columns), bool)
  alive[ends] = True
  while True:
    grown = alive | alive[steps].any(axis=1)
    if np.array_equal(grown, alive):
      return np.where(alive[columns], columns, constraints.DEAD)
    alive = grown
