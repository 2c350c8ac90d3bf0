# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts from a list, a file or a data set, in one form.

A file has one JSON object a line (`.jsonl`, `.jsonl.gz`) or is one JSON array
(`.json`, `.json.gz`). The first of these fields that an object has is used:

  messages       [{"role", "content"}, ...]
  conversations  ShareGPT's [{"from", "value"}, ...]
  turns          user texts, each to be answered before the next is asked
  prompt         a text, or messages

Others that are read: `id` (or `question_id`), `category`, `group`, `reference`.
Of messages the prompt is everything up to the last one of the user; an answer
behind it is the reference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import gzip
import os
import re
from typing import Any
import zlib

from specjax.text import chat, records, untrusted

# Without white space and with a suffix: no text to answer looks like that.
_FILE_NAME = re.compile(r"\S+\.[A-Za-z]{1,5}")


@dataclasses.dataclass(frozen=True)
class Prompt:
  """One prompt.

  Attributes:
    id: unique in its source; results are kept under it.
    index: number of its line (0-based), which picks its random stream; it stays
      the same when prompts are selected or ordered.
    content: a text, or the messages of a conversation that ends with the user.
    later_turns: what the user says after each answer.
    category: the source's category, "" if it has none.
    group: the category of the tables: the source's group, else its category,
      else "all".
    reference: the source's answer, whatever its form.
    sample: which of several answers is asked for (0-based).
  """

  id: str
  index: int
  content: str | tuple[chat.Message, ...]
  later_turns: tuple[str, ...] = ()
  category: str = ""
  group: str = "all"
  reference: Any = None
  sample: int = 0


def load_prompts(
  source: str | os.PathLike[str] | Sequence[str],
  ids: str | os.PathLike[str] | Sequence[str] | None = None,
) -> list[Prompt]:
  """Loads prompts and checks all of them.

  Args:
    source: a sequence of texts; or the path of a file; or
      `datasets:NAME[:SPLIT[:COLUMN]]`, see `read_records`; or one text (see
      `is_text`).
    ids: which prompts to keep, in this order: ids, or the path of a file that
      lists them (see `load_ids`). None keeps all.

  Raises:
    FileNotFoundError: no such file.
    ValueError: one line that names the line of the file: malformed JSON, a
      field that is missing or of another kind, empty text, a text that is not
      valid Unicode; an unknown id; no prompts at all.
  """
  prompts = _check_unique(list(_read(source)))
  if not prompts:
    raise ValueError(f"no prompts in {source!r}: give at least one")
  if ids is None:
    return prompts
  wanted = load_ids(ids) if isinstance(ids, str | os.PathLike) else list(ids)
  return _select(prompts, wanted)


def is_text(source: str) -> bool:
  """Whether a source of prompts is one text to answer.

  It is none if it is an existing file or `datasets:...`.

  Raises:
    FileNotFoundError: no file, but named like one: without white space and with
      a suffix such as .jsonl (a dot and up to five letters).
  """
  if source.startswith("datasets:") or os.path.isfile(source):
    return False
  if _FILE_NAME.fullmatch(source):
    raise FileNotFoundError(
      f"no file {source!r:.200}: check the path, or put the text into a file"
    )
  return True


def load_ids(path: str | os.PathLike[str]) -> list[str]:
  """Ids from a JSON list, from {"groups": {name: list}}, or one a line.

  Raises:
    FileNotFoundError: no such file.
    ValueError: a file without ids.
  """
  text = _text(path)
  if text.lstrip()[:1] not in ("[", "{"):
    ids = [line.strip() for line in text.splitlines() if line.strip()]
  else:
    ids = untrusted.parse_json(text, os.fspath(path))
    if isinstance(ids, dict):
      groups = ids.get("groups")
      lists = list(groups.values()) if isinstance(groups, dict) else []
      is_listed = all(isinstance(part, list) for part in lists)
      ids = [name for part in lists for name in part] if is_listed else []
  if not ids or not all(isinstance(i, str) for i in ids):
    raise ValueError(f"{os.fspath(path)} does not list ids of prompts")
  records.check_unicode(ids, os.fspath(path))
  return ids


def _read(source: Any) -> Iterator[Prompt]:
  if isinstance(source, str):
    is_data_set = source.startswith("datasets:")
    if not is_data_set and is_text(source):
      return _from_texts([source])
  elif not isinstance(source, os.PathLike):
    return _from_texts(source)
  return (
    _prompt(record, index, where)
    for index, record, where in read_records(source)
  )


def _from_texts(texts: Iterable[str]) -> Iterator[Prompt]:
  for index, text in enumerate(texts):
    content = records.check_text(text, f"prompt {index}")
    records.check_unicode(content, f"prompt {index}")
    yield Prompt(id=f"inline/{index}", index=index, content=content)


