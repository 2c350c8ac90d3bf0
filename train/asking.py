# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which question a model is asked next, and what is kept of its answers."""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from specjax import tokenizers
from specjax.decoding import refill
from train import questions

# Rendered together. They come back in the order of their lengths, which makes
# rows of like length; few, so that a part of the answers stays a fair sample.
_RENDERED = 64


@dataclasses.dataclass(frozen=True)
class Asked:
  """A question, and the answers to those before it."""

  of: questions.Questions
  answers: tuple[str, ...] = ()

  @property
  def turn(self) -> int:
    return len(self.answers)


class Asking:
  """Requests of a `refill.Program`, one conversation's turns in order.

  Attributes:
    answered: how many questions were answered before this run.
    skipped: how many are not asked, by the reason.
  """

  def __init__(
    self,
    conversations: Sequence[questions.Questions],
    tokenizer: tokenizers.Tokenizer,
    *,
    temperatures: Sequence[float],
    turns: int,
    room: int,
    found: Mapping[tuple[int, int], Mapping[str, Any]],
  ):
    """See the class.

    Args:
      conversations: in the order to be asked.
      tokenizer: the target's, with a chat template.
      temperatures: of conversations in turn, by their index.
      turns: at most so many questions of a conversation.
      room: tokens of the longest question with what is before it.
      found: what `record` made in an earlier run, by index and turn.
    """
    self._waiting = collections.deque(map(Asked, conversations))
    self._tokenizer = tokenizer
    self._temperatures = temperatures
    self._turns = turns
    self._room = room
    self._found = found
    self._ready: collections.deque[refill.Request] = collections.deque()
    self.answered = 0
    self.skipped: collections.Counter[str] = collections.Counter()

  def take(self, most: int) -> list[refill.Request]:
    """See `refill.Requests`."""
    while len(self._ready) < most and self._waiting:
      self._render()
    return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

  def record(self, answer: refill.Answer) -> dict[str, Any]:
    """An answer as a line of a file; the next question is asked in turn."""
    asked: Asked = answer.request.note
    line = {
      "id": asked.of.id,
      "index": asked.of.index,
      "turn": asked.turn,
      **asked.of.about,
      "temperature": answer.request.temperature,
      "reason": answer.reason,
      "prompt_ids": list(answer.request.ids),
      "answer_ids": list(answer.tokens),
    }
    # First of all, so that a part of the answers has whole conversations.
    self._waiting.extendleft(self._next(asked, line))
    return line

  def _render(self) -> None:
    """Makes requests of some that wait."""
    some: list[Asked] = []
    while self._waiting and len(some) < _RENDERED:
      asked = self._waiting.popleft()
      line = self._found.get((asked.of.index, asked.turn))
      if line is None:
        some.append(asked)
      else:
        _check_same(asked, line)
        self.answered += 1
        self._waiting.extendleft(self._next(asked, line))
    fit = sorted(self._encoded(some), key=lambda pair: len(pair[0]))
    self._ready.extend(
      refill.Request(
        ids=tuple(ids),
        index=asked.of.index,
        sample=asked.turn,
        temperature=self._temperatures[
          asked.of.index % len(self._temperatures)
        ],
        note=asked,
      )
      for ids, asked in fit
    )

  def _encoded(self, some: Sequence[Asked]) -> list[tuple[list[int], Asked]]:
    """With their ids those that can be asked."""
    told = [asked.of.messages(asked.answers) for asked in some]
    try:
      texts = self._tokenizer.encode_chats(told)
    except ValueError:
      if len(some) > 1:  # Only one of them may be to blame.
        return [pair for asked in some for pair in self._encoded([asked])]
      self.skipped["that the template refuses"] += 1
      return []
    fit = [pair for pair in zip(texts, some) if len(pair[0]) <= self._room]
    if len(fit) < len(some):
      self.skipped["too long"] += len(some) - len(fit)
    return fit

  def _next(self, asked: Asked, line: Mapping[str, Any]) -> list[Asked]:
    """The question after an answer, none if it did not end or says nothing."""
    turn = asked.turn + 1
    if turn == min(self._turns, len(asked.of.turns)):
      return []
    text = self._tokenizer.decode(line["answer_ids"])
    if line["reason"] != "eos" or not text.strip():
      return []
    return [Asked(asked.of, (*asked.answers, text))]


def _check_same(asked: Asked, line: Mapping[str, Any]) -> None:
  if line["id"] != asked.of.id:
    raise ValueError(
      f"conversation {asked.of.index} was {line['id']!r} when answers were "
      f"begun and is {asked.of.id!r}: choose another workdir or add --overwrite"
    )
