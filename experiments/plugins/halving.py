# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A policy: half as many tokens after a rejection, one more after none.

Axis letter: B batch.
"""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types


class Halving(struct.PyTreeNode):
  """Draft lengths from 1 to `most`, by what the last round kept.

  Attributes:
    most: the longest draft.
    first: the first one.
    widths: rounds of so few tokens run in a narrower program.
  """

  most: int = struct.field(pytree_node=False)
  first: int = struct.field(pytree_node=False)
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=(1,))

  @classmethod
  def for_drafter(cls, drafter: types.Drafter, first: int = 2) -> "Halving":
    if not 1 <= first <= drafter.max_depth:
      raise ValueError(
        f"first is {first}: use 1 to the drafter's {drafter.max_depth}"
      )
    return cls(drafter.max_depth, first)

  def init(self, batch: int) -> jax.Array:
    return jnp.full((batch,), self.first, jnp.int32)

  def draft_length(self, state: jax.Array) -> jax.Array:
    return state

  def keep_drafting(self, state: jax.Array, law: jax.Array) -> jax.Array:
    del law
    return jnp.ones(state.shape, bool)

  def update(
    self,
    state: jax.Array,
    acceptance: types.Acceptance,
    draft_length: jax.Array,
  ) -> jax.Array:
    """Rounds that drafted less than was wanted say nothing of the length."""
    kept_all = (draft_length > 0) & (acceptance.accepted == draft_length)
    longer = jnp.minimum(state + kept_all, self.most)
    return jnp.where(acceptance.rejected, jnp.maximum(state // 2, 1), longer)
