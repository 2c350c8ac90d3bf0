# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one object of a file of prompts asks.

The fields are those that `specjax.data` describes. Every error is one line that
begins with `where`, the place of the object in its source.
"""

from collections.abc import Mapping
from typing import Any

from specjax.text import chat, untrusted

# Who speaks, in the words of ShareGPT and its descendants.
_SHAREGPT_ROLES = {
  "human": "user",
  "user": "user",
  "gpt": "assistant",
  "chatgpt": "assistant",
  "assistant": "assistant",
  "system": "system",
  "tool": "tool",
}


def from_column(row: Mapping[str, Any], column: str) -> dict[str, Any]:
  """A row of a data set as an object that has `column` as its text."""
  value = row[column]
  first = value[0] if isinstance(value, list) and value else None
  field = "turns" if isinstance(first, str) else "prompt"
  if isinstance(first, Mapping):
    field = "conversations" if "from" in first else "messages"
  others = ("id", "question_id", "category", "group", "reference")
  others += ("source", "license")
  return {name: row.get(name) for name in others} | {field: value}


def name(record: Mapping[str, Any], number: int) -> str:
  """Its `id` or `question_id`, else its number."""
  names = (record.get(field) for field in ("id", "question_id"))
  return str(next((n for n in names if n is not None), number))


def asked(record: Mapping[str, Any], where: str) -> dict[str, Any]:
  """The fields of `data.Prompt` that say what is asked and what was answered.

  Returns:
    "content", and where the object has them "later_turns" and "reference".
  """
  content = _content(record, where)
  reference = record.get("reference")
  return content if reference is None else {"reference": reference} | content


def check_text(text: Any, where: str) -> str:
  """Raises ValueError unless it is a text that says something."""
  if not isinstance(text, str):
    raise ValueError(f"{where}: {text!r:.60} is not text")
  if not text.strip():
    raise ValueError(f"{where}: empty text: give at least one word")
  return text


def check_unicode(value: Any, where: str) -> None:
  """Raises ValueError if a text anywhere in `value` is not valid Unicode."""
  left = [value]
  while left:
    part = left.pop()
    if isinstance(part, Mapping):
      left += [*part.keys(), *part.values()]
    elif isinstance(part, list | tuple):
      left += part
    elif isinstance(part, str) and not untrusted.is_unicode(part):
      raise ValueError(f"{where}: not valid Unicode: {part!r:.60}")


def messages(
  record: Mapping[str, Any], where: str
) -> list[dict[str, Any]] | None:
  """A conversation with its answers; None where the object has none.

  Raises:
    ValueError: what it has is no list of messages.
  """
  found = record.get("messages")
  if found is None and record.get("conversations") is not None:
    found = _sharegpt(record["conversations"], where)
  if found is None:
    return None
  try:
    chat.check_messages(found)
  except ValueError as error:
    raise ValueError(f"{where}: {error}") from None
  return list(found)


def _content(record: Mapping[str, Any], where: str) -> dict[str, Any]:
  if record.get("messages") is not None:
    return _conversation(record["messages"], where)
  if record.get("conversations") is not None:
    return _conversation(_sharegpt(record["conversations"], where), where)
  turns, prompt = record.get("turns"), record.get("prompt")
  if isinstance(prompt, list):
    return _conversation(prompt, where)
  if turns is None and prompt is None:
    raise ValueError(
      f"{where}: none of the fields messages, conversations, turns, prompt"
    )
  if turns is None:
    turns = [prompt]
  if not isinstance(turns, list) or not turns:
    raise ValueError(f"{where}: turns is {turns!r:.60}, not a list of texts")
  first, *later = (check_text(turn, where) for turn in turns)
  if prompt not in (None, first):
    raise ValueError(f"{where}: prompt and turns[0] differ: leave one out")
  return {"content": first, "later_turns": tuple(later)}


def _conversation(messages: Any, where: str) -> dict[str, Any]:
  try:
    chat.check_messages(messages)
  except ValueError as error:
    raise ValueError(f"{where}: {error}") from None
  users = [i for i, m in enumerate(messages) if m["role"] == "user"]
  if not users:
    raise ValueError(f"{where}: no message of the user")
  last = users[-1]
  check_text(messages[last]["content"], where)
  content: dict[str, Any] = {"content": tuple(messages[: last + 1])}
  if last + 1 < len(messages):
    content["reference"] = messages[last + 1]["content"]
  return content


def _sharegpt(conversation: Any, where: str) -> list[dict[str, Any]]:
  if not isinstance(conversation, list):
    raise ValueError(
      f"{where}: conversations is {conversation!r:.60}, not a list"
    )
  messages = []
  for turn in conversation:
    if not isinstance(turn, Mapping):
      raise ValueError(f"{where}: {turn!r:.60} is not {{from, value}}")
    speaker = turn.get("from")
    if not isinstance(speaker, str) or speaker not in _SHAREGPT_ROLES:
      known = ", ".join(_SHAREGPT_ROLES)
      raise ValueError(f"{where}: from is {speaker!r:.60}, not one of {known}")
    content = turn.get("value")
    messages.append({"role": _SHAREGPT_ROLES[speaker], "content": content})
  return messages
