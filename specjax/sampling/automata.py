# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Choices and regular expressions as automata over the tokens of a vocabulary.

A text may be split into tokens in any way; what is fixed are its bytes. Where
an answer is complete EOS is allowed, and elsewhere it is not, so answers end
well-formed unless `max_new_tokens` cuts them short.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
import re
from typing import Protocol

import numpy as np

from specjax.sampling import constraints

_START = b"\x00"
_ANCHORS = {"^": "start", r"\A": "start", "$": "end", r"\z": "end"}
MOST_STATES = 4096  # rows of the table that decoding looks tokens up in


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
    ValueError: there is no text, or no EOS or tokens to write one with; or they
      are too long.
  """
  given = isinstance(texts, Collection) and not isinstance(texts, str)
  if not (given and texts and all(x and isinstance(x, str) for x in texts)):
    raise ValueError(f"choices is {texts!r:.60}: give one or several texts")
  what = f"choices {texts!r:.60}"
  try:
    spelt = [text.encode() for text in texts]
  except UnicodeEncodeError:
    raise ValueError(f"{what} is not valid Unicode") from None
  words = _spellings(tokenizer)
  longest = max(map(len, words), default=0)
  # A state is what has been written of a choice.
  states = [b""]
  seen = {b"": 0}
  steps: list[tuple[int, int, int]] = []
  for state, written in enumerate(states):
    _check_size(what, len(states))
    ahead = slice(len(written), len(written) + longest)
    rests = {text[ahead] for text in spelt if text.startswith(written)}
    pieces = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
    for piece in sorted(pieces & words.keys()):
      following = written + piece
      if following not in seen:
        seen[following] = len(states)
        states.append(following)
      steps += [(state, token, seen[following]) for token in words[piece]]
  ends = {seen[text] for text in spelt if text in seen}
  found = np.array(steps, np.int32).reshape(-1, 3)
  return _compile(what, found, len(states), ends, tokenizer)


def regex(pattern: str, tokenizer: Words) -> constraints.Automaton:
  """The whole answer matches a regular expression.

  Syntax is that of Rust's `regex` crate: no look-around, no back-references.
  `^` and `$` are implied: around the whole, or around each alternative of it,
  they may be written; elsewhere they are refused. Unicode classes such as \\w
  take hundreds of states: [A-Za-z] is far smaller.

  Raises:
    ValueError: the package `outlines-core` is missing, the pattern is wrong or
      too large, or there are no EOS or tokens to write an answer with.
  """
  what = f"regex {pattern!r:.60}"
  if not isinstance(pattern, str):
    raise ValueError(f"{what} is no text: give a pattern")
  try:
    import outlines_core
  except ImportError:
    raise ValueError(
      f"{what} needs the package outlines-core: "
      "pip install 'specjax[constraints]'"
    ) from None
  anchored = _anchored(pattern, what)
  end = tokenizer.num_tokens  # No token's id; nor is the next, of the start.
  words = _spellings(tokenizer)
  words[_START] = [*words.get(_START, []), end + 1]
  try:
    index = outlines_core.Index(anchored, outlines_core.Vocabulary(end, words))
  except ValueError:
    raise ValueError(
      f"{what} cannot be written with this vocabulary: some of its bytes are "
      "in no tokens"
    ) from None
  found = index.get_transitions()
  finals = index.get_final_states()
  start = found[index.get_initial_state()][end + 1]
  names = [start, *({*found, *finals} - {start})]
  _check_size(what, len(names))
  number = {name: state for state, name in enumerate(names)}
  steps = _numbered(found, number)
  steps = steps[steps[:, 1] < end]
  ends = {number[name] for name in finals}
  return _compile(what, steps, len(names), ends, tokenizer)


def _anchored(pattern: str, what: str) -> str:
  """The pattern behind a mark of the start, its end tied to the answer's.

  The library searches a leftmost match, which drops "ab" from "a|ab" unless the
  text must end there; and it refuses such an end where a pattern may be empty,
  unless something stands before it.

  Raises:
    ValueError: the library takes no such pattern.
  """
  import outlines_core

  bare = _without_anchors(pattern, what)
  anchored = rf"\x00(?:{bare})\z"
  # Alone first: `a)|(b` would close the group that is put around it. All bytes
  # are words, so nothing but the pattern can be wrong.
  every = outlines_core.Vocabulary(256, {bytes([i]): [i] for i in range(256)})
  try:
    for text in (bare, anchored):
      outlines_core.Index(text, every)
  except ValueError:  # What the library says is of its own parts.
    raise ValueError(
      f"{what} cannot be used: it is malformed, too large, or has look-around, "
      "back-references or word boundaries"
    ) from None
  return anchored


def _without_anchors(pattern: str, what: str) -> str:
  """The pattern without the anchors that are implied.

  Raises:
    ValueError: one stands elsewhere, where it could never match or would mean a
      line.
  """
  pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
  kept, inside = "", ""  # `inside` are the brackets that are open.
  for i, piece in enumerate(pieces):
    before, after = pieces[max(0, i - 2) : i], pieces[i + 1 : i + 2]
    if inside.endswith("["):
      # A class may hold classes; the first letter of one may be "]".
      if piece == "[":
        inside += piece
      elif piece == "]" and before[-1:] != ["["] and before != ["[", "^"]:
        inside = inside[:-1]
    elif piece in ("(", "["):
      inside += piece
    elif piece == ")":
      inside = inside[:-1]
    elif piece in _ANCHORS:
      beside = before[-1:] if _ANCHORS[piece] == "start" else after
      if inside or beside not in ([], ["|"]):
        raise ValueError(
          f"{what} has {piece} inside: the whole answer matches anyway, leave "
          r"it out (the letters are \^ and \$)"
        )
      continue
    kept += piece
  return kept


def _numbered(
  found: Mapping[int, Mapping[int, int]], number: Mapping[int, int]
) -> np.ndarray:
  """[E, 3] state, token, next state of {state: {token: next state}}.

  A state may have a step for nearly every token: no tuple is made of each.
  """
  steps = np.empty((sum(map(len, found.values())), 3), np.int32)
  at = 0
  for name, row in found.items():
    block = steps[at : (at := at + len(row))]
    following = map(number.__getitem__, row.values())
    block[:, 0] = number[name]
    block[:, 1] = np.fromiter(row, np.int32, len(row))
    block[:, 2] = np.fromiter(following, np.int32, len(row))
  return steps


def _check_size(what: str, states: int) -> None:
  if states > MOST_STATES:
    raise ValueError(
      f"{what} needs more than {MOST_STATES} states: make it simpler"
    )


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
  steps: np.ndarray,
  states: int,
  ends: Collection[int],
  tokenizer: Words,
) -> constraints.Automaton:
  """An automaton of states 0, 1, ... (the first is the start).

  Args:
    what: the user asked for.
    steps: [E, 3] state, token, next state; few of all pairs of a state and a
      token have one.
    states: how many.
    ends: states in which an answer may be complete.
    tokenizer: the target's.

  Raises:
    ValueError: nothing can be written, or nothing ends an answer.
  """
  if not tokenizer.eos_ids:
    raise ValueError(f"{what} needs an EOS id to end answers: give one")
  final = [(end, eos, end) for end in ends for eos in tokenizer.eos_ids]
  final = np.array(final, np.int32).reshape(-1, 3)
  steps = np.concatenate([steps, final])
  steps = steps[_alive(steps, states, ends)[steps[:, 2]]]
  if not np.any(steps[:, 0] == 0):
    raise ValueError(
      f"{what} cannot be written with this vocabulary: its bytes are in no "
      "tokens"
    )
  # State 0 of an automaton is the dead one.
  return constraints.automaton(
    steps + np.array([1, 0, 1], np.int32), states + 1, tokenizer.num_tokens
  )


def _alive(steps: np.ndarray, states: int, ends: Collection[int]) -> np.ndarray:
  """[S] bool: an end can be reached from there."""
  before = collections.defaultdict(list)
  for pair in np.unique(steps[:, 2].astype(np.int64) * states + steps[:, 0]):
    to, state = divmod(int(pair), states)
    before[to].append(state)
  alive = np.zeros(states, bool)
  waiting = list(ends)
  while waiting:
    state = waiting.pop()
    if not alive[state]:
      alive[state] = True
      waiting += before[state]
  return alive
