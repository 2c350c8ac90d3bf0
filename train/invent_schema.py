# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config of `train.invent` may say."""

from typing import Any

from ml_collections import ConfigDict

from specjax.bench import sections
from train import generating_schema

FREE = generating_schema.FREE
_TOP: sections.Keys = {
  **generating_schema.KEYS,
  "systems": (("",), sections.TEXTS),
  "limit": (..., (int,)),
  "capacity": (256, (int,)),
}


def complete(given: Any) -> ConfigDict:
  """A config with every key, unlocked.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  return generating_schema.complete(given, _TOP)


def check(config: ConfigDict) -> None:
  """Refuses values out of range.

  Raises:
    ValueError: one line that names the key, its value and the fix.
  """
  generating_schema.check(config)
  sections.check_least(config, {"limit": 1})
  if not config.systems or not all(isinstance(s, str) for s in config.systems):
    raise ValueError(
      f"systems is {config.systems!r:.80}: give at least one text, '' for none"
    )
