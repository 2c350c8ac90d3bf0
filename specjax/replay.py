# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a round's time goes, found by leaving parts out.

Timers inside a compiled loop do not exist, so three programs are timed on one
recorded batch, in turn:

  full      the rounds as they are
  recorded  the same rounds, drafts read from the record
  forward   the target's pass alone, at the same widths and lengths

draft = full - recorded, verify = forward, other = recorded - forward. The
numbers are medians as measured: on a noisy machine a difference can be
negative, and then says that the part is too small to be seen.

Axis letters: R rounds, B batch, T nodes, P path length, V vocabulary.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import time
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import decode, recording, tree, types
from specjax import session as session_lib
from specjax import streams as streams_lib


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
    return jax.tree.map(
      lambda a, b: jnp.where(self.imposed, a, b), recorded, own
    )


@dataclasses.dataclass(frozen=True)
class Times:
  """Medians in seconds of a whole batch, and how many rounds it had."""

  full: float
  recorded: float
  forward: float
  rounds: int


def measure(
  session: session_lib.Session, limit: int, repetitions: int = 3
) -> Times:
  """Times the three programs on a batch whose prompts were read.

  Args:
    session: not yet decoded; it stays as it was.
    limit: rounds to make room for, max_new_tokens.
    repetitions: timed turns, after one that compiles.
  """
  record = recording.record(session, limit)
  programs = (
    _full(session),
    _recorded(session, record),
    _forward_alone(session, record),
  )
  times = []
  for _ in range(repetitions + 1):
    times.append([_time(program, session.state) for program in programs])
  full, recorded, forward = np.median(times[1:], axis=0)
  return Times(float(full), float(recorded), float(forward), record.rounds)


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


def predicted_speedup(
  times: Sequence[Times], block_efficiency: float, plain_round: float
) -> float | None:
  """tau * (a plain round) / (drafting and verifying of one round)."""
  rounds = sum(t.rounds for t in times)
  spent = sum(t.full - t.recorded + t.forward for t in times)
  if spent <= 0:
    return None
  return block_efficiency * plain_round * rounds / spent


def _time(program: Callable[[types.DecodeState], Any], state) -> float:
  own = jax.block_until_ready(recording.copy(state))
  begin = time.perf_counter()
  jax.block_until_ready(program(own))
  return time.perf_counter() - begin


def _full(session):
  method = session.method
  return lambda state: decode.advance(
    session.model,
    method.drafter,
    method.verifier,
    state,
    session.sampling,
    session.policy,
    session.stop,
    session.capacity,
  )


def _recorded(session, record):
  vocab = session.model.vocab_size
  log_q = jnp.full(vocab, -np.log(vocab)) if record.has_law else None
  arrays = (record.tokens, record.parents, record.count)
  drafter = ReplayDrafter(*map(jnp.asarray, arrays), log_q, record.max_depth)
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
      session.capacity,
    )

  return program


def _forward_alone(session, record):
  arrays = (record.root, record.tokens, record.parents, record.count)
  drafts, acceptance = jax.tree.map(jnp.asarray, (arrays, record.acceptance))
  shape = (record.max_depth, tuple(session.policy.widths))
  return lambda state: _forward(
    session.model, state.cache, drafts, acceptance, record.rounds, shape
  )


@functools.partial(
  jax.jit, donate_argnames=("cache",), static_argnames=("shape",)
)
def _forward(target, cache, drafts, acceptance, rounds, shape):
  """The target's passes over recorded blocks, each as wide as it was.

  Returns:
    A number and a cache that need all of them.
  """
  max_depth, widths = shape
  root, tokens, parents, count = drafts

  def body(carry):
    index, *carry = carry
    draft = types.Draft(
      tokens[index], parents[index], None, count[index], max_depth
    )
    kept = jax.tree.map(lambda x: x[index], acceptance)
    needed, below = jnp.max(draft.count), -1
    for nodes in _widths(widths, draft):
      run = functools.partial(
        _pass, target, root[index], tree.narrow(draft, nodes), kept
      )
      is_width = (needed > below) & (needed <= nodes)
      _, *carry = jax.lax.while_loop(
        lambda carry: carry[0],
        lambda c, run=run: run(*c[1:]),
        (is_width, *carry),
      )
      below = nodes
    return index + 1, *carry

  carry = (jnp.int32(0), cache, jnp.float32(-jnp.inf))
  return jax.lax.while_loop(lambda carry: carry[0] < rounds, body, carry)[1:]


def _pass(target, root, draft, kept, cache, largest):
  """One pass of the target; the maximum needs all its logits."""
  block = jnp.concatenate([root[:, None], draft.tokens], axis=1)
  if draft.is_chain:
    output, path = target(block, cache), None
  else:
    depth, ancestors = tree.layout(draft)
    positions = cache.lengths[:, None] + depth
    output = target(block, cache, positions, ancestors)
    path = kept.path
  cache = output.cache.commit(path, kept.count)
  return jnp.bool_(False), cache, jnp.maximum(largest, jnp.max(output.logits))


def _widths(widths, draft) -> list[int]:
  """What `decode` has programs for, ascending."""
  nodes = draft.tokens.shape[1]
  return [
    w for w in sorted(widths) if w < nodes and (draft.is_chain or w == 0)
  ] + [nodes]
