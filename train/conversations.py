# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversations to train on, from files and data sets, in one form.

The first of these fields that an object has is used:

  prompt_ids, answer_ids   a generation that `train.regenerate` wrote, or some
                           other engine: the answer is known token by token
  input_ids, loss_mask     a text in tokens, and which of them count
  messages                 [{"role", "content"}, ...]
  conversations            ShareGPT's [{"from", "value"}, ...]

A line that is broken is refused, with its number. One that is whole but teaches
nothing (no answer, an empty text) is left out and counted.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import os
from typing import Any

import numpy as np

from specjax import data, tokenizers
from specjax.text import records

# Paths, and `datasets:NAME[:SPLIT[:COLUMN]]`.
Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# Conversations that are rendered by one call of the template's sandbox.
_RENDERED = 256


@dataclasses.dataclass(frozen=True)
class Example:
  """A conversation in tokens.

  Attributes:
    id: in its source.
    tokens: [n] int32.
    loss: [n] bool, tokens of answers: a draft is trained to guess these.
  """

  id: str
  tokens: np.ndarray
  loss: np.ndarray


@dataclasses.dataclass
class Report:
  """How many conversations were read, and what became of them."""

  kept: int = 0
  left_out: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )

  def __str__(self) -> str:
    reasons = ", ".join(f"{n} {why}" for why, n in self.left_out.items())
    left_out = self.left_out.total()
    return f"{self.kept} conversations, {left_out} left out" + (
      f" ({reasons})" if reasons else ""
    )


def read(
  sources: Sources,
  tokenizer: tokenizers.Tokenizer,
  licenses: Sequence[str] = (),
) -> tuple[list[Example], Report]:
  """All conversations of some sources.

  Args:
    sources: one or several.
    tokenizer: the target's; its template writes conversations of messages.
    licenses: values of the field `license` that are wanted; () takes all.

  Raises:
    FileNotFoundError: no such file.
    ValueError: a broken line.
  """
  report = Report()
  lines = licensed(sources, licenses, report.left_out)
  examples = list(_examples(lines, tokenizer, report.left_out))
  report.kept = len(examples)
  return examples, report


def check(examples: Sequence[Example], report: Report) -> None:
  """Refuses what no draft could be trained on: nothing, or a wrong mask.

  A template that does not say where answers are makes all tokens count, or
  none; the loss would fall and the draft be of no use.
  """
  if not examples:
    raise ValueError(f"no conversation to train on: {report}")
  total = sum(len(e.tokens) for e in examples)
  counted = sum(int(e.loss.sum()) for e in examples)
  if counted in (0, total):
    raise ValueError(
      f"{counted} of {total} tokens are of answers: look at them with "
      "python -m train.preview, the template or the mask is wrong"
    )


def listed(sources: Sources) -> list[str]:
  """Each of one or several sources."""
  is_one = isinstance(sources, str | os.PathLike)
  return [os.fspath(x) for x in ([sources] if is_one else sources)]


def licensed(
  sources: Sources,
  licenses: Sequence[str],
  left_out: collections.Counter,
) -> Iterator[tuple[int, Mapping[str, Any], str]]:
  """Objects of some sources, those with another license left out and counted.

  Yields:
    The number of an object (from 0, over all sources), the object, and where it
    is for errors.

  Raises:
    FileNotFoundError: no such file.
    ValueError: a line that is no JSON object.
  """
  lines = itertools.chain.from_iterable(map(data.read_records, listed(sources)))
  for number, (_, record, where) in enumerate(lines):
    if not isinstance(record, Mapping):
      raise ValueError(f"{where}: not a JSON object but {record!r:.60}")
    if not licenses or record.get("license") in licenses:
      yield number, record, where
    else:
      left_out["with another license"] += 1


@dataclasses.dataclass(frozen=True)
class _Told:
  """A conversation of messages, before a template wrote it."""

  id: str
  where: str
  messages: list[dict[str, Any]]

  @property
  def answers(self) -> list[int]:
    """Places of the messages that are answers."""
    roles = [message["role"] for message in self.messages]
    return [i for i, role in enumerate(roles) if role == "assistant"]

  @property
  def useless(self) -> str | None:
    """Why it teaches nothing; None where it does."""
    said = [m for m in self.messages if m["role"] != "system"]
    if not self.answers:
      return "without an answer"
    if said[0]["role"] == "assistant":
      return "that no user begins"
    if not all(message["content"].strip() for message in said):
      return "with an empty text"
    return None


