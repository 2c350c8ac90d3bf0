# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookahead decoding: the target's own parallel guesses feed an n-gram pool.

No draft model: the slots that a memory-bound pass has to spare guess ahead
(Jacobi iteration), and what they guess is kept as n-grams, of which those that
begin with the newest token are drafted (arXiv 2402.02057).

Window and n-grams are branches of one tree. With a window of 3 and n-grams of
4 tokens, a trunk of old guesses bears a chain at each node, one token younger
from level to level:

  root - a1 - a2 - a3            level 0, guessed longest ago
         |    |    |
         b1   b2   b3            level 1
         |    |    |
         c1   c2   c3            level 2; a pass adds d1, d2, d3 behind these

Then a1 b1 c1 d1 and so on are new n-grams, and level 1 becomes the trunk. Any
node may be accepted, a trunk that has converged as well as an n-gram.

Axis letters: B batch, T nodes, W = T + 1 slots, J levels, I window, N n-gram
size, P pool, V vocabulary.
"""

import dataclasses

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling, types
from specjax.trees import tree

_NONE = -1  # No guess yet.


class State(struct.PyTreeNode):
  """What was guessed."""

  window: jax.Array  # [B, J, I]
  pool: jax.Array  # [B, P, N] the newest last


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Lookahead:
  """Lookahead: guesses in spare slots become n-grams (arXiv 2402.02057).

  Trees have (ngram - 1) * (window + guesses) nodes. Guesses are the target's
  most likely tokens, whatever the temperature; tokens are taken as given, so
  every rule for trees stays exact.

  Attributes:
    window: I, positions guessed in parallel.
    ngram: N, tokens of an n-gram; at least 2.
    guesses: n-grams drafted in a round.
    pool: P, n-grams remembered for each row.
  """

  window: int
  ngram: int
  guesses: int
  pool: int = 128

  def __post_init__(self):
    least = {"window": 1, "ngram": 2, "guesses": 0}
    # A round adds as many n-grams as the window is wide, and drafts others.
    least["pool"] = max(self.window, self.guesses)
    for name, bound in least.items():
      if getattr(self, name) < bound:
        raise ValueError(
          f"lookahead {name} is {getattr(self, name)}: use {bound} or more"
        )

  @property
  def num_nodes(self) -> int:
    return (self.ngram - 1) * (self.window + self.guesses)

  @property
  def max_depth(self) -> int:
    return self.window + self.ngram - 2

  @property
  def _nodes(self) -> dict[tuple[int, ...], int]:
    """Place of each node, among levels of the window, then n-grams, by path."""
    levels = self.ngram - 1
    places = {}
    for level in range(levels):
      for i in range(self.window):
        # The last trunk node has no other child before its chain.
        turn = (0 if i == self.window - 1 else 1,)
        tail = (turn + (0,) * (level - 1)) if level else ()
        places[(0,) * (i + 1) + tail] = level * self.window + i
    for guess in range(self.guesses):
      for step in range(levels):
        place = levels * (self.window + guess) + step
        places[(guess + 1,) + (0,) * step] = place
    return places

  @property
  def _shape(self) -> tree.Shape:
    return tree.from_ranks(self._nodes)

  def init(self, batch: int, capacity: int) -> State:
    del capacity
    window = batch, self.ngram - 1, self.window
    return State(
      jnp.full(window, _NONE, jnp.int32),
      jnp.full((batch, self.pool, self.ngram), _NONE, jnp.int32),
    )

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Learns from the whole verify pass, mostly from what was not kept."""
    if view is None or view.draft.tokens.shape[1] < self.num_nodes:
      return state  # A prompt, or a round without room for the window.
    places = list(map(self._nodes.get, self._shape.paths))
    order = np.argsort(np.array(places))
    size = (self.ngram - 1) * self.window
    levels = view.draft.tokens[:, order[:size]].reshape(state.window.shape)
    last = order[size - self.window : size] + 1
    grown = sampling.argmax(view.output.logits[:, last])
    levels = jnp.concatenate([levels, grown[:, None]], axis=1)
    # Guesses for places that have been committed meanwhile fall out.
    ahead = jnp.maximum(block.count - 1, 0)[:, None]
    ahead = ahead + jnp.arange(self.window)[None]
    ahead = jnp.minimum(ahead, self.window - 1)[:, None]
    window = jnp.take_along_axis(levels[:, 1:], ahead, axis=2)
    new = jnp.swapaxes(levels, 1, 2)
    pool = jax.vmap(_remember)(state.pool, new)
    # A row that is done keeps what it has, whatever its neighbours do.
    ran = (block.count > 0)[:, None, None]
    return State(
      jnp.where(ran, window, state.window), jnp.where(ran, pool, state.pool)
    )

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A tree [B, T] without laws."""
    batch = len(context.lengths)
    # Before the first pass any tokens will do: some of the row's own.
    index = 7 * jnp.arange(state.window[0].size)[None]
    index = index % context.lengths[:, None]
    own = jnp.take_along_axis(context.tokens, index, axis=1)
    window = state.window.reshape(batch, -1)
    window = jnp.where(window == _NONE, own, window)
    guesses = jax.vmap(self._guesses)(state.pool, context.last_token)
    tokens = jnp.concatenate([window, guesses.reshape(batch, -1)], axis=1)
    shape = self._shape
    tokens = tokens[:, np.array(list(map(self._nodes.get, shape.paths)))]
    parents = jnp.broadcast_to(jnp.array(shape.parents), tokens.shape)
    count = jnp.full((batch,), self.num_nodes)
    draft = types.Draft(tokens, parents, None, count, self.max_depth)
    return draft, state, context.cache

  def _guesses(self, pool: jax.Array, root: jax.Array) -> jax.Array:
    """What follows `root` in the newest n-grams that begin with it [G, N-1].

    Too few are filled up with id 0: nodes that cost nothing more to refuse.
    """
    found = jnp.where(pool[:, 0] == root, jnp.arange(self.pool), _NONE)
    newest = jnp.sort(found)[::-1][: self.guesses]
    return jnp.where((newest != _NONE)[:, None], pool[newest, 1:], 0)


def _remember(pool: jax.Array, new: jax.Array) -> jax.Array:
  """The pool [P, N] with new n-grams [I, N] at its end, none of them twice."""
  everything = jnp.concatenate([pool, new])
  same = jnp.all(everything[:, None] == everything[None], axis=-1)
  index = jnp.arange(len(everything))
  again = jnp.any(same & (index[:, None] < index[None]), axis=1)
  kept = jnp.where(again[:, None], _NONE, everything)
  # Holes move to the front, from where the oldest fall out.
  order = jnp.argsort(jnp.where(kept[:, 0] == _NONE, -1, index))
  return kept[order][-len(pool) :]
