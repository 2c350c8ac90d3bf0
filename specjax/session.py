# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A batch of answers under way, or a conversation that is kept."""

from collections.abc import Iterator, Sequence
import time

import jax
import jax.numpy as jnp
import numpy as np

from specjax import cache as cache_lib
from specjax import decode, stopping, streams, tokenizers, types
from specjax import sampling as sampling_lib
from specjax.answers import Generation, Method, Settings

SMALLEST_BUCKET = 128
STOP_STRING_ROUNDS = 16  # rounds between two searches for stop strings


def bucket(
  model: types.Model,
  method: Method,
  settings: Settings,
  ids: Sequence[Sequence[int]],
) -> int:
  """Token slots that hold the longest prompt, its answer and a block.

  Powers of two, so that few programs are compiled; never more than the model's
  positions and a block.
  """
  stopping.check_limit(settings.max_new_tokens)
  longest = max(len(row) for row in ids) + settings.max_new_tokens
  size = SMALLEST_BUCKET
  while size < longest + method.block:
    size *= 2
  # A multiple of 128 as well: attention then cuts every cache alike.
  most = model.max_position + method.block
  size = min(size, -(-most // SMALLEST_BUCKET) * SMALLEST_BUCKET)
  cache_lib.check_capacity(
    np.array([len(row) for row in ids]),
    np.full(len(ids), settings.max_new_tokens),
    method.block,
    size,
    model.max_position,
  )
  return size


class Session:
  """One batch of answers under way, or a conversation that is kept.

  Holds the newest state only: the compiled programs consume the one before.
  """

  def __init__(
    self,
    model: types.Model,
    tokenizer: tokenizers.Tokenizer,
    method: Method,
    settings: Settings,
    ids: Sequence[Sequence[int]],
    *,
    indices: Sequence[int] | None = None,
    sampling: sampling_lib.Sampling | None = None,
    rows: int | None = None,
    capacity: int | None = None,
  ):
    rows = rows or len(ids)
    self.model, self.tokenizer = model, tokenizer
    self.method, self.settings = method, settings
    self.policy = method.active_policy
    self.capacity = capacity or bucket(model, method, settings, ids)
    if sampling is None:
      sampling = sampling_lib.per_row(settings.sampling, len(ids))
    self.sampling = _fill(sampling, rows)
    seeds, index = _fill(random_streams(settings, indices, len(ids)), rows)
    keys = streams.row_keys(seeds, index, jnp.zeros(rows, int))
    self._live = len(ids)
    self._cut = False  # an answer was cut after its drafter had seen more
    tokens, counts, self.stop = self._prompts(ids, rows)
    self._check(counts)
    self._read(
      decode.start,
      tokens,
      counts,
      keys,
      self.sampling,
      self.policy,
      self.stop,
      capacity=self.capacity,
    )

  def prefill(self, ids: Sequence[Sequence[int]]) -> None:
    """Continues every row with further prompt tokens, keeping its cache.

    Raises:
      ValueError: the conversation no longer fits the capacity.
    """
    tokens, counts, self.stop = self._prompts(ids, len(self.state.lengths))
    self._check(np.asarray(self.state.lengths) + counts)
    if self._cut:
      drafter = self.method.drafter.init(len(counts), self.capacity)
      self.state = self.state.replace(drafter=drafter)
      self._cut = False
    self._read(decode.prefill, self.state, tokens, counts, self.stop.limit)

  def _check(self, lengths):
    decode.check(
      self.model,
      self.method.drafter,
      self.method.verifier,
      lengths,
      self.stop,
      self.capacity,
    )

  def _read(self, program, *args, **settings):
    """Runs a program that reads prompts, and takes its time."""
    begin = time.perf_counter()
    self.state = jax.block_until_ready(
      program(self.model, self.method.drafter, *args, **settings)
    )
    self.prefill_seconds = time.perf_counter() - begin
    self.decode_seconds = 0.0

  def rounds(self, chunk: int | None = None) -> Iterator[types.DecodeState]:
    """Runs to the end, yielding the state after every `chunk` rounds.

    None is one compiled program for all rounds, or a few where stop strings
    must be looked for.
    """
    if chunk is None:
      chunk = STOP_STRING_ROUNDS if self.settings.stop else self.capacity
    while not np.all(self.state.done):
      begin = time.perf_counter()
      self.state = jax.block_until_ready(
        decode.advance(
          self.model,
          self.method.drafter,
          self.method.verifier,
          self.state,
          self.sampling,
          self.policy,
          self.stop,
          chunk,
        )
      )
      self.decode_seconds += time.perf_counter() - begin
      if self.settings.stop:
        self._end_at_stop_strings()
      yield self.state

  def stream(self) -> Iterator[list[decode.Committed]]:
    """Runs to the end, yielding what each round commits to each answer."""
    before = np.asarray(self.state.lengths)
    for state in self.rounds(1):
      yield decode.committed(before, state)[: self._live]
      before = np.asarray(state.lengths)

  def results(self) -> list[Generation]:
    """The answers so far."""
    state = jax.device_get(
      self.state.replace(cache=None, drafter=None, keys=None, policy=None)
    )
    return [self._result(state, row) for row in range(self._live)]

  def _prompts(self, ids, rows):
    """Prompts [B, S] padded to the capacity, and when their answers end."""
    tokens = np.zeros((rows, self.capacity), np.int32)
    counts = np.ones(rows, np.int32)
    for row, prompt in enumerate(ids):
      prompt = prompt[: self.capacity]  # `check` refuses a longer one
      tokens[row, : len(prompt)] = prompt
      counts[row] = len(ids[row])
    limit = np.where(
      np.arange(rows) < len(ids), self.settings.max_new_tokens, 0
    )
    eos = () if self.settings.ignore_eos else self.tokenizer.eos_ids
    stop = stopping.make_stop(eos, limit, self.settings.stop_tokens)
    return tokens, counts, stop

  def string_ends(self, state: types.DecodeState) -> np.ndarray:
    """Where stop strings end the rows of a state, for `stopping.end_rows`.

    Returns:
      [B] tokens of prompt and answer to keep; -1 where no string is complete.
    """
    tokens, lengths, starts = jax.device_get(
      (state.tokens, state.lengths, state.prompt_lengths)
    )
    ends = np.full(lengths.shape, -1)
    for row in range(self._live):
      answer = tokens[row, starts[row] : lengths[row]]
      kept = stopping.string_end(
        [self.tokenizer.token_bytes(int(token)) for token in answer],
        [text.encode() for text in self.settings.stop],
      )
      if kept is not None:
        ends[row] = starts[row] + kept
    return ends

  def _end_at_stop_strings(self):
    ends = self.string_ends(self.state)
    if np.any(ends >= 0):
      self.state = stopping.end_rows(self.state, jnp.asarray(ends))
      self._cut = True

  def _result(self, state, row) -> Generation:
    start, end = int(state.prompt_lengths[row]), int(state.lengths[row])
    tokens = state.tokens[row, start:end]
    rounds = slice(0, int(state.stats.rounds[row]))
    return Generation(
      text=self.tokenizer.decode(tokens.tolist()),
      tokens=tokens,
      log_probs=state.log_probs[row, start:end],
      reason=stopping.Reason(int(state.reason[row])).name.lower(),
      prompt_tokens=start,
      emitted=state.stats.emitted[row, rounds],
      drafted=state.stats.drafted[row, rounds],
      accepted=state.stats.accepted[row, rounds],
      rejected=state.stats.rejected[row, rounds],
      prefill_seconds=self.prefill_seconds,
      decode_seconds=self.decode_seconds,
    )


def random_streams(
  settings: Settings, indices: Sequence[int] | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Seeds [count] and prompt indices [count], which choose random streams.

  Raises:
    ValueError: there is not one seed, nor one a prompt.
  """
  seed = np.asarray(settings.seed)
  if seed.ndim and len(seed) != count:
    raise ValueError(
      f"there are {len(seed)} seeds for {count} prompts: give one, or one each"
    )
  if indices is None:
    indices = [0] * count if seed.ndim else range(count)
  return np.broadcast_to(seed, (count,)), np.asarray(indices)


def _fill(arrays, rows):
  """Repeats the last entry of each array [n, ...] until it has `rows`."""
  return jax.tree.map(
    lambda x: np.asarray(x)[np.minimum(np.arange(rows), len(x) - 1)], arrays
  )
