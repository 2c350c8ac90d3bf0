# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Early exit: the target's own layers and cache."""

import dataclasses

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing
from specjax.drafters import early_exit, empty
from specjax.verifiers import coupled, rejection
from tests import decoding, toys

CONFIG = dataclasses.replace(toys.TINY_CONFIG, num_layers=3)
TARGET = toys.tiny(0, CONFIG)
SAMPLING = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))


class EarlyExitTest(parameterized.TestCase):
  def test_text_is_plain_text(self):
    """Two rows are sampled, one is greedy; and drafts are of every quality."""
    drafter = early_exit.early_exit(TARGET, 2, 4)
    plain = decoding.run(TARGET, empty.Empty(1), sampling=SAMPLING)
    state = decoding.run(TARGET, drafter, sampling=SAMPLING)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    self.assertEqual(decoding.outcomes(state), {"none", "some", "all"})
    # The drafter's writes left nothing behind in what was committed.
    for kept, own in zip(state.cache.layers, plain.cache.layers):
      for row, end in enumerate(state.cache.lengths):
        for new, old in zip(kept, own):
          # Blocks of other widths add in another order.
          np.testing.assert_allclose(new[row, :end], old[row, :end], atol=1e-5)

  @parameterized.parameters(coupled.Coupled(), rejection.Rejection())
  def test_all_layers_are_never_refused(self, verifier):
    drafter = early_exit.early_exit(TARGET, 3, 4)
    policy = decoding.Scheduled.of([[2, 1, 0], [4, 4, 4], [0, 0, 0]])
    state = decoding.run(
      TARGET, drafter, verifier=verifier, sampling=SAMPLING, policy=policy
    )
    self.assertGreater(int(state.stats.drafted.max()), 3)
    np.testing.assert_array_equal(state.stats.accepted, state.stats.drafted)

  @pytest.mark.slow
  def test_contract(self):
    testing.check_drafter(early_exit.early_exit(TARGET, 1, 4), TARGET)

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, "cannot keep 4 of 3 layers"):
      early_exit.early_exit(TARGET, 4, 2)
    with self.assertRaisesRegex(ValueError, "draft length 0 is no draft"):
      early_exit.early_exit(TARGET, 1, 0)


if __name__ == "__main__":
  absltest.main()
