# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decoding loop: rounds until every row has ended.

Plain decoding is the empty draft. jit stands here and nowhere below.

Axis letters: B batch, S token slots, N prompt tokens.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import cache as cache_lib
from specjax import sampling as sampling_lib
from specjax import sharding, types
from specjax.decoding import fitting
from specjax.decoding import prefill as prefill_lib
from specjax.decoding import step as step_lib
from specjax.trees import tree


def run(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
  rounds: jax.Array,
) -> types.DecodeState:
  """At most `rounds` rounds, fewer when every row ends before."""

  def unfinished(carry):
    done, state = carry
    return (done < rounds) & ~jnp.all(state.done)

  def body(carry):
    done, state = carry
    state = _round(target, drafter, verifier, state, sampling, policy, stop)
    return done + 1, state

  state = jax.lax.while_loop(unfinished, body, (jnp.int32(0), state))[1]
  return _split_rows(target, state)


def _split_rows(target, state):
  """The state in one place whichever program made it: one trace takes it."""
  rules = sharding.rules_of(target)
  return sharding.constrain_rows(state, rules, state.lengths.shape[0])


def _round(target, drafter, verifier, state, sampling, policy, stop):
  """One round at the narrowest compiled width that holds its draft.

  The choice is made by loops that run once or not at all: `lax.cond` around a
  cache would copy it.
  """
  state, draft = step_lib.propose(
    target, drafter, verifier, state, sampling, policy, stop
  )
  needed = jnp.max(draft.count)
  below = -1
  for nodes in tree.widths(draft, policy.widths):

    def verify(carry, nodes=nodes):
      _, state = carry
      narrow = tree.narrow(draft, nodes)
      state, _ = step_lib.verify(
        target, drafter, verifier, state, sampling, policy, stop, narrow
      )
      return jnp.bool_(False), state

    is_width = (needed > below) & (needed <= nodes)
    _, state = jax.lax.while_loop(
      lambda carry: carry[0], verify, (is_width, state)
    )
    below = nodes
  return state


@functools.partial(jax.jit, static_argnames=("capacity", "chunk"))
def start(
  target: types.Model,
  drafter: types.Drafter,
  prompt: jax.Array,
  prompt_lengths: jax.Array,
  keys: jax.Array,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
  *,
  capacity: int,
  chunk: int = prefill_lib.CHUNK,
) -> types.DecodeState:
  """A state that has read the prompts [B, N]; compiled."""
  state = prefill_lib.init_state(
    target, drafter, policy, keys, sampling, capacity, chunk
  )
  return read(target, drafter, state, prompt, prompt_lengths, stop.limit, chunk)


def read(
  target: types.Model,
  drafter: types.Drafter,
  state: types.DecodeState,
  tokens: jax.Array,
  counts: jax.Array,
  limit: jax.Array,
  chunk: int = prefill_lib.CHUNK,
) -> types.DecodeState:
  """See `prefill.prefill`."""
  state = prefill_lib.prefill(
    target, drafter, state, tokens, counts, limit, chunk
  )
  return _split_rows(target, state)


# The state is donated: call `advance` with the newest state only.
advance = jax.jit(run, donate_argnames=("state",))
prefill = jax.jit(read, donate_argnames=("state",), static_argnames=("chunk",))


def decode(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  prompt: jax.Array,
  prompt_lengths: jax.Array,
  keys: jax.Array,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
  *,
  capacity: int,
  chunk: int = prefill_lib.CHUNK,
) -> types.DecodeState:
  """Answers prompts [B, N] to their end: two compiled programs, no host trips.

  Lossless when the verifier is.

  Args:
    target: the model that answers.
    drafter: proposes tokens.
    verifier: decides what is kept.
    prompt: token ids, the first `prompt_lengths` [B] of each row valid.
    prompt_lengths: at least 1 each.
    keys: [B], see `streams.row_keys`.
    sampling: settings of each row.
    policy: how many tokens to draft.
    stop: when rows end.
    capacity: token slots of a row.
    chunk: width of a prompt chunk.

  Raises:
    ValueError: before tracing, when the capacity cannot hold the longest
      answer, or a chain rule was given a tree.
  """
  check(target, drafter, verifier, prompt_lengths, stop, capacity)
  state = start(
    target,
    drafter,
    prompt,
    prompt_lengths,
    keys,
    sampling,
    policy,
    stop,
    capacity=capacity,
    chunk=chunk,
  )
  return advance(
    target, drafter, verifier, state, sampling, policy, stop, capacity
  )


@dataclasses.dataclass(frozen=True)
class Committed:
  """What one round added to a row.

  Attributes:
    tokens: ids, the drafted ones first.
    accepted: how many of them were drafted.
  """

  tokens: np.ndarray
  accepted: int


def stream(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
) -> Iterator[tuple[types.DecodeState, list[Committed]]]:
  """Yields what each round commits; the same tokens as `decode`.

  The state yielded with it is donated to the next round: read it, do not keep
  it.
  """
  while not np.all(state.done):
    before = np.asarray(state.lengths)
    state = advance(target, drafter, verifier, state, sampling, policy, stop, 1)
    yield state, committed(before, state)


def committed(before: np.ndarray, state: types.DecodeState) -> list[Committed]:
  """What the last round added to rows that had `before` [B] tokens."""
  tokens, lengths, rounds, accepted = jax.device_get(
    (state.tokens, state.lengths, state.stats.rounds, state.stats.accepted)
  )
  added = [row[start:end] for row, start, end in zip(tokens, before, lengths)]
  return [
    Committed(new, int(accepted[row, rounds[row] - 1]) if len(new) else 0)
    for row, new in enumerate(added)
  ]


def check(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  prompt_lengths: jax.Array | np.ndarray,
  stop: types.Stop,
  capacity: int,
) -> None:
  """Refuses what cannot work, on host values, before anything is traced.

  Raises:
    ValueError: one line that names the numbers and the fix.
  """
  cache_lib.check_capacity(
    np.asarray(prompt_lengths),
    np.asarray(stop.limit),
    drafter.num_nodes + 1,
    capacity,
    target.max_position,
  )
  fitting.check(target, drafter, verifier, capacity)


def with_features(target: Any, drafter: types.Drafter) -> types.Model:
  """The target, giving the outputs of the layers that a drafter reads.

  Raises:
    ValueError: it has no layers to give.
  """
  wanted = fitting.feature_layers(drafter)
  if not wanted:
    return target
  if not hasattr(target, "feature_layers"):
    raise ValueError(
      f"{type(drafter).__name__} reads layers {wanted} of the target, and "
      f"{type(target).__name__} gives none: use a models.model.Model"
    )
  return target.replace(feature_layers=wanted)
