# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether target, drafter and verifier fit each other."""

from specjax import types
from specjax.decoding import draft_models


def check(
  target: types.Model,
  drafter: types.Drafter,
  verifier: types.Verifier,
  capacity: int,
) -> None:
  """Refuses parts that do not go together, whatever the prompts are.

  Args:
    target: the model that answers, see `decode.with_features`.
    drafter: proposes tokens.
    verifier: decides what is kept.
    capacity: token slots of a row.

  Raises:
    ValueError: draft models that do not fit the target, layers that it does not
      give, or a structure of drafts that the rule is not exact on.
  """
  draft_models.check(target, drafter, capacity)
  wanted = feature_layers(drafter)
  if wanted and getattr(target, "feature_layers", None) != wanted:
    raise ValueError(
      f"{type(drafter).__name__} reads the target's layers {wanted}, which it "
      "does not give: use target.replace(feature_layers=...) with them"
    )
  if drafter.max_depth == drafter.num_nodes:
    return
  if verifier.chain_only:
    raise ValueError(
      f"{type(verifier).__name__} takes chains only, and "
      f"{type(drafter).__name__} drafts trees: use the coupled verifier"
    )
  # Of siblings drawn without replacement such a rule keeps too many.
  independent = (
    getattr(part, "independent_siblings", False) for part in (verifier, drafter)
  )
  if [*independent] == [True, False]:
    raise ValueError(
      f"{type(verifier).__name__} needs siblings that were drawn independently "
      f"and those of {type(drafter).__name__} are not: use siblings = "
      "'independent' where a drafter has it, or multi_candidate or traversal"
    )


def feature_layers(drafter: types.Drafter) -> tuple[int, ...]:
  """Layers of the target whose outputs a drafter reads; () for most."""
  return tuple(getattr(drafter, "feature_layers", ()))
