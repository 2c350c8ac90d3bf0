# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config may say: its keys, their defaults, types and ranges.

`sweep` maps dotted keys to tuples of values; `settings_of` lists the configs of
that grid, each checked like a config of its own. Nothing here touches a device.
"""

from collections.abc import Mapping
import itertools
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import dotted_keys, parts, sections, spelling

TEXTS = sections.TEXTS

_TOP: sections.Keys = {
  "target": (..., (str,)),
  "quantization": ("none", (str,)),
  "methods": (..., (ConfigDict,)),
  "prompts": (..., (str, *TEXTS)),
  "categories": ((), TEXTS),
  "prompt_ids": ((), (str, *TEXTS)),
  "sampling": ({}, (ConfigDict,)),
  "max_new_tokens": (128, (int,)),
  "samples": (1, (int,)),
  "batch_size": (1, (int,)),
  "dtype": ("float32", (str,)),
  "mesh": ({}, (ConfigDict,)),
  "runs": (3, (int,)),
  "replays": (6, (int,)),
  "sweep": ({}, (ConfigDict,)),
  "seed": (0, (int,)),
  "stop": ((), TEXTS),
  "lossless": (True, (bool,)),
  "trace": (False, (bool,)),
}
_SAMPLING: sections.Keys = {
  "temperature": (0.0, sections.NUMBER),
  "top_k": (0, (int,)),
  "top_p": (1.0, sections.NUMBER),
  "min_p": (0.0, sections.NUMBER),
  "repetition": (1.0, sections.NUMBER),
  "presence": (0.0, sections.NUMBER),
  "frequency": (0.0, sections.NUMBER),
  "bias": ((), TEXTS),
  "allowed": ((), TEXTS),
  "bad_words": ((), TEXTS),
  "min_tokens": (0, (int,)),
  "choices": ((), TEXTS),
  "regex": ("", (str,)),
}
MESH: sections.Keys = {"data": (1, (int,)), "model": (1, (int,))}
_METHOD: sections.Keys = {
  "drafter": (..., (object,)),
  "verifier": ({"type": "coupled"}, (object,)),
  "policy": ({"type": "fixed"}, (object,)),
}
_LEAST = {
  "max_new_tokens": 0,
  "samples": 1,
  "batch_size": 1,
  "runs": 1,
  "replays": 0,
}
QUANTIZATIONS = ("none", "int8")
RESERVED = ("plain", "plain_reference")


def complete(given: Any) -> ConfigDict:
  """A config with every key, unlocked.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  config = sections.complete("", given, _TOP)
  config.sampling = sections.complete("sampling", config.sampling, _SAMPLING)
  config.mesh = sections.complete("mesh", config.mesh, MESH)
  config.sweep = _sweep(config.sweep)
  methods = ConfigDict()
  for name, method in config.methods.items():
    where = f"methods.{name}"
    if name in RESERVED:
      raise ValueError(f"{where}: {name} is always run: choose another name")
    if not isinstance(method, ConfigDict | Mapping):
      raise ValueError(f"{where} is {method!r}: it must have drafter, verifier")
    method = sections.complete(where, method, _METHOD)
    for part, section in method.items():
      method[part] = _part(f"{where}.{part}", part, section)
    methods[name] = method
  config.methods = methods
  return config


def check(config: ConfigDict) -> None:
  """Refuses values out of range, in a complete config and in its sweep.

  Raises:
    ValueError: one line that names the key, its value and the fix.
  """
  sections.check_least(config, _LEAST)
  if not 0 <= config.seed < 2**32:
    raise ValueError(f"seed is {config.seed}: use 0 to 4294967295")
  for axis, size in config.mesh.items():
    if size < 1:
      raise ValueError(f"mesh.{axis} is {size}: use 1 or more")
  if config.batch_size % config.mesh.data:
    raise ValueError(
      f"batch_size {config.batch_size} does not divide by mesh.data "
      f"{config.mesh.data}: use a multiple of it"
    )
  _check_quantization("", config)
  _check_texts(config)
  for name, method in config.methods.items():
    drafter = f"methods.{name}.drafter"
    for where, section in parts.sections(drafter, method.drafter):
      if "model" in section:
        _check_quantization(f"{where}.", section)
    _check_lengths(f"methods.{name}", method)
  if config.sweep:
    settings_of(config)


