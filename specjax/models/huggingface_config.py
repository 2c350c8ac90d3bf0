# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The config.json of a Llama-family model.

What the file says and this code does not compute is refused by name; nothing
is guessed.
"""

from collections.abc import Mapping
import math
from typing import Any

from specjax.models import parameters, weights
from specjax.models.transformer import TransformerConfig

# Entries that change the arithmetic, with the values that mean "not used".
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  "hidden_act": ("silu",),
  "attention_bias": (False, None),
  "mlp_bias": (False, None),
  "rope_interleaved": (False, None),
  "partial_rotary_factor": (1, None),
  "quantization_config": (None,),
}


def read_config(raw: Mapping[str, Any]) -> TransformerConfig:
  """The configuration that a config.json states."""
  if raw.get("model_type") != "llama":
    raise ValueError(
      f"config.json: model_type is {weights.one_line(raw.get('model_type'))}, "
      "only 'llama' is supported"
    )
  for key, neutral in _NEUTRAL.items():
    if key in raw and raw[key] not in neutral:
      raise ValueError(
        f"config.json: {key} = {weights.one_line(raw[key])} is not supported"
      )
  embed_dim = _number(raw, "hidden_size", int)
  num_heads = _number(raw, "num_attention_heads", int)
  # Stated head sizes need not be hidden_size / num_attention_heads.
  head_dim = _number(raw, "head_dim", int, embed_dim // max(num_heads, 1))
  theta, factors = _read_rope(raw, head_dim)
  return TransformerConfig(
    vocab_size=_number(raw, "vocab_size", int),
    embed_dim=embed_dim,
    num_layers=_number(raw, "num_hidden_layers", int),
    num_heads=num_heads,
    num_kv_heads=_number(raw, "num_key_value_heads", int, num_heads),
    head_dim=head_dim,
    mlp_dim=_number(raw, "intermediate_size", int),
    max_position=_number(raw, "max_position_embeddings", int),
    norm_eps=_number(raw, "rms_norm_eps", float),
    rope_theta=theta,
    rope_factors=factors,
    tie_embeddings=_boolean(raw, "tie_word_embeddings", False),
  )


def llama3_rope_factors(
  head_dim: int,
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
    head_dim / 2 divisors, fastest pair first.
  """
  if not (factor >= 1 and 0 < low_freq_factor < high_freq_factor):
    raise ValueError(
      f"llama3 rope scaling with factor {factor}, low_freq_factor "
      f"{low_freq_factor}, high_freq_factor {high_freq_factor}: factor must "
      "be at least 1 and the low factor positive and below the high one"
    )
  if not (theta > 0 and 0 < head_dim <= parameters.MAX_HEAD_DIM):
    raise ValueError(
      f"llama3 rope scaling with rope_theta {theta} and head_dim {head_dim}: "
      f"both must be positive, head_dim at most {parameters.MAX_HEAD_DIM}"
    )
  divisors = []
  for pair in range(head_dim // 2):
    wavelength = 2 * math.pi * theta ** (2 * pair / head_dim)
    kept = (original_max_position / wavelength - low_freq_factor) / (
      high_freq_factor - low_freq_factor
    )
    kept = min(max(kept, 0.0), 1.0)
    divisors.append(1.0 / (kept + (1.0 - kept) / factor))
  return tuple(divisors)


def _read_rope(
  raw: Mapping[str, Any], head_dim: int
) -> tuple[float, tuple[float, ...] | None]:
  """Base and divisors; "type" and "rope_type" are two spellings of one key."""
  rope: dict[str, Any] = {}
  for key in ("rope_scaling", "rope_parameters"):
    value = raw.get(key)
    if value is not None and not isinstance(value, dict):
      raise ValueError(f"config.json: {key} is {weights.one_line(value)}")
    rope.update(value or {})
  theta = _number({**raw, **rope}, "rope_theta", float, 10000.0)
  kinds = [rope[key] for key in ("type", "rope_type") if rope.get(key)]
  kind = kinds[0] if kinds else "default"
  if kinds != [kind] * len(kinds) or kind not in ("default", "llama3"):
    raise ValueError(
      f"config.json: rope type {weights.one_line(kinds)} is not supported, "
      "only default and llama3 are"
    )
  if rope.get("partial_rotary_factor", 1) != 1:
    raise ValueError("config.json: partial_rotary_factor is not supported")
  if kind == "default":
    return theta, None
  return theta, llama3_rope_factors(
    head_dim,
    theta,
    _number(rope, "factor", float),
    _number(rope, "low_freq_factor", float),
    _number(rope, "high_freq_factor", float),
    _number(rope, "original_max_position_embeddings", int),
  )


def _number(
  raw: Mapping[str, Any],
  key: str,
  kind: type,
  default: int | float | None = None,
) -> Any:
  value = raw.get(key)
  value = default if value is None else value
  if value is None:
    raise ValueError(f"config.json: {key} is missing")
  accepted = int if kind is int else int | float
  fits = isinstance(value, accepted) and not isinstance(value, bool)
  # No size of a model needs 64 bits; NaN does not pass either.
  if not (fits and abs(value) < 1 << 64):
    raise ValueError(
      f"config.json: {key} is {weights.one_line(value)}, one {kind.__name__} "
      "was expected"
    )
  return kind(value)


def _boolean(raw: Mapping[str, Any], key: str, default: bool) -> bool:
  value = raw.get(key, default)
  if not isinstance(value, bool):
    raise ValueError(
      f"config.json: {key} is {weights.one_line(value)}, true or false was "
      "expected"
    )
  return value
