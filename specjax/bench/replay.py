# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a round's time goes, found by leaving parts out.

Timers inside a compiled loop do not exist, so four programs are timed on one
recorded batch, in turn:

  full      the rounds as they are
  recorded  the same rounds, drafts read from the record
  forward   the target's pass alone, at the same widths and lengths
  plain     plain decoding of as many tokens, whatever they are

draft = full - recorded, verify = forward, other = recorded - forward. The
numbers are medians as measured: on a noisy machine a difference can be
negative, and then says that the part is too small to be seen. Programs do not
look for stop strings, they run as many rounds as were recorded: in a batch, a
row that has ended at a string may go on in `full` for the time of the others.

Axis letters: R rounds, B batch, T nodes, P path length, V vocabulary.
"""

from collections.abc import Callable, Sequence
import dataclasses
import time
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import session as session_lib
from specjax import streams as streams_lib
from specjax import types
from specjax.bench import passes, recording
from specjax.decoding import decode


class ReplayDrafter(struct.PyTreeNode):
  """Drafts what was recorded, at the cost of reading it.

  A recorded law is replaced by a uniform one: as large to read, and nobody
  decides by it, since `ReplayVerifier` imposes the recorded decision.
  """

  tokens: jax.Array  # [R, B, T] int32
  parents: jax.Array  # [R, B, T] int32
  count: jax.Array  # [R, B] int32
  log_q: jax.Array | None  # [V]
  max_depth: int = struct.field(pytree_node=False)

  @property
  def num_nodes(self) -> int:
    return self.tokens.shape[2]

  def init(self, batch: int, capacity: int) -> jax.Array:
    del batch, capacity
    return jnp.int32(0)

  def observe(
    self, state: jax.Array, block: types.Block, view: types.View | None
  ) -> jax.Array:
    del block
    return state if view is None else state + 1

  def propose(
    self, state: jax.Array, context: types.Context
  ) -> tuple[types.Draft, jax.Array, types.KVCache]:
    """The draft of the round that `state` counts."""
    tokens, log_q = self.tokens[state], None
    if self.log_q is not None:
      log_q = jnp.broadcast_to(self.log_q, (*tokens.shape, self.log_q.size))
    draft = types.Draft(
      tokens, self.parents[state], log_q, self.count[state], self.max_depth
    )
    return draft, state, context.cache


class ReplayVerifier(struct.PyTreeNode):
  """Computes a rule and then decides as recorded.

  `imposed` is true at run time, which the compiler cannot know: the rule's own
  decision stays in the program and costs what it costs.
  """

  rule: Any
  acceptance: types.Acceptance  # [R, B, ...]
  imposed: jax.Array  # [] bool

  @property
  def lossless(self) -> bool:
    return self.rule.lossless

  @property
  def chain_only(self) -> bool:
    return self.rule.chain_only

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    return self.rule.noise(streams, vocab)

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: types.Draft
  ) -> Any:
    return streams.round, self.rule.draw(streams, lengths, draft)

  def verify(
    self, log_p: jax.Array, draft: types.Draft, uniforms: Any
  ) -> types.Acceptance:
    """See `types.Verifier`."""
    round_, own_uniforms = uniforms
    own = self.rule.verify(log_p, draft, own_uniforms)
    rows = jnp.arange(round_.shape[0])
    recorded = jax.tree.map(lambda x: x[round_, rows], self.acceptance)
    # A round may run narrower than the widest draft.
    width = own.tokens.shape[1]
    recorded = recorded.replace(
      path=recorded.path[:, :width], tokens=recorded.tokens[:, :width]
    )
    # Whose draft it was is no decision, and a record's drafts do not say.
    own = own.replace(part=recorded.part)
    return jax.tree.map(
      lambda a, b: jnp.where(self.imposed, a, b), recorded, own
    )


@dataclasses.dataclass(frozen=True)
class Times:
  """Medians in seconds of all rounds of a batch, and how many there were."""

  full: float
  recorded: float
  forward: float
  plain: float
  rounds: int  # of the first three
  plain_rounds: int


def measure(
  session: session_lib.Session,
  plain: session_lib.Session,
  limit: int,
  repetitions: int = 3,
  *,
  compiled: bool = False,
) -> Times:
  """Times the programs on a batch whose prompts were read.

  Args:
    session: not yet decoded; it stays as it was.
    plain: the same of plain decoding, with `ignore_eos` and no stop tokens: an
      answer of a rule with streams of its own may be longer than plain's.
    limit: rounds to make room for, max_new_tokens.
    repetitions: timed turns.
    compiled: another batch of this shape was measured before; else one more
      turn is made first.
  """
  record = recording.record(session, limit)
  # A plain round emits one token a row; the longest answer decides.
  needed = int(record.acceptance.count.sum(axis=0).max())
  programs = (
    (_full(session, record.rounds), session.state),
    (_recorded(session, record), session.state),
    (_forward_alone(session, record), session.state),
    (_full(plain, needed), plain.state),
  )
  times = []
  for _ in range(repetitions + (not compiled)):
    times.append([_time(*program) for program in programs])
  medians = np.median(np.asarray(times[-repetitions:]), axis=0)
  full, recorded, forward, alone = map(float, medians)
  return Times(full, recorded, forward, alone, record.rounds, needed)


def shares(times: Sequence[Times]) -> dict[str, float]:
  """Parts of a round as shares of it, over several batches."""
  full = sum(t.full for t in times)
  recorded = sum(t.recorded for t in times)
  forward = sum(t.forward for t in times)
  return {
    "draft": (full - recorded) / full,
    "verify": forward / full,
    "other": (recorded - forward) / full,
  }


def cost_ratio(times: Sequence[Times]) -> float:
  """c = seconds of a pass at the method's widths / of a plain round."""
  verify = sum(t.forward for t in times) / sum(t.rounds for t in times)
  return verify / (
    sum(t.plain for t in times) / sum(t.plain_rounds for t in times)
  )


