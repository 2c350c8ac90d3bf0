# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rotary positions of a config.json, read and written.

Files have two forms. Older ones hold `rope_theta`, `rope_scaling`,
`partial_rotary_factor` and, where layers with a window have a base of their
own, `rope_local_base_freq`. Newer ones hold all of it in `rope_parameters`, by
layer type where there are two bases.
"""

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from specjax.models import json_values, layout, weights
from specjax.models.families import Rope
from specjax.models.transformer import TransformerConfig

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_KINDS = ("default", "linear", "llama3")
_FRACTION = "partial_rotary_factor"
# Llama 3's own bounds; every published file of its family has them.
_LOW_FREQ_FACTOR, _HIGH_FREQ_FACTOR = 1.0, 4.0


def read(raw: Mapping[str, Any], rope: Rope, head_dim: int) -> dict[str, Any]:
  """Fields of the configuration that a config.json states.

  Args:
    raw: its entries.
    rope: the family's defaults.
    head_dim: channels of a head.

  Returns:
    rope_theta, rope_factors, rope_local_theta and rotary_dim.
  """
  everywhere, local = _sections(raw, rope)
  rotated = _rotary_dim(everywhere, rope, head_dim)
  theta = json_values.read(everywhere, "rope_theta", float, rope.theta)
  local_theta = rope.local_theta
  if local_theta is not None:
    local_theta = json_values.read(local, "rope_theta", float, local_theta)
    if _kind(local) != "default":
      raise ValueError(
        f"config.json: rope type {_kind(local)!r} of {_LOCAL} is not "
        "supported, only default is"
      )
  return {
    "rope_theta": theta,
    "rope_factors": _read_factors(everywhere, rotated, theta),
    "rope_local_theta": local_theta,
    "rotary_dim": None if rotated == head_dim else rotated,
  }


def write(config: TransformerConfig, rope: Rope) -> dict[str, Any]:
  """The entries, in the older form, which every reader knows."""
  raw: dict[str, Any] = {"rope_theta": config.rope_theta}
  if config.rope_factors is not None:
    raw["rope_scaling"] = _write_factors(config, config.rope_factors)
  if rope.local_theta is not None:
    raw["rope_local_base_freq"] = config.rope_local_theta
  if rope.fraction is not None:
    raw[_FRACTION] = config.num_rotated / config.head_dim
  return raw


def llama3_factors(
  channels: int,
  theta: float,
  factor: float,
  low_freq_factor: float,
  high_freq_factor: float,
  original_max_position: int,
) -> tuple[float, ...]:
  """Divisors of the rotary frequencies under Llama 3's scaling.

  Waves shorter than original_max_position / high_freq_factor keep their
  frequency, those longer than original_max_position / low_freq_factor have it
  divided by `factor`, and between the two the frequency is interpolated.

  Returns:
    channels / 2 divisors, fastest pair first, rounded to float32: networks
    compute with no more, and GGUF files hold no more.
  """
  if not (factor >= 1 and 0 < low_freq_factor < high_freq_factor):
    raise ValueError(
      f"llama3 rope scaling with factor {factor}, low_freq_factor "
      f"{low_freq_factor}, high_freq_factor {high_freq_factor}: factor must "
      "be at least 1 and the low factor positive and below the high one"
    )
  _check_sizes(channels, theta)
  divisors = []
  for pair in range(channels // 2):
    wavelength = 2 * math.pi * theta ** (2 * pair / channels)
    kept = (original_max_position / wavelength - low_freq_factor) / (
      high_freq_factor - low_freq_factor
    )
    kept = min(max(kept, 0.0), 1.0)
    divisors.append(float(np.float32(1.0 / (kept + (1.0 - kept) / factor))))
  return tuple(divisors)


def _sections(
  raw: Mapping[str, Any], rope: Rope
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Entries of the layers with rope.theta and of those with local_theta."""
  everywhere = {
    name: raw[name] for name in ("rope_theta", _FRACTION) if name in raw
  }
  everywhere |= _object(raw, "rope_scaling")
  local = {"rope_theta": raw.get("rope_local_base_freq")}
  stated = _object(raw, "rope_parameters")
  by_type = bool({_GLOBAL, _LOCAL} & set(stated))
  if stated and by_type != (rope.local_theta is not None):
    raise ValueError(
      "config.json: rope_parameters must be given by layer type in families "
      "that have two bases and nowhere else; its entries are "
      f"{weights.one_line(list(stated))}"
    )
  if not by_type:
    return everywhere | stated, local
  return everywhere | _object(stated, _GLOBAL), local | _object(stated, _LOCAL)


