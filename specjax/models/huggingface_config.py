# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The config.json of a model, read and written by the rows of `families`.

What the file says and this code does not compute is refused by name; nothing
is guessed.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from specjax.models import families, huggingface_rope, json_values, weights
from specjax.models.families import Family, Key
from specjax.models.transformer import TransformerConfig

# Entries that change the arithmetic, with the values that mean "not used". They
# count where a family does not read them.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  "attention_bias": (False, None),
  "attn_logit_softcapping": (None,),
  "final_logit_softcapping": (None,),
  "mlp_bias": (False, None),
  "quantization_config": (None,),
  "rope_interleaved": (False, None),
  "sliding_window": (None,),
  "use_bidirectional_attention": (False, None),
  "use_mrope": (False, None),
  "use_sliding_window": (False, None),
}
# Far above any real model; bounds lists with an entry a layer.
_MAX_LAYERS = 1 << 14
_SLIDING, _FULL = "sliding_attention", "full_attention"


def find_family(raw: Mapping[str, Any]) -> Family:
  """The row of a config.json.

  Raises:
    ValueError: no family, or one that is not known.
  """
  name = raw.get("model_type")
  if not isinstance(name, str) or name not in families.FAMILIES:
    known = ", ".join(families.FAMILIES)
    raise ValueError(
      f"config.json: model_type is {weights.one_line(name)}, known are "
      f"{known}: choose a model of one of these families"
    )
  return families.FAMILIES[name]


def read_config(raw: Mapping[str, Any]) -> TransformerConfig:
  """The configuration that a config.json states."""
  row = find_family(raw)
  raw = _text_entries(raw, row)
  _refuse_what_is_not_computed(raw, row)
  fields: dict[str, Any] = {"family": row.name}
  for field, source in row.fields.items():
    if isinstance(source, Key):
      fields[field] = _read_key(raw, source, fields)
    else:
      fields[field] = source(fields) if callable(source) else source
  rope = huggingface_rope.read(raw, row.rope, fields["head_dim"])
  windows = _read_windows(raw, row, fields["num_layers"])
  return TransformerConfig(**fields, **rope, windows=windows)


def write_config(config: TransformerConfig) -> dict[str, Any]:
  """The config.json from which `read_config` makes this configuration.

  Older names of entries are written where there are two: they are read by old
  and new versions of Transformers alike.

  Raises:
    ValueError: a field that the family's config.json cannot state.
  """
  if config.family not in families.FAMILIES:
    raise ValueError(
      f"family {config.family!r} has no config.json: choose one of "
      f"{', '.join(families.FAMILIES)}"
    )
  row = families.FAMILIES[config.family]
  raw: dict[str, Any] = {
    "architectures": [row.architecture],
    "model_type": row.name,
  }
  for field, source in row.fields.items():
    if isinstance(source, Key):
      raw[source.name] = source.write(getattr(config, field))
  raw |= huggingface_rope.write(config, row.rope)
  raw |= _write_windows(config, row)
  older = {new: old for old, new in row.spellings.items()}
  raw = {older.get(name, name): value for name, value in raw.items()}
  read = read_config(raw)
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if getattr(read, field.name) != value:
      raise ValueError(
        f"a config.json of family {config.family!r} cannot state {field.name} "
        f"= {weights.one_line(value)}: save an Orbax folder instead"
      )
  return raw


def _text_entries(raw: Mapping[str, Any], row: Family) -> dict[str, Any]:
  """The entries of the text model under today's names."""
  entries = dict(raw)
  if row.section is not None:
    inner = raw.get(row.section)
    if not isinstance(inner, dict):
      raise ValueError(f"config.json: {row.section} is missing")
    entries |= inner
  for old, new in row.spellings.items():
    if entries.get(old) is None:
      continue
    value = entries.pop(old)
    if entries.setdefault(new, value) != value:
      raise ValueError(
        f"config.json: {old} = {weights.one_line(value)} contradicts {new} = "
        f"{weights.one_line(entries[new])}"
      )
  return entries


def _refuse_what_is_not_computed(raw: Mapping[str, Any], row: Family) -> None:
  read = {key.name for key in row.fields.values() if isinstance(key, Key)}
  if row.windows.size is not None:
    read |= {"sliding_window", row.windows.switch}
  for name, neutral in _NEUTRAL.items():
    if name in raw and name not in read and raw[name] not in neutral:
      raise ValueError(
        f"config.json: {name} = {weights.one_line(raw[name])} is not supported"
      )


def _read_key(raw: Mapping[str, Any], key: Key, fields: Mapping[str, Any]):
  default = key.default(fields) if callable(key.default) else key.default
  value = json_values.read(raw, key.name, key.kind, default, key.least)
  field = key.read(value)
  if field is None:
    raise ValueError(
      f"config.json: {key.name} = {weights.one_line(value)} is not supported"
    )
  return field


def _read_windows(
  raw: Mapping[str, Any], row: Family, num_layers: int
) -> tuple[int | None, ...] | None:
  """The window of each layer, None where none has one."""
  rule, size = row.windows, _window_size(raw, row)
  stated = raw.get("layer_types")
  if size is None and stated is None:
    return None
  if num_layers > _MAX_LAYERS:
    raise ValueError(
      f"config.json: num_hidden_layers is {num_layers}, at most {_MAX_LAYERS} "
      "are read"
    )
  usual = _usual_types(raw, row, num_layers, size)
  kinds = usual if stated is None else stated
  if kinds != usual and not (rule.listed and _are_types(kinds, num_layers)):
    raise ValueError(
      f"config.json: layer_types = {weights.one_line(kinds)} is not supported"
    )
  if size is None and _SLIDING in kinds:
    raise ValueError(
      "config.json: layer_types has sliding layers, and no sliding_window is "
      "in use"
    )
  windows = tuple(size if kind == _SLIDING else None for kind in kinds)
  return windows if any(windows) else None


def _window_size(raw: Mapping[str, Any], row: Family) -> int | None:
  rule = row.windows
  if rule.size is None:
    return None
  if rule.switch and not json_values.read(raw, rule.switch, bool, False):
    return None
  if "sliding_window" in raw and raw["sliding_window"] is None:
    return None
  return json_values.read(raw, "sliding_window", int, rule.size, 1)


def _usual_types(
  raw: Mapping[str, Any], row: Family, num_layers: int, size: int | None
) -> list[str]:
  """The layer types of a file that does not list them."""
  rule = row.windows
  setting = 0
  if rule.setting is not None:
    setting = _read_key(raw, rule.setting, {})
  return [
    _SLIDING if size is not None and rule.slides(setting, layer) else _FULL
    for layer in range(num_layers)
  ]


def _are_types(kinds: Any, num_layers: int) -> bool:
  return (
    isinstance(kinds, list)
    and len(kinds) == num_layers
    and all(kind in (_SLIDING, _FULL) for kind in kinds)
  )


def _write_windows(config: TransformerConfig, row: Family) -> dict[str, Any]:
  rule = row.windows
  if rule.size is None:
    return {}
  windows = config.windows or (None,) * config.num_layers
  size = next((window for window in windows if window is not None), None)
  raw: dict[str, Any] = {"sliding_window": size}
  if rule.switch is not None:
    raw[rule.switch] = size is not None
  kinds = [_FULL if window is None else _SLIDING for window in windows]
  if kinds != _usual_types(raw, row, config.num_layers, size):
    raw["layer_types"] = kinds
  return raw
