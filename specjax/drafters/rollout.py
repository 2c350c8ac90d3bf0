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

from specjax import sampling, types
from specjax.trees import tree

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
  rows = first
  if length > 1:
    _, rows, state = jax.lax.while_loop(
      unfinished, body, (jnp.int32(1), first, state)
    )
  return tree.chain(rows.tokens, rows.count, rows.laws), state


def newest(old: jax.Array, rows: jax.Array, count: jax.Array) -> jax.Array:
  """The last of `count` [B] rows [B, W, D]; `old` [B, D] where there is none.

  What a drafter keeps of a block that it observes.
  """
  last = jnp.maximum(count - 1, 0)[:, None, None]
  last = jnp.take_along_axis(rows, last, axis=1)[:, 0].astype(old.dtype)
  return jnp.where((count > 0)[:, None], last, old)


def when_wanted(
  draw: Callable[[Any], tuple[types.Draft, Any]],
  state: Any,
  context: types.Context,
) -> tuple[types.Draft, Any]:
  """draw(state), or an empty draft where no row wants one."""
  nothing = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(draw, state)[0]
  )
  wanted = jnp.any(context.draft_length > 0)
  return once(wanted, lambda carry: draw(carry[1]), (nothing, state))


def once(wanted: jax.Array, change: Callable[[Any], Any], state: Any) -> Any:
  """change(state) if that is wanted, else the state as it is.

  A loop that runs once or not at all: `lax.cond` would copy a cache.
  """
  return jax.lax.while_loop(
    lambda carry: carry[0],
    lambda carry: (jnp.bool_(False), change(carry[1])),
    (wanted, state),
  )[1]


def _draw(depth, logits, rows, limit, context):
  """Draws the token at `depth` in the rows that want one more."""
  law = sampling.log_probs(logits, context.sampling, rows.history)
  # Asked before the token exists, and shown what the drafter believes: the
  # sampled law would be sure of everything at temperature 0.
  own = jax.nn.log_softmax(logits.astype(jnp.float32))
  keep = context.policy.keep_drafting(context.policy_state, own)
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
