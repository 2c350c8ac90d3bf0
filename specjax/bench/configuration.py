# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configs of a run: reading the file, filling in, overriding, checking.

A config is a Python file with `get_config(arg)`, which returns a ConfigDict.
It is run, so use only files you trust. Nothing here touches a device.

What is left out gets the defaults below; `--config.KEY=VALUE` changes a key,
dots leading inwards. A list that is given a plain text becomes that text
(`--config.prompts="Hello"`); everything else keeps its type.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
import difflib
import importlib.util
import os
from typing import Any

from ml_collections import ConfigDict

_NUMBER = (int, float)
_TEXTS = (tuple, list)

# Key -> (default, types). A default of ... must be given.
_TOP: Mapping[str, tuple[Any, tuple[type, ...]]] = {
  "target": (..., (str,)),
  "methods": (..., (ConfigDict,)),
  "prompts": (..., (str, *_TEXTS)),
  "categories": ((), _TEXTS),
  "prompt_ids": ((), (str, *_TEXTS)),
  "sampling": ({}, (ConfigDict,)),
  "max_new_tokens": (128, (int,)),
  "batch_size": (1, (int,)),
  "dtype": ("float32", (str,)),
  "mesh": ({}, (ConfigDict,)),
  "runs": (3, (int,)),
  "replays": (6, (int,)),
  "sweep": ({}, (ConfigDict,)),
  "seed": (0, (int,)),
  "stop": ((), _TEXTS),
  "trace": (False, (bool,)),
}
_SAMPLING = {
  "temperature": (0.0, _NUMBER),
  "top_k": (0, (int,)),
  "top_p": (1.0, _NUMBER),
  "min_p": (0.0, _NUMBER),
  "repetition": (1.0, _NUMBER),
  "presence": (0.0, _NUMBER),
  "frequency": (0.0, _NUMBER),
}
_MESH = {"data": (1, (int,)), "model": (1, (int,))}
_METHOD = {
  "drafter": (..., (ConfigDict,)),
  "verifier": ({"type": "coupled"}, (ConfigDict,)),
  "policy": ({"type": "fixed"}, (ConfigDict,)),
}
# A part's keys beside `type`; policy.length -1 stands for the drafter's own.
_PARTS = {
  "drafter": {
    "empty": {},
    "ngram": {
      "length": (..., (int,)),
      "min_n": (1, (int,)),
      "max_n": (3, (int,)),
      "tie": ("latest", (str,)),
    },
    "draft_model": {"model": (..., (str,)), "length": (..., (int,))},
  },
  "verifier": {"coupled": {}, "rejection": {}},
  "policy": {"fixed": {"length": (-1, (int,))}},
}
_LEAST = (("max_new_tokens", 0), ("batch_size", 1), ("runs", 1), ("replays", 0))
RESERVED = ("plain", "plain_reference")