def settings_of(config: ConfigDict) -> list[tuple[dict[str, Any], ConfigDict]]:
  """The settings of a config's sweep: what each changes, and its config.

  The grid of all values, the last key fastest; a ConfigDict sorts its keys, so
  their order is that of the alphabet. Without a sweep it is the config alone.

  Args:
    config: complete.

  Returns:
    Pairs of (dotted key -> value) and a checked, locked config whose own
    `sweep` is empty.

  Raises:
    ValueError: an unknown key, or a setting that is no correct config.
  """
  settings = []
  for values in itertools.product(*config.sweep.values()):
    changes = dict(zip(config.sweep, values))
    setting = ConfigDict(config.to_dict() | {"sweep": {}})
    try:
      for key in dotted_keys.types_first(changes):
        dotted_keys.assign(setting, key, changes[key])
    except ValueError as error:
      raise ValueError(f"sweep: {error}") from None
    try:
      setting = complete(setting)
      check(setting)
    except ValueError as error:
      if not changes:
        raise
      raise ValueError(f"sweep: with {described(changes)}: {error}") from None
    settings.append((changes, setting.lock()))
  return settings


def described(changes: Mapping[str, Any]) -> str:
  """What a setting changes, on one line: "a.b=2, c=0.5"."""
  return ", ".join(f"{key}={value}" for key, value in changes.items())


def _part(where: str, part: str, given: Any) -> ConfigDict:
  """A part's section and those within it, with their defaults."""
  if not isinstance(given, ConfigDict):
    raise ValueError(f"{where} is {given!r:.80}: give a section with a type")
  kind = given.get("type", ...)
  keys = parts.keys(where, part, None if kind is ... else kind)
  section = sections.complete(where, given, keys)
  if part == "drafter":
    for name, optional in parts.nested(where, section.type).items():
      if not (optional and section[name] == ConfigDict({"type": None})):
        section[name] = _part(f"{where}.{name}", part, section[name])
  return section


def _sweep(given: ConfigDict) -> ConfigDict:
  """Dotted keys and tuples, however deep the keys were nested."""
  sweep = ConfigDict(allow_dotted_keys=True)
  for key, values in dotted_keys.flat(given).items() if given else ():
    if not isinstance(values, TEXTS) or not values:
      raise ValueError(
        f"sweep.{key} is {values!r:.80}: give a tuple of the values to try"
      )
    for at, value in enumerate(values):
      if value in values[:at]:
        raise ValueError(f"sweep.{key} holds {value!r} twice: remove one")
    sweep[key] = tuple(values)
  return sweep


def _check_texts(config: ConfigDict) -> None:
  if not config.prompts:
    raise ValueError(
      "prompts is empty: give a text, texts or the path of a file"
    )
  for key in ("prompts", "categories", "stop"):
    texts = () if isinstance(config[key], str) else config[key]
    for text in texts:
      if not isinstance(text, str) or not text:
        raise ValueError(f"{key} holds {text!r:.40}: each must be a text")


def _check_quantization(prefix: str, section: ConfigDict) -> None:
  kind = str(section.get("quantization", "none"))
  if kind not in QUANTIZATIONS:
    advice = spelling.suggestion(kind, QUANTIZATIONS)
    raise ValueError(f"{prefix}quantization is {kind!r}: {advice}")


def _check_lengths(where: str, method: ConfigDict) -> None:
  """Of parts that state them; the others are asked once they are built."""
  drafts = method.drafter.get("length")
  wanted = method.policy.get("length")
  stated = isinstance(drafts, int) and isinstance(wanted, int)
  if stated and wanted > drafts:
    raise ValueError(
      f"{where}.policy.length is {wanted} but its drafter drafts {drafts} "
      "tokens at most: make them equal"
    )