def predicted_speedup(times: Sequence[Times]) -> float | None:
  """Plain decoding of these batches / drafting and verifying alone.

  The decode-only speedup if nothing else in a round took time.
  """
  spent = sum(t.full - t.recorded + t.forward for t in times)
  if spent <= 0:
    return None
  return sum(t.plain for t in times) / spent


def _time(program: Callable[[types.DecodeState], Any], state) -> float:
  own = jax.block_until_ready(recording.copy(state))
  begin = time.perf_counter()
  jax.block_until_ready(program(own))
  return time.perf_counter() - begin


def _full(session, rounds):
  method = session.method
  return lambda state: decode.advance(
    session.model,
    method.drafter,
    method.verifier,
    state,
    session.sampling,
    session.policy,
    session.stop,
    rounds,
  )


def _recorded(session, record):
  vocab = session.model.vocab_size
  log_q = jnp.full(vocab, -np.log(vocab)) if record.has_law else None
  drafter = ReplayDrafter(
    tokens=jnp.asarray(record.tokens),
    parents=jnp.asarray(record.parents),
    count=jnp.asarray(record.count),
    log_q=log_q,
    max_depth=record.max_depth,
  )
  verifier = ReplayVerifier(
    session.method.verifier,
    jax.tree.map(jnp.asarray, record.acceptance),
    jnp.bool_(True),
  )

  def program(state):
    return decode.advance(
      session.model,
      drafter,
      verifier,
      state.replace(drafter=drafter.init(0, 0)),
      session.sampling,
      session.policy,
      session.stop,
      record.rounds,
    )

  return program


def _forward_alone(session, record):
  arrays = (record.root, record.tokens, record.parents, record.count)
  drafts, acceptance = jax.tree.map(jnp.asarray, (arrays, record.acceptance))
  shape = (record.max_depth, tuple(session.policy.widths))
  return lambda state: passes.run(
    session.model, state.cache, drafts, acceptance, record.rounds, shape
  )
