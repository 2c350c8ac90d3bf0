# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many prompts through one batch: rows that have ended make room for new ones.

New prompts are read in a small batch of their own and then put in place of the
ended rows, so nobody waits for the longest answer. Rows do not see each other
and their streams are keyed by prompt: an answer is what it would be alone, as
far as the backend passes the test of widths.

Axis letters: B rows of the batch, R rows that are read together.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import decode, stopping


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt that waits for its answer.

  Attributes:
    ids: its tokens.
    index, sample: choose its random stream, see `streams.row_keys`.
    temperature: of its answer.
    note: whatever the caller wants back with the answer.
  """

  ids: tuple[int, ...]
  index: int
  sample: int = 0
  temperature: float = 0.0
  note: Any = None


@dataclasses.dataclass(frozen=True)
class Answer:
  """Tokens that answer a request, and why they ended."""

  request: Request
  tokens: tuple[int, ...]
  reason: str


class Requests(Protocol):
  """Where prompts come from; answers may add to it."""

  def take(self, most: int) -> list[Request]:
    """At most so many of the next; fewer if there are no more for now."""


@dataclasses.dataclass(frozen=True)
class Program:
  """Who answers, and in which shapes.

  Attributes:
    target, drafter, verifier, policy: as for `decode.decode`.
    eos: ids that end an answer.
    max_new_tokens: of an answer.
    capacity: token slots of a row.
    rows: B.
    reading: R.
    rounds: between two looks at which rows have ended.
    seed: of all streams.
  """

  target: types.Model
  drafter: types.Drafter
  verifier: types.Verifier
  policy: types.Policy
  eos: tuple[int, ...]
  max_new_tokens: int
  capacity: int
  rows: int = 16
  reading: int = 4
  rounds: int = 16
  seed: int = 0

  def room(self) -> int:
    """Tokens of the longest prompt that fits."""
    slots = min(self.capacity, self.target.max_position + 1)
    return slots - self.max_new_tokens - self.drafter.num_nodes - 1

  def answer(self, requests: Requests) -> Iterator[Answer]:
    """Answers until nothing is under way and no request is left.

    Requests are taken when rows are free, after the answers so far were
    yielded: who consumes them may add further requests.

    Raises:
      ValueError: a prompt that does not fit.
    """
    batch = _Batch(self)
    while True:
      batch.fill(requests)
      if not any(batch.requests):
        return
      yield from batch.run()


class _Batch:
  """The newest state, and whose answer each row is."""

  def __init__(self, program: Program):
    self.program = program
    self.requests: list[Request | None] = [None] * program.rows
    self.temperature = np.zeros(program.rows, np.float32)
    self.state = self._read([], program.rows)

  def fill(self, requests: Requests) -> None:
    """New prompts for free rows, as many at a time as are read together.

    Fewer cost as much to read, so free rows wait for others to become free as
    long as some answer is under way.
    """
    is_busy = any(self.requests)
    while True:
      free = [row for row, r in enumerate(self.requests) if r is None]
      if is_busy and len(free) < self.program.reading:
        return
      taken = requests.take(min(len(free), self.program.reading))
      if not taken:
        return
      fresh = self._read(taken, self.program.reading)
      rows = np.full(self.program.reading, self.program.rows, np.int32)
      rows[: len(taken)] = free[: len(taken)]
      self.state = insert(self.state, fresh, jnp.asarray(rows))
      for row, request in zip(free, taken):
        self.requests[row] = request
        self.temperature[row] = request.temperature

  def run(self) -> Iterator[Answer]:
    """Some rounds, and the answers that are complete then."""
    p = self.program
    self.state = decode.advance(
      p.target,
      p.drafter,
      p.verifier,
      self.state,
      self._sampling(self.temperature),
      p.policy,
      self._stop(p.rows, p.rows),
      p.rounds,
    )
    state = self.state
    done, tokens, starts, ends, reasons = jax.device_get(
      (
        state.done,
        state.tokens,
        state.prompt_lengths,
        state.lengths,
        state.reason,
      )
    )
    for row, request in enumerate(self.requests):
      if request is not None and done[row]:
        self.requests[row] = None
        answer = tuple(tokens[row, starts[row] : ends[row]].tolist())
        reason = stopping.Reason(int(reasons[row])).name.lower()
        yield Answer(request, answer, reason)

  def _read(self, taken, rows):
    """A state of `rows` rows that has read the prompts; the others are done."""
    p = self.program
    longest = max((len(r.ids) for r in taken), default=1)
    if longest > p.room():
      raise ValueError(
        f"a prompt of {longest} tokens and {p.max_new_tokens} new ones do not "
        f"fit {p.capacity} slots: prompts may have {p.room()}"
      )
    tokens = np.zeros((rows, p.capacity), np.int32)
    lengths = np.ones(rows, np.int32)
    for row, request in enumerate(taken):
      tokens[row, : len(request.ids)] = request.ids
      lengths[row] = len(request.ids)
    numbers = np.zeros((2, rows), np.int32)
    temperature = np.zeros(rows, np.float32)
    for row, r in enumerate(taken):
      numbers[:, row] = r.index, r.sample
      temperature[row] = r.temperature
    return decode.start(
      p.target,
      p.drafter,
      jnp.asarray(tokens),
      jnp.asarray(lengths),
      streams.row_keys(p.seed, *map(jnp.asarray, numbers)),
      self._sampling(temperature),
      p.policy,
      self._stop(rows, len(taken)),
      capacity=p.capacity,
    )

  def _sampling(self, temperature):
    return sampling_lib.Sampling(temperature=jnp.asarray(temperature))

  def _stop(self, rows, live):
    limit = np.where(np.arange(rows) < live, self.program.max_new_tokens, 0)
    return stopping.make_stop(self.program.eos, limit)


@functools.partial(jax.jit, donate_argnames=("state",))
def insert(
  state: types.DecodeState, fresh: types.DecodeState, rows: jax.Array
) -> types.DecodeState:
  """Rows of a state in place of others.

  Args:
    state: B rows, consumed.
    fresh: R rows of the same capacity.
    rows: [R] where they go; B or more is nowhere.
  """

  def put(old, new):
    return old.at[rows].set(new, mode="drop")

  return jax.tree.map(put, state, fresh)
