# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A policy for each drafter of a cascade.

Drafters differ in what a draft costs and in how much of it is kept, so what one
of them showed is no evidence about another.

Axis letters: B batch, V vocabulary.
"""

import functools
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types


class Parts(struct.PyTreeNode):
  """As many policies as a drafter has parts, in their order.

  A round is evidence about the part that drafted, and about those before it:
  they were asked and had nothing. Those behind it were not asked, and keep what
  they know; one that is off forgets all the same, so that it tries again.

  Attributes:
    policies: with the same widths; none of them is of parts itself.
  """

  policies: tuple[types.Policy, ...]

  @property
  def widths(self) -> tuple[int, ...]:
    return self.policies[0].widths

  def init(self, batch: int) -> tuple[Any, ...]:
    """The states of all.

    Raises:
      ValueError: policies that do not fit together.
    """
    if any(isinstance(policy, Parts) for policy in self.policies):
      raise ValueError(
        "a policy of parts within another: a cascade's drafter is one part, a "
        "cascade too"
      )
    widths = {tuple(policy.widths) for policy in self.policies}
    if len(widths) > 1:
      raise ValueError(
        f"policies of parts with widths {sorted(widths)}: use the same for all"
      )
    return tuple(policy.init(batch) for policy in self.policies)

  def draft_length(self, state: tuple[Any, ...]) -> jax.Array:
    """[B] of the part that wants most; `of` has each one's own."""
    return functools.reduce(jnp.maximum, self._lengths(state))

  def keep_drafting(self, state: tuple[Any, ...], law: jax.Array) -> jax.Array:
    """[B] of the last part, the one with laws [B, V]."""
    return self.policies[-1].keep_drafting(state[-1], law)

  def update(
    self,
    state: tuple[Any, ...],
    acceptance: types.Acceptance,
    draft_length: jax.Array,
  ) -> tuple[Any, ...]:
    """See `types.Policy`; `acceptance.part` says whose draft it was.

    Raises:
      ValueError: it does not.
    """
    if acceptance.part is None:
      raise ValueError(
        "a policy of parts needs drafts that say whose they are: give it to a "
        "cascade"
      )
    learnt = []
    for part, (policy, known) in enumerate(zip(self.policies, state)):
      drafted = acceptance.part == part
      own = acceptance.replace(
        accepted=jnp.where(drafted, acceptance.accepted, 0),
        rejected=acceptance.rejected & drafted,
      )
      length = jnp.minimum(policy.draft_length(known), draft_length)
      new = policy.update(known, own, length)
      waited = (acceptance.part < part) & (length > 0)
      learnt.append(_where(waited, known, new))
    return tuple(learnt)

  def _lengths(self, state):
    return [p.draft_length(known) for p, known in zip(self.policies, state)]


def of(context: types.Context, part: int) -> types.Context:
  """What a part of the drafter may know: its policy is its own, if it has one.

  Args:
    context: of the drafter.
    part: its number, from 0.
  """
  policy = context.policy
  if not isinstance(policy, Parts):
    return context
  own, state = policy.policies[part], context.policy_state[part]
  length = jnp.minimum(context.draft_length, own.draft_length(state))
  return context.replace(draft_length=length, policy=own, policy_state=state)


def _where(rows: jax.Array, one: Any, other: Any) -> Any:
  """`one` in some rows [B], leaf by leaf."""
  choose = lambda a, b: jnp.where(rows.reshape(-1, *[1] * (a.ndim - 1)), a, b)
  return jax.tree.map(choose, one, other)
