# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: how many tokens to draft in the next round.

A policy never sees the drawn token of the position it decides on, and no
clock, so that it cannot bend the output law of any rule.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types


def fixed(drafter: types.Drafter, length: int = -1) -> "Fixed":
  """`Fixed` for a drafter; length -1 drafts as many as it can.

  Raises:
    ValueError: the drafter never drafts that many.
  """
  if length > drafter.max_depth:
    raise ValueError(
      f"length is {length} but its drafter drafts {drafter.max_depth} tokens "
      "at most: make them equal"
    )
  return Fixed(drafter.max_depth if length == -1 else length)


class Fixed(struct.PyTreeNode):
  """The same draft length in every round; 0 is plain decoding.

  Attributes:
    length: tokens to draft; a leaf, so that one trace serves all lengths.
    widths: drafts of at most so many tokens run in a narrower program. The
      default is one node: a block of two rows is nearly as cheap as one, and
      its arithmetic is that of wider blocks.
  """

  length: int | jax.Array
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=(1,))

  def __post_init__(self):
    # Inside a trace the value is unknown, and was checked outside.
    if isinstance(self.length, int | np.integer) and self.length < 0:
      raise ValueError(
        f"draft length {self.length} is negative: use 0 for plain decoding "
        "or a positive number of tokens"
      )

  def init(self, batch: int) -> jax.Array:
    return jnp.full((batch,), self.length, jnp.int32)

  def draft_length(self, state: jax.Array) -> jax.Array:
    return state

  def keep_drafting(self, state: jax.Array, law: jax.Array) -> jax.Array:
    del law
    return jnp.ones(state.shape, bool)

  def update(
    self, state: Any, acceptance: types.Acceptance, draft_length: jax.Array
  ) -> Any:
    del acceptance, draft_length
    return state
