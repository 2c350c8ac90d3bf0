# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A batch of answers under way, or a conversation that is kept."""

from collections.abc import Iterator, Sequence
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from specjax import cache as cache_lib
from specjax import decode, stopping, streams, tokenizers, types
from specjax import policy as policy_lib
from specjax import sampling as sampling_lib
from specjax.drafters import empty
from specjax.verifiers import coupled

SMALLEST_BUCKET = 128
STOP_STRING_ROUNDS = 16  # rounds between two searches for stop strings


@dataclasses.dataclass(frozen=True)
class Method:
  """How tokens are drafted and verified; the default is plain decoding.

  Attributes:
    drafter: proposes tokens.
    verifier: decides what is kept.
    policy: how many tokens to draft; None drafts as many as the drafter can.
  """

  drafter: types.Drafter = dataclasses.field(default_factory=empty.Empty)
  verifier: types.Verifier = dataclasses.field(default_factory=coupled.Coupled)
  policy: types.Policy | None = None

  @property
  def block(self) -> int:
    return self.drafter.num_nodes + 1


@dataclasses.dataclass(frozen=True)
class Settings:
  """What an answer may look like; the same for every method of a comparison.

  Attributes:
    sampling: numbers, or one a prompt.
    max_new_tokens: tokens of an answer, EOS included.
    stop: strings that end an answer; they must lie wholly in it, and the answer
      ends with the token that completes one.
    stop_tokens: token sequences that end an answer.
    ignore_eos: go on after EOS.
    seed: of all randomness.
  """

  sampling: sampling_lib.Sampling = dataclasses.field(
    default_factory=sampling_lib.Sampling
  )
  max_new_tokens: int = 128
  stop: tuple[str, ...] = ()
  stop_tokens: tuple[tuple[int, ...], ...] = ()
  ignore_eos: bool = False
  seed: int = 0


@dataclasses.dataclass(frozen=True)
class Generation:
  """One answer and how it came about. Text, ids and counts end at one place.

  Attributes:
    text: of the answer.
    tokens: ids, EOS included.
    log_probs: the model's own, before temperature and filters.
    reason: "eos", "stop", "length" or "error".
    prompt_tokens: read before it.
    emitted, drafted, accepted, rejected: by round.
    prefill_seconds, decode_seconds: wall time of the batch it ran in.
  """

  text: str
  tokens: np.ndarray
  log_probs: np.ndarray
  reason: str
  prompt_tokens: int
  emitted: np.ndarray
  drafted: np.ndarray
  accepted: np.ndarray
  rejected: np.ndarray
  prefill_seconds: float
  decode_seconds: float


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
    self.policy = method.policy or policy_lib.Fixed(method.drafter.max_depth)
    self.capacity = capacity or bucket(model, method, settings, ids)
    if sampling is None:
      sampling = sampling_lib.per_row(settings.sampling, len(ids))
    self.sampling = jax.tree.map(lambda x: _fill(x, rows), sampling)
    index = jnp.asarray(range(len(ids)) if indices is None else indices)
    keys = streams.row_keys(
      settings.seed, _fill(index, rows), jnp.zeros(rows, int)
    )
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

  def _end_at_stop_strings(self):
    tokens, lengths, starts = jax.device_get(
      (self.state.tokens, self.state.lengths, self.state.prompt_lengths)
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


def _fill(x, rows):
  """Repeats the last entry of x [n, ...] until it has `rows`."""
  missing = rows - x.shape[0]
  return jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)])
