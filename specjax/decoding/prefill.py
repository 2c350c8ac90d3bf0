# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading a prompt: a fresh state, and prompts in chunks of one width.

Axis letters: B batch, C chunk width, S token slots, N prompt tokens.

Prompts are ragged, chunks are not: how many chunks run is decided at run time,
so one program serves every prompt that fits. With prompts of 5, 1 and 3 tokens
and C = 2, the cache takes all but the last token of each row:

  chunk      row 0   row 1   row 2
  0          0 1     -       0 1
  1          2 3     -       -        the roots 4, 0 and 2 wait for decoding
"""

import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax import types
from specjax.decoding import stopping

CHUNK = 64


def init_state(
  target: types.Model,
  drafter: types.Drafter,
  policy: types.Policy,
  keys: jax.Array,
  sampling: sampling_lib.Sampling,
  capacity: int,
  chunk: int = CHUNK,
) -> types.DecodeState:
  """A state without tokens for rows of the given keys [B].

  Args:
    target: the model that answers.
    drafter: proposes; its block sets the caches' largest block.
    policy: how many tokens to draft.
    keys: one a row (`streams.row_keys`).
    sampling: says what must be known of a row's text.
    capacity: S, token slots of a row.
    chunk: width of a prompt chunk.
  """
  batch = keys.shape[0]
  rows = jnp.zeros((batch,), jnp.int32)
  slots = jnp.zeros((batch, capacity), jnp.int32)
  block = max(chunk, drafter.num_nodes + 1)
  return types.DecodeState(
    tokens=slots,
    log_probs=jnp.zeros((batch, capacity), jnp.float32),
    lengths=rows,
    prompt_lengths=rows,
    done=jnp.ones((batch,), bool),
    reason=jnp.full((batch,), stopping.Reason.RUNNING, jnp.int32),
    history=sampling_lib.init_history(sampling, batch, target.vocab_size),
    cache=target.init_cache(batch, capacity, block),
    drafter=drafter.init(batch, capacity),
    policy=policy.init(batch),
    keys=keys,
    round=rows,
    stats=_no_stats(batch, capacity),
  )


def prefill(
  target: types.Model,
  drafter: types.Drafter,
  state: types.DecodeState,
  tokens: jax.Array,
  counts: jax.Array,
  limit: jax.Array,
  chunk: int = CHUNK,
) -> types.DecodeState:
  """Appends prompt tokens to every row and reads them.

  A fresh state gets its first prompt this way, a kept conversation its next
  turn; both end with all but the newest token in the caches.

  Args:
    target: the model.
    drafter: sees every token as it is read.
    state: any state whose rows are not in the middle of an answer.
    tokens: [B, N], the first `counts` of each row valid.
    counts: [B]; a fresh row needs at least one.
    limit: [B] new tokens allowed; a row with 0 is done at once.
    chunk: C.
  """
  state = _append(state, tokens, counts, limit)
  is_first = state.prompt_lengths == counts
  state = state.replace(
    drafter=_observe_first(target, drafter, state, is_first)
  )

  def body(carry):
    cache, drafter_state = carry
    start = cache.lengths
    block = _window(state.tokens, start, chunk)
    count = jnp.clip(state.lengths - 1 - start, 0, chunk)
    output = target(block, cache)
    seen = types.Block(
      tokens=_window(state.tokens, start + 1, chunk),
      hidden=output.hidden,
      features=output.features,
      count=count,
    )
    drafter_state = drafter.observe(drafter_state, seen, None)
    return output.cache.commit(None, count), drafter_state

  def unfinished(carry):
    return jnp.any(carry[0].lengths < state.lengths - 1)

  cache, drafter_state = jax.lax.while_loop(
    unfinished, body, (state.cache, state.drafter)
  )
  return state.replace(cache=cache, drafter=drafter_state)


def _append(state, tokens, counts, limit):
  """Writes a prompt after what is there and opens the row."""
  capacity = state.tokens.shape[1]

  def row(slots, start, tokens, count):
    index = jnp.arange(tokens.shape[0])
    index = jnp.where(index < count, start + index, capacity)
    return slots.at[index].set(tokens, mode="drop")

  written = jax.vmap(row)(state.tokens, state.lengths, tokens, counts)
  lengths = state.lengths + counts
  history = state.history
  if history is not None:
    valid = jnp.arange(tokens.shape[1])[None] < counts[:, None]
    history = history.read_prompt(tokens, valid)
  done = limit <= 0
  return state.replace(
    tokens=written,
    lengths=lengths,
    prompt_lengths=lengths,
    done=done,
    reason=jnp.where(
      done, stopping.Reason.LENGTH, stopping.Reason.RUNNING
    ).astype(jnp.int32),
    history=history,
    stats=_no_stats(*state.tokens.shape),
  )


def _observe_first(target, drafter, state, is_first):
  """The first token was predicted by nothing: a hidden of zeros stands in."""
  tokens = state.tokens[:, :1]
  shapes = jax.eval_shape(target, tokens, state.cache)
  hidden, features = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), (shapes.hidden, shapes.features)
  )
  block = types.Block(tokens, hidden, features, is_first.astype(jnp.int32))
  return drafter.observe(state.drafter, block, None)


def _window(tokens, start, width):
  """tokens[b, start[b] : start[b] + width]; past the end 0, never shifted."""
  index = start[:, None] + jnp.arange(width)[None]
  return jnp.take_along_axis(tokens, index, axis=1, mode="fill", fill_value=0)


def _no_stats(batch, capacity):
  zeros = jnp.zeros((batch, capacity), jnp.int32)
  rounds = jnp.zeros((batch,), jnp.int32)
  return types.Stats(rounds, zeros, zeros, zeros, zeros.astype(bool))
