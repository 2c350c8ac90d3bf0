# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every drafter with a model is asked whether it fits the target."""

import dataclasses
from typing import Any

from absl import logging
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp

from specjax import session as session_lib
from specjax import sharding
from specjax.decoding import decode
from specjax.drafters import (
  assisted_model,
  cascade,
  cross_vocabulary,
  draft_model,
  early_exit,
  ngram,
)
from specjax.drafters import tree_draft_model as trees
from tests import benches, toys

TARGET = toys.tiny(0)
DRAFTERS = {
  "draft_model": lambda model: draft_model.DraftModel(model, 2),
  "assisted_model": lambda model: assisted_model.assisted_model(model, 2),
  "draft_tree": lambda model: trees.static_tree(model, [2, 1]),
  "dynamic_tree": lambda model: trees.dynamic_tree(model, 2, 2, 2, 3),
  "early_exit": lambda model: early_exit.early_exit(model, 1, 2),
  "cross_vocabulary": lambda model: draft_model.DraftModel(foreign(model), 2),
  "cascade": lambda model: cascade.cascade(
    ngram.NGram(2), draft_model.DraftModel(model, 2)
  ),
  "cascade_twice": lambda model: cascade.cascade(
    ngram.NGram(3, 3),
    cascade.cascade(ngram.NGram(2), early_exit.early_exit(model, 1, 2)),
  ),
}


def foreign(model) -> cross_vocabulary.SharedVocabulary:
  ids = jnp.arange(model.vocab_size)
  return cross_vocabulary.SharedVocabulary(model, ids, ids, model.num_tokens)


def session(drafter) -> session_lib.Session:
  words: Any = benches.Words()
  return session_lib.Session(
    TARGET,
    words,
    session_lib.Method(drafter),
    session_lib.Settings(max_new_tokens=4),
    [[1, 2]],
  )


class CheckTest(parameterized.TestCase):
  @parameterized.parameters(*DRAFTERS)
  def test_another_vocabulary_is_refused(self, name):
    drafter = DRAFTERS[name](toys.tiny(1, num_tokens=60))
    with (
      absltest.mock.patch.object(decode, "start", side_effect=AssertionError),
      self.assertRaisesRegex(ValueError, "knows 60 tokens, the target 64: "),
    ):
      session(drafter)

  @parameterized.parameters(*DRAFTERS)
  def test_a_model_on_other_devices_is_refused(self, name):
    """One of them lies on a mesh, here of one device."""
    mesh = jax.make_mesh((1, 1), ("data", "model"))
    placed = toys.tiny(1).replace(rules=sharding.Rules(mesh))
    with (
      absltest.mock.patch.object(decode, "start", side_effect=AssertionError),
      self.assertRaisesRegex(ValueError, "different devices: load both"),
    ):
      session(DRAFTERS[name](placed))

  def test_a_shorter_context_is_told_and_no_mistake(self):
    config = dataclasses.replace(toys.TINY_CONFIG, max_position=64)
    drafter = DRAFTERS["draft_tree"](toys.tiny(1, config))
    with (
      absltest.mock.patch.object(decode, "start", side_effect=AssertionError),
      absltest.mock.patch.object(logging, "log_first_n") as told,
      self.assertRaises(AssertionError),
    ):
      session(drafter)
    self.assertIn(64, told.call_args.args)


if __name__ == "__main__":
  absltest.main()
