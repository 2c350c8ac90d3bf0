# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How an answer arrives: the time to its first tokens, and between rounds.

A pass of its own over some prompts, since a stream calls the program once a
round and the timed runs call it once an answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import time
from typing import Any

import numpy as np

from specjax import session as session_lib
from specjax.bench import measure
from specjax.reports import speed


def measure_all(
  bench: measure.Bench,
  methods: Mapping[str, session_lib.Method],
  batches: Sequence[range],
  on_method: Callable[[str], None] = lambda name: None,
  records: Sequence[Mapping[str, Any]] = (),
) -> dict[str, list[speed.Arrival]]:
  """Streams the batches with each method, one after the other within a batch.

  Args:
    bench: prompts and settings; its programs are compiled.
    methods: by name.
    batches: to stream.
    on_method: is told which one begins.
    records: answers of the first run, for methods that learn from them.
  """
  arrivals: dict[str, list[speed.Arrival]] = {name: [] for name in methods}
  for batch in batches:
    for name, method in methods.items():
      on_method(name)
      method = measure.informed(bench, records, 0, batch, name, method)
      arrivals[name] += measure_batch(bench, method, batch)
  return arrivals


def measure_batch(
  bench: measure.Bench, method: session_lib.Method, batch: range
) -> Iterator[speed.Arrival]:
  """The answers of a batch that have any token."""
  begin = time.perf_counter()
  times, counts = [begin], []
  for rows in bench.session(method, batch).stream():
    times.append(time.perf_counter())
    counts.append([len(row.tokens) for row in rows])
  waits = np.diff(times)
  for row, index in enumerate(batch):
    # Rows that have ended wait for nothing.
    tokens = np.array([count[row] for count in counts], int)
    tokens = np.trim_zeros(tokens, "b")
    if len(tokens):
      yield speed.Arrival(
        group=bench.task.prompts[index].group,
        first_seconds=float(waits[0]),
        gap_seconds=waits[1 : len(tokens)],
        gap_tokens=tokens[1:],
      )
