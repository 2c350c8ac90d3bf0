# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft model that is sped up by lookup: speculation within the draft.

The draft model reads copied tokens in one pass and keeps those that it would
have drawn itself, by the rule of `verifiers.coupled` on the round's own noise.
So it drafts what `DraftModel` drafts, with the same laws, in fewer passes
("vertical" cascades, arXiv 2312.11462).

Axis letters: B batch, S token slots, T drafted tokens, C copied tokens,
V vocabulary.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sampling, types
from specjax.drafters import draft_model, ngram, reading
from specjax.trees import tree


def assisted_model(
  model: types.Model,
  length: int,
  *,
  copies: int = 4,
  min_n: int = 1,
  max_n: int = 3,
) -> "AssistedModel":
  """An `AssistedModel` with prompt lookup.

  Args:
    model: the draft model.
    length: tokens to draft at most.
    copies: tokens that lookup shows to it in one pass.
    min_n: shortest n-gram that counts as a match.
    max_n: longest n-gram that is looked at.
  """
  return AssistedModel(model, length, ngram.NGram(copies, min_n, max_n))


class _Progress(struct.PyTreeNode):
  """What has been drafted so far; the newest token was not fed yet."""

  text: jax.Array  # [B, S] committed tokens, then drafted ones
  laws: jax.Array  # [B, T, V]
  count: jax.Array  # [B] drafted
  wants: jax.Array  # [B] bool
  history: Any
  cache: types.KVCache


class AssistedModel(draft_model.DraftModel):
  """A draft model that lookup speeds up in its turn (arXiv 2312.11462).

  Drafts what a `DraftModel` drafts.

  Attributes:
    lookup: finds what the draft model may say next.
  """

  lookup: ngram.NGram

  def init(self, batch: int, capacity: int) -> draft_model.State:
    # A pass may write all copies behind the last token that is kept.
    return super().init(batch, capacity + self.lookup.num_nodes)

  def _draft(
    self, cache: types.KVCache, context: types.Context
  ) -> tuple[types.Draft, draft_model.State]:
    """Reads what is new, then drafts."""
    logits, cache = reading.catch_up(self.model, cache, context)
    left = reading.positions_left(self.model, context)
    limit = jnp.minimum(jnp.minimum(left, context.draft_length), self.length)
    depth = jnp.broadcast_to(
      jnp.arange(self.length)[None], (len(limit), self.length)
    )
    # One vector a token, drawn once: a pass may look at a token in vain.
    noise = context.noise(context.lengths[:, None] + depth, depth)
    progress = _Progress(
      text=context.tokens,
      laws=jnp.zeros_like(noise),
      count=jnp.zeros_like(limit),
      wants=limit > 0,
      history=context.history,
      cache=cache,
    )
    nothing = jnp.zeros((len(limit), 0), jnp.int32)
    logits = reading.fit(logits, context.noise.vocab)[:, None]
    progress = _draw(progress, nothing, logits, noise, limit, context)
    progress = jax.lax.while_loop(
      lambda progress: jnp.any(progress.wants),
      lambda progress: self._pass(progress, noise, limit, context),
      progress,
    )
    # Fed slots stay written but uncommitted: `observe` says which were kept.
    cache = progress.cache.replace(lengths=cache.lengths)
    at = context.lengths[:, None] + depth
    tokens = jnp.take_along_axis(
      progress.text, at, axis=1, mode="fill", fill_value=0
    )
    draft = tree.chain(tokens, progress.count, progress.laws)
    fed = jnp.maximum(draft.count - 1, 0)
    return draft, draft_model.State(cache, fed)

  def _pass(self, progress, noise, limit, context):
    """The newest token and what may follow it, in one pass of the model."""
    so_far = context.replace(
      tokens=progress.text, lengths=context.lengths + progress.count
    )
    copied, _, _ = self.lookup.propose(None, so_far)
    # A copy past the count is no guess: it equals nothing that is drawn.
    copies = jnp.where(tree.valid_nodes(copied), copied.tokens, -1)
    block = [so_far.last_token[:, None], copied.tokens]
    output = self.model(jnp.concatenate(block, axis=1), progress.cache)
    logits = reading.fit(output.logits, context.noise.vocab)
    before = progress.count
    progress = _draw(progress, copies, logits, noise, limit, context)
    # What was fed and is followed by a kept token is kept itself.
    cache = output.cache.commit(None, progress.count - before)
    return progress.replace(cache=cache)


def _draw(progress, copies, logits, noise, limit, context):
  """Keeps tokens while they are what was copied, and one more.

  Args:
    progress: so far.
    copies: [B, C] what was fed behind the newest token.
    logits: [B, C + 1, V] at these slots.
    noise: [B, T, V] by depth.
    limit: [B] depth wanted.
    context: of the round.
  """
  width = logits.shape[1]
  depth = progress.count[:, None] + jnp.arange(width)[None]
  history = _at_slots(progress.history, copies)
  laws = sampling.log_probs(logits, context.sampling, history)
  at = jnp.minimum(depth, noise.shape[1] - 1)[:, :, None]
  drawn = sampling.argmax(laws + jnp.take_along_axis(noise, at, axis=1))
  # Asked before the token exists, as in any rollout.
  own = jax.nn.log_softmax(logits)
  keep = [
    context.policy.keep_drafting(context.policy_state, own[:, i])
    for i in range(width)
  ]
  wanted = jnp.stack(keep, axis=1) & (depth < limit[:, None])
  followed = jnp.pad(
    copies == drawn[:, :-1], ((0, 0), (1, 0)), constant_values=True
  )
  kept = jnp.cumprod(wanted & followed, axis=1).astype(bool)
  kept = kept & progress.wants[:, None]
  count = jnp.sum(kept, axis=1, dtype=jnp.int32)
  write = jax.vmap(lambda x, i, new: x.at[i].set(new, mode="drop"))
  slots = progress.text.shape[1]
  place = jnp.where(kept, context.lengths[:, None] + depth, slots)
  if progress.history is not None:
    progress = progress.replace(history=progress.history.extend(drawn, kept))
  # A row goes on unless a token was unwanted: a wrong copy is no reason.
  refused = jnp.any(
    ~wanted & jnp.cumprod(followed, axis=1).astype(bool), axis=1
  )
  total = progress.count + count
  return progress.replace(
    text=write(progress.text, place, drawn),
    laws=write(progress.laws, jnp.where(kept, depth, noise.shape[1]), laws),
    count=total,
    wants=progress.wants & ~refused & (total < limit),
  )


def _at_slots(history, copies):
  """What the newest token has seen, and each of the copies behind it."""
  if history is None:
    return None
  block = jnp.maximum(jnp.pad(copies, ((0, 0), (1, 0))), 0)
  batch, width = block.shape
  seen = jnp.tril(jnp.ones((width, width), bool))
  return history.on_tree(block, jnp.broadcast_to(seen, (batch, width, width)))
