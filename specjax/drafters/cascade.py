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
from specjax.drafters import draft_model, early_exit, ngram
from specjax.trees import tree


def lookup_or_model(
  model: types.Model,
  length: int,
  *,
  copies: int = 10,
  min_n: int = 2,
  max_n: int = 4,
) -> "Cascade":
  """Prompt lookup, else a draft model.

  Args:
    model: the draft model.
    length: tokens that it drafts at most.
    copies: tokens that lookup drafts at most.
    min_n: shortest n-gram that counts as a match; with 1, lookup serves nearly
      every row and the model hardly any.
    max_n: longest n-gram that is looked at.
  """
  lookup = ngram.NGram(copies, min_n, max_n)
  return Cascade(lookup, draft_model.DraftModel(model, length))


def lookup_or_early_exit(
  target: types.Model,
  layers: int,
  length: int,
  *,
  copies: int = 10,
  min_n: int = 2,
  max_n: int = 4,
) -> "Cascade":
  """Prompt lookup, else the target's first `layers` layers."""
  lookup = ngram.NGram(copies, min_n, max_n)
  return Cascade(lookup, early_exit.early_exit(target, layers, length))


class Cascade(struct.PyTreeNode):
  """The first drafter's chain in rows where it has one, else the second's.

  Where the first copies, the law is one-hot; elsewhere it is the second's own,
  so ratio rules stay exact. The first may read no noise: what the second draws
  must not decide which of them is asked.

  Attributes:
    first: drafts chains without laws, such as lookup.
    second: drafts chains, with laws or without.
    least: tokens the first must find to be taken.
  """

  first: types.Drafter
  second: types.Drafter
  least: int = struct.field(pytree_node=False, default=1)

  @property
  def num_nodes(self) -> int:
    return max(self.first.num_nodes, self.second.num_nodes)

  @property
  def max_depth(self) -> int:
    return self.num_nodes

  def remember(self, answers: Sequence[Sequence[int]]) -> "Cascade":
    """With past answers in the stores of those that have one."""
    first, second = (
      part.remember(answers) if hasattr(part, "remember") else part
      for part in (self.first, self.second)
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
    copied, first, cache = self.first.propose(state[0], context)
    if copied.log_q is not None:
      raise ValueError(
        f"{type(self.first).__name__} draws its tokens: put it second in the "
        "cascade, behind a drafter that copies"
      )
    copies = copied.count >= self.least
    left = jnp.where(copies, 0, context.draft_length)
    drawn, second, cache = self.second.propose(
      state[1], context.replace(cache=cache, draft_length=left)
    )
    vocab = context.noise.vocab
    if drawn.log_q is not None:
      law = tree.draft_law(copied, vocab, drawn.log_q.dtype)
      copied = copied.replace(log_q=law)
    wide = [_widen(draft, self.num_nodes) for draft in (copied, drawn)]
    draft = jax.tree.map(
      lambda a, b: jnp.where(copies.reshape(-1, *[1] * (a.ndim - 1)), a, b),
      *wide,
    )
    return draft, (first, second), cache


def _widen(draft: types.Draft, nodes: int) -> types.Draft:
  """The same chain with room for `nodes`."""
  if not draft.is_chain:
    raise ValueError("a cascade takes drafters of chains: one drafts trees")
  missing = nodes - draft.tokens.shape[1]
  pad = lambda x: jnp.pad(x, ((0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)))
  log_q = None if draft.log_q is None else pad(draft.log_q)
  return tree.chain(pad(draft.tokens), draft.count, log_q)
