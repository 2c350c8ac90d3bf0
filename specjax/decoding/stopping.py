# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""When a row ends: EOS ids, stop sequences, length, or an error.

The first reason in emission order wins, and nothing after it is kept. A stop
sequence must lie wholly in the answer: tokens of the prompt never count.

Axis letters: B batch, P path length, Q stop sequences, L their length.
"""

from collections.abc import Sequence
import enum

import jax
import jax.numpy as jnp
import numpy as np

from specjax import types

_ANY_ID, _PROMPT, _NO_ID = -1, -2, -3  # stand-ins for ids, none equal


class Reason(enum.IntEnum):
  """Why a row ended."""

  RUNNING = 0
  EOS = 1
  STOP = 2
  LENGTH = 3
  ERROR = 4  # logits were not finite, or the settings forbade every token


def make_stop(
  eos: Sequence[int],
  limit: Sequence[int] | np.ndarray,
  sequences: Sequence[Sequence[int]] = (),
) -> types.Stop:
  """Stop rules as arrays.

  Args:
    eos: ids that end a row.
    limit: new tokens of each row, 0 or more.
    sequences: token sequences that end a row.

  Raises:
    ValueError: a negative limit or an empty sequence.
  """
  for value in limit:
    check_limit(int(value))
  if any(len(s) == 0 for s in sequences):
    raise ValueError("a stop sequence is empty: give at least one token id")
  # Powers of two, so that few programs serve all sets of sequences.
  longest = _power_of_two(max((len(s) for s in sequences), default=0))
  padded = np.full((_power_of_two(len(sequences)), longest), _NO_ID, np.int32)
  for row, sequence in zip(padded, sequences):
    row[:] = _ANY_ID
    row[longest - len(sequence) :] = sequence
  # A fixed width, so that models with one or three EOS ids share a trace.
  ids = np.full((max(4, len(eos)),), -1, np.int32)
  ids[: len(eos)] = sorted(eos)
  return types.Stop(
    jnp.asarray(ids), jnp.asarray(limit, jnp.int32), jnp.asarray(padded)
  )


def _power_of_two(n: int) -> int:
  """The smallest power of two that is at least n; 0 for none."""
  return 1 << (n - 1).bit_length() if n else 0


def check_limit(max_new_tokens: int) -> None:
  """Refuses a negative number of new tokens."""
  if max_new_tokens < 0:
    raise ValueError(f"max_new_tokens is {max_new_tokens}: use 0 or more")


def string_end(pieces: Sequence[bytes], strings: Sequence[bytes]) -> int | None:
  """Tokens to keep so that the answer ends with the first complete string.

  Args:
    pieces: bytes of each token of the answer; concatenated they are searched
      whole, so neither a block's nor a token's borders can hide a string.
    strings: what to look for.

  Returns:
    How many tokens to keep, or None when no string is complete.
  """
  text = b"".join(pieces)
  found = [(text.find(s) + len(s)) for s in strings if s in text]
  if not found:
    return None
  ends = np.cumsum([len(piece) for piece in pieces])
  return int(np.searchsorted(ends, min(found))) + 1


def end_rows(state: types.DecodeState, ends: jax.Array) -> types.DecodeState:
  """Ends rows at a stop string, as if their round had ended there.

  Args:
    state: between rounds.
    ends: [B] tokens of prompt and answer to keep; -1 leaves a row alone.

  Returns:
    The state with ids, counters, history and the target's cache cut at one
    place. Drafters do not roll back: theirs must start anew to go on.
  """
  hit = ends >= 0
  lengths = jnp.where(hit, ends, state.lengths)
  stats = state.stats
  before = jnp.cumsum(stats.emitted, axis=1) - stats.emitted
  left = (lengths - state.prompt_lengths)[:, None] - before
  emitted = jnp.clip(left, 0, stats.emitted)
  shorter = emitted < stats.emitted
  stats = stats.replace(
    rounds=jnp.where(hit, jnp.sum(emitted > 0, axis=1), stats.rounds),
    emitted=emitted,
    accepted=jnp.minimum(stats.accepted, emitted),
    rejected=stats.rejected & ~shorter,
  )
  is_eos = (state.reason == Reason.EOS) & (lengths == state.lengths)
  history = state.history
  if history is not None:
    history = history.reread(state.tokens, state.prompt_lengths, lengths)
  return state.replace(
    lengths=lengths,
    done=state.done | hit,
    # As if the later rounds had not been: their random numbers are unused.
    round=state.round - (state.stats.rounds - stats.rounds),
    reason=jnp.where(hit & ~is_eos, Reason.STOP, state.reason),
    history=history,
    cache=state.cache.replace(
      lengths=jnp.minimum(state.cache.lengths, lengths - 1)
    ),
    stats=stats,
  )


def cut(
  acceptance: types.Acceptance,
  state: types.DecodeState,
  stop: types.Stop,
  bad: jax.Array,
) -> tuple[types.Acceptance, jax.Array]:
  """Ends a round at the first stop.

  Args:
    acceptance: what the verifier kept.
    state: before the round; rows that are done keep nothing.
    stop: the rules.
    bad: [B, P] there is no law behind a token; it is not emitted.

  Returns:
    The acceptance with counts cut, and the reason [B] (RUNNING to go on).
  """
  steps = jnp.arange(acceptance.tokens.shape[1])
  generated = state.lengths - state.prompt_lengths
  is_eos = jnp.any(
    acceptance.tokens[:, :, None] == stop.eos[None, None], axis=-1
  )
  is_last = (generated[:, None] + steps[None] + 1) >= stop.limit[:, None]
  reason = jnp.where(is_last, Reason.LENGTH, Reason.RUNNING)
  if stop.sequences.shape[0]:
    hit = _ends_sequence(acceptance.tokens, state, stop.sequences)
    reason = jnp.where(hit, Reason.STOP, reason)
  reason = jnp.where(is_eos, Reason.EOS, reason)
  reason = jnp.where(bad, Reason.ERROR, reason)
  valid = steps[None] < acceptance.count[:, None]
  stops = (reason != Reason.RUNNING) & valid & ~state.done[:, None]
  any_stop = jnp.any(stops, axis=1)
  first = jnp.argmax(stops, axis=1)
  reason = jnp.take_along_axis(reason, first[:, None], axis=1)[:, 0]
  reason = jnp.where(any_stop, reason, Reason.RUNNING).astype(jnp.int32)
  emitted = first + (reason != Reason.ERROR)
  count = jnp.where(any_stop, emitted, acceptance.count)
  count = jnp.where(state.done, 0, count)
  was_cut = count < acceptance.count
  acceptance = acceptance.replace(
    count=count,
    accepted=jnp.minimum(acceptance.accepted, count),
    # A round cut short says nothing about the draft it did not get to.
    rejected=acceptance.rejected & ~was_cut,
  )
  return acceptance, jnp.where(state.done, state.reason, reason)


def _ends_sequence(tokens, state, sequences):
  """[B, P]: a stop sequence [Q, L] ends at this emitted token."""
  length = sequences.shape[1]
  before = state.lengths[:, None] + jnp.arange(1 - length, 0)[None]
  answer = before >= state.prompt_lengths[:, None]
  earlier = jnp.take_along_axis(state.tokens, jnp.maximum(before, 0), axis=1)
  earlier = jnp.where(answer, earlier, _PROMPT)
  row = jnp.concatenate([earlier, tokens], axis=1)
  steps = jnp.arange(tokens.shape[1])
  index = steps[:, None] + jnp.arange(length)[None]
  windows = row[:, index]  # [B, P, L]
  sequences = sequences[None, None]  # [1, 1, Q, L]
  same = (windows[:, :, None] == sequences) | (sequences == _ANY_ID)
  return jnp.any(jnp.all(same, axis=-1), axis=-1)
