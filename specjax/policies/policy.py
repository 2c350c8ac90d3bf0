# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: how many tokens to draft in the next round.

  Fixed        the same length in every round
  Heuristic    two more after a round that kept all, one less after a rejection
  Confidence   up to a length, while the drafter is sure of its next token
  Entropy      up to a length, while its next token is likely to be kept

Policies that weigh what was kept against what a round costs, and that turn
drafting off and on again, stand in `gain`.

A policy decides for each row alone. It never sees the drawn token of the
position it decides on, and no clock, so that it cannot bend the output law of
any rule. Its settings are leaves: other values run in the same program.

Widths. A round runs in the narrowest compiled program that holds its draft, so
`widths` says what a short draft costs. (1,), the default, keeps to blocks of
two rows or more, whose arithmetic is the same for all. With 0 among them, a
round that drafts nothing costs what plain decoding costs; but a single row may
be added up in another order, so that a batch of one prompt equals plain
decoding up to a margin then. Trees pass over node counts from 2 to their depth.

Axis letters: B batch, V vocabulary.
"""

from collections.abc import Sequence
import math
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types

MOST_WIDTHS = 3


def check_widths(widths: Sequence[int]) -> None:
  """Refuses more programs than are worth their compilation.

  Raises:
    ValueError: a negative width, or more of them than `MOST_WIDTHS` with the
      drafter's own.
  """
  if len(set(widths)) >= MOST_WIDTHS or min(widths, default=0) < 0:
    raise ValueError(
      f"widths {tuple(widths)}: a policy takes at most {MOST_WIDTHS - 1} node "
      "counts of 0 or more, beside the drafter's own"
    )


def check_number(name: str, value: Any, least: float, most: float) -> None:
  """Refuses a setting out of range.

  Inside a trace its value is unknown, and was checked outside.

  Raises:
    ValueError: one line that names it.
  """
  if isinstance(value, int | float) and not least <= value <= most:
    raise ValueError(f"{name} is {value}: use {least} to {most}")


def depth(drafter: types.Drafter, length: int) -> int:
  """The draft length that `length` means; -1 is as many as the drafter can.

  Raises:
    ValueError: the drafter never drafts that many.
  """
  if length > drafter.max_depth:
    raise ValueError(
      f"length is {length} but its drafter drafts {drafter.max_depth} tokens "
      "at most: make them equal"
    )
  return drafter.max_depth if length == -1 else length


def fixed(
  drafter: types.Drafter, length: int = -1, widths: tuple[int, ...] = (1,)
) -> "Fixed":
  """`Fixed` for a drafter; length -1 drafts as many as it can.

  Raises:
    ValueError: the drafter never drafts that many.
  """
  return Fixed(depth(drafter, length), widths)


def heuristic(
  drafter: types.Drafter, first: int = 5, widths: tuple[int, ...] = (1,)
) -> "Heuristic":
  """`Heuristic` up to what the drafter can, and from there if that is less."""
  return Heuristic(drafter.max_depth, min(first, drafter.max_depth), widths)


def confidence(
  drafter: types.Drafter,
  length: int = -1,
  least: float = 0.4,
  widths: tuple[int, ...] = (1,),
) -> "Confidence":
  """`Confidence` for a drafter; length -1 drafts as many as it can."""
  return Confidence(depth(drafter, length), widths, least)


def entropy(
  drafter: types.Drafter,
  length: int = -1,
  least: float = 0.3,
  scale: float = 0.2,
  widths: tuple[int, ...] = (1,),
) -> "Entropy":
  """`Entropy` for a drafter; length -1 drafts as many as it can."""
  return Entropy(depth(drafter, length), widths, least, scale)


class LengthAlone(struct.PyTreeNode):
  """Draws as many as `draft_length` says, whatever the drafter believes."""

  def keep_drafting(self, state: Any, law: jax.Array) -> jax.Array:
    del state
    return jnp.ones(law.shape[:1], bool)


class Fixed(LengthAlone):
  """The same draft length in every round; 0 is plain decoding.

  Attributes:
    length: tokens to draft, or one number a row; a leaf, so that one trace
      serves all lengths.
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
    return jnp.broadcast_to(jnp.asarray(self.length, jnp.int32), (batch,))

  def draft_length(self, state: jax.Array) -> jax.Array:
    return state

  def update(
    self, state: Any, acceptance: types.Acceptance, draft_length: jax.Array
  ) -> Any:
    del acceptance, draft_length
    return state


class Heuristic(LengthAlone):
  """Two tokens more after a round that kept all, one less after a rejection.

  It never goes below one token, so it does not turn drafting off; a round that
  found nothing to draft says nothing.

  Attributes:
    most: the longest draft.
    first: the first one.
    widths: rounds of so few tokens run in a narrower program.
  """

  most: int | jax.Array
  first: int | jax.Array
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=(1,))

  def __post_init__(self):
    if isinstance(self.most, int):
      # Of a drafter that drafts nothing, every policy is plain decoding.
      check_number("first", self.first, min(1, self.most), self.most)

  def init(self, batch: int) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(self.first, jnp.int32), (batch,))

  def draft_length(self, state: jax.Array) -> jax.Array:
    return state

  def update(
    self,
    state: jax.Array,
    acceptance: types.Acceptance,
    draft_length: jax.Array,
  ) -> jax.Array:
    """A round cut short by a stop, or by the drafter, changes nothing."""
    kept_all = (draft_length > 0) & (acceptance.accepted >= draft_length)
    longer = jnp.where(kept_all, state + 2, state)
    return jnp.clip(
      jnp.where(acceptance.rejected, state - 1, longer), 1, self.most
    )


class Confidence(Fixed):
  """Drafts while its likeliest next token is sure; `fixed` without laws.

  The law is asked before its token is drawn, and the one that is not drafted
  any more was never drawn: no rule is bent. A drafter that has no law to ask,
  as those that look text up, drafts `length` tokens.

  Attributes:
    least: the probability, from 0 (never stops) to 1.
  """

  least: float | jax.Array = 0.4

  def __post_init__(self):
    super().__post_init__()
    check_number("least", self.least, 0, 1)

  def keep_drafting(self, state: Any, law: jax.Array) -> jax.Array:
    del state
    return jnp.max(law, axis=-1) >= jnp.log(self.least)


class Entropy(Fixed):
  """Drafts while a token is likely to be kept; `fixed` without laws.

  It stops where a bound on that chance falls below `least`. The bound
  1 - sqrt(scale * entropy) of the drafter's law, in nats, is that of AdaEDL
  (arXiv 2410.18351). See `Confidence` for drafters that have no law.

  Attributes:
    least: of the bound, below 1; the first law under it ends the draft.
    scale: of the entropy; larger stops earlier.
  """

  least: float | jax.Array = 0.3
  scale: float | jax.Array = 0.2

  def __post_init__(self):
    super().__post_init__()
    check_number("least", self.least, -math.inf, 1)
    check_number("scale", self.scale, 0, math.inf)

  def keep_drafting(self, state: Any, law: jax.Array) -> jax.Array:
    del state
    # 0 log 0 is 0, and the law of a masked vocabulary has many of them.
    terms = jnp.where(jnp.isfinite(law), jnp.exp(law) * law, 0)
    surprise = -jnp.sum(terms, axis=-1)
    return 1 - jnp.sqrt(self.scale * surprise) >= self.least