def _examples(
  lines: Iterable[tuple[int, Mapping[str, Any], str]],
  tokenizer: tokenizers.Tokenizer,
  left_out: collections.Counter,
) -> Iterator[Example]:
  """Examples in the order of their lines."""
  waiting: list[_Told] = []  # Many are rendered at the price of one.
  for line in lines:
    found = _read(*line, tokenizer, left_out)
    if isinstance(found, _Told):
      waiting.append(found)
    if isinstance(found, Example) or len(waiting) == _RENDERED:
      yield from _rendered(waiting, tokenizer, left_out)
      waiting = []
    if isinstance(found, Example):
      yield found
  yield from _rendered(waiting, tokenizer, left_out)


def _read(number, record, where, tokenizer, left_out) -> Example | _Told | None:
  """What an object holds; None if it teaches nothing, which is counted."""
  name = records.name(record, number)
  if record.get("answer_ids") is not None:
    found = _generation(name, record, tokenizer, where)
  elif record.get("input_ids") is not None:
    found = _masked(name, record, tokenizer, where)
  else:
    found = _Told(name, where, _messages(record, where))
  if isinstance(found, Example):
    why = None if found.loss.any() else "without an answer"
  else:
    why = found.useless
  if why is None:
    return found
  left_out[why] += 1
  return None


def _messages(record, where) -> list[dict[str, Any]]:
  messages = records.messages(record, where)
  if messages is None:
    raise ValueError(
      f"{where}: none of the fields messages, conversations, input_ids, "
      "answer_ids"
    )
  records.check_unicode(messages, where)
  return messages


def _rendered(told: Sequence[_Told], tokenizer, left_out) -> Iterator[Example]:
  """Conversations of messages, with the places of their answers.

  An answer lies between two prefixes of the whole: what is there when it
  begins, and what is there when it ends, up to its EOS if templates write one.

  Raises:
    ValueError: the template refuses a conversation, which is named.
  """
  if not told:  # Then nobody needs a template.
    return
  prefixes = [
    (t.messages[:i], t.messages[: i + 1]) for t in told for i in t.answers
  ]
  try:
    before = tokenizer.encode_chats([a for a, _ in prefixes])
    behind = tokenizer.encode_chats([b for _, b in prefixes], answer=False)
    whole = tokenizer.encode_chats([t.messages for t in told], answer=False)
  except ValueError as error:
    if len(told) == 1:
      raise ValueError(f"{told[0].where}: {error}") from None
    # Which of them it is, the halves will tell.
    yield from _rendered(told[: len(told) // 2], tokenizer, left_out)
    yield from _rendered(told[len(told) // 2 :], tokenizer, left_out)
    return
  ends = (
    upto[: _answer_end(upto, len(start), tokenizer)]
    for start, upto in zip(before, behind)
  )
  places = zip(before, ends)
  for one, ids in zip(told, whole):
    loss = np.zeros(len(ids), bool)
    own = list(itertools.islice(places, len(one.answers)))
    if any(ids[: len(text)] != text for place in own for text in place):
      left_out["that the template rewrites"] += 1
      continue
    for start, end in own:
      loss[len(start) : len(end)] = True
    yield Example(one.id, np.asarray(ids, np.int32), loss)


def _answer_end(ids, start, tokenizer) -> int:
  eos = (i for i in range(start, len(ids)) if ids[i] in tokenizer.eos_ids)
  return next(eos, len(ids) - 1) + 1


def _generation(name, record, tokenizer, where) -> Example:
  prompt = _ids(record.get("prompt_ids"), "prompt_ids", tokenizer, where)
  answer = _ids(record["answer_ids"], "answer_ids", tokenizer, where)
  if not len(prompt):
    raise ValueError(f"{where}: prompt_ids is empty: an answer answers nothing")
  loss = np.arange(len(prompt) + len(answer)) >= len(prompt)
  return Example(name, np.concatenate([prompt, answer]), loss)


def _masked(name, record, tokenizer, where) -> Example:
  ids = _ids(record["input_ids"], "input_ids", tokenizer, where)
  mask = record.get("loss_mask")
  if not isinstance(mask, list) or len(mask) != len(ids):
    raise ValueError(f"{where}: loss_mask must have one entry for each token")
  if not all(value in (0, 1) for value in mask):
    raise ValueError(f"{where}: loss_mask must hold 0 and 1 only")
  return Example(name, ids, np.asarray(mask, bool))


def _ids(value, field, tokenizer, where) -> np.ndarray:
  if not isinstance(value, list) or any(type(i) is not int for i in value):
    raise ValueError(f"{where}: {field} must be a list of token ids")
  wrong = [i for i in value if not 0 <= i < tokenizer.num_tokens]
  if wrong:
    raise ValueError(
      f"{where}: {field} has token {wrong[0]}, but the target's ids are 0 to "
      f"{tokenizer.num_tokens - 1}: use answers of the same tokenizer"
    )
  return np.asarray(value, np.int32)
