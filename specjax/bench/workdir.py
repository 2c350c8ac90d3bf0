# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: its files, and going on where a run was killed.

  config.json    the effective config
  inputs.json    fingerprints of what the config only names (see `inputs`)
  policies.json  numbers that policies hold, measured ones too (see `measured`)
  results.jsonl  one line an answer, in the order they were made
  tokens.jsonl   one line a round, with `config.trace`
  summary.json   the measures, once all is done

Lines are stored batch by batch, the other files appear whole or not at all. In
an object store results.jsonl is in parts until the run ends (see `storage`).
"""

from collections.abc import Iterable, Mapping
import json
import math
import os
from typing import Any

from etils import epath

from specjax.bench import configuration, storage

CONFIG = "config.json"
INPUTS = "inputs.json"
POLICIES = "policies.json"
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
      path: of the folder, on a disk or in an object store.
      config: the effective config as plain values.
      inputs: see `inputs.record`.
      overwrite: remove what another run left.

    Raises:
      ValueError: the folder holds a run of another config or other inputs.
      OSError: it cannot be written.
    """
    self.path = storage.locate(path)
    check(self.path, config, overwrite=overwrite)
    self._results = storage.lines(self.path / RESULTS)
    self.records: list[dict[str, Any]] = []
    storage.make_folder(self.path)
    if overwrite:
      clear(self.path)
    else:
      check_inputs(self.path, inputs)
      self.records = _parse(self._results.read(), self.path / RESULTS)
    write_json(self.path / CONFIG, config)
    write_json(self.path / INPUTS, inputs)

  def append(self, *records: Mapping[str, Any]) -> None:
    """Adds a line each to results.jsonl; they are stored when this returns."""
    lines = [
      json.dumps(_finite(record), ensure_ascii=False).encode()
      for record in records
    ]
    self._results.append(lines)
    self.records += map(json.loads, lines)

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Ends the run."""
    self._results.join()
    write_json(self.path / SUMMARY, summary)

  def read_summary(self) -> dict[str, Any] | None:
    """The measures of a run that has ended, else None."""
    return read_json(self.path / SUMMARY)

  def write_tokens(self, lines: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(_finite(line)) + "\n" for line in lines)
    storage.write(self.path / TOKENS, text.encode())


def check(
  path: str | os.PathLike[str],
  config: Mapping[str, Any],
  *,
  overwrite: bool = False,
) -> None:
  """Whether a run may write here; creates nothing.

  Raises:
    ValueError: not a folder, not writable, or a run of another config.
    OSError: a store that is out of reach.
  """
  path = storage.locate(path)
  storage.check_writable(path)
  if overwrite:
    return
  if storage.read(path / CONFIG) is not None:
    _refuse_changes(path, CONFIG, config)
  elif storage.lines(path / RESULTS).exists():
    raise ValueError(
      f"workdir {path} has results without a {CONFIG}: choose another folder "
      "or add --overwrite"
    )


def check_inputs(
  path: str | os.PathLike[str], inputs: Mapping[str, Any]
) -> None:
  """Whether the answers in a folder came from the same prompts and models.

  Raises:
    ValueError: they did not, or nobody knows.
  """
  path = storage.locate(path)
  if storage.read(path / INPUTS) is not None:
    _refuse_changes(path, INPUTS, inputs)
  elif storage.lines(path / RESULTS).exists():
    raise ValueError(
      f"workdir {path} has results without an {INPUTS}, so they may come from "
      "other prompts or weights: choose another workdir or add --overwrite"
    )


def clear(path: str | os.PathLike[str]) -> None:
  """Removes the files of a run, and no others."""
  path = storage.locate(path)
  storage.lines(path / RESULTS).remove()
  for name in (TOKENS, SUMMARY, POLICIES, INPUTS, CONFIG):
    storage.remove(path / name)


def _refuse_changes(
  path: epath.Path, name: str, now: Mapping[str, Any]
) -> None:
  """Refuses a folder in which another run has left other values."""
  changed = configuration.differences(read_json(path / name) or {}, now)
  if changed:
    raise ValueError(
      f"workdir {path} holds a run with another {', '.join(changed[:3])}: "
      "choose another workdir or add --overwrite"
    )


def write_json(path: epath.Path, value: Mapping[str, Any]) -> None:
  """Writes a whole JSON file; numbers that JSON lacks become null."""
  text = json.dumps(_finite(value), indent=2, ensure_ascii=False)
  storage.write(path, (text + "\n").encode())


def read_json(path: epath.Path) -> dict[str, Any] | None:
  """A JSON file, None where there is none.

  Raises:
    ValueError: it is damaged.
  """
  content = storage.read(path)
  if content is None:
    return None
  try:
    return json.loads(content)
  except ValueError:
    raise ValueError(
      f"{path} is damaged: choose another workdir or add --overwrite"
    ) from None


def _parse(lines: list[bytes], path: epath.Path) -> list[dict[str, Any]]:
  records = []
  for number, line in enumerate(lines, 1):
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
