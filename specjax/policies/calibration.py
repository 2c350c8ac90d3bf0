# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of the target's passes, and of the rest of a round, on this machine.

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
from specjax.decoding import decode, stopping
from specjax.policies import policy, stand_ins
from specjax.verifiers import coupled

CONTEXT = 256
_CALLS = 4  # passes or rounds in one timed program: its start weighs little
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

  def prepare(batch, width, context):
    lengths = jnp.full((batch,), context, jnp.int32)
    tokens = jnp.zeros((batch, width), jnp.int32)

    def run(cache):
      _, caches[batch] = _passes(target, cache, tokens)
      return caches[batch]

    return run, caches[batch].replace(lengths=lengths)

  cells = [(b, w, c) for b in batches for w in widths for c in contexts]
  seconds = _medians(prepare, cells, repetitions)
  shape = len(batches), len(widths), len(contexts)
  return CostTable(batches, widths, contexts, seconds.reshape(shape))


def outside_seconds(
  target: types.Model,
  drafter: types.Drafter,
  widths: Sequence[int],
  batch: int,
  context: int = CONTEXT,
  repetitions: int = 5,
) -> np.ndarray:
  """[T + 1] seconds of rounds of 0, 1, ... tokens outside the target's pass.

  Whole rounds of the decoding loop are timed, on random text and with a target
  that takes no time (`stand_ins.Script`): what is left are the proposal, the
  coupled rule of greedy rows, and what the drafter reads of the outcome. The
  drafter has read a prompt of `context` tokens, and each round keeps one.

  Drafters with laws draft what is asked. Those that copy search as long whether
  they find something or not, and are taken to find as much as is asked. In such
  a text no words stand twice, as far as the vocabulary allows it: a cascade
  finds nothing to copy and asks its second drafter, the dear one.

  Raises:
    ValueError: a drafter with laws drafts nothing, as beyond its positions.
  """
  most = drafter.max_depth
  parts, state, stop = _begin(target, drafter, batch, context)

  def advance(state, length, rounds):
    wanted = policy.Fixed(length, tuple(widths))
    state = state.replace(policy=wanted.init(batch))
    settings = sampling_lib.Sampling()
    return decode.advance(*parts, state, settings, wanted, stop, rounds)

  # The first proposal of some drafters reads the prompt.
  state = advance(state, most, 1)
  if most and not np.any(state.stats.drafted):
    raise ValueError(
      f"{type(drafter).__name__} drafts nothing after {context} tokens: choose "
      "a shorter context, within the positions of its model"
    )

  def prepare(length):
    run = lambda state: advance(state, length, _CALLS)
    return run, jax.tree.map(jnp.copy, state)

  return _medians(prepare, [(n,) for n in range(most + 1)], repetitions)


def _begin(target, drafter, batch, context):
  """Target, drafter and rule of timed rounds, a state with a prompt, a stop."""
  target = decode.with_features(target, drafter)
  limit = (drafter.max_depth + 1) * (_CALLS + 1)
  capacity = _capacity(context + limit + drafter.num_nodes + 1)
  text = _words(target.num_tokens, batch, capacity)
  script = _script(target, text)
  lucky = stand_ins.Lucky(drafter)
  stop = stopping.make_stop((), [limit] * batch)
  rows = jnp.zeros((batch,), jnp.int32)
  state = decode.start(
    script,
    lucky,
    text[:, :context],
    rows + context,
    streams.row_keys(0, rows, rows),
    sampling_lib.Sampling(),
    policy.Fixed(0),
    stop,
    capacity=capacity,
  )
  return (script, lucky, coupled.Coupled()), state, stop


def _words(num_tokens, batch, length):
  """[B, S] random ids, each as rare as it can be."""
  rng = np.random.default_rng(0)
  turns = -(-length // num_tokens)
  rows = [
    np.concatenate([rng.permutation(num_tokens) for _ in range(turns)])
    for _ in range(batch)
  ]
  return jnp.asarray(np.stack(rows)[:, :length], jnp.int32)


def _script(target, text):
  """The text as a target that says it, with random hidden states."""
  first = text[:, :1]
  shapes = jax.eval_shape(
    lambda: target(first, target.init_cache(len(text), 1, 1))
  )
  hidden, features = jax.tree.map(
    lambda x: jax.random.normal(jax.random.key(0), x.shape).astype(x.dtype),
    (shapes.hidden, shapes.features),
  )
  return stand_ins.Script(target, text, hidden, features)


@functools.partial(jax.jit, donate_argnames=("cache",))
def _passes(target, cache, tokens):
  """The same pass `_CALLS` times: nothing is committed."""

  def body(_, carry):
    tokens, cache = carry
    output = target(tokens, cache)
    return sampling_lib.argmax(output.logits).astype(tokens.dtype), output.cache

  return jax.lax.fori_loop(0, _CALLS, body, (tokens, cache))


def _medians(
  prepare: Callable[..., tuple[Callable[[Any], Any], Any]],
  cells: Sequence[tuple],
  repetitions: int,
) -> np.ndarray:
  """Seconds of a call in each cell, the cells in turn.

  `prepare` gives what to run, and arrays of its own to run it on, which it may
  consume.
  """
  times = []
  for _ in range(repetitions + 1):  # The first turn compiles.
    times.append([])
    for cell in cells:
      run, given = prepare(*cell)
      given = jax.block_until_ready(given)
      begin = time.perf_counter()
      jax.block_until_ready(run(given))
      times[-1].append((time.perf_counter() - begin) / _CALLS)
  return np.median(times[1:], axis=0)


def _capacity(tokens: int) -> int:
  return -(-tokens // _SLOTS) * _SLOTS
