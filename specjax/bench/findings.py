# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The measures of every method: from its answers, and from passes of their own.

Margins, memory, arrivals, replays and traces are made when all answers are
there, so that none of them falls into a timed run.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

from ml_collections import ConfigDict

from specjax import session as session_lib
from specjax.bench import (
  measure,
  memory,
  recording,
  replay,
  streaming,
  summary,
  trace,
)
from specjax.drafters import empty
from specjax.reports import metrics

Say = Callable[[int, str], None]
Lines = list[dict[str, Any]]


def steps(bench: measure.Bench, config: ConfigDict) -> int:
  """How often `collect` says that a step is done."""
  return 1 + len(bench.methods) * (1 + bool(config.trace))


def collect(
  bench: measure.Bench,
  plain: session_lib.Method,
  records: Sequence[Mapping[str, Any]],
  config: ConfigDict,
  say: Say,
) -> tuple[dict[str, dict[str, Any]], Lines]:
  """Measures of plain decoding and every method by name, and traced rounds.

  Args:
    bench: its programs are compiled.
    plain: the method that speedups divide by.
    records: of results.jsonl, complete.
    config: says what to replay and trace.
    say: is told what goes on.
  """
  every = {measure.PLAIN: plain, **bench.methods}
  answers = measure.read_answers(records)
  batches = bench.spread(config.replays)
  say(1, "streaming")
  arrivals = streaming.measure_all(
    bench, every, batches, lambda name: say(0, f"streaming {name}"), records
  )
  result = {
    name: _measures(bench, answers, arrivals, name, method)
    for name, method in every.items()
  }
  lines: Lines = []
  for name, method in bench.methods.items():
    say(1, f"replaying {name}")
    learnt = [
      measure.informed(bench, records, 0, batch, name, method)
      for batch in batches
    ]
    times = _replay(bench, learnt, plain, batches)
    summary.add_replay(result[name], times)
    if config.trace:
      say(1, f"tracing {name}")
      rounds = list(trace.lines(bench, name, method, records))
      result[name] |= trace.acceptance(rounds)
      lines += rounds
  return result, lines


def _measures(bench, answers, arrivals, name, method) -> dict[str, Any]:
  """All but replay and trace of one method."""
  comparable = summary.is_comparable(method, bench.task.settings)
  reference = answers[measure.REFERENCE]
  measures = summary.method(
    answers[name],
    answers[measure.PLAIN],
    reference,
    arrivals[name],
    comparable=comparable,
  )
  measures["lossless"] = method.verifier.lossless
  measures["memory"] = memory.measure(bench.session(method, bench.batches[0]))
  if comparable:
    different = summary.unequal(answers[name], reference)
    margins = [_margin(bench, *pair) for pair in different]
    measures["matched"]["first_difference_margin"] = max(
      (x for x in margins if x is not None), default=None
    )
  return measures


def _replay(
  bench: measure.Bench,
  methods: Sequence[session_lib.Method],
  plain: session_lib.Method,
  batches: Sequence[range],
) -> list[replay.Times]:
  """Times of each batch with the method as it met it."""
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
    for place, (method, batch) in enumerate(zip(methods, batches))
  ]


def _margin(
  bench: measure.Bench, answer: metrics.Answer, other: metrics.Answer
) -> float | None:
  """Gap between the two best choices where two answers first differ."""
  keys = [(prompt.id, prompt.sample) for prompt in bench.task.prompts]
  place = keys.index(answer.key)
  at = metrics.first_difference(answer.tokens, other.tokens)
  longer = max(answer.tokens, other.tokens, key=len)
  session = session_lib.Session(
    bench.target,
    bench.tokenizer,
    session_lib.Method(empty.Empty(1)),
    # One token more: with them all the capacity would not hold the text.
    dataclasses.replace(bench.task.settings, max_new_tokens=1, stop=()),
    [[*bench.task.ids[place], *longer[:at]]],
    indices=[bench.task.prompts[place].index],
    samples=[bench.task.prompts[place].sample],
    rows=bench.batch_size,
    capacity=bench.capacity,
  )
  return recording.margin(session)
