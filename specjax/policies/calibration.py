# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of the target's passes and of a drafter's proposals, on this machine.

Axis letters: B batch, T draft length (max_depth).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import prefill, stopping
from specjax.decoding import step as step_lib
from specjax.policies import policy
from specjax.verifiers import coupled

CONTEXT = 256
_CALLS = 4  # in one timed program, so that its start weighs little
_SLOTS = 128  # caches are cut as those of answers are


@dataclasses.dataclass(frozen=True)
class CostTable:
  """Seconds of a pass of the target, with the choice of its tokens.

  Attributes:
    batches, widths, contexts: ascending; rows, slots of a block, tokens in the
      cache before it.
    seconds: by these three.
  """

  batches: tuple[int, ...]
  widths: tuple[int, ...]
  contexts: tuple[int, ...]
  seconds: np.ndarray

  def at(self, batch: int, width: int, context: int) -> float:
    """Linear between what was measured, and its end beyond."""
    seconds = self.seconds
    axes = (self.batches, self.widths, self.contexts)
    for value, axis in zip((batch, width, context), axes):
      place = np.interp(value, axis, np.arange(len(axis)))
      low, part = int(place), place % 1
      high = min(low + 1, len(axis) - 1)
      seconds = (1 - part) * seconds[low] + part * seconds[high]
    return float(seconds)


def calibrate(
  target: types.Model,
  batches: Sequence[int],
  widths: Sequence[int],
  contexts: Sequence[int] = (CONTEXT,),
  repetitions: int = 5,
) -> CostTable:
  """Times passes of the target; medians, all cells in turn.

  One program is compiled for each batch and width.

  Raises:
    ValueError: nothing to time, or a context beyond the model's positions.
  """
  if (
    not (batches and widths and contexts)
    or min(*batches, *widths, *contexts) < 1
  ):
    raise ValueError(
      f"batches {batches}, widths {widths}, contexts {contexts}: give one "
      "number of 1 or more for each at least"
    )
  batches, widths, contexts = (
    tuple(sorted({*axis})) for axis in (batches, widths, contexts)
  )
  if contexts[-1] + widths[-1] > target.max_position:
    raise ValueError(
      f"context {contexts[-1]} and a block of {widths[-1]} pass the model's "
      f"{target.max_position} positions: choose a shorter context"
    )
  slots = _capacity(contexts[-1] + widths[-1])
  caches = {b: target.init_cache(b, slots, widths[-1]) for b in batches}

  def run(batch, width, context):
    lengths = jnp.full((batch,), context, jnp.int32)
    cache = caches[batch].replace(lengths=lengths)
    tokens = jnp.zeros((batch, width), jnp.int32)
    _, caches[batch] = _passes(target, cache, tokens)
    return caches[batch].lengths

  cells = [(b, w, c) for b in batches for w in widths for c in contexts]
  seconds = _medians(run, cells, repetitions)
  shape = len(batches), len(widths), len(contexts)
  return CostTable(batches, widths, contexts, seconds.reshape(shape))


def draft_seconds(
  target: types.Model,
  drafter: types.Drafter,
  batch: int,
  context: int = CONTEXT,
  repetitions: int = 5,
) -> np.ndarray:
  """[T + 1] seconds to draft 0, 1, ... tokens in every row.

  Nothing, one token and all are timed, with a prompt that was read before;
  between these the time is taken to be linear.
  """
  most = drafter.max_depth
  state = _state(target, drafter, batch, context)
  stop = stopping.make_stop((), [most + 1] * batch)
  # The first proposal of some drafters reads the prompt.
  state = _proposals(target, drafter, state, policy.Fixed(most), stop, 1)

  def run(length):
    wanted = policy.Fixed(length)
    return _proposals(
      target, drafter, state, wanted, stop, _CALLS
    ).cache.lengths

  lengths = sorted({0, min(1, most), most})
  seconds = _medians(run, [(length,) for length in lengths], repetitions)
  return np.interp(np.arange(most + 1), lengths, seconds)


def _state(target, drafter, batch, context):
  """A state with a prompt of zeros, as if it had been read."""
  rows = jnp.zeros((batch,), jnp.int32)
  state = prefill.init_state(
    target,
    drafter,
    policy.Fixed(0),
    streams.row_keys(0, rows, rows),
    sampling_lib.Sampling(),
    _capacity(context + drafter.num_nodes + 1),
  )
  lengths = rows + context
  return state.replace(
    lengths=lengths,
    prompt_lengths=lengths,
    done=jnp.zeros((batch,), bool),
    cache=state.cache.replace(lengths=lengths - 1),
  )


@functools.partial(jax.jit, donate_argnames=("cache",))
def _passes(target, cache, tokens):
  """The same pass `_CALLS` times: nothing is committed."""

  def body(_, carry):
    tokens, cache = carry
    output = target(tokens, cache)
    return sampling_lib.argmax(output.logits).astype(tokens.dtype), output.cache

  return jax.lax.fori_loop(0, _CALLS, body, (tokens, cache))


@jax.jit
def _proposals(target, drafter, state, wanted, stop, calls):
  """The state after proposals of one length, none of them verified."""
  rule, settings = coupled.Coupled(), sampling_lib.Sampling()
  state = state.replace(policy=wanted.init(state.lengths.shape[0]))
  known = step_lib.context(target, rule, state, settings, wanted, stop)

  def body(_, carry):
    own, cache, seen = carry
    # The same lengths always, but the compiler must not know: else a proposal
    # without state would be made once for all.
    lengths = jnp.minimum(known.lengths, known.lengths + seen)
    context = known.replace(lengths=lengths, cache=cache)
    draft, own, cache = drafter.propose(own, context)
    return own, cache, jnp.max(draft.tokens, axis=1, initial=0)

  carry = (state.drafter, state.cache, jnp.zeros_like(state.lengths))
  own, cache, seen = jax.lax.fori_loop(0, calls, body, carry)
  lengths = jnp.minimum(cache.lengths, cache.lengths + seen)
  return state.replace(drafter=own, cache=cache.replace(lengths=lengths))


def _medians(
  run: Callable[..., Any], cells: Sequence[tuple], repetitions: int
) -> np.ndarray:
  """Seconds of a call in each cell, the cells in turn."""
  times = []
  for _ in range(repetitions + 1):  # The first turn compiles.
    times.append([])
    for cell in cells:
      begin = time.perf_counter()
      jax.block_until_ready(run(*cell))
      times[-1].append((time.perf_counter() - begin) / _CALLS)
  return np.median(times[1:], axis=0)


def _capacity(tokens: int) -> int:
  return -(-tokens // _SLOTS) * _SLOTS
