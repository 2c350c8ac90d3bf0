# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: how many tokens to draft in the next round.

A policy never sees the drawn token of the position it decides on, and no
clock, so that it cannot bend the output law of any rule.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax import types


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Fixed:
  """The same draft length in every round; 0 is plain decoding."""

  length: int

  def __post_init__(self):
    if self.length < 0:
      raise ValueError(
        f"draft length {self.length} is negative: use 0 for plain decoding "
        "or a positive number of tokens"
      )

  def init(self, batch: int) -> jax.Array:
    # A leaf, so that one trace serves other lengths of the same batch.
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
