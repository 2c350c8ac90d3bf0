# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a draft model must have in common with the target."""

from absl import logging

from specjax import sharding, types


def check(target: types.Model, drafter: types.Drafter, capacity: int) -> None:
  """Refuses models of another vocabulary or on other devices.

  Args:
    target: the model that answers.
    drafter: with `models`, those it drafts with, where it has any.
    capacity: token slots of a row; models of fewer positions draft nothing
      beyond those.

  Raises:
    ValueError: the models know different numbers of tokens. Equal numbers do
      not prove equal tokens: compare the tokenizers too. Or one of them lies on
      a mesh without the other, and would be copied there in every call.
  """
  for model in getattr(drafter, "models", ()):
    rules = map(sharding.rules_of, (target, model))
    mine, other = (one and one.mesh for one in rules)
    if mine != other:
      raise ValueError(
        "target and draft model lie on different devices: load both with the "
        "same mesh"
      )
    if target.num_tokens != model.num_tokens:
      raise ValueError(
        f"the draft model knows {model.num_tokens} tokens, the target "
        f"{target.num_tokens}: choose a draft of the target's tokenizer"
      )
    if model.max_position < capacity:
      message = (
        "the draft model has %d positions: beyond them nothing is drafted"
      )
      logging.log_first_n(logging.INFO, message, 1, model.max_position)
