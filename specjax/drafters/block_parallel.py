# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Block-parallel drafting: one pass for the whole draft (`models.block_heads`).

The law of each token is given by the text alone, not by the tokens drafted
before it; these laws are what log_q holds.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.drafters import rollout
from specjax.models.heads import block_heads, saved_heads
from specjax.trees import branching, plans


def block_parallel(
  target: types.Model,
  heads: str,
  length: int | None = None,
  tree: tuple = (),
  nodes: int = 0,
  width: int = 10,
  branch: int = 10,
  beta: float = 1.0,
  siblings: str = plans.DISTINCT,
) -> "BlockParallel":
  """A `BlockParallel` from a folder with a head.

  Args:
    target: the model that the head was trained for.
    heads: a folder that `saved_heads.save` wrote.
    length: depth of the draft; None is one for each mask of the training.
    tree: paths or widths of a fixed tree; () is a chain.
    nodes: of a tree that grows with its certainty; 0 is none.
    width: nodes that such a tree expands a level.
    branch: children of each.
    beta: see `plans.Static`.
    siblings: the same: "distinct", or "independent" for rules that need it.

  Raises:
    ValueError: a head of another target, damaged, or with too few masks.
    FileNotFoundError: there is no such folder.
  """
  head = saved_heads.load(heads, target, block_heads.BlockHead)
  depth = head.config.num_masks if length is None else length
  ranks = head.num_drafted(target)
  wanted = branching.plan(
    depth, tree, nodes, width, branch, beta, ranks, siblings
  )
  return BlockParallel(head, target, wanted)


class State(struct.PyTreeNode):
  """The head's cache: a slot for each token but the newest."""

  cache: types.KVCache
  started: jax.Array  # [B] bool: the first token has passed


class BlockParallel(struct.PyTreeNode):
  """The whole draft in one pass, from the target's features.

  Attributes:
    head: its decoder layers.
    target: embeds the root, and its output matrix may be the head's too;
      shared, not copied.
    plan: of the draft, at most as deep as the head has masks.
  """

  head: block_heads.BlockHead
  target: types.Model
  plan: plans.Plan = struct.field(pytree_node=False)

  def __post_init__(self):
    branching.check_depth(self.plan, self.head.config.num_masks, "masks")

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
    # A block is as long as the draft is deep, never longer than its nodes.
    cache = self.head.init_cache(batch, capacity)
    return State(cache, jnp.zeros((batch,), bool))

  def observe(
    self, state: State, block: types.Block, view: types.View | None
  ) -> State:
    """Reads features; a block holds those of the tokens before its own."""
    del view
    # A fresh row's first block is its first token, with a feature of nothing.
    count = jnp.where(state.started, block.count, 0)
    cache = self.head.read(block, state.cache).commit(None, count)
    return State(cache, state.started | (block.count > 0))

  def propose(
    self, state: State, context: types.Context
  ) -> tuple[types.Draft, State, types.KVCache]:
    """A draft with its laws; free when no row wants one."""

    def draw(cache):
      logits, cache = self.head(
        context.last_token, self.max_depth, cache, self.target
      )
      draft, _ = branching.draft(
        self.plan,
        branching.parallel(logits),
        jnp.int32(1),
        logits[:, 0],
        jnp.full_like(context.lengths, self.max_depth),
        context,
        sharding.rules_of(self.target),
      )
      return draft, cache

    draft, cache = rollout.when_wanted(draw, state.cache, context)
    return draft, state.replace(cache=cache), context.cache
