# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run that goes on drafts by the seconds that it began with."""

import tempfile
from typing import Any

from absl.testing import absltest
from etils import epath
import jax.numpy as jnp
import numpy as np

from specjax import session as session_lib
from specjax.bench import measured
from specjax.drafters import ngram
from specjax.policies import gain, policy


def methods(seconds):
  drafter = ngram.NGram(2)
  costs = jnp.asarray(seconds, jnp.float32)
  return {
    "fixed": session_lib.Method(drafter, policy=policy.Fixed(2)),
    "gain": session_lib.Method(drafter, policy=gain.ExpectedGain(costs)),
  }


class MeasuredTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = epath.Path(folder.name)

  def seconds(self, given):
    return given["gain"].policy.seconds

  def test_the_first_numbers_stay(self):
    first = np.array([0.1, 1 / 3, 0.7], np.float32)
    kept = measured.keep(self.path, methods(first))
    np.testing.assert_array_equal(self.seconds(kept), first)
    later = measured.keep(self.path, methods([0.2, 0.3, 0.4]))
    np.testing.assert_array_equal(self.seconds(later), self.seconds(kept))
    self.assertEqual(later["fixed"].policy, policy.Fixed(2))
    # No array, which would be another program.
    kept_policy: Any = later["fixed"].policy
    self.assertIsInstance(kept_policy.length, int)

  def test_other_policies_are_refused(self):
    measured.keep(self.path, methods([0.1, 0.2, 0.3]))
    with self.assertRaisesRegex(ValueError, "of other policies"):
      measured.keep(self.path, methods([0.1, 0.2, 0.3, 0.4]))


if __name__ == "__main__":
  absltest.main()
