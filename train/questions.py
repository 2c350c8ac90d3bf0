# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What users say in recorded conversations, to be answered by another model.

The recorded answers are dropped; each later question follows the answers that
were given instead.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import json
from typing import Any

from specjax.text import chat, records
from train import conversations


@dataclasses.dataclass(frozen=True)
class Questions:
  """One conversation without its answers.

  Attributes:
    id: in its source.
    index: its number over all sources, which picks its random stream.
    turns: the messages before each answer; the first may begin with the
      system's, all end with the user's.
    about: "source" and "license" of the object that held it.
  """

  id: str
  index: int
  turns: tuple[tuple[chat.Message, ...], ...]
  about: Mapping[str, Any]

  def messages(self, answers: Sequence[str]) -> list[chat.Message]:
    """The conversation up to the question after some answers."""
    told = list(self.turns[0])
    for answer, turn in zip(answers, self.turns[1:]):
      told += [{"role": "assistant", "content": answer}, *turn]
    return told


def read(
  sources: conversations.Sources,
  licenses: Sequence[str] = (),
) -> tuple[list[Questions], conversations.Report]:
  """The questions of some sources, in an order that is no source's.

  The order is that of a hash of the ids, so that the first ones are a fair
  sample of all.

  Args:
    sources: one or several, of conversations, or of prompts as `specjax.data`
      reads them.
    licenses: values of the field `license` that are wanted; () takes all.

  Raises:
    FileNotFoundError: no such file.
    ValueError: a broken line.
  """
  report = conversations.Report()
  found = []
  for index, record, where in conversations.licensed(
    sources, licenses, report.left_out
  ):
    turns = split(_messages(record, where))
    if not turns:
      report.left_out["that no user begins"] += 1
    elif not all(m["content"].strip() for m in turns[0] if _asks(m)):
      report.left_out["with an empty text"] += 1
    else:
      about = {name: record.get(name) for name in ("source", "license")}
      name = records.name(record, index)
      found.append(Questions(name, index, turns, about))
  report.kept = len(found)
  found.sort(key=lambda q: (hashlib.sha256(q.id.encode()).digest(), q.index))
  return found, report


def digest(asked: Sequence[Questions]) -> str:
  """SHA-256 of what is asked: equal for the same training set.

  The number of a conversation counts too: it picks temperature and stream.
  """
  told = [[q.id, q.index, q.turns] for q in asked]
  text = json.dumps(told, ensure_ascii=False, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def split(
  messages: Sequence[chat.Message],
) -> tuple[tuple[chat.Message, ...], ...]:
  """The messages before each answer, as far as users alone lead to them.

  What follows the result of a tool, or an answer to nobody, was said in a
  conversation that new answers would not lead to.
  """
  turns: list[list[chat.Message]] = [[]]
  for message in messages:
    if message["role"] == "assistant":
      turns.append([])
    else:
      turns[-1].append(message)
  kept = []
  for turn in turns:
    if not turn or not all(_asks(m) or m["role"] == "system" for m in turn):
      break
    if not _asks(turn[-1]):
      break
    kept.append(tuple(turn))
  return tuple(kept)


def _asks(message: chat.Message) -> bool:
  return message["role"] == "user"


def _messages(record, where) -> Sequence[chat.Message]:
  """Messages of a conversation, or questions one after the other."""
  found = records.messages(record, where)
  if found is None:
    asked = records.asked(record, where)
    found = asked["content"]
    if isinstance(found, str):
      texts = (found, *asked["later_turns"])
      users = [{"role": "user", "content": text} for text in texts]
      answer = {"role": "assistant", "content": ""}
      found = [m for user in users for m in (user, answer)]
  records.check_unicode(found, where)
  return found
