# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small independent model that drafts trees.

Axis letters: B batch, T drafted nodes, U fed nodes, P path length,
V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.drafters import reading, rollout
from specjax.trees import growth, plans
from specjax.trees import tree as tree_lib


class State(struct.PyTreeNode):
  """The draft model's cache, and where each node of the draft was fed."""

  cache: types.KVCache
  fed: jax.Array  # [B, T] int32 slot past the cache's lengths; U is none


class TreeDraftModel(struct.PyTreeNode):
  """Drafts trees; otherwise a `draft_model.DraftModel`.

  A level is one pass of the model, in which every node sees its ancestors among
  the levels before. What was accepted moves together in the model's own cache.

  Attributes:
    model: the draft model; its parameters are leaves.
    plan: static or dynamic, see `plans.py`.
  """

  model: types.Model
  plan: plans.Plan = struct.field(pytree_node=False)

  @property
  def independent_siblings(self) -> bool:
    """What some rules need; see `plans.Static`."""
    return self.plan.siblings == plans.INDEPENDENT

  @property
  def models(self) -> tuple[types.Model, ...]:
    """What must know the target's tokens and lie where it lies."""
    return (self.model,)

  @property
  def num_nodes(self) -> int:
    return self.plan.num_nodes

  @property
  def max_depth(self) -> int:
    return self.plan.max_depth

  def init(self, batch: int, capacity: int) -> State:
    slots = capacity + plans.places(self.plan)
    cache = self.model.init_cache(batch, slots, reading.CATCH_UP)
    return State(cache, self._nowhere(batch))

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Keeps the accepted tokens' keys, as far as they were fed."""
    if view is None:
      return state
    nodes = view.acceptance.path[:, 1:] - 1
    fed = jnp.take_along_axis(state.fed, jnp.maximum(nodes, 0), axis=1)
    nowhere = self._nowhere(len(fed))
    # Of the tokens emitted the newest is not among those to keep.
    kept = jnp.arange(nodes.shape[1])[None] < block.count[:, None] - 1
    kept = kept & (fed < nowhere[:, :1])
    count = jnp.sum(jnp.cumprod(kept, axis=1), axis=1)
    return State(state.cache.commit(fed, count), nowhere)

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A tree of T nodes; free when no row wants a draft."""
    draft, state = rollout.when_wanted(
      lambda state: self._draft(state.cache, context), state, context
    )
    return draft, state, context.cache

  def _draft(
    self, cache: types.KVCache, context: types.Context
  ) -> tuple[types.Draft, State]:
    logits, cache = reading.catch_up(self.model, cache, context)
    lengths, vocab = cache.lengths, context.noise.vocab

    def expand(cache, level):
      # The levels before stand behind the committed slots.
      before = cache.replace(lengths=lengths + level.first - 1)
      output = self.model(level.tokens, before, *level.recent(lengths))
      cache = output.cache.replace(lengths=lengths)
      return reading.fit(output.logits, vocab), cache

    draft, fed, cache = growth.grow(
      self.plan,
      expand,
      cache,
      reading.fit(logits, vocab),
      reading.positions_left(self.model, context),
      context,
      sharding.rules_of(self.model),
    )
    return draft, State(cache, fed)

  def _nowhere(self, batch):
    """[B, T]: no node was fed."""
    none = plans.places(self.plan) - 1
    return jnp.full((batch, self.num_nodes), none, jnp.int32)


def static_tree(
  model: types.Model,
  tree: Sequence[Any],
  beta: float = 1.0,
  siblings: str = plans.DISTINCT,
) -> TreeDraftModel:
  """A draft model that drafts one tree in all rounds.

  Args:
    model: the draft model.
    tree: widths of its levels as in [4, 2, 1], or its paths of ranks.
    beta: see `plans.Static`.
    siblings: the same: "distinct", or "independent" for rules that need it.

  Raises:
    ValueError: it is no tree, or asks for more ranks than there are tokens.
  """
  shape = tree_lib.from_config(tree)
  shape.check(shape.depth, model.num_tokens)
  return TreeDraftModel(model, plans.Static(shape, beta, siblings))


def dynamic_tree(
  model: types.Model,
  depth: int,
  width: int,
  branch: int,
  nodes: int,
  beta: float = 1.0,
) -> TreeDraftModel:
  """A draft model whose trees follow its own certainty (arXiv 2406.16858).

  See `plans.Dynamic`.

  Raises:
    ValueError: there is no such tree.
  """
  if branch > model.num_tokens:
    raise ValueError(
      f"tree branch {branch} is more than the {model.num_tokens} tokens of the "
      "draft model: use less"
    )
  return TreeDraftModel(model, plans.Dynamic(depth, width, branch, nodes, beta))
