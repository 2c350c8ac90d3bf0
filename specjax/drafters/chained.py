# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chained heads: Hydra, recurrent and MLP cells (see `models.chained_heads`).

Axis letters: B batch, T drafted tokens, D model width, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import sharding, types
from specjax.drafters import rollout
from specjax.models.heads import chained_heads, saved_heads
from specjax.trees import branching, plans


def chained(
  target: types.Model,
  heads: str,
  length: int | None = None,
  tree: tuple = (),
  nodes: int = 0,
  width: int = 10,
  branch: int = 10,
  beta: float = 1.0,
  siblings: str = plans.DISTINCT,
) -> "Chained":
  """A `Chained` from a folder of heads.

  Args:
    target: the model that the heads were trained for.
    heads: a folder that `saved_heads.save` wrote.
    length: depth of the draft; None is one for each head.
    tree: paths or widths of a fixed tree; () is a chain.
    nodes: of a tree that grows with its certainty; 0 is none.
    width: nodes that such a tree expands a level.
    branch: children of each.
    beta: see `plans.Static`.
    siblings: the same: "distinct", or "independent" for rules that need it.

  Raises:
    ValueError: heads of another target, damaged, or too few for the draft.
    FileNotFoundError: there is no such folder.
  """
  loaded = saved_heads.load(heads, target, chained_heads.ChainedHeads)
  depth = loaded.config.num_heads if length is None else length
  ranks = loaded.num_drafted(target)
  wanted = branching.plan(
    depth, tree, nodes, width, branch, beta, ranks, siblings
  )
  return Chained(loaded, target, wanted)


class Chained(struct.PyTreeNode):
  """Hydra, recurrent and MLP heads: each token knows those before it.

  Attributes:
    heads: K steps.
    target: embeds tokens, and its output matrix may be the heads' too; shared,
      not copied.
    plan: of the draft, at most K deep.
  """

  heads: chained_heads.ChainedHeads
  target: types.Model
  plan: plans.Plan = struct.field(pytree_node=False)

  def __post_init__(self):
    branching.check_depth(
      self.plan, self.heads.config.num_heads, "chained heads"
    )

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

  def init(self, batch: int, capacity: int) -> jax.Array:
    """[B, D] the hidden state that predicted the newest token."""
    del capacity
    width = self.heads.config.embed_dim
    return jnp.zeros((batch, width), self.heads.dtype)

  def observe(
    self, state: jax.Array, block: types.Block, view: types.View | None
  ) -> jax.Array:
    del view
    return rollout.newest(state, block.hidden, block.count)

  def propose(
    self, state: jax.Array, context: types.Context
  ) -> tuple[types.Draft, jax.Array, types.KVCache]:
    """A draft with its laws; free when no row wants one."""

    def expand(carry, level):
      i, kept = carry
      known = branching.at_parents(kept, level)
      logits, known = self.heads.step(i, known, level.tokens, self.target)
      return logits, (i + 1, branching.keep(kept, known, level))

    def draw(state):
      known = self.heads.start(state)
      logits, known = self.heads.step(
        jnp.int32(0), known, context.last_token, self.target
      )
      draft, _ = branching.draft(
        self.plan,
        expand,
        (jnp.int32(1), branching.places_of(known, self.plan)),
        logits,
        jnp.full_like(context.lengths, self.max_depth),
        context,
        sharding.rules_of(self.target),
      )
      return draft, state

    draft, state = rollout.when_wanted(draw, state, context)
    return draft, state, context.cache
