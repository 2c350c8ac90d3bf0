# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A section of a config: its keys, their defaults and types."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import spelling

# Key -> (default, types). A default of ... must be given.
Keys = Mapping[str, tuple[Any, tuple[type, ...]]]
NUMBER = (int, float)
TEXTS = (tuple, list)


def complete(where: str, given: Any, keys: Keys) -> ConfigDict:
  """What was given, with the defaults of its keys.

  Args:
    where: the section's dotted key, for errors; "" is the whole config.
    given: a mapping.
    keys: that it may have.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  prefix = f"{where}." if where else ""
  for key in given:
    if key not in keys:
      advice = spelling.suggestion(key, keys)
      raise ValueError(f"unknown config key {prefix + key!r}: {advice}")
  section = ConfigDict()
  for key, (default, types) in keys.items():
    value = given.get(key, default)
    if value is ...:
      raise ValueError(f"config key {prefix + key!r} is missing: give it")
    if isinstance(value, Mapping) and not isinstance(value, ConfigDict):
      value = ConfigDict(value)
    # True is an int for Python, and a typing mistake here.
    wrong_bool = isinstance(value, bool) and not {bool, object} & {*types}
    if wrong_bool or not isinstance(value, types):
      names = " or ".join(t.__name__ for t in types)
      raise ValueError(f"{prefix + key} is {value!r:.80}: it must be {names}")
    section[key] = tuple(value) if isinstance(value, list) else value
  return section


def check_least(
  config: ConfigDict, least: Mapping[str, float], where: str = ""
) -> None:
  """Refuses numbers below what each key may be."""
  for key, value in least.items():
    if config[key] < value:
      raise ValueError(f"{where}{key} is {config[key]}: use {value} or more")
