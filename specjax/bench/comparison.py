# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A whole run: checks, timed answers, replay, summary, tables."""

from collections.abc import Callable, Mapping
import dataclasses
import os
from typing import Any

from ml_collections import ConfigDict

from specjax import metrics, report
from specjax import session as session_lib
from specjax.bench import (
  backend,
  build,
  configuration,
  inputs,
  measure,
  recording,
  replay,
  summary,
  trace,
  workdir,
)
from specjax.drafters import empty
from specjax.models import sources

Say = Callable[[int, str], None]


def compare(
  config: ConfigDict,
  path: str | os.PathLike[str],
  *,
  overwrite: bool = False,
) -> dict[str, Any]:
  """Runs or continues a comparison, prints it, and returns the summary.

  Everything that can be wrong is checked before the folder is touched.

  Raises:
    ValueError, OSError: a mistake in the config or the folder, in one line.
  """
  values = configuration.plain(config)
  prompts = build.prompts(config)
  build.settings(config)
  workdir.check(path, values, overwrite=overwrite)
  backend.set_up()
  target, tokenizer, source = backend.load(config)
  found = build.check_drafts(config, tokenizer)
  task = build.task(config, tokenizer, prompts)
  methods = build.methods(config, target, found)
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
  drafts = inputs.drafts(config, methods, found)
  header = _header(bench, config, source, drafts)
  known = inputs.record(header, task)
  folder = workdir.Workdir(path, values, known, overwrite=overwrite)
  result = folder.read_summary()
  if result is None or len(folder.records) < bench.answers:
    result = _run(bench, folder, config, header)
  else:
    report.say(f"{path}: finished before, nothing was run")
  report.show(result)
  return result


def _run(
  bench: measure.Bench,
  folder: workdir.Workdir,
  config: ConfigDict,
  header: Mapping[str, Any],
) -> dict[str, Any]:
  done = len(folder.records)
  extra = len(bench.methods) * (2 + bool(config.trace)) + 1
  with report.progress(bench.answers + extra, done) as say:
    measure.warm_up(bench, lambda name: say(1, f"compiling {name}"))
    seconds = measure.plain_seconds(bench)
    width = _plain_width(folder.records, seconds)
    say(1, "plain")
    plain = session_lib.Method(empty.Empty(width - 1))
    _answer_all(bench, folder, plain, say)
    result = {**header}
    result["methods"] = _methods(bench, plain, folder, config, say)
  answers = measure.read_answers(folder.records)
  result["plain"] = summary.plain(
    answers[measure.PLAIN], answers[measure.REFERENCE], seconds, width
  )
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
  key = lambda record: (record["run"], record["method"], record["question_id"])
  done = {key(record) for record in folder.records}
  for run, batch, name, method in measure.plan(bench, plain):
    wanted = [(run, name, bench.task.prompts[i].id) for i in batch]
    if all(entry in done for entry in wanted):
      continue
    say(0, f"{name}, run {run + 1} of {bench.runs}")
    for record in measure.answer(bench, run, batch, name, method):
      if key(record) not in done:
        folder.append(record)
        say(1, f"{name}, run {run + 1} of {bench.runs}")


def _methods(
  bench: measure.Bench,
  plain: session_lib.Method,
  folder: workdir.Workdir,
  config: ConfigDict,
  say: Say,
) -> dict[str, Any]:
  """The measures of every method; replays and traces it."""
  answers = measure.read_answers(folder.records)
  lines, result = [], {}
  for name, method in bench.methods.items():
    measures = _measures(bench, answers, name, method)
    say(1, f"replaying {name}")
    times = _replay(bench, method, plain, config.replays)
    summary.add_replay(measures, times)
    if config.trace:
      say(1, f"tracing {name}")
      rounds = list(trace.lines(bench, name, method))
      measures |= trace.acceptance(rounds)
      lines += rounds
    result[name] = measures
  if config.trace:
    folder.write_tokens(lines)
  return result


def _measures(
  bench: measure.Bench,
  answers: Mapping[str, metrics.Answers],
  name: str,
  method: session_lib.Method,
) -> dict[str, Any]:
  """What the records of one method say."""
  comparable = summary.is_comparable(method, bench.task.settings)
  reference = answers[measure.REFERENCE]
  measures = summary.method(
    answers[name],
    answers[measure.PLAIN],
    reference,
    comparable=comparable,
  )
  measures["lossless"] = method.verifier.lossless
  measures["memory"] = measure.memory(bench, method)
  if comparable:
    different = summary.unequal(answers[name], reference)
    margins = [_margin(bench, *found) for found in different]
    measures["matched"]["first_difference_margin"] = max(
      (x for x in margins if x is not None), default=None
    )
  return measures


def _replay(
  bench: measure.Bench,
  method: session_lib.Method,
  plain: session_lib.Method,
  count: int,
) -> list[replay.Times]:
  """Times of `count` batches from all over the prompts."""
  limit = bench.task.settings.max_new_tokens
  if not limit:
    return []
  # Plain decoding has to go as far as the method, whatever it would say.
  endless = dataclasses.replace(
    bench.task.settings, stop=(), stop_tokens=(), ignore_eos=True
  )
  return [
    replay.measure(
      bench.session(method, batch),
      bench.session(plain, batch, endless),
      limit,
      compiled=place > 0,
    )
    for place, batch in enumerate(_spread(bench, count))
  ]


def _spread(bench: measure.Bench, count: int) -> list[range]:
  """The first batch of each group, then the second; few are spaced evenly."""
  groups = [bench.task.prompts[batch[0]].group for batch in bench.batches]
  order = sorted(range(len(groups)), key=lambda i: groups[:i].count(groups[i]))
  first = len(set(groups))
  if count < first:
    order = [order[i * first // count] for i in range(count)]
  return [bench.batches[i] for i in order[:count]]


def _margin(
  bench: measure.Bench,
  name: str,
  answer: metrics.Answer,
  other: metrics.Answer,
) -> float | None:
  """Gap between the two best choices where two answers first differ."""
  ids = [prompt.id for prompt in bench.task.prompts]
  index = ids.index(name)
  at = metrics.first_difference(answer.tokens, other.tokens)
  longer = max(answer.tokens, other.tokens, key=len)
  session = session_lib.Session(
    bench.target,
    bench.tokenizer,
    session_lib.Method(empty.Empty(1)),
    # One token more: with them all the capacity would not hold the text.
    dataclasses.replace(bench.task.settings, max_new_tokens=1, stop=()),
    [[*bench.task.ids[index], *longer[:at]]],
    indices=[bench.task.prompts[index].index],
    capacity=bench.capacity,
  )
  return recording.margin(session)


def _header(
  bench: measure.Bench,
  config: ConfigDict,
  source: sources.Source,
  drafts: Mapping[str, Any],
) -> dict[str, Any]:
  """What was measured, on what."""
  note = f"{config.dtype} weights"
  if source.kind == "gguf":
    kind = summary.quantisation(source.path)
    note = f"{kind}, dequantised to {config.dtype}" if kind else note
  return {
    "device": summary.device(),
    "versions": summary.versions(),
    "target": {
      "name": config.target,
      "description": source.description,
      "dtype": config.dtype,
      "fingerprint": sources.fingerprint(bench.target),
      "note": note,
    },
    "drafts": drafts,
    "prompts": len(bench.task.ids),
    "runs": bench.runs,
    "batch_size": bench.batch_size,
    "capacity": bench.capacity,
  }