def read_records(
  source: str | os.PathLike[str],
) -> Iterator[tuple[int, Any, str]]:
  """The objects of a file or of a data set, as they are.

  Args:
    source: the path of a file, or `datasets:NAME[:SPLIT[:COLUMN]]`, where NAME
      is a folder or the hub's OWNER/NAME[/CONFIGURATION][@REVISION].

  Yields:
    The number of a line (0-based), its object, and where that is for errors.

  Raises:
    FileNotFoundError: no such file.
    ValueError: malformed JSON, or a data set that cannot be read.
  """
  path = os.fspath(source)
  if path.startswith("datasets:"):
    yield from _from_dataset(path)
    return
  text = _text(path)
  if text.lstrip()[:1] == "[":
    for index, record in enumerate(untrusted.parse_json(text, path)):
      yield index, record, f"{path} entry {index + 1}"
    return
  # Only \n ends a line: JSON strings may hold the other separators raw.
  for index, line in enumerate(text.split("\n")):
    if line.strip():
      where = f"{path} line {index + 1}"
      yield index, untrusted.parse_json(line, where), where


def _from_dataset(source: str) -> Iterator[tuple[int, Any, str]]:
  import datasets

  name, split, column = f"{source}::".split(":")[1:4]
  path, part, revision = _address(name)
  try:
    rows = datasets.load_dataset(
      path, part, split=split or None, revision=revision
    )
  except Exception as error:  # The library raises many kinds, some long.
    reason = " ".join(str(error).split())[:200]
    raise ValueError(f"data set {name!r} cannot be read: {reason}") from None
  if isinstance(rows, Mapping):
    if len(rows) != 1:
      splits = ", ".join(map(str, rows))
      raise ValueError(
        f"data set {name!r} has the splits {splits}: datasets:NAME:SPLIT"
      )
    (rows,) = rows.values()
  if column and column not in rows.column_names:
    known = ", ".join(rows.column_names)
    raise ValueError(f"data set {name!r} has no column {column!r}: {known}")
  for index, row in enumerate(rows):
    where = f"data set {name!r} row {index + 1}"
    row = dict(row)
    yield index, records.from_column(row, column) if column else row, where


def _address(name: str) -> tuple[str, str | None, str | None]:
  """Path, configuration and revision of OWNER/NAME[/CONFIGURATION][@REVISION].

  A folder that exists has none of them.
  """
  if os.path.isdir(name):
    return name, None, None
  path, _, revision = name.partition("@")
  owner, *others = path.split("/")
  part = "/".join(others[1:])
  return "/".join([owner, *others[:1]]), part or None, revision or None


def _prompt(record: Any, index: int, where: str) -> Prompt:
  """One object of the file format as a prompt."""
  if not isinstance(record, Mapping):
    raise ValueError(f"{where}: not a JSON object but {record!r:.60}")
  category = str(record.get("category") or "")
  prompt = Prompt(
    id=records.name(record, index),
    index=index,
    category=category,
    group=str(record.get("group") or category or "all"),
    **records.asked(record, where),
  )
  records.check_unicode(vars(prompt), where)
  return prompt


def _check_unique(prompts: list[Prompt]) -> list[Prompt]:
  seen: dict[str, Prompt] = {}
  for prompt in prompts:
    other = seen.setdefault(prompt.id, prompt)
    if other is not prompt:
      lines = f"{other.index + 1} and {prompt.index + 1}"
      raise ValueError(
        f"id {prompt.id!r} stands on lines {lines}: make it unique"
      )
  return prompts


def _select(prompts: Sequence[Prompt], ids: Sequence[str]) -> list[Prompt]:
  known = {prompt.id: prompt for prompt in prompts}
  unknown = [name for name in ids if name not in known]
  if unknown:
    shown = ", ".join(map(repr, unknown[:3]))
    raise ValueError(f"{len(unknown)} ids are not among the prompts: {shown}")
  if not ids:
    raise ValueError("empty list of ids: name at least one prompt, or none")
  repeated = [name for i, name in enumerate(ids) if name in ids[:i]]
  if repeated:
    raise ValueError(f"id {repeated[0]!r} is listed twice")
  return [known[name] for name in ids]


def _text(path: str | os.PathLike[str]) -> str:
  """A whole text file, unpacked if it is packed."""
  path = os.fspath(path)
  if not os.path.isfile(path):
    raise FileNotFoundError(f"no file {path!r}: check the path of the prompts")
  try:
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
      return file.read().decode("utf-8")
  except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
    raise ValueError(f"{path} cannot be read: {error}") from None
