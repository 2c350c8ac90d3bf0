# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The chain loop of model drafters: one law, one token, and on.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling, tree, types

NextLogits = Callable[[Any, jax.Array], tuple[jax.Array, Any]]


class _Rows(struct.PyTreeNode):
  """What has been drafted so far."""

  tokens: jax.Array  # [B, T] int32
  laws: jax.Array  # [B, T, V] float32
  count: jax.Array  # [B] int32
  wants: jax.Array  # [B] bool
  history: sampling.History | None


def chain(
  next_logits: NextLogits,
  state: Any,
  logits: jax.Array,
  limit: jax.Array,
  context: types.Context,
  length: int,
) -> tuple[types.Draft, Any]:
  """Draws a chain of at most `length` tokens; stops when no row wants more.

  The law q comes from the one sampler with the target's settings and history,
  so it is honest; under the coupled rule the noise is the target's own.

  Args:
    next_logits: (state, token [B]) -> (logits [B, V], state); feeds a token.
    state: of `next_logits`.
    logits: [B, V] of the first token.
    limit: [B] tokens each row may draft.
    context: of the round.
    length: T, at least 1.

  Returns:
    A draft with laws [B, T, V] (removed by the compiler where no rule reads
    them), and the state, which was fed all drafted tokens but the last.
  """
  batch, vocab = logits.shape
  limit = jnp.minimum(jnp.minimum(limit, context.draft_length), length)

  def unfinished(carry):
    depth, rows, _ = carry
    return jnp.any(rows.wants & (depth < limit))

  def body(carry):
    depth, rows, state = carry
    logits, state = next_logits(state, rows.tokens[:, depth - 1])
    return depth + 1, _draw(depth, logits, rows, limit, context), state

  rows = _Rows(
    tokens=jnp.zeros((batch, length), jnp.int32),
    laws=jnp.zeros((batch, length, vocab), jnp.float32),
    count=jnp.zeros((batch,), jnp.int32),
    wants=jnp.ones((batch,), bool),
    history=context.history,
  )
  first = _draw(jnp.int32(0), logits, rows, limit, context)
  _, rows, state = jax.lax.while_loop(
    unfinished, body, (jnp.int32(1), first, state)
  )
  return tree.chain(rows.tokens, rows.count, rows.laws), state


def _draw(depth, logits, rows, limit, context):
  """Draws the token at `depth` in the rows that want one more."""
  law = sampling.log_probs(logits, context.sampling, rows.history)
  # Asked before the token exists: the policy sees the law alone.
  keep = context.policy.keep_drafting(context.policy_state, law)
  wants = rows.wants & keep & (depth < limit)
  slots = jnp.broadcast_to(depth, wants.shape)
  token = sampling.argmax(law + context.noise(context.lengths + depth, slots))
  history = rows.history
  if history is not None:
    history = history.extend(token[:, None], wants[:, None])
  return _Rows(
    tokens=rows.tokens.at[:, depth].set(token),
    laws=rows.laws.at[:, depth].set(law),
    count=rows.count + wants,
    wants=wants,
    history=history,
  )
