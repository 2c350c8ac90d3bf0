# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config of `train.regenerate` may say."""

from typing import Any

from ml_collections import ConfigDict

from specjax.bench import sections
from train import generating_schema

FREE = generating_schema.FREE
_TOP: sections.Keys = {
  **generating_schema.KEYS,
  "conversations": (..., (str, *sections.TEXTS)),
  "licenses": ((), sections.TEXTS),
  "turns": (1, (int,)),
  "limit": (0, (int,)),
  "capacity": (1024, (int,)),
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
  sections.check_least(config, {"turns": 1, "limit": 0})
  if not config.conversations:
    raise ValueError(
      "conversations is empty: name a file, --config=FILE.py:PATH, or "
      "datasets:NAME"
    )
