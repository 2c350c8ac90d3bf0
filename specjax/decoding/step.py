# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One round: draft, verify, commit.

It knows the protocols only; target, drafter, verifier and policy are arguments.

Axis letters: B batch, T nodes, W = T + 1 slots, P path length, S token slots,
V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax import streams as streams_lib
from specjax import types
from specjax.decoding import stopping
from specjax.trees import tree


class Round(struct.PyTreeNode):
  """What happened in one round, for those who look closer (traces, proofs)."""

  draft: types.Draft
  acceptance: types.Acceptance
  log_p: jax.Array  # [B, W, V] the target's law at each slot
  logits: jax.Array  # [B, W, V]


def step(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
) -> tuple[types.DecodeState, Round]:
  """One round for every row; rows that are done stay as they are."""
  state, draft = propose(
    target, drafter, verifier, state, sampling, policy, stop
  )
  return verify(target, drafter, verifier, state, sampling, policy, stop, draft)


def propose(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
) -> tuple[types.DecodeState, types.Draft]:
  """The draft, cut to what the policy wants and the row still needs."""
  known = context(target, verifier, state, sampling, policy, stop)
  draft, drafter_state, cache = drafter.propose(state.drafter, known)
  state = state.replace(drafter=drafter_state, cache=cache)
  return state, tree.truncate(draft, known.draft_length)


def context(
  target: types.Model,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
) -> types.Context:
  """What the drafter may know in the next round."""
  streams = streams_lib.Streams(state.keys, state.round, sampling.is_greedy)
  return types.Context(
    tokens=state.tokens,
    lengths=state.lengths,
    history=state.history,
    sampling=sampling,
    noise=verifier.noise(streams, target.vocab_size),
    draft_length=_draft_length(policy, state, stop),
    cache=state.cache,
    policy=policy,
    policy_state=state.policy,
  )


def verify(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  state: types.DecodeState,
  sampling: sampling_lib.Sampling,
  policy: types.Policy,
  stop: types.Stop,
  draft: types.Draft,
) -> tuple[types.DecodeState, Round]:
  """The target's pass over a draft, and what is kept of it."""
  streams = streams_lib.Streams(state.keys, state.round, sampling.is_greedy)
  output, ancestors = _forward(target, state, draft)
  history = state.history
  if history is not None:
    block = jnp.concatenate([_root(state), draft.tokens], axis=1)
    history = history.on_tree(block, ancestors)
  log_p = sampling_lib.log_probs(output.logits, sampling, history)
  uniforms = verifier.draw(streams, state.lengths, draft)
  acceptance = verifier.verify(log_p, draft, uniforms)
  if acceptance.part is None:  # No rule cares, but a policy may.
    acceptance = acceptance.replace(part=draft.part)
  # The logsumexp is finite exactly when no logit is NaN and one is finite.
  total = jax.nn.logsumexp(output.logits, axis=-1)
  total = jnp.take_along_axis(total, acceptance.path, axis=1)
  bad = ~jnp.isfinite(total)
  if sampling.forbids:
    stuck = sampling_lib.stuck(output.logits, sampling, history)
    bad |= jnp.take_along_axis(stuck, acceptance.path, axis=1)
  acceptance, reason = stopping.cut(acceptance, state, stop, bad)
  chosen = jax.vmap(lambda x, path, token: x[path, token])(
    output.logits, acceptance.path, acceptance.tokens
  )
  view = types.View(output, draft, acceptance)
  length = _draft_length(policy, state, stop)
  state = _commit(state, view, reason, chosen - total)
  state = state.replace(
    drafter=drafter.observe(state.drafter, _block(view), view),
    policy=policy.update(state.policy, acceptance, length),
  )
  return state, Round(draft, acceptance, log_p, output.logits)


def _draft_length(policy, state, stop):
  """[B] what the policy wants, within what the row still needs."""
  left = stop.limit - (state.lengths - state.prompt_lengths)
  # The target adds a token of its own, so one less is drafted than is left.
  length = jnp.clip(policy.draft_length(state.policy), 0, left - 1)
  return jnp.where(state.done, 0, length)


def _root(state):
  """[B, 1] the newest committed token."""
  return jnp.take_along_axis(
    state.tokens, jnp.maximum(state.lengths[:, None] - 1, 0), axis=1
  )


def _forward(target, state, draft):
  """The target's pass over root and nodes, and who sees whom."""
  block = jnp.concatenate([_root(state), draft.tokens], axis=1)
  depth, ancestors = tree.layout(draft)
  if draft.is_chain:
    return target(block, state.cache), ancestors
  positions = state.lengths[:, None] - 1 + depth
  return target(block, state.cache, positions, ancestors), ancestors


def _block(view):
  """The kept tokens, each with the hidden that predicted it."""

  def at_path(x):
    return jnp.take_along_axis(x, view.acceptance.path[:, :, None], axis=1)

  features = view.output.features
  return types.Block(
    view.acceptance.tokens,
    at_path(view.output.hidden),
    None if features is None else at_path(features),
    view.acceptance.count,
  )


def _commit(state, view, reason, log_probs):
  """The state after a round; a row that was done is returned as it was."""
  acceptance, draft = view.acceptance, view.draft
  active = ~state.done
  capacity = state.tokens.shape[1]
  steps = jnp.arange(acceptance.tokens.shape[1])
  kept = steps[None] < acceptance.count[:, None]
  index = jnp.where(kept, state.lengths[:, None] + steps[None], capacity)
  write = jax.vmap(lambda x, i, new: x.at[i].set(new, mode="drop"))
  history = state.history
  if history is not None:
    history = history.extend(acceptance.tokens, kept)
  at = jnp.where(active, state.stats.rounds, capacity)
  stats = types.Stats(
    rounds=state.stats.rounds + active,
    emitted=write(state.stats.emitted, at, acceptance.count),
    drafted=write(state.stats.drafted, at, tree.drafted_depth(draft)),
    accepted=write(state.stats.accepted, at, acceptance.accepted),
    rejected=write(state.stats.rejected, at, acceptance.rejected),
  )
  path = None if draft.is_chain else acceptance.path
  return state.replace(
    tokens=write(state.tokens, index, acceptance.tokens),
    log_probs=write(state.log_probs, index, log_probs),
    lengths=state.lengths + acceptance.count,
    done=state.done | (reason != stopping.Reason.RUNNING),
    reason=reason,
    history=history,
    cache=view.output.cache.commit(path, acceptance.count),
    round=state.round + active,
    stats=stats,
  )
