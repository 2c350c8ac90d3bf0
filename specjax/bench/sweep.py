# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A grid of settings, each a comparison of its own, and one table of all.

  config.json  what the settings share; of `sweep` the keys alone
  SETTING/     the folder of a comparison (see `workdir`), named by its values
  sweep.csv    one row a setting, method and category; "all" is all prompts

A sweep goes on where it was stopped. Its values may change meanwhile: a folder
belongs to its values, and the table holds the settings of the last command.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import dataclasses
import hashlib
import json
import os
import re
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from specjax.bench import (
  backend,
  build,
  comparison,
  configuration,
  inputs,
  loading,
  schema,
  storage,
  sweep_table,
  workdir,
)
from specjax.reports import report, tables

TABLE = "sweep.csv"
_LONGEST_NAME = 120  # of a folder; file systems take 255 bytes
_SHOWN = {
  "tau": "block_efficiency",
  "alpha": "acceptance_rate",
  "tokens/s": "tokens_per_second",
  "speedup": "speedup.mean",
  "decode": "speedup.decode_only",
  "degenerate": "degenerate",
}


@dataclasses.dataclass(frozen=True)
class Setting:
  """One comparison of a sweep.

  Attributes:
    values: of the sweep's keys.
    config: its own, without a sweep.
    path: of its folder.
  """

  values: Mapping[str, Any]
  config: ConfigDict
  path: epath.Path


def run(
  config: ConfigDict,
  path: str | os.PathLike[str],
  *,
  overwrite: bool = False,
) -> None:
  """Runs or continues all settings, and prints a table of them.

  Every setting is checked before the first one runs, models and prompts too.

  Args:
    config: checked, with a sweep.
    path: of the workdir.
    overwrite: remove what another run left there.

  Raises:
    ValueError, OSError: a mistake in the config or a folder, in one line.
  """
  root = storage.locate(path)
  settings = settings_of(config, root)
  shared = configuration.plain(config) | {"sweep": list(config.sweep)}
  workdir.check(root, shared, overwrite=overwrite)
  models = _Models()
  _check(settings, models, overwrite=overwrite)
  storage.make_folder(root)
  if overwrite:
    storage.remove(root / TABLE)
    for folder in (root, *(setting.path for setting in settings)):
      workdir.clear(folder)
  workdir.write_json(root / workdir.CONFIG, shared)
  summaries = _run(settings, models, root / TABLE)
  _show(settings, summaries)
  report.say("")
  report.say(
    f"{len(settings)} settings, all measures by category: {root / TABLE}"
  )


def settings_of(config: ConfigDict, root: epath.Path) -> list[Setting]:
  """The settings of a sweep, each with a folder below `root`."""
  return [
    Setting(values, setting, root / folder_name(values))
    for values, setting in schema.settings_of(config)
  ]


def folder_name(values: Mapping[str, Any]) -> str:
  """A readable name that no other values have: "a.b=2,c=0.5"."""
  exact = json.dumps(values, sort_keys=True)
  text = ",".join(f"{key}={value}" for key, value in values.items())
  name = re.sub(r"[^\w.=,+-]+", "_", text, flags=re.ASCII)[:_LONGEST_NAME]
  if name == text:
    return name
  return f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


class _Models:
  """The models of one setting at a time, kept for the next that shares them."""

  def __init__(self):
    self._loaded: loading.Loaded | None = None

  def of(self, config: ConfigDict) -> loading.Loaded:
    if self._loaded is not None and not loading.fits(config, self._loaded):
      self._loaded = None  # Let go of one target before reading the next.
    self._loaded = loading.load(config, self._loaded)
    return self._loaded


def _check(
  settings: list[Setting], models: _Models, *, overwrite: bool
) -> None:
  """Finds what is wrong with any setting, at first what needs no model."""

  def config(setting):
    if build.is_inline(setting.config):
      raise ValueError("prompts is one text: give a list or file of prompts")
    comparison.check(setting.config, setting.path, overwrite=overwrite)

  def content(setting):
    loaded = models.of(setting.config)
    bench, header = comparison.prepare(setting.config, loaded)
    groups = {prompt.group for prompt in bench.task.prompts}
    # Without categories all prompts are one group of this name.
    if len(groups) > 1 and sweep_table.ALL in groups:
      raise ValueError(
        f"a category is called {sweep_table.ALL!r}, which {TABLE} calls all "
        "prompts: rename it"
      )
    if not overwrite:
      arrays = inputs.drafter_arrays(bench.methods, loaded)
      known = inputs.record(header, bench.task, arrays)
      workdir.check_inputs(setting.path, known)

  for check in (config, content):
    for setting in settings:
      try:
        check(setting)
      except (ValueError, OSError) as error:
        values = schema.described(setting.values)
        raise ValueError(f"sweep: with {values}: {error}") from error


def _run(
  settings: list[Setting], models: _Models, path: epath.Path
) -> list[Mapping[str, Any]]:
  """Does what is left of each setting; the table at `path` grows with them."""
  names = [schema.described(setting.values) for setting in settings]
  found = [workdir.read_json(s.path / workdir.SUMMARY) for s in settings]
  with report.progress(len(settings), done=0) as say:
    for place, setting in enumerate(settings):
      found[place], _ = comparison.resume(
        setting.config,
        setting.path,
        models.of(setting.config),
        progress=_within(say, names[place]),
      )
      _write(path, settings, found)
      say(1, names[place])
      backend.free_programs()
  return [summary for summary in found if summary is not None]


def _within(say: comparison.Say, name: str) -> comparison.Progress:
  """The steps of one setting in the bar of all."""
  inner = lambda steps, what: say(0, f"{name}: {what}")
  return lambda total, done: contextlib.nullcontext(inner)


def _write(
  path: epath.Path,
  settings: list[Setting],
  summaries: Sequence[Mapping[str, Any] | None],
) -> None:
  """The table of the settings that have ended."""
  found = [
    row
    for setting, summary in zip(settings, summaries)
    if summary is not None
    for row in sweep_table.rows(setting.values, summary)
  ]
  storage.write(path, sweep_table.write(settings[0].values, found).encode())


def _show(settings: list[Setting], found: list[Mapping[str, Any]]) -> None:
  """Prints one row a setting and method."""
  keys = _short(settings[0].values)
  shown = []
  for setting, summary in zip(settings, found):
    values = [str(value) for value in setting.values.values()]
    for row in sweep_table.rows(setting.values, summary):
      if row["category"] != sweep_table.ALL:
        continue
      measures = [tables.number(row.get(name)) for name in _SHOWN.values()]
      matched = "n/a"
      if "matched.total" in row:
        matched = f"{row['matched.equal']}/{row['matched.total']}"
      shown.append((*values, row["method"], *measures, matched))
  for heading in dict.fromkeys(map(tables.heading, found)):
    report.say(heading)
  report.say("")
  report.show_table((*keys, "method", *_SHOWN, "matched"), shown)


def _short(keys: Iterable[str]) -> list[str]:
  """The last words of dotted keys, as few as tell them apart."""
  split = [key.split(".") for key in keys]
  for count in range(1, max(map(len, split))):
    short = [".".join(words[-count:]) for words in split]
    if len(set(short)) == len(short):
      return short
  return [".".join(words) for words in split]
