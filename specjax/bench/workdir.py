# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: its files, and going on where a run was killed.

  config.json    the effective config
  inputs.json    fingerprints of what the config only names (see `inputs`)
  results.jsonl  one line an answer, in the order they were made
  tokens.jsonl   one line a round, with `config.trace`
  summary.json   the measures, once all is done

Lines are flushed one by one, the other files appear whole or not at all.
"""

from collections.abc import Iterable, Mapping
import contextlib
import json
import math
import os
import pathlib
from typing import Any

from specjax.bench import configuration

CONFIG = "config.json"
INPUTS = "inputs.json"
RESULTS = "results.jsonl"
TOKENS = "tokens.jsonl"
SUMMARY = "summary.json"


class Workdir:
  """Opens a folder for one config, keeping what an earlier run left there."""

  def __init__(
    self,
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    inputs: Mapping[str, Any],
    *,
    overwrite: bool = False,
  ):
    """Creates the folder, config.json and inputs.json.

    Args:
      path: of the folder.
      config: the effective config as plain values.
      inputs: see `inputs.record`.
      overwrite: remove what another run left.

    Raises:
      ValueError: the folder holds a run of another config or other inputs.
      OSError: it cannot be written.
    """
    self.path = pathlib.Path(path).expanduser()
    check(self.path, config, overwrite=overwrite)
    self.path.mkdir(parents=True, exist_ok=True)
    if overwrite:
      for name in (RESULTS, TOKENS, SUMMARY, INPUTS, CONFIG):
        (self.path / name).unlink(missing_ok=True)
    _check_inputs(self.path, inputs)
    write_json(self.path / CONFIG, config)
    write_json(self.path / INPUTS, inputs)
    self.records = _read_records(self.path / RESULTS)

  def append(self, record: Mapping[str, Any]) -> None:
    """Adds one line to results.jsonl; it is on disk when this returns."""
    line = json.dumps(_finite(record), ensure_ascii=False)
    with open(self.path / RESULTS, "a", encoding="utf-8") as file:
      file.write(line + "\n")
      file.flush()
      os.fsync(file.fileno())
    self.records.append(json.loads(line))

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    write_json(self.path / SUMMARY, summary)

  def read_summary(self) -> dict[str, Any] | None:
    """The measures of a run that has ended, else None."""
    path = self.path / SUMMARY
    return json.loads(path.read_text("utf-8")) if path.is_file() else None

  def write_tokens(self, lines: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(_finite(line)) + "\n" for line in lines)
    _replace(self.path / TOKENS, text)


def check(
  path: str | os.PathLike[str],
  config: Mapping[str, Any],
  *,
  overwrite: bool = False,
) -> None:
  """Whether a run may write here; creates nothing.

  Raises:
    ValueError: not a folder, not writable, or a run of another config.
  """
  path = pathlib.Path(path).expanduser()
  if path.exists() and not path.is_dir():
    raise ValueError(f"workdir {path} is a file: name a folder")
  parent = next(p for p in (path, *path.absolute().parents) if p.exists())
  if not parent.is_dir():
    raise ValueError(f"workdir {path}: {parent} is a file: name a folder")
  if not os.access(parent, os.W_OK | os.X_OK):
    raise ValueError(f"workdir {path} cannot be written: choose another folder")
  if overwrite or not (path / CONFIG).is_file():
    if not overwrite and (path / RESULTS).is_file():
      raise ValueError(
        f"workdir {path} has results without a {CONFIG}: choose another folder "
        "or add --overwrite"
      )
    return
  _refuse_changes(path, CONFIG, config)


def _check_inputs(path: pathlib.Path, inputs: Mapping[str, Any]) -> None:
  """Whether the answers in a folder came from the same prompts and models."""
  if (path / INPUTS).is_file():
    _refuse_changes(path, INPUTS, inputs)
  elif (path / RESULTS).is_file():
    raise ValueError(
      f"workdir {path} has results without an {INPUTS}, so they may come from "
      "other prompts or weights: choose another workdir or add --overwrite"
    )


def _refuse_changes(
  path: pathlib.Path, name: str, now: Mapping[str, Any]
) -> None:
  """Refuses a folder in which another run has left other values."""
  try:
    old = json.loads((path / name).read_text("utf-8"))
  except ValueError:
    raise ValueError(
      f"{path / name} is damaged: choose another workdir or add --overwrite"
    ) from None
  changed = configuration.differences(old, now)
  if changed:
    raise ValueError(
      f"workdir {path} holds a run with another {', '.join(changed[:3])}: "
      "choose another workdir or add --overwrite"
    )


def write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Writes a whole JSON file; numbers that JSON lacks become null."""
  text = json.dumps(_finite(value), indent=2, ensure_ascii=False)
  _replace(path, text + "\n")


def _replace(path: pathlib.Path, text: str) -> None:
  """Writes beside the file first: a killed run leaves the old one."""
  part = path.with_name(f".{path.name}.part")
  try:
    with open(part, "w", encoding="utf-8") as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    os.replace(part, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      part.unlink()


def _read_records(path: pathlib.Path) -> list[dict[str, Any]]:
  """Complete lines; what a killed run left of one is cut off the file."""
  if not path.is_file():
    return []
  content = path.read_bytes()
  whole = content[: content.rfind(b"\n") + 1]
  if len(whole) < len(content):
    with open(path, "r+b") as file:
      file.truncate(len(whole))
  records = []
  for number, line in enumerate(whole.split(b"\n")[:-1], 1):
    try:
      records.append(json.loads(line))
    except ValueError as error:
      raise ValueError(
        f"{path} line {number}: {error}: add --overwrite to start anew"
      ) from None
  return records


def _finite(value: Any) -> Any:
  if isinstance(value, Mapping):
    return {key: _finite(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_finite(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
