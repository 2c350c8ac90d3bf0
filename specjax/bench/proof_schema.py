# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config of proofs may say: rules, structures of drafts, kinds of them.

Such a config has the one key `exactness`, and no models or prompts.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import parts, spelling

KEY = "exactness"
_KEYS = {
  "vocab": int,
  "memory": int,
  "structures": ConfigDict,
  "rules": ConfigDict,
  "mutants": bool,
}
_STRUCTURE = {"parents": tuple, "depths": tuple}
_RULE = {"verifier": ConfigDict, "structures": tuple, "drafters": tuple}


def is_given(config: Any) -> bool:
  """Whether this is a config of proofs."""
  return KEY in config


def complete(given: Any) -> ConfigDict:
  """The config, unlocked.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  section = _section("", given, {KEY: ConfigDict})[KEY]
  section = _section(KEY, section, _KEYS)
  for name, structure in section.structures.items():
    where = f"{KEY}.structures.{name}"
    section.structures[name] = _section(where, structure, _STRUCTURE)
  for name, rule in section.rules.items():
    where = f"{KEY}.rules.{name}"
    rule = _section(where, rule, _RULE)
    keys = parts.keys(
      f"{where}.verifier", "verifier", rule.verifier.get("type")
    )
    for key in rule.verifier:
      _known(f"{where}.verifier.{key}", key, keys)
    section.rules[name] = rule
  return ConfigDict({KEY: section})


def check(config: ConfigDict) -> None:
  """Refuses values out of range and names of nothing.

  Raises:
    ValueError: one line that names the key, its value and the fix.
  """
  section = config[KEY]
  for key, least in (("vocab", 2), ("memory", 0)):
    if section[key] < least:
      raise ValueError(f"{KEY}.{key} is {section[key]}: use {least} or more")
  for name, structure in section.structures.items():
    where = f"{KEY}.structures.{name}"
    parents = structure.parents
    slots = zip(parents, (0, *parents))
    if any(not before <= slot <= i for i, (slot, before) in enumerate(slots)):
      raise ValueError(
        f"{where}.parents is {parents}: give the slot of each node's parent, "
        "breadth first; node i sits in slot i + 1"
      )
    if not structure.depths or min(structure.depths) < 0:
      raise ValueError(f"{where}.depths is {structure.depths}: 0 or more each")
  for name, rule in section.rules.items():
    for structure in rule.structures:
      _known(f"{KEY}.rules.{name}.structures", structure, section.structures)


def _known(where: str, name: str, names: Any) -> None:
  if name not in names:
    advice = spelling.suggestion(name, names)
    raise ValueError(f"unknown config key or name {where}: {advice}")


def _section(where: str, given: Any, keys: Mapping[str, type]) -> ConfigDict:
  """`given` with exactly these keys."""
  prefix = f"{where}." if where else ""
  for key in given:
    if key not in keys:
      advice = spelling.suggestion(key, keys)
      raise ValueError(f"unknown config key {prefix + key!r}: {advice}")
  section = ConfigDict()
  for key, kind in keys.items():
    if key not in given:
      raise ValueError(f"config key {prefix + key!r} is missing: give it")
    value = given[key]
    if isinstance(value, Mapping):
      value = ConfigDict(value)
    value = tuple(value) if isinstance(value, list) else value
    if not isinstance(value, kind):
      raise ValueError(
        f"{prefix + key} is {value!r:.80}: it must be {kind.__name__}"
      )
    section[key] = value
  return section
