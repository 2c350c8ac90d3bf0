# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of a config.json, which somebody else wrote."""

from collections.abc import Mapping
import typing
from typing import Any

from specjax.models import weights

_KINDS = {bool: "true or false", str: "text"}


def read(
  raw: Mapping[str, Any],
  name: str,
  kind: type,
  default: Any = None,
  least: int | None = None,
) -> Any:
  """An entry that is of the wanted kind; null is an absent one.

  Args:
    raw: the entries.
    name: of the entry.
    kind: int, float (a whole number is one), bool or str.
    default: value of an absent entry; None: there must be one.
    least: smallest number allowed.

  Raises:
    ValueError: absent, of another kind, or a number that no model has.
  """
  value = raw.get(name)
  value = default if value is None else value
  if value is None:
    raise ValueError(f"config.json: {name} is missing")
  is_number = kind in (int, float)
  accepted = int | float if kind is float else kind
  fits = isinstance(value, accepted)
  if is_number:
    # No size of a model needs 64 bits; NaN does not pass either.
    fits = fits and not isinstance(value, bool) and abs(value) < 1 << 64
  if not fits:
    wanted = _KINDS.get(kind, f"one {kind.__name__}")
    raise ValueError(
      f"config.json: {name} is {weights.one_line(value)}, {wanted} was expected"
    )
  if least is not None and value < least:
    raise ValueError(
      f"config.json: {name} is {value}, it must be at least {least}"
    )
  return kind(value)


def is_of(value: Any, kind: Any) -> bool:
  """Whether a value is of an annotated kind (True is no number)."""
  parts = typing.get_args(kind)
  if typing.get_origin(kind) is tuple:
    return isinstance(value, tuple) and all(is_of(v, parts[0]) for v in value)
  if parts:
    return any(is_of(value, part) for part in parts)
  return type(value) is kind or (kind is float and type(value) is int)
