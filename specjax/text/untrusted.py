# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is read from files that somebody else wrote.

Files of bounded size, and values that are of the kind the reader asked for;
whatever else they turn out to be is refused in one line.
"""

from collections.abc import Mapping
import json
import os
from typing import Any, TypeVar

# The largest tokenizer.json in use has 34 MB; everything else is far smaller.
MAX_BYTES = 64 << 20

_KINDS = {str: "text", int: "a whole number", bool: "true or false"}
_Scalar = TypeVar("_Scalar", str, int, bool)


def read_text(path: str | os.PathLike[str]) -> str:
  """A UTF-8 file of at most MAX_BYTES.

  Raises:
    ValueError: larger, or not UTF-8.
  """
  path = os.fspath(path)
  with open(path, "rb") as file:
    # Asked for more, `read` would take the room for it first.
    size = min(os.fstat(file.fileno()).st_size, MAX_BYTES)
    data = file.read(size + 1)
  if len(data) > size:
    raise ValueError(f"{path} is larger than {size} bytes")
  try:
    return data.decode("utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(f"{path} is not UTF-8: {error}") from None


def parse_json(text: str, where: str) -> Any:
  """The value that a JSON text holds; `where` begins the error's line."""
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{where}: malformed JSON: {error}") from None


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
  """The object in a JSON file of bounded size.

  Raises:
    ValueError: too large, malformed, or not an object.
  """
  value = parse_json(read_text(path), os.fspath(path))
  if not isinstance(value, dict):
    raise ValueError(f"{os.fspath(path)} is not a JSON object")
  return value


def is_unicode(text: str) -> bool:
  """Whether a text has no half of a surrogate pair, which JSON can write."""
  try:
    text.encode()
  except UnicodeEncodeError:
    return False
  return True


def check(value: Any, kind: type[_Scalar], name: str) -> _Scalar:
  """A value if it is exactly of this kind (True is no number).

  Args:
    value: what a file holds.
    kind: str, int or bool.
    name: begins the error's line.

  Raises:
    ValueError: of another kind, or a text that is not valid Unicode.
  """
  if type(value) is not kind:
    raise ValueError(f"{name} is {value!r:.60}, not {_KINDS[kind]}")
  if isinstance(value, str) and not is_unicode(value):
    raise ValueError(f"{name} is not valid Unicode: {value!r:.60}")
  return value


def entry(
  values: Mapping[str, Any], key: str, kind: type[_Scalar], source: str = ""
) -> _Scalar | None:
  """`check` of one entry; None where it is absent or null."""
  value = values.get(key)
  return None if value is None else check(value, kind, source + key)
