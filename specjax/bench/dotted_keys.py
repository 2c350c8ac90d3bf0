# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dotted keys of a complete config: finding them, setting them."""

from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import parts, spelling


def locate(config: ConfigDict, dotted: str) -> tuple[ConfigDict, str]:
  """The section of a complete config that holds a dotted key, and its name.

  Raises:
    ValueError: there is no such key, or it has keys of its own.
  """
  section: Any = config
  value: Any = config
  key = walked = ""
  for key in dotted.split("."):
    if not isinstance(value, ConfigDict):
      raise ValueError(f"unknown config key {dotted!r}: {walked} has no keys")
    if key not in value:
      advice = spelling.suggestion(key, value)
      raise ValueError(f"unknown config key {walked + key!r}: {advice}")
    section, value = value, value[key]
    walked += f"{key}."
  if isinstance(value, ConfigDict):
    raise ValueError(f"config key {dotted!r} has keys of its own: name one")
  return section, key


def assign(config: ConfigDict, dotted: str, value: Any) -> None:
  """Sets a key of a complete config, whatever its type: that is checked later.

  A part that gets another `type` gets that one's keys. It keeps what both have,
  as far as it was not the old one's default.

  Raises:
    ValueError: no such key, or no such type of a part.
  """
  section, key = locate(config, dotted)
  old = section[key]
  with section.ignore_type():
    section[key] = value
  place, _, _ = dotted.rpartition(".")
  # A drafter within a drafter stands below that one's name.
  names = reversed(place.split("."))
  part = next((name for name in names if name in parts.NAMES), None)
  if key != "type" or part is None or value == old:
    return
  after = parts.keys(place, part, value)
  # A drafter within another that has just got its section has no type yet.
  before = {} if old in (..., None) else parts.keys(place, part, old)
  inner = parts.nested(place, value) if part == "drafter" else {}
  for name in set(section) - {key}:
    is_default = section[name] == before.get(name, (...,))[0]
    if is_default or name not in after:
      del section[name]
  for name, (default, _) in after.items():
    # One without a default stays open: it may be assigned next.
    if name not in section:
      is_open = default is ... and name in inner
      section[name] = ConfigDict({"type": ...}) if is_open else default


def types_first(keys: Iterable[str]) -> list[str]:
  """Dotted keys in an order in which they can be assigned.

  The type of a drafter brings the sections of those within it.
  """
  return sorted(
    keys, key=lambda key: (not key.endswith(".type"), key.count("."))
  )


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
  """Dotted keys and values of nested sections."""
  if not isinstance(tree, Mapping | ConfigDict):
    return {prefix[:-1]: tree}
  found = {}
  for key, value in tree.items():
    found |= flat(value, f"{prefix}{key}.")
  return found
