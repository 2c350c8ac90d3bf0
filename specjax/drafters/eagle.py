# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""EAGLE-1, EAGLE-3 and multi-token prediction (see `models.eagle_heads`).

Axis letters: B batch, T drafted tokens, D width of the head, V vocabulary.
"""

import functools

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.drafters import rollout
from specjax.drafters import unread as unread_lib
from specjax.models.heads import eagle_files, eagle_heads
from specjax.models.heads import head as heads_lib
from specjax.trees import branching, plans


def eagle(
  target: types.Model,
  heads: str,
  length: int,
  tree: tuple = (),
  nodes: int = 0,
  width: int = 10,
  branch: int = 10,
  beta: float = 1.0,
  siblings: str = plans.DISTINCT,
  feature_layers: tuple = (),
) -> "Eagle":
  """An `Eagle` from a folder with a head.

  Args:
    target: the model that the head was trained for.
    heads: a local folder or hf:owner/name@revision, with an EAGLE-3 head in the
      Hugging Face layout or what `saved_heads.save` wrote.
    length: depth of the draft.
    tree: paths or widths of a fixed tree; () is a chain.
    nodes: of a tree that grows with its certainty; 0 is none.
    width: nodes that such a tree expands a level.
    branch: children of each.
    beta: see `plans.Static`.
    siblings: the same: "distinct", or "independent" for rules that need it.
    feature_layers: the target's layers that an EAGLE-3 head reads, from 0; ()
      is what its config.json says, else the second, the one before the middle
      and the fourth from the end.

  Raises:
    ValueError: a head of another target, or damaged, or of a reduced vocabulary
      without its map.
    FileNotFoundError: there is no such folder.
  """
  head = eagle_files.load(heads, target, tuple(feature_layers))
  ranks = head.num_drafted(target)
  wanted = branching.plan(
    length, tree, nodes, width, branch, beta, ranks, siblings
  )
  return Eagle(head, target, wanted)


class State(struct.PyTreeNode):
  """The head's cache, what it gave last, and what it has yet to read.

  The first committed token has no feature and is no pair, so cache and `unread`
  hold one less than there are tokens.
  """

  cache: types.KVCache
  feature: jax.Array  # [B, D] of the newest pair that was read
  unread: unread_lib.Unread
  started: jax.Array  # [B] bool: the first token has passed


class Eagle(struct.PyTreeNode):
  """EAGLE-1, EAGLE-3, multi-token prediction: from the target's features.

  Attributes:
    head: one decoder layer.
    target: embeds tokens, and its output matrix may be the head's too; shared,
      not copied.
    plan: of the draft.
  """

  head: eagle_heads.EagleHead
  target: types.Model
  plan: plans.Plan = struct.field(pytree_node=False)

  @property
  def feature_layers(self) -> tuple[int, ...]:
    """What `Output.features` of the target must hold."""
    return self.head.config.feature_layers

  @property
  def independent_siblings(self) -> bool:
    """What some rules need; see `plans.Static`."""
    return self.plan.siblings == plans.INDEPENDENT

  @property
  def num_nodes(self) -> int:
    return self.plan.num_nodes

  @property
  def max_depth(self) -> int:
    return self.plan.max_depth

  def init(self, batch: int, capacity: int) -> State:
    config = self.head.config
    return State(
      self.head.init_cache(batch, capacity + plans.places(self.plan)),
      jnp.zeros((batch, config.layer.embed_dim), self.head.dtype),
      unread_lib.init(batch, config.feature_dim, self.head.dtype),
      jnp.zeros((batch,), bool),
    )

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Takes committed pairs, each token with the feature that predicted it.

    Few of them wait until a draft is wanted: while a policy drafts nothing, the
    head costs nothing.
    """
    del view
    # A fresh row's first block is its first token alone.
    count = jnp.where(state.started, block.count, 0)
    features = heads_lib.features_of(block, self.feature_layers)
    state = state.replace(started=state.started | (block.count > 0))
    everything = functools.partial(self._read_waiting, unread_lib.SLOTS)
    if unread_lib.is_long(block.tokens):
      waits = jnp.any(state.unread.count > 0)
      state = rollout.once(waits, everything, state)
      return self._read(state, block.tokens, features, count)
    later = state.unread.add(block.tokens, features, count)
    return rollout.once(
      later.is_full(), everything, state.replace(unread=later)
    )

  def _caught_up(self, state: State) -> State:
    """Reads what waits, in one pass as wide as that may be."""
    # What a round leaves, where every round drafts.
    few = min(self.max_depth + 1, unread_lib.SLOTS)
    most = jnp.max(state.unread.count)
    for width, wanted in (
      (unread_lib.SLOTS, most > few),
      (few, (most > 0) & (most <= few)),
    ):
      read = functools.partial(self._read_waiting, width)
      state = rollout.once(wanted, read, state)
    return state

  def _read_waiting(self, width: int, state: State) -> State:
    """Reads what waits, at most `width` pairs a row."""
    waits = state.unread.first(width)
    state = self._read(state, waits.tokens, waits.features, waits.count)
    return state.replace(unread=state.unread.none())

  def _read(self, state, tokens, features, count) -> State:
    projected = self.head.project(features)
    given, cache = self.head(tokens, projected, state.cache, self.target)
    return state.replace(
      cache=cache.commit(None, count),
      feature=rollout.newest(state.feature, given, count),
    )

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A draft with its laws; free when no row wants one."""

    def draw(state):
      state = self._caught_up(state)
      lengths = state.cache.lengths

      def expand(carry, level):
        cache, kept = carry
        given, cache = self.head(
          level.tokens,
          branching.at_parents(kept, level),
          # The levels before stand behind the committed pairs.
          cache.replace(lengths=lengths + level.first - 1),
          self.target,
          *level.recent(lengths),
        )
        kept = branching.keep(kept, given, level)
        return self.head.logits(given, self.target), (cache, kept)

      draft, (cache, _) = branching.draft(
        self.plan,
        expand,
        (state.cache, branching.places_of(state.feature, self.plan)),
        self.head.logits(state.feature, self.target),
        jnp.where(lengths > 0, self.max_depth, 0),
        context,
        sharding.rules_of(self.target),
      )
      # Drafted pairs stay uncommitted: real features will take their place.
      return draft, state.replace(cache=cache.replace(lengths=lengths))

    draft, state = rollout.when_wanted(draw, state, context)
    return draft, state, context.cache
