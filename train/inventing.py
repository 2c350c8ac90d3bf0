# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a chat model says in a user's place, and which of it is a question."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from specjax import tokenizers
from specjax.decoding import refill
from specjax.text import chat

# No template rewrites it, and no text has it.
_PLACE = "specjax-question"


class Inventing:
  """Requests of a `refill.Program`, each for a question.

  Attributes:
    answered: how many questions were there before this run.
    skipped: how many were made in vain, by the reason.
  """

  def __init__(
    self,
    tokenizer: tokenizers.Tokenizer,
    *,
    systems: Sequence[str],
    temperatures: Sequence[float],
    limit: int,
    found: Sequence[Mapping[str, Any]],
  ):
    """See the class.

    Args:
      tokenizer: the target's, with a chat template.
      systems: messages of a system to questions in turn; "" is none, or what
        the template says then.
      temperatures: those of `systems` in turn, then the next one for all.
      limit: how many questions are tried.
      found: what `record` made in an earlier run. What was not wanted then is
        tried again, and not wanted again.

    Raises:
      ValueError: a template that does not end what a user says with an EOS.
    """
    self._tokenizer = tokenizer
    self._systems = systems
    self._starts = [_start(tokenizer, system) for system in systems]
    self._temperatures = temperatures
    done = {line["index"] for line in found}
    self._waiting = collections.deque(i for i in range(limit) if i not in done)
    self._texts = {line["messages"][-1]["content"] for line in found}
    self.answered = len(found)
    self.skipped: collections.Counter[str] = collections.Counter()

  def take(self, most: int) -> list[refill.Request]:
    """See `refill.Requests`."""
    some = min(most, len(self._waiting))
    return [self._request(self._waiting.popleft()) for _ in range(some)]

  def record(self, answer: refill.Answer) -> dict[str, Any] | None:
    """A question as a line of a file; None where it is not wanted."""
    text = self._tokenizer.decode(answer.tokens).strip()
    if answer.reason != "eos":
      why = "unfinished"
    elif not text:
      why = "empty"
    elif text in self._texts:
      why = "asked before"
    else:
      self._texts.add(text)
      return self._line(answer.request, text)
    self.skipped[why] += 1
    return None

  def _request(self, index: int) -> refill.Request:
    turn, which = divmod(index, len(self._systems))
    return refill.Request(
      ids=self._starts[which],
      index=index,
      temperature=self._temperatures[turn % len(self._temperatures)],
    )

  def _line(self, request: refill.Request, text: str) -> dict[str, Any]:
    system = self._systems[request.index % len(self._systems)]
    return {
      "id": f"invented-{request.index:06d}",
      "index": request.index,
      "source": "invented",
      "temperature": request.temperature,
      "messages": _messages(system, text),
    }


def _messages(system: str, text: str) -> list[chat.Message]:
  user = {"role": "user", "content": text}
  return [{"role": "system", "content": system}, user] if system else [user]


def _start(tokenizer: tokenizers.Tokenizer, system: str) -> tuple[int, ...]:
  """Ids of the template up to where the user speaks."""
  rendered = tokenizer.render(_messages(system, _PLACE))
  before, _, behind = rendered.partition(_PLACE)
  following = tokenizer.encode(behind.lstrip(), bos=False)
  if not following or following[0] not in tokenizer.eos_ids:
    raise ValueError(
      "the chat template does not end what a user says with an EOS, so no "
      "question would end: take questions from a data set"
    )
  ids = tokenizer.encode(before, bos=False)
  # One BOS whoever writes it, as in a chat.
  bos = tokenizer.bos_id
  is_missing = tokenizer.add_bos and bos is not None and ids[:1] != [bos]
  return tuple([bos, *ids] if is_missing else ids)
