# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Paired timing of methods on the same prompts.

Every method answers every batch of prompts before the next batch begins, in an
order that turns from run to run, so that a slow minute of the machine falls on
all alike. Programs are compiled before the first timed call.

Two plain programs run beside the methods: `plain`, the fastest width, is the
denominator of every speedup; `plain_reference` has at least two rows (batch
times width), because one row takes other arithmetic, and is what tokens are
compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import data, streams, tokenizers
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.bench import build
from specjax.decoding import decode, fitting, prefill, step, stopping
from specjax.drafters import empty
from specjax.models import model
from specjax.reports import metrics

PLAIN, REFERENCE = "plain", "plain_reference"
_WIDTH_ROUNDS = 16
_WIDTH_REPETITIONS = 3


@dataclasses.dataclass(frozen=True)
class Bench:
  """What is compared, and on what.

  Attributes:
    target: the model.
    tokenizer: its own.
    task: prompts, one a row, and settings.
    methods: by name, without the plain ones.
    batch_size: prompts at a time.
    capacity: token slots of a row, for all methods.
    runs: paired runs.
  """

  target: model.Model
  tokenizer: tokenizers.Tokenizer
  task: build.Task
  methods: Mapping[str, session_lib.Method]
  batch_size: int
  capacity: int
  runs: int

  @property
  def batches(self) -> list[range]:
    """Places in the task of the rows of each batch."""
    count, size = len(self.task.ids), self.batch_size
    return [range(at, min(at + size, count)) for at in range(0, count, size)]

  def spread(self, count: int) -> list[range]:
    """The first batch of each group, then the second; few are spaced evenly."""
    groups = [self.task.prompts[batch[0]].group for batch in self.batches]
    order = sorted(
      range(len(groups)), key=lambda i: groups[:i].count(groups[i])
    )
    first = len(set(groups))
    if count < first:
      order = [order[i * first // count] for i in range(count)]
    return [self.batches[i] for i in order[:count]]

  def check(self) -> None:
    """Refuses methods whose parts do not go together, running nothing.

    Raises:
      ValueError: one line that names the method.
    """
    for name, method in self.methods.items():
      try:
        target = decode.with_features(self.target, method.drafter)
        fitting.check(target, method.drafter, method.verifier, self.capacity)
        self._trace(target, method)
      except ValueError as error:
        raise ValueError(f"methods.{name}: {error}") from error

  def _trace(self, target, method) -> None:
    """Drafts in shapes alone: what a drafter refuses, it refuses here."""
    rows, settings = self.batch_size, self.task.settings
    first = jnp.zeros(rows, int)
    keys = streams.row_keys(0, first, first)
    sampling = sampling_lib.per_row(sampling_lib.Sampling(), rows)
    stop = stopping.make_stop((), np.full(rows, settings.max_new_tokens))
    policy = method.active_policy

    def draft(target, drafter, verifier, keys):
      state = prefill.init_state(
        target, drafter, policy, keys, sampling, self.capacity, prefill.CHUNK
      )
      return step.propose(
        target, drafter, verifier, state, sampling, policy, stop
      )

    jax.eval_shape(draft, target, method.drafter, method.verifier, keys)

  @property
  def answers(self) -> int:
    """Lines of results.jsonl when all is done."""
    timed = self.runs * (len(self.methods) + 1)
    return len(self.task.ids) * (timed + 1)

  def session(
    self,
    method: session_lib.Method,
    batch: Sequence[int],
    settings: session_lib.Settings | None = None,
  ) -> session_lib.Session:
    """A batch whose prompts were read; `settings` replace the task's."""
    return session_lib.Session(
      self.target,
      self.tokenizer,
      method,
      settings or self.task.settings,
      [self.task.ids[i] for i in batch],
      indices=[self.task.prompts[i].index for i in batch],
      samples=[self.task.prompts[i].sample for i in batch],
      rows=self.batch_size,
      capacity=self.capacity,
    )


def warm_up(
  bench: Bench, on_step: Callable[[str], None] = lambda name: None
) -> None:
  """Compiles every program of the comparison."""
  for name, method in bench.methods.items():
    on_step(name)
    next(bench.session(method, bench.batches[0]).rounds(1), None)


def reference_method(bench: Bench) -> session_lib.Method:
  """Plain decoding with at least two rows."""
  nodes = 1 if bench.batch_size == 1 else 0
  return session_lib.Method(empty.Empty(nodes))


def plain_seconds(bench: Bench) -> dict[int, float]:
  """Seconds a round of plain decoding by block width, 1 and 2; the median."""
  times: dict[int, list[float]] = {1: [], 2: []}
  for repetition in range(_WIDTH_REPETITIONS + 1):
    for width, seconds in times.items():
      method = session_lib.Method(empty.Empty(width - 1))
      session = bench.session(method, bench.batches[0])
      begin = time.perf_counter()
      for _ in session.rounds(_WIDTH_ROUNDS):
        break
      spent = time.perf_counter() - begin
      rounds = max(int(np.max(session.state.stats.rounds)), 1)
      if repetition:  # The first call compiles.
        seconds.append(spent / rounds)
  return {width: float(np.median(values)) for width, values in times.items()}


def plan(
  bench: Bench, plain: session_lib.Method
) -> Iterator[tuple[int, range, str, session_lib.Method]]:
  """(run, batch, name, method) in the order they are measured."""
  every = {PLAIN: plain, **bench.methods}
  for run in range(bench.runs):
    for place, batch in enumerate(bench.batches):
      if run == 0:
        yield run, batch, REFERENCE, reference_method(bench)
      names = list(every)
      turn = (run + place) % len(names)
      for name in names[turn:] + names[:turn]:
        yield run, batch, name, every[name]


def informed(
  bench: Bench,
  records: Sequence[Mapping[str, Any]],
  run: int,
  batch: range,
  name: str,
  method: session_lib.Method,
) -> session_lib.Method:
  """The method as it meets a batch: it knows what it answered in this run.

  Every run begins with the drafter as it was made, so that runs are alike, and
  what a killed run had answered of this very batch is not known to the part
  that goes on. Made from the records, outside all times.
  """
  remember = getattr(method.drafter, "remember", None)
  if remember is None:
    return method
  known = {
    (record["question_id"], record["choices"][0]["index"]): record["tokens"]
    for record in records
    if record["run"] == run and record["method"] == name
  }
  before = bench.task.prompts[: batch.start]
  past = [known[p.id, p.sample] for p in before if (p.id, p.sample) in known]
  return dataclasses.replace(method, drafter=remember(past))


def answer(
  bench: Bench, run: int, batch: range, name: str, method: session_lib.Method
) -> list[dict[str, Any]]:
  """Answers a batch; one record a row."""
  session = bench.session(method, batch)
  for _ in session.rounds():
    pass
  records = []
  for index, result in zip(batch, session.results()):
    records.append(
      _record(bench.task.prompts[index], run, name, method.block, result)
    )
  return records


def read_answers(
  records: Sequence[Mapping[str, Any]],
) -> dict[str, list[metrics.Answer]]:
  """Records of results.jsonl as answers, by method."""
  answers: dict[str, list[metrics.Answer]] = {}
  for record in records:
    choice = record["choices"][0]
    answers.setdefault(record["method"], []).append(
      metrics.Answer(
        id=record["question_id"],
        group=record["group"],
        run=record["run"],
        tokens=tuple(record["tokens"]),
        emitted=np.array(choice["accept_lengths"], int),
        drafted=np.array(record["drafted"], int),
        accepted=np.array(record["accepted"], int),
        rejected=np.array(record["rejected"], int),
        prefill_seconds=record["prefill_time"],
        decode_seconds=record["decode_time"],
        sample=choice["index"],
      )
    )
  return answers


def _record(
  prompt: data.Prompt,
  run: int,
  name: str,
  width: int,
  result: session_lib.Generation,
) -> dict[str, Any]:
  """A line of results.jsonl: Spec-Bench's layout, then ours.

  One of several samples of a prompt is a line of its own, whose only choice
  has the sample's index.
  """
  return {
    "question_id": prompt.id,
    "category": prompt.category or prompt.group,
    "choices": [
      {
        "index": prompt.sample,
        "turns": [result.text],
        "decoding_steps": [len(result.emitted)],
        "new_tokens": [len(result.tokens)],
        "wall_time": [result.prefill_seconds + result.decode_seconds],
        "accept_lengths": result.emitted.tolist(),
      }
    ],
    "group": prompt.group,
    "method": name,
    "run": run,
    "width": width,
    "reason": result.reason,
    "prompt_tokens": result.prompt_tokens,
    "prefill_time": result.prefill_seconds,
    "decode_time": result.decode_seconds,
    "tokens": result.tokens.tolist(),
    "drafted": result.drafted.tolist(),
    "accepted": result.accepted.tolist(),
    "rejected": result.rejected.astype(int).tolist(),
  }
