# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configs of a run: reading the file and overriding its keys.

A config is a Python file with `get_config(arg)`, which returns a ConfigDict.
It is run, so use only files you trust. Nothing here touches a device.

What is left out gets the defaults of `schema.py`; `--config.KEY=VALUE` changes
a key, dots leading inwards. A list that is given a plain text becomes that text
(`--config.prompts="Hello"`); everything else keeps its type. A key of the sweep
may be new: `--config.sweep.KEY=1,2`.
"""

import ast
from collections.abc import Mapping, Sequence
import importlib.util
import os
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import dotted_keys, proof_schema, schema

_SWEEP = "sweep."


def read(
  spec: str, overrides: Sequence[str] = (), kind: Any = None
) -> ConfigDict:
  """The whole, checked config of a file.

  Args:
    spec: `path.py` or `path.py:argument`.
    overrides: `key.key=value` each.
    kind: `complete` and `check` of what a config may say; None is `schema`, or
      `proof_schema` for a config of proofs.

  Raises:
    FileNotFoundError: no such file.
    ValueError: one line that names the key or value and the fix.
  """
  given = _run_file(spec)
  if kind is None:
    kind = proof_schema if proof_schema.is_given(given) else schema
  return complete(given, overrides, kind)


def complete(
  given: Mapping[str, Any] | ConfigDict, overrides: Sequence[str], kind: Any
) -> ConfigDict:
  """The whole, checked config of what was given, or of its `plain` form.

  Raises:
    ValueError: one line that names the key or value and the fix.
  """
  config = kind.complete(given)
  given_keys = {text.partition("=")[0]: text for text in overrides}
  for dotted in dotted_keys.types_first(given_keys):
    _override(config, given_keys[dotted])
  config = kind.complete(config)
  kind.check(config)
  return config.lock()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
  """Dotted keys whose values differ between two configs as plain dicts."""
  a, b = dotted_keys.flat(old), dotted_keys.flat(new)
  return [k for k in sorted({*a, *b}) if a.get(k, ...) != b.get(k, ...)]


def plain(config: ConfigDict) -> dict[str, Any]:
  """The config as JSON knows it: dicts, lists, texts and numbers."""

  def value(x: Any) -> Any:
    if isinstance(x, Mapping | ConfigDict):
      return {key: value(x[key]) for key in x}
    return [value(item) for item in x] if isinstance(x, tuple | list) else x

  return value(config)


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


def _override(config: ConfigDict, override: str) -> None:
  dotted, equals, text = override.partition("=")
  if not equals:
    raise ValueError(
      f"--config.{dotted} has no value: write --config.key=value"
    )
  if dotted.startswith(_SWEEP):
    key = dotted.removeprefix(_SWEEP)
    config.sweep[key] = _value(config.sweep.get(key), text)
  else:
    section, key = dotted_keys.locate(config, dotted)
    dotted_keys.assign(config, dotted, _value(section[key], text))


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
  if isinstance(current, schema.TEXTS) and not isinstance(value, schema.TEXTS):
    return text
  # No key of this kind takes a dict; as a text it is refused by name.
  return text if isinstance(value, dict) else value
