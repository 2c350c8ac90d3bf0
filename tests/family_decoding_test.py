# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every family's text is plain text, with chains and with trees.

Windows are as short as can be: nodes of a tree lie at positions that are not
their slots, and one that counted slots would see its parent.
"""

import dataclasses
import functools
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import pytest

from specjax import sampling as sampling_lib
from specjax.drafters import draft_model, empty
from specjax.models import huggingface
from specjax.models import model as model_lib
from specjax.policies import policy as policy_lib
from tests import decoding, family_files, toys, tree_decoding_test

NEW = 40
VOCAB = 48
WINDOW = 1
PROMPTS = [[token % VOCAB for token in row] for row in decoding.PROMPTS]
SAMPLING = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))


@functools.cache
def target(name: str) -> model_lib.Model:
  with tempfile.TemporaryDirectory() as folder:
    path = family_files.write(name, pathlib.Path(folder))
    config, params = huggingface.load(path)
  if config.windows is not None:
    windows = tuple(window and WINDOW for window in config.windows)
    config = dataclasses.replace(config, windows=windows)
  return model_lib.Model.from_params(config, params)


def chain(name: str) -> draft_model.DraftModel:
  return draft_model.DraftModel(toys.noisy(target(name)), 5)


def tree(name: str) -> tree_decoding_test.Star:
  """Children of a token are those after a text of it alone; often right."""
  model = target(name)
  cache = model.init_cache(VOCAB, 1, 1)
  scores = model(jnp.arange(VOCAB)[:, None], cache).logits[:, 0]
  readout = jnp.zeros((model.config.embed_dim, VOCAB))
  return tree_decoding_test.Star(scores, readout, jnp.int32(-1))


def run(name, drafter):
  """Rounds of one width: fewer programs to compile."""
  return decoding.run(
    target(name),
    drafter,
    PROMPTS,
    sampling=SAMPLING,
    policy=policy_lib.Fixed(drafter.max_depth, widths=()),
    new=NEW,
    capacity=80,
  )


@functools.cache
def plain(name: str) -> list[list[int]]:
  return decoding.answers(run(name, empty.Empty(1)))


class FamilyDecodingTest(parameterized.TestCase):
  @parameterized.product(name=tuple(family_files.CONFIGS), make=(chain, tree))
  @pytest.mark.slow
  def test_text_is_plain_text(self, name, make):
    state = run(name, make(name))
    self.assertEqual(decoding.answers(state), plain(name))
    self.assertContainsSubset({"some", "all"}, decoding.outcomes(state))


if __name__ == "__main__":
  absltest.main()
