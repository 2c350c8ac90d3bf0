# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drafter at work on a few prompts, round by round or to the end.

Axis letters: B batch, T nodes.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import streams as streams_lib
from specjax import types
from specjax.decoding import decode, stopping
from specjax.decoding import step as step_lib
from specjax.policies import policy
from specjax.testing import recording, scripted
from specjax.trees import tree

# Ragged, with and without repetitions; ids are taken modulo the vocabulary.
PROMPTS = ((7, 8, 9, 7, 8), (3,), (5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5))
ROUNDS = 6
CHUNK = 64


def require(condition: Any, what: str) -> None:
  """Raises AssertionError, also where Python drops `assert`."""
  if not condition:
    raise AssertionError(what)


@dataclasses.dataclass(frozen=True)
class Round:
  """One call of `propose`."""

  before: types.DecodeState
  settings: tuple  # sampling, policy, stop
  draft: types.Draft  # as it was returned
  after: types.DecodeState


class Trial:
  """A drafter, a target, and what they are tried on.

  Args:
    target: answers.
    drafter: proposes.
    prompts: ids, one prompt a row.
    new_tokens: of an answer.

  Attributes:
    read: what the drafter has read of its streams, by walks that `watch`.
    traced: one entry for each time that `propose` was traced.
  """

  def __init__(
    self,
    target: types.Model,
    drafter: types.Drafter,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
  ):
    self.target, self.drafter = target, drafter
    self.prompts, self.new_tokens = prompts, new_tokens
    self.read: list[recording.Read] = []
    self.traced: list[Any] = []
    self._propose = jax.jit(self._traced)

  @property
  def limit(self) -> int:
    """New tokens that no row reaches in ROUNDS rounds."""
    return max(self.new_tokens, (ROUNDS + 2) * (self.drafter.max_depth + 1))

  @property
  def capacity(self) -> int:
    """Exactly what the longest answer and a block need."""
    longest = max(map(len, self.prompts)) + self.limit
    return longest + max(self.drafter.num_nodes, 1) + 1

  def start(
    self,
    verifier: types.Verifier,
    *,
    drafter: types.Drafter | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    indices: Sequence[int] | None = None,
    temperature: float = 0.9,
    limits: Sequence[int] | None = None,
    chunk: int = CHUNK,
    run: bool = True,
  ) -> tuple[types.DecodeState, tuple]:
    """A state that has read prompts; sampling, policy and stop.

    Args:
      verifier: of the rounds to come.
      drafter: another one.
      prompts: other ones.
      indices: of the prompts, which choose their random streams.
      temperature: of all rows but each second one, which is greedy.
      limits: new tokens of each row; as many as there is room for if left out.
      chunk: prompt tokens read at a time.
      run: else nothing is, and the state has shapes in place of arrays.
    """
    drafter = drafter or self.drafter
    prompts = self.prompts if prompts is None else prompts
    rows = len(prompts)
    tokens, counts = self._padded(prompts)
    if limits is None:
      limits = [self.limit] * rows
    room = self.capacity - drafter.num_nodes - 1 - counts
    stop = stopping.make_stop((), np.minimum(limits, room).tolist())
    decode.check(self.target, drafter, verifier, counts, stop, self.capacity)
    # Numbers for all rows, 0 too: every walk then runs one program.
    mixed = [temperature * (row % 2 == 0) for row in range(rows)]
    sampling = sampling_lib.Sampling(jnp.asarray(mixed, jnp.float32))
    wanted = policy.Fixed(drafter.max_depth, widths=())
    index = jnp.asarray(range(rows) if indices is None else indices)
    read = functools.partial(decode.start, capacity=self.capacity, chunk=chunk)
    read = read if run else functools.partial(jax.eval_shape, read)
    state = read(
      self.target,
      drafter,
      jnp.asarray(tokens),
      jnp.asarray(counts),
      streams_lib.row_keys(0, index, jnp.zeros_like(index)),
      sampling,
      wanted,
      stop,
    )
    return state, (sampling, wanted, stop)

  def _padded(self, prompts):
    """Ids [B, capacity] and counts [B]."""
    tokens = np.zeros((len(prompts), self.capacity), np.int32)
    for row, prompt in zip(tokens, prompts):
      row[: len(prompt)] = np.asarray(prompt) % self.target.num_tokens
    return tokens, np.array([len(prompt) for prompt in prompts], np.int32)

  def walk(
    self,
    rounds: int = ROUNDS,
    *,
    drafter: types.Drafter | None = None,
    watch: bool = True,
    **options: Any,
  ) -> Iterator[Round]:
    """Shows what is proposed in each round, whatever was kept before."""
    rule = scripted.Scripted(self.read.append if watch else None)
    drafter = drafter or self.drafter
    state, settings = self.start(rule, drafter=drafter, **options)
    for _ in range(rounds):
      draft, after = self._propose(self.target, drafter, rule, state, settings)
      yield Round(state, settings, draft, after)
      state = _verify(
        self.target, drafter, scripted.Scripted(), after, settings, draft
      )

  def woken(self, round_: Round) -> types.Draft:
    """What would be proposed before the round if no row were done."""
    state = round_.before
    sampling, wanted, stop = round_.settings
    room = self.capacity - self.drafter.num_nodes - 1 - state.prompt_lengths
    settings = sampling, wanted, stop.replace(limit=room)
    rule = scripted.Scripted(self.read.append)
    awake = state.replace(done=jnp.zeros_like(state.done))
    return self._propose(self.target, self.drafter, rule, awake, settings)[0]

  def _traced(self, *arguments):
    self.traced.append(len(self.traced))
    return propose(*arguments)

  def answer(
    self,
    verifier: types.Verifier,
    *,
    drafter: types.Drafter | None = None,
    **options: Any,
  ) -> types.DecodeState:
    """The state at the end, on the host."""
    drafter = drafter or self.drafter
    state, settings = self.start(verifier, drafter=drafter, **options)
    state = decode.advance(
      self.target, drafter, verifier, state, *settings, self.capacity
    )
    return jax.device_get(state.replace(keys=None))


def propose(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  settings: tuple,
) -> tuple[types.Draft, types.DecodeState]:
  """The draft as it is returned, and the state with what comes back."""
  known = step_lib.context(target, verifier, state, *settings)
  draft, drafter_state, cache = drafter.propose(state.drafter, known)
  return draft, state.replace(drafter=drafter_state, cache=cache)


@jax.jit
def _verify(target, drafter, verifier, state, settings, draft):
  known = step_lib.context(target, verifier, state, *settings)
  sampling, wanted, stop = settings
  state, _ = step_lib.verify(
    target,
    drafter,
    verifier,
    state,
    sampling,
    wanted,
    stop,
    tree.truncate(draft, known.draft_length),
  )
  return state


def texts(state: types.DecodeState) -> list[list[int]]:
  """Ids of prompts and answers."""
  return [
    np.asarray(row)[:length].tolist()
    for row, length in zip(state.tokens, state.lengths)
  ]


def valid(draft: types.Draft) -> np.ndarray:
  """[B, T] bool: the first `count` nodes."""
  nodes = draft.tokens.shape[1]
  return np.arange(nodes)[None] < np.asarray(draft.count)[:, None]


def drafts(draft: types.Draft) -> list[list[tuple[int, int]]]:
  """(token, parent) of every valid node by row."""
  tokens, parents = np.asarray(draft.tokens), np.asarray(draft.parents)
  return [
    list(zip(tokens[row, :count].tolist(), parents[row, :count].tolist()))
    for row, count in enumerate(np.asarray(draft.count).tolist())
  ]
