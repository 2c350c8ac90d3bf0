# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decoder gives Transformers' logits with the same weights."""

import dataclasses

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference, toys

pytestmark = pytest.mark.parity


def _torch_logits(model, tokens):
  import torch

  from experiments.transformers_baseline import torch_model

  network = torch_model.from_specjax(model)
  with torch.inference_mode():
    return network(torch.tensor([tokens])).logits[0].numpy()


class TorchModelTest(parameterized.TestCase):
  @parameterized.product(tied=(False, True), seed=(0, 1))
  def test_library_and_reference_equal_transformers(self, tied, seed):
    config = dataclasses.replace(toys.TINY_CONFIG, tie_embeddings=tied)
    model = toys.tiny(seed, config)
    tokens = np.random.default_rng(seed).integers(0, 64, 40).tolist()
    theirs = _torch_logits(model, tokens)
    ours = model(jnp.array([tokens]), model.init_cache(1, 40, 40)).logits[0]
    independent = reference.transformer_logits(model.params, config, tokens)
    # float32 sums of two layers in another order; logits reach 10.
    np.testing.assert_allclose(ours, theirs, atol=5e-5)
    np.testing.assert_allclose(independent, theirs, atol=5e-5)


if __name__ == "__main__":
  absltest.main()