def read(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
  """The whole, checked config of a file.

  Args:
    spec: `path.py` or `path.py:argument`.
    overrides: `key.key=value` each.

  Raises:
    FileNotFoundError: no such file.
    ValueError: one line that names the key or value and the fix.
  """
  config = complete(_run_file(spec))
  for override in overrides:
    _override(config, override)
  # A changed `type` may bring keys of its own.
  config = complete(config)
  _check_values(config)
  return config.lock()


def complete(given: Any) -> ConfigDict:
  """A config with every key, unlocked.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  config = _section("", given, _TOP)
  config.sampling = _section("sampling", config.sampling, _SAMPLING)
  config.mesh = _section("mesh", config.mesh, _MESH)
  methods = ConfigDict()
  for name, method in config.methods.items():
    where = f"methods.{name}"
    if name in RESERVED:
      raise ValueError(f"{where}: {name} is always run: choose another name")
    if not isinstance(method, ConfigDict | Mapping):
      raise ValueError(f"{where} is {method!r}: it must have drafter, verifier")
    method = _section(where, method, _METHOD)
    for part, kinds in _PARTS.items():
      method[part] = _part(f"{where}.{part}", method[part], kinds)
    methods[name] = method
  config.methods = methods
  return config


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
  """Dotted keys whose values differ between two configs as plain dicts."""
  a, b = _flat(old), _flat(new)
  return [k for k in sorted({*a, *b}) if a.get(k, ...) != b.get(k, ...)]


def plain(config: ConfigDict) -> dict[str, Any]:
  """The config as JSON knows it: dicts, lists, texts and numbers."""

  def value(x: Any) -> Any:
    if isinstance(x, Mapping | ConfigDict):
      return {key: value(x[key]) for key in x}
    return [value(item) for item in x] if isinstance(x, tuple | list) else x

  return value(config)


def suggestion(word: str, known: Iterable[str]) -> str:
  """ "did you mean 'x'?" or the list of what there is."""
  known = list(known)
  close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
  if close:
    return f"did you mean {close[0]!r}?"
  return f"use one of {', '.join(known)}" if known else "there is none here"


def _run_file(spec: str) -> ConfigDict:
  path, arg = spec, ""
  if ".py:" in spec:
    path, _, arg = spec.partition(".py:")
    path += ".py"
  if not os.path.isfile(path):
    raise FileNotFoundError(f"no config file {path!r}: check --config")
  module_spec = importlib.util.spec_from_file_location("config", path)
  if module_spec is None or module_spec.loader is None:
    raise ValueError(f"config {path!r} is not a Python file: name a .py file")
  module = importlib.util.module_from_spec(module_spec)
  try:
    module_spec.loader.exec_module(module)
    config = module.get_config(arg)
  except AttributeError as error:
    raise ValueError(f"config {path}: {error}") from error
  except Exception as error:
    kind = type(error).__name__
    text = " ".join(str(error).split())
    raise ValueError(f"config {path}: {kind}: {text}") from error
  if not isinstance(config, ConfigDict):
    kind = type(config).__name__
    raise ValueError(f"config {path}: get_config gave {kind}, not a ConfigDict")
  return config


def _section(
  where: str,
  given: Any,
  schema: Mapping[str, tuple[Any, tuple[type, ...]]],
) -> ConfigDict:
  """`given` with the defaults of its schema."""
  prefix = f"{where}." if where else ""
  for key in given:
    if key not in schema:
      advice = suggestion(key, schema)
      raise ValueError(f"unknown config key {prefix + key!r}: {advice}")
  section = ConfigDict()
  for key, (default, types) in schema.items():
    value = given.get(key, default)
    if value is ...:
      raise ValueError(f"config key {prefix + key!r} is missing: give it")
    if isinstance(value, Mapping) and not isinstance(value, ConfigDict):
      value = ConfigDict(value)
    # True is an int for Python, and a typing mistake here.
    wrong_bool = isinstance(value, bool) and bool not in types
    if wrong_bool or not isinstance(value, types):
      names = " or ".join(t.__name__ for t in types)
      raise ValueError(f"{prefix + key} is {value!r:.80}: it must be {names}")
    section[key] = tuple(value) if isinstance(value, list) else value
  return section


def _part(where: str, given: Any, kinds: Mapping[str, Any]) -> ConfigDict:
  kind = given.get("type")
  if kind not in kinds:
    raise ValueError(
      f"{where}.type is {kind!r}: {suggestion(str(kind), kinds)}"
    )
  return _section(where, given, {"type": (..., (str,)), **kinds[kind]})


def _override(config: ConfigDict, override: str) -> None:
  dotted, equals, text = override.partition("=")
  if not equals:
    raise ValueError(
      f"--config.{dotted} has no value: write --config.key=value"
    )
  *path, last = dotted.split(".")
  section, walked = config, ""
  for key in [*path, last]:
    if not isinstance(section, ConfigDict):
      raise ValueError(f"unknown config key {dotted!r}: {walked} has no keys")
    if key not in section:
      advice = suggestion(key, section)
      raise ValueError(f"unknown config key {walked + key!r}: {advice}")
    parent, section = section, section[key]
    walked += f"{key}."
  if isinstance(section, ConfigDict):
    raise ValueError(f"--config.{dotted} has keys of its own: set one of them")
  # The type may change, from a list of prompts to one text: checked later.
  with parent.ignore_type():
    parent[last] = _value(section, text)


def _value(current: Any, text: str) -> Any:
  """What a text on the command line means in place of `current`."""
  if isinstance(current, str):
    return text
  if isinstance(current, bool) and text.lower() in ("true", "false"):
    return text.lower() == "true"
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return text  # What is no value of Python, or too deep for its parser.
  if isinstance(current, _TEXTS) and not isinstance(value, _TEXTS):
    return text
  # No key of this kind takes a dict; as a text it is refused by name.
  return text if isinstance(value, dict) else value


def _check_values(config: ConfigDict) -> None:
  for key, least in _LEAST:
    if config[key] < least:
      raise ValueError(f"{key} is {config[key]}: use {least} or more")
  if not 0 <= config.seed < 2**32:
    raise ValueError(f"seed is {config.seed}: use 0 to 4294967295")
  for axis, size in config.mesh.items():
    if size != 1:
      raise ValueError(
        f"mesh.{axis} is {size}: this version runs on one device, use 1"
      )
  if config.sweep:
    raise ValueError(
      f"sweep has {', '.join(config.sweep)}: sweeps are not in this version, "
      "give the methods one by one"
    )
  if not config.prompts:
    raise ValueError(
      "prompts is empty: give a text, texts or the path of a file"
    )
  for key in ("prompts", "categories", "stop"):
    texts = () if isinstance(config[key], str) else config[key]
    for text in texts:
      if not isinstance(text, str) or not text:
        raise ValueError(f"{key} holds {text!r:.40}: each must be a text")
  for name, method in config.methods.items():
    _check_lengths(name, method)


def _check_lengths(name: str, method: ConfigDict) -> None:
  drafts = method.drafter.get("length", 0)
  wanted = method.policy.length
  where = f"methods.{name}"
  if drafts < 0:
    raise ValueError(f"{where}.drafter.length is {drafts}: use 0 or more")
  if wanted < -1:
    raise ValueError(f"{where}.policy.length is {wanted}: use 0 or more")
  if wanted > drafts:
    raise ValueError(
      f"{where}.policy.length is {wanted} but its drafter drafts {drafts} "
      "tokens at most: make them equal"
    )


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
  if not isinstance(tree, Mapping):
    return {prefix[:-1]: tree}
  flat = {}
  for key, value in tree.items():
    flat |= _flat(value, f"{prefix}{key}.")
  return flat