def _object(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
  value = raw.get(name)
  if value is not None and not isinstance(value, dict):
    raise ValueError(f"config.json: {name} is {weights.one_line(value)}")
  return value or {}


def _rotary_dim(entries: Mapping[str, Any], rope: Rope, head_dim: int) -> int:
  fraction = json_values.read(entries, _FRACTION, float, rope.fraction or 1.0)
  if rope.fraction is None and fraction != 1:
    raise ValueError(f"config.json: {_FRACTION} = {fraction} is not supported")
  if not 0 < fraction <= 1:
    raise ValueError(
      f"config.json: {_FRACTION} is {fraction}, it must be above 0 and at "
      "most 1"
    )
  return int(head_dim * fraction)


def _kind(entries: Mapping[str, Any]) -> str:
  """The rope type; "type" and "rope_type" are two spellings of one key."""
  kinds = [entries[key] for key in ("type", "rope_type") if entries.get(key)]
  kind = kinds[0] if kinds else "default"
  if kinds != [kind] * len(kinds) or kind not in (
    "default",
    "linear",
    "llama3",
  ):
    raise ValueError(
      f"config.json: rope type {weights.one_line(kinds)} is not supported, "
      "only default, linear and llama3 are"
    )
  return kind


def _read_factors(
  entries: Mapping[str, Any], channels: int, theta: float
) -> tuple[float, ...] | None:
  kind = _kind(entries)
  if kind == "default":
    return None
  factor = json_values.read(entries, "factor", float)
  if kind == "linear":
    _check_sizes(channels, theta)
    return (float(np.float32(factor)),) * (channels // 2)
  return llama3_factors(
    channels,
    theta,
    factor,
    json_values.read(entries, "low_freq_factor", float),
    json_values.read(entries, "high_freq_factor", float),
    json_values.read(entries, "original_max_position_embeddings", int),
  )


def _check_sizes(channels: int, theta: float) -> None:
  if not (theta > 0 and 0 < channels <= layout.MAX_HEAD_DIM):
    raise ValueError(
      f"rope scaling with rope_theta {theta} and {channels} rotated channels: "
      f"both must be positive, channels at most {layout.MAX_HEAD_DIM}"
    )


def _write_factors(
  config: TransformerConfig, factors: tuple[float, ...]
) -> dict[str, Any]:
  """The scaling that gives a configuration's divisors.

  A configuration keeps the divisors, not where they came from. Llama 3's
  scaling is found again by trying the lengths that models are trained at.
  """
  if len(set(factors)) == 1:
    return {"rope_type": "linear", "factor": factors[0]}
  for length in (1 << power for power in range(4, 24)):
    settings = (factors[-1], _LOW_FREQ_FACTOR, _HIGH_FREQ_FACTOR, length)
    found = llama3_factors(config.num_rotated, config.rope_theta, *settings)
    if found == factors:
      return {
        "rope_type": "llama3",
        "factor": settings[0],
        "low_freq_factor": settings[1],
        "high_freq_factor": settings[2],
        "original_max_position_embeddings": length,
      }
  raise ValueError(
    f"rope factors {weights.one_line(factors)} are neither linear nor llama3 "
    "scaling, and config.json has no other words for them: save an Orbax "
    "folder instead"
  )
