# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of a run as it goes: a file of lines, TensorBoard, the terminal.

Numbers of a step are read when the next one is under way, so that writing them
never makes a device wait.
"""

from collections.abc import Mapping
import contextlib
import json
import math
import numbers
import os
import pathlib
import sys
import time
from typing import Any

FILE = "metrics.jsonl"


class Tracker(contextlib.AbstractContextManager):
  """Where the measures of one run go.

  Args:
    folder: of the run.
    start: updates that were made before; lines of an earlier attempt that come
      after them are dropped, since those steps will be made again.
    steps: of the whole run.
    tensorboard: write event files too.
  """

  def __init__(
    self, folder: pathlib.Path, start: int, steps: int, tensorboard: bool
  ):
    from rich import progress

    self._path = folder / FILE
    _drop_after(self._path, start)
    self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
    self._events = None
    if tensorboard:
      import tensorboardX

      self._events = tensorboardX.SummaryWriter(
        os.fspath(folder / "tensorboard"), purge_step=start + 1
      )
    self._bar = progress.Progress(
      "{task.description}",
      progress.BarColumn(),
      "{task.completed:.0f}/{task.total:.0f}",
      progress.TimeRemainingColumn(),
      "{task.fields[measures]}",
      disable=not sys.stderr.isatty(),
    )
    self._task = self._bar.add_task(
      "train", total=steps, completed=start, measures=""
    )
    self._bar.start()
    self._last, self._seconds, self._tokens = time.perf_counter(), 0.0, 0

  def step(self, step: int, tokens: int, measures: Mapping[str, Any]) -> None:
    """The measures of one update, and how many tokens it read.

    The speed is that of all updates so far, evaluations left out.
    """
    self._seconds += time.perf_counter() - self._last
    self._tokens += tokens
    speed = {"tokens_per_second": self._tokens / self._seconds}
    self.write(step, "train", {**measures, **speed})
    shown = f"loss {measures['loss']:.3f} alpha {measures['alpha']:.3f} "
    shown += f"{speed['tokens_per_second']:.0f} tokens/s"
    self._bar.update(self._task, completed=step, measures=shown)

  def write(self, step: int, kind: str, measures: Mapping[str, Any]) -> None:
    """A line of measures of one kind."""
    line = {"step": step, "kind": kind, **_plain(measures)}
    self._file.write(json.dumps(line) + "\n")
    self._file.flush()
    if self._events is not None:
      for name, value in _flat(line):
        self._events.add_scalar(f"{kind}/{name}", value, step)
    self._last = time.perf_counter()

  def say(self, text: str) -> None:
    """A line for the terminal."""
    self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

  def __exit__(self, *error) -> None:
    self._bar.stop()
    self._file.close()
    if self._events is not None:
      self._events.close()


def read(folder: pathlib.Path) -> list[dict[str, Any]]:
  """All complete lines of a run's measures."""
  path = folder / FILE
  if not path.exists():
    return []
  lines = path.read_text(encoding="utf-8").split("\n")
  return [json.loads(line) for line in lines[:-1] if line]


def _drop_after(path: pathlib.Path, start: int) -> None:
  if not path.exists():
    return
  # From the start, the evaluation before the first step is made again too.
  lines = read(path.parent) if start else []
  kept = [line for line in lines if line["step"] <= start]
  text = "".join(json.dumps(line) + "\n" for line in kept)
  other = path.with_suffix(".new")
  other.write_text(text, encoding="utf-8")
  other.replace(path)


def _plain(value: Any) -> Any:
  """What JSON knows; a number that is none becomes null."""
  if isinstance(value, Mapping):
    return {key: _plain(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_plain(item) for item in value]
  if isinstance(value, bool | str) or value is None:
    return value
  number = value if isinstance(value, numbers.Integral) else float(value)
  return number if math.isfinite(number) else None


def _flat(measures: Mapping[str, Any], prefix: str = "") -> list:
  """(name, number) of nested measures; lists by position."""
  found = []
  for key, value in measures.items():
    if isinstance(value, list):
      value = dict(enumerate(value))
    if isinstance(value, Mapping):
      found += _flat(value, f"{prefix}{key}/")
    elif isinstance(value, numbers.Number):
      found.append((f"{prefix}{key}", value))
  return found
