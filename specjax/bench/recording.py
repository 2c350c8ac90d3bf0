# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Round by round: what was drafted, kept, and how sure the target was.

Never timed: each round is a call of its own and its laws are handed out.

Axis letters: R rounds, B batch, T nodes, W = T + 1 slots, P path length,
V vocabulary.
"""

from collections.abc import Iterator
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax import streams as streams_lib
from specjax import types
from specjax.decoding import step as step_lib
from specjax.decoding import stopping
from specjax.trees import tree

_step = jax.jit(step_lib.step, donate_argnames=("state",))


@dataclasses.dataclass(frozen=True)
class Before:
  """Where the rows stood when a round began."""

  root: np.ndarray  # [B] the newest committed token
  lengths: np.ndarray  # [B]
  active: np.ndarray  # [B] bool
  noise: streams_lib.Streams


def copy(state: types.DecodeState) -> types.DecodeState:
  """The same state in arrays of its own: the programs consume theirs."""
  return jax.tree.map(jnp.copy, state)


def steps(
  session: session_lib.Session,
) -> Iterator[tuple[Before, step_lib.Round]]:
  """Answers a batch round by round; the session stays as it was.

  A stop string ends a row, and the round that completed it, as it does in
  `Session.rounds`.
  """
  state, method = copy(session.state), session.method
  while not np.all(state.done):
    lengths = np.asarray(state.lengths)
    tokens = np.asarray(state.tokens)
    before = Before(
      root=tokens[np.arange(len(lengths)), lengths - 1],
      lengths=lengths,
      active=~np.asarray(state.done),
      noise=jax.tree.map(
        jnp.copy,
        streams_lib.Streams(
          state.keys, state.round, session.sampling.is_greedy
        ),
      ),
    )
    state, seen = _step(
      session.model,
      method.drafter,
      method.verifier,
      state,
      session.sampling,
      session.policy,
      session.stop,
    )
    if session.settings.stop:
      ends = session.string_ends(state)
      state = stopping.end_rows(state, jnp.asarray(ends))
      seen = seen.replace(
        acceptance=_cut(seen.acceptance, state.lengths - lengths)
      )
    yield before, seen


def _cut(acceptance, count):
  """The acceptance of a round that kept only `count` [B] tokens."""
  return acceptance.replace(
    count=count,
    accepted=jnp.minimum(acceptance.accepted, count),
    rejected=acceptance.rejected & (count == acceptance.count),
  )


@dataclasses.dataclass(frozen=True)
class Recording:
  """The drafts and decisions of a batch, enough to replay it.

  Arrays are padded to `limit` rounds so that one program serves all prompts.

  Attributes:
    rounds: R that really ran.
    root: [limit, B] newest token before each round.
    tokens, parents: [limit, B, T] the drafts.
    count: [limit, B] valid nodes.
    acceptance: of [limit, B, ...], as it was committed.
    has_law: drafts came with log q.
    max_depth: of the drafts.
  """

  rounds: int
  root: np.ndarray
  tokens: np.ndarray
  parents: np.ndarray
  count: np.ndarray
  acceptance: types.Acceptance
  has_law: bool
  max_depth: int


def record(session: session_lib.Session, limit: int) -> Recording:
  """Runs a batch of at most `limit` rounds and keeps what it drafted.

  Raises:
    ValueError: a batch without a round, whose answers are empty.
  """
  rows, has_law, depth = [], False, 0
  for before, seen in steps(session):
    draft = seen.draft
    has_law, depth = draft.log_q is not None, draft.max_depth
    row = (before.root, draft.tokens, draft.parents, draft.count)
    rows.append(jax.device_get((*row, seen.acceptance)))
  if not rows:
    raise ValueError("nothing to replay: max_new_tokens is 0")

  def stack(*values):
    stacked = np.stack(values)
    padding = [(0, limit - len(values))] + [(0, 0)] * (stacked.ndim - 1)
    return np.pad(stacked, padding)

  columns = jax.tree.map(stack, *rows)
  return Recording(len(rows), *columns, has_law=has_law, max_depth=depth)


def margins(
  before: Before, seen: step_lib.Round, sampling: sampling_lib.Sampling
) -> np.ndarray | None:
  """Gap between the two best choices at each slot, [B, W].

  A choice is scored by log p plus the noise that draws it under the coupled
  rule; in greedy decoding, whose law is one-hot, by the softmax of the logits
  alone (None with penalties and biases, which the logits do not show). A
  difference between two answers at a gap near float32's rounding is one of
  arithmetic.
  """
  if sampling.is_greedy:
    if sampling.penalises or sampling.forbids:
      return None
    return np.asarray(_gap(jax.nn.log_softmax(seen.logits)))
  depth, _ = tree.layout(seen.draft)
  positions = jnp.asarray(before.lengths)[:, None] + depth
  noise = before.noise.gumbel(
    streams_lib.SAMPLE,
    positions,
    jnp.zeros_like(positions),
    seen.log_p.shape[2],
  )
  return np.asarray(_gap(seen.log_p + noise))


@jax.jit
def _gap(scores):
  best = jax.lax.top_k(scores, 2)[0]
  return best[..., 0] - best[..., 1]


def margin(session: session_lib.Session) -> float | None:
  """`margins` at the first token of a session's first row."""
  before, seen = next(steps(session))
  gaps = margins(before, seen, session.sampling)
  return None if gaps is None else float(gaps[0, 0])
