# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A whole run: checks, timed answers, replay, summary, tables."""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import os
from typing import Any

from ml_collections import ConfigDict

from specjax import session as session_lib
from specjax.bench import (
  build,
  configuration,
  findings,
  inputs,
  loading,
  measure,
  measured,
  memory,
  summary,
  workdir,
)
from specjax.drafters import empty
from specjax.reports import report

Say = Callable[[int, str], None]
Progress = Callable[[int, int], contextlib.AbstractContextManager[Say]]


def compare(
  config: ConfigDict,
  path: str | os.PathLike[str],
  *,
  overwrite: bool = False,
) -> None:
  """Runs or continues a comparison, and prints it.

  Everything that can be wrong is checked before the folder is touched.

  Args:
    config: checked.
    path: of the workdir.
    overwrite: remove what another run left in the workdir.

  Raises:
    ValueError, OSError: a mistake in the config or the folder, in one line.
  """
  check(config, path, overwrite=overwrite)
  loaded = loading.load(config)
  result, ran = resume(config, path, loaded, overwrite=overwrite)
  if not ran:
    report.say(f"{path}: finished before, nothing was run")
  report.show(result)


def check(
  config: ConfigDict,
  path: str | os.PathLike[str],
  *,
  overwrite: bool = False,
) -> None:
  """What can be wrong before a model is loaded; see `compare`."""
  build.prompts(config)
  build.check(config)
  workdir.check(path, configuration.plain(config), overwrite=overwrite)


def prepare(
  config: ConfigDict, loaded: loading.Loaded
) -> tuple[measure.Bench, dict[str, Any]]:
  """The methods and prompts of a config, and the header of its summary.

  Raises:
    ValueError, OSError: what can be wrong once the models are loaded.
  """
  target, tokenizer = loaded.target.model, loaded.tokenizer
  task = build.task(config, tokenizer, build.prompts(config))
  methods = build.methods(config, target, loaded.draft_models)
  wide = {**methods, measure.PLAIN: session_lib.Method(empty.Empty(1))}
  bench = measure.Bench(
    target=target,
    tokenizer=tokenizer,
    task=task,
    methods=methods,
    batch_size=config.batch_size,
    capacity=build.capacity(target, task, wide),
    runs=config.runs,
  )
  bench.check()
  return bench, _header(bench, config, loaded)


def resume(
  config: ConfigDict,
  path: str | os.PathLike[str],
  loaded: loading.Loaded,
  *,
  overwrite: bool = False,
  progress: Progress = report.progress,
) -> tuple[dict[str, Any], bool]:
  """Does what is left of a comparison.

  Args:
    config: checked.
    path: of the workdir.
    loaded: the config's models, see `loading.load`.
    overwrite: remove what another run left in the workdir.
    progress: see `report.progress`.

  Returns:
    The summary, and whether anything was left to do.
  """
  bench, header = prepare(config, loaded)
  arrays = inputs.drafter_arrays(bench.methods, loaded)
  known = inputs.record(header, bench.task, arrays)
  values = configuration.plain(config)
  folder = workdir.Workdir(path, values, known, overwrite=overwrite)
  methods = measured.keep(folder.path, bench.methods)
  bench = dataclasses.replace(bench, methods=methods)
  result = folder.read_summary()
  if result is not None and len(folder.records) >= bench.answers:
    return result, False
  done = len(folder.records)
  extra = len(bench.methods) + 1 + findings.steps(bench, config)
  with progress(bench.answers + extra, done) as say:
    return _run(bench, folder, config, header, say), True


def _run(
  bench: measure.Bench,
  folder: workdir.Workdir,
  config: ConfigDict,
  header: Mapping[str, Any],
  say: Say,
) -> dict[str, Any]:
  measure.warm_up(bench, lambda name: say(1, f"compiling {name}"))
  seconds = measure.plain_seconds(bench)
  width = _plain_width(folder.records, seconds)
  say(1, "plain")
  plain = session_lib.Method(empty.Empty(width - 1))
  _answer_all(bench, folder, plain, say)
  measures, lines = findings.collect(bench, plain, folder.records, config, say)
  result = {
    **header,
    "memory": {"process_peak": memory.process_peak()},
    "methods": {name: measures[name] for name in bench.methods},
    "plain": {
      "width": width,
      "seconds_per_round": {str(w): s for w, s in seconds.items()},
      **measures[measure.PLAIN],
    },
  }
  if config.trace:
    folder.write_tokens(lines)
  folder.write_summary(result)
  return result


def _plain_width(
  records: list[dict[str, Any]], seconds: Mapping[int, float]
) -> int:
  """The faster width, or the one an earlier part of the run took."""
  for record in records:
    if record["method"] == measure.PLAIN:
      return record["width"]
  return min(seconds, key=lambda width: seconds[width])


def _answer_all(
  bench: measure.Bench,
  folder: workdir.Workdir,
  plain: session_lib.Method,
  say: Say,
) -> None:
  """Answers what is not in the folder yet."""
  done = {_key(record) for record in folder.records}
  for run, batch, name, method in measure.plan(bench, plain):
    prompts = [bench.task.prompts[i] for i in batch]
    if all((run, name, p.id, p.sample) in done for p in prompts):
      continue
    say(0, f"{name}, run {run + 1} of {bench.runs}")
    method = measure.informed(bench, folder.records, run, batch, name, method)
    answered = measure.answer(bench, run, batch, name, method)
    new = [record for record in answered if _key(record) not in done]
    folder.append(*new)
    say(len(new), f"{name}, run {run + 1} of {bench.runs}")


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
  """What one line of results.jsonl answers."""
  (choice,) = record["choices"]
  return record["run"], record["method"], record["question_id"], choice["index"]


def _header(
  bench: measure.Bench, config: ConfigDict, loaded: loading.Loaded
) -> dict[str, Any]:
  """What was measured, on what."""
  return {
    "device": summary.device(),
    "versions": summary.versions(),
    "target": {
      "name": config.target,
      "description": loaded.target.source.description,
      "dtype": config.dtype,
      "fingerprint": loaded.target.fingerprint,
      "note": summary.note(loaded.target, config.dtype),
    },
    "drafts": inputs.drafts(config, loaded),
    "prompts": len({prompt.id for prompt in bench.task.prompts}),
    "samples": config.samples,
    "runs": bench.runs,
    "batch_size": bench.batch_size,
    "mesh": config.mesh.to_dict(),
    "capacity": bench.capacity,
  }
