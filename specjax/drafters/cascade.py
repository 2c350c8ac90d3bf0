# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cascade: copy where something can be copied, ask a model elsewhere.

The choice is made row by row: rows that the first drafter serves ask nothing of
the second, which costs nothing in rounds where no row needs it.

Axis letters: B batch, T drafted tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types
from specjax.policies import parts as parts_lib
from specjax.trees import tree


def cascade(
  first: types.Drafter, second: types.Drafter, least: int = 1
) -> "Cascade":
  """A `Cascade` of two drafters; see there.

  Raises:
    ValueError: one of them drafts trees, they read other layers of the target,
      or `least` is no number of tokens to find.
  """
  for part in (first, second):
    if part.max_depth != part.num_nodes:
      raise ValueError(_no_chain(part))
  if least < 1:
    raise ValueError(f"cascade least is {least}: use 1 or more")
  made = Cascade(first, second, least)
  _ = made.feature_layers  # Refuses what cannot be read together.
  return made


class Cascade(struct.PyTreeNode):
  """The first drafter's chain in rows where it has one, else the second's.

  Where the first copies, the law is one-hot; elsewhere it is the second's own,
  so ratio rules stay exact. The first may read no noise: what the second draws
  must not decide which of them is asked. Under a policy of parts each has a
  policy of its own.

  Attributes:
    first: drafts chains without laws, such as lookup.
    second: drafts chains, with laws or without.
    least: tokens the first must find to be taken.
  """

  first: types.Drafter
  second: types.Drafter
  least: int = struct.field(pytree_node=False, default=1)

  @property
  def parts(self) -> tuple[types.Drafter, types.Drafter]:
    """In the order in which they are asked."""
    return self.first, self.second

  @property
  def num_nodes(self) -> int:
    return max(self.first.num_nodes, self.second.num_nodes)

  @property
  def max_depth(self) -> int:
    return self.num_nodes

  @property
  def feature_layers(self) -> tuple[int, ...]:
    """What `Output.features` of the target must hold for both."""
    read = [tuple(getattr(part, "feature_layers", ())) for part in self.parts]
    wanted = {*read} - {()}
    if len(wanted) > 1:
      raise ValueError(
        f"a cascade of drafters that read layers {read[0]} and {read[1]} of "
        "the target: use two that read the same"
      )
    return next(iter(wanted), ())

  @property
  def models(self) -> tuple[types.Model, ...]:
    """The draft models of both."""
    return sum((tuple(getattr(part, "models", ())) for part in self.parts), ())

  def remember(self, answers: Sequence[Sequence[int]]) -> "Cascade":
    """With past answers in the stores of those that have one."""
    first, second = (
      part.remember(answers) if hasattr(part, "remember") else part
      for part in self.parts
    )
    return self.replace(first=first, second=second)

  def init(self, batch: int, capacity: int) -> tuple[Any, Any]:
    return (
      self.first.init(batch, capacity),
      self.second.init(batch, capacity),
    )

  def observe(
    self, state: tuple[Any, Any], block: types.Block, view: types.View | None
  ) -> tuple[Any, Any]:
    first, second = state
    return (
      self.first.observe(first, block, view),
      self.second.observe(second, block, view),
    )

  def propose(
    self, state: tuple[Any, Any], context: types.Context
  ) -> tuple[types.Draft, tuple[Any, Any], types.KVCache]:
    """A chain [B, T]; laws where the second has them.

    Raises:
      ValueError: the first drafts with laws, or one of them drafts trees.
    """
    before, after = (parts_lib.of(context, part) for part in range(2))
    copied, first, cache = self.first.propose(state[0], before)
    if copied.log_q is not None:
      raise ValueError(
        f"{type(self.first).__name__} draws its tokens: put it second in the "
        "cascade, behind a drafter that copies"
      )
    # Where less is wanted than `least`, what was found still tells.
    copies = (copied.count >= self.least) & (before.draft_length > 0)
    copied = tree.truncate(copied, before.draft_length)
    left = jnp.where(copies, 0, after.draft_length)
    drawn, second, cache = self.second.propose(
      state[1], after.replace(cache=cache, draft_length=left)
    )
    drawn = tree.truncate(drawn, left)
    vocab = context.noise.vocab
    if drawn.log_q is not None:
      law = tree.draft_law(copied, vocab, drawn.log_q.dtype)
      copied = copied.replace(log_q=law)
    for part, given in ((self.first, copied), (self.second, drawn)):
      if not given.is_chain:
        raise ValueError(_no_chain(part))
    wide = [_widen(draft, self.num_nodes) for draft in (copied, drawn)]
    draft = jax.tree.map(
      lambda a, b: jnp.where(copies.reshape(-1, *[1] * (a.ndim - 1)), a, b),
      *wide,
    )
    part = jnp.where(copies, 0, 1)
    return draft.replace(part=part), (first, second), cache


def _no_chain(drafter: types.Drafter) -> str:
  name = type(drafter).__name__
  return f"{name} drafts trees: a cascade takes drafters of chains"


def _widen(draft: types.Draft, nodes: int) -> types.Draft:
  """The same chain with room for `nodes`."""
  missing = nodes - draft.tokens.shape[1]
  pad = lambda x: jnp.pad(x, ((0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)))
  log_q = None if draft.log_q is None else pad(draft.log_q)
  return tree.chain(pad(draft.tokens), draft.count, log_q)
