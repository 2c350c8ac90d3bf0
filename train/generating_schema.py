# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What any config may say by which a target writes texts."""

from collections.abc import Callable
import dataclasses
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import schema, sections

_KEYS: sections.Keys = {
  "target": (..., (str,)),
  "quantization": ("none", (str,)),
  "dtype": ("float32", (str,)),
  "mesh": ({}, (ConfigDict,)),
  "temperatures": ((0.0,), sections.TEXTS),
  "max_new_tokens": (128, (int,)),
  "rows": (32, (int,)),
  "reading": (8, (int,)),
  "rounds": (8, (int,)),
  "seed": (0, (int,)),
}
# Keys that do not change what a text is, only which ones there are and how fast
# they come: a run may go on with others.
FREE = ("mesh.data", "limit", "rows", "reading", "rounds")


@dataclasses.dataclass(frozen=True)
class Rules:
  """What the config of one command may say, as `configuration.read` asks it.

  Attributes:
    keys: beside those of every such config; `capacity` is one of them.
    further: refuses values of these keys, with a ValueError in one line.
  """

  keys: sections.Keys
  further: Callable[[ConfigDict], None]

  def complete(self, given: Any) -> ConfigDict:
    """A config with every key, unlocked.

    Raises:
      ValueError: an unknown key, a missing one, or a wrong type.
    """
    config = sections.complete("", given, {**_KEYS, **self.keys})
    config.mesh = sections.complete("mesh", config.mesh, schema.MESH)
    return config

  def check(self, config: ConfigDict) -> None:
    """Refuses values out of range.

    Raises:
      ValueError: one line that names the key, its value and the fix.
    """
    _check(config)
    self.further(config)


def _check(config: ConfigDict) -> None:
  least = {"max_new_tokens": 1, "capacity": 4, "rows": 1, "reading": 1}
  sections.check_least(config, {**least, "rounds": 1, "seed": 0})
  sections.check_least(config.mesh, {"data": 1, "model": 1}, "mesh.")
  if config.capacity < config.max_new_tokens + 2:
    raise ValueError(
      f"capacity is {config.capacity}, which leaves no room for a question "
      f"beside max_new_tokens {config.max_new_tokens}: use more"
    )
  for key in ("rows", "reading"):
    if config[key] % config.mesh.data:
      raise ValueError(
        f"{key} {config[key]} does not divide by mesh.data "
        f"{config.mesh.data}: use a multiple"
      )
  values = config.temperatures
  if not values or not all(_is_temperature(value) for value in values):
    raise ValueError(
      f"temperatures is {values!r:.80}: give at least one number of 0 or more"
    )


def _is_temperature(value: Any) -> bool:
  is_number = isinstance(value, int | float) and not isinstance(value, bool)
  return is_number and value >= 0
