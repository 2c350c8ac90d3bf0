# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pool of a growing tree: every child that any expanded node was given.

`plans.py` explains how nodes of the pool, places and levels are numbered.

Axis letters: B batch, F nodes of a level (1 for the root), K children,
E expanded places, U = E - 1 fed slots, N pool, T drafted nodes, V vocabulary.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types
from specjax.trees import plans


class Level(struct.PyTreeNode):
  """Nodes of one depth that are expanded: what a drafter feeds its model.

  Attributes:
    tokens: the nodes; those of a row that has fewer are 0.
    parents: expanded place of each node's parent; 0 is the root.
    ancestors: expanded places that each node descends from, or is itself.
    first: place of the first node; the others follow.
  """

  tokens: jax.Array  # [B, F] int32
  parents: jax.Array  # [B, F] int32
  ancestors: jax.Array  # [B, F, E] bool
  first: jax.Array  # [] int32

  @property
  def places(self) -> jax.Array:
    """[F] of the nodes."""
    return self.first + jnp.arange(self.tokens.shape[1])

  def recent(self, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions [B, U] and mask [B, F, U] that a `types.Model` needs.

    Args:
      lengths: [B] of a cache that holds the root last; behind it stand the
        nodes fed so far, in order of their places.
    """
    nodes = self.tokens.shape[1]
    fed = self.ancestors.shape[2] - 1
    # The last U slots end with this level; at first they hold the text too.
    place = jnp.arange(fed) + self.first + nodes - fed
    is_fed = place > 0
    # Nodes of one level share the position behind their parents'.
    offset = jnp.where(is_fed, (place - 1) // nodes, place - 1)
    seen = jnp.take(self.ancestors, jnp.maximum(place, 0), axis=2)
    return lengths[:, None] + offset[None], seen | ~is_fed[None, None]


class Pool(struct.PyTreeNode):
  """The pool, and what was expanded of it."""

  tokens: jax.Array  # [B, N] int32
  scores: jax.Array  # [B, N] float32
  expanded: jax.Array  # [B, E] int32 node of the pool at each place
  block: jax.Array  # [B, E] int32 its token
  ancestors: jax.Array  # [B, E, E] bool
  laws: jax.Array  # [B, E, V] float32 of each place's children
  depth: jax.Array  # [B] int32 levels there are
  wants: jax.Array  # [B] bool


def start(
  plan: plans.Plan, tokens: jax.Array, vocab: int
) -> tuple[Pool, Level]:
  """A pool without nodes, and the level of the root [B, 1]."""
  batch, places = len(tokens), plans.places(plan)
  size = places * plan.branch
  zeros = jnp.zeros((batch, places), jnp.int32)
  ancestors = jnp.zeros((batch, places, places), bool).at[:, 0, 0].set(True)
  pool = Pool(
    tokens=jnp.zeros((batch, size), jnp.int32),
    scores=jnp.full((batch, size), -jnp.inf),
    expanded=zeros + size,
    block=zeros.at[:, :1].set(tokens),
    ancestors=ancestors,
    laws=jnp.zeros((batch, places, vocab)),
    depth=jnp.zeros((batch,), jnp.int32),
    wants=jnp.ones((batch,), bool),
  )
  return pool, Level(tokens, zeros[:, :1], ancestors[:, :1], jnp.int32(0))


def expand(
  plan: plans.Plan, pool: Pool, chosen: jax.Array, depth: jax.Array
) -> tuple[Pool, Level]:
  """Gives the nodes that a plan has chosen their places."""
  tokens = take(pool.tokens, chosen, 0)
  parents = jnp.minimum(chosen // plan.branch, plans.places(plan) - 1)
  first = 1 + (depth - 1) * plan.width
  places = first + jnp.arange(plan.width)
  own = places[:, None] == jnp.arange(plans.places(plan))[None]
  above = jnp.take_along_axis(pool.ancestors, parents[..., None], axis=1)
  level = Level(tokens, parents, above | own[None], first)
  pool = pool.replace(
    expanded=put(pool.expanded, chosen, first),
    block=put(pool.block, tokens, first),
    ancestors=put(pool.ancestors, level.ancestors, first),
  )
  return pool, level


def draft(plan: plans.Plan, pool: Pool) -> tuple[types.Draft, jax.Array]:
  """The drafted nodes, and the fed slot [B, T] of each; U of those never fed.

  Laws are told of nodes that were drawn.
  """
  nodes, count = plan.drafted(pool.scores, pool.depth)
  places = plans.places(plan)
  above = jnp.minimum(nodes // plan.branch, places - 1)
  parent = jnp.take_along_axis(pool.expanded, above, axis=1)
  is_parent = nodes[:, None, :] == parent[:, :, None]
  slot = 1 + jnp.argmax(is_parent, axis=-1)
  # A place without node stands for none, and so do slots that are not valid.
  below = (above > 0) & (nodes < pool.tokens.shape[1])
  tokens = take(pool.tokens, nodes, 0)
  made = types.Draft(
    tokens=tokens,
    parents=jnp.where(below, slot, 0),
    log_q=_laws(plan, pool, nodes, tokens),
    count=count,
    max_depth=plan.max_depth,
  )
  was_fed = pool.expanded[:, None, 1:] == nodes[:, :, None]
  slots = jnp.arange(places - 1)[None, None]
  fed = jnp.where(was_fed, slots, places - 1)
  return made, jnp.min(fed, axis=-1, initial=places - 1)


def _laws(plan, pool, nodes, tokens):
  """[B, T, V]: each node's law, given its parent and its earlier siblings.

  None where the best were taken, which are no draws.
  """
  if plan.siblings == plans.BEST:
    return None
  above, rank = nodes // plan.branch, nodes % plan.branch
  law = jnp.take_along_axis(pool.laws, above[..., None], axis=1)
  if plan.siblings == plans.INDEPENDENT:
    return law
  order = jnp.arange(plan.branch)[None, None]
  siblings = above[..., None] * plan.branch + order
  earlier = take(pool.tokens, siblings.reshape(len(nodes), -1), 0)
  earlier = earlier.reshape(siblings.shape)
  vocab = law.shape[-1]
  drawn = jnp.where(order < rank[..., None], earlier, vocab)
  remove = jax.vmap(jax.vmap(lambda x, i: x.at[i].set(-jnp.inf, mode="drop")))
  rest = remove(law, drawn)
  # Nothing is left of a law that its earlier siblings use up: taken as given.
  given = jnp.where(jax.nn.one_hot(tokens, vocab, dtype=bool), 0.0, -jnp.inf)
  is_empty = jnp.max(rest, axis=-1, keepdims=True) == -jnp.inf
  rest = jnp.where(is_empty, given, jax.nn.log_softmax(rest))
  return jnp.where(rank[..., None] == 0, law, rest)


def take(x: jax.Array, index: jax.Array, fill: float) -> jax.Array:
  """x [B, N] at index [B, F]; past the end `fill`."""
  return jnp.take_along_axis(x, index, axis=1, mode="fill", fill_value=fill)


def put(x: jax.Array, new: jax.Array, first: jax.Array) -> jax.Array:
  """Writes new [B, F, ...] into x [B, E, ...] from `first` on."""
  return jax.lax.dynamic_update_slice_in_dim(x, new.astype(x.dtype), first, 1)
