# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A batch of answers under way, or a conversation that is kept."""

from collections.abc import Iterator, Sequence
import time

import jax
import jax.numpy as jnp
import numpy as np

from specjax import answers, sharding, streams, tokenizers, types
from specjax import cache as cache_lib
from specjax import sampling as sampling_lib
from specjax.answers import Generation, Method, Settings, random_streams
from specjax.decoding import decode, stopping

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
  if not ids:
    raise ValueError("there is no prompt: give at least one")
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

  Args:
    model: the target.
    tokenizer: its own.
    method: drafter, verifier, policy.
    settings: of the answers.
    ids: one prompt a row.
    indices: of the prompts in their file, which choose their random streams
      together with
    samples: which of several answers to its prompt each row is; None is 0.
    sampling: of these rows; None takes `settings.sampling`.
    rows: of the batch; those without a prompt end at once.
    capacity: token slots of a row, for all turns of a conversation; None is
      the bucket of this turn alone.

  Raises:
    ValueError: one line that names the value and the fix.
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
    samples: Sequence[int] | None = None,
    sampling: sampling_lib.Sampling | None = None,
    rows: int | None = None,
    capacity: int | None = None,
  ):
    rows = len(ids) if rows is None else rows
    self.model = decode.with_features(model, method.drafter)
    self.tokenizer = tokenizer
    self.method, self.settings = method, settings
    self.policy = method.active_policy
    self.capacity = capacity or bucket(model, method, settings, ids)
    sampling = settings.sampling if sampling is None else sampling
    # Rows without a prompt of their own are copies of the last.
    source = np.minimum(np.arange(rows), len(ids) - 1)
    sampling = answers.arrays(sampling, len(ids), model, tokenizer)
    self.sampling = sampling.take(source)
    streams_of = random_streams(settings, indices, samples, len(ids))
    seeds, *numbers = (x[source] for x in streams_of)
    keys = streams.row_keys(seeds, *map(jnp.asarray, numbers))
    self._rules = sharding.rules_of(model)
    sharding.check_rows(self._rules, rows)
    self._live = len(ids)
    self._cut = False  # an answer was cut after its drafter had seen more
    tokens, counts, self.stop = self._prompts(ids, rows)
    self._check(counts)
    self._start(tokens, counts, keys)

  def prefill(self, ids: Sequence[Sequence[int]]) -> None:
    """Continues every conversation with further tokens, keeping its cache.

    Raises:
      ValueError: there is not one prompt a conversation, or they no longer fit
        the capacity.
    """
    if len(ids) != self._live:
      raise ValueError(
        f"{len(ids)} prompts for {self._live} conversations: give one each"
      )
    state = self.state
    tokens, counts, self.stop = self._prompts(ids, len(state.lengths))
    self._check(np.asarray(state.lengths) + counts)
    if not self._cut:
      tokens, counts = self._place((tokens, counts))
      self._read(decode.prefill, state, tokens, counts, self.stop.limit)
      return
    # A drafter cannot forget what a stop string took back: all is read anew.
    kept = [
      row[:length]
      for row, length in zip(*jax.device_get((state.tokens, state.lengths)))
    ]
    whole = [[*old, *new] for old, new in zip(kept, ids)]
    tokens, counts, self.stop = self._prompts(whole, len(state.lengths))
    self._start(tokens, counts, state.keys)
    self.state = self.state.replace(round=state.round)
    self._cut = False

  def _start(self, tokens, counts, keys):
    tokens, counts, keys = self._place((tokens, counts, keys))
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

  def _place(self, rows):
    return sharding.place_rows(rows, self._rules)

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
    if chunk < 1:
      raise ValueError(f"chunk is {chunk} rounds: use 1 or more")
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
      self.state.replace(
        cache=None, drafter=None, keys=None, policy=None, history=None
      )
    )
    return [self._result(state, row) for row in range(self._live)]

  def _prompts(self, ids, rows):
    """Prompts [B, S] padded to the capacity, and when their answers end."""
    tokens = np.zeros((rows, self.capacity), np.int32)
    counts = np.ones(rows, np.int32)
    for row, prompt in enumerate(ids):
      wrong = [t for t in prompt if not 0 <= t < self.model.vocab_size]
      if wrong:
        raise ValueError(
          f"prompt {row} has token {wrong[0]}, but the model's ids are 0 to "
          f"{self.model.vocab_size - 1}: use its own tokenizer"
        )
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
    hidden = self.tokenizer.special_ids  # Not in the text, so not searched.
    for row in range(self._live):
      answer = tokens[row, starts[row] : lengths[row]].tolist()
      kept = stopping.string_end(
        [
          b"" if token in hidden else self.tokenizer.token_bytes(token)
          for token in answer
        ],
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
