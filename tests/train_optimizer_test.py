# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning rates step by step, and what an update does to parameters."""

from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np
import optax

from train import optimizer

PARAMS = {"kernel": jnp.ones((2, 2)), "scale": jnp.ones(2)}


def settings(**changes: Any) -> optimizer.Settings:
  given: dict[str, Any] = {"learning_rate": 0.5, "warmup": 0}
  return optimizer.Settings(**(given | changes))


def rates(steps: int, **changes) -> list[float]:
  schedule = optimizer.schedule(settings(**changes), steps)
  return [float(np.asarray(schedule(step))) for step in range(steps)]


def updated(grads, params, **changes):
  """Parameters after one step of a run of one."""
  rule = optimizer.make(settings(**changes), 1)
  change, _ = rule.update(grads, rule.init(params), params)
  return optax.apply_updates(params, change)


class ScheduleTest(parameterized.TestCase):
  @parameterized.parameters(
    ("constant", 0.0, [0.5] * 5),
    ("linear", 0.0, [0.5, 0.4, 0.3, 0.2, 0.1]),
    ("linear", 0.4, [0.5, 0.44, 0.38, 0.32, 0.26]),
    ("cosine", 0.0, [0.25 * (1 + np.cos(np.pi * i / 5)) for i in range(5)]),
  )
  def test_falls_from_the_largest(self, name, end, wanted):
    found = rates(5, schedule=name, end=end)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)

  def test_rises_first_and_learns_from_the_first_step_on(self):
    found = rates(10, schedule="constant", warmup=0.4)
    np.testing.assert_allclose(found[:6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5])
    self.assertGreater(rates(10, schedule="cosine", warmup=0.4)[-1], 0)


class UpdateTest(absltest.TestCase):
  def test_only_matrices_decay(self):
    zeros = {"kernel": jnp.zeros((2, 2)), "scale": jnp.zeros(2)}
    found = updated(zeros, PARAMS, weight_decay=0.1)
    # 1 - learning rate x decay.
    np.testing.assert_allclose(found["kernel"], 0.95)
    np.testing.assert_array_equal(found["scale"], 1)

  def test_clipping_is_by_the_norm_of_all(self):
    """Moments are of the clipped gradient: its size is all that is lost."""
    grads = {"kernel": jnp.full((2, 2), 3.0), "scale": jnp.full(2, -3.0)}
    rule = optimizer.make(settings(clip=0.5, beta1=0.0), 1)
    _, state = rule.update(grads, rule.init(PARAMS), PARAMS)
    moments = optax.tree.get(state, "mu")
    self.assertAlmostEqual(float(optax.tree.norm(moments)), 0.5, places=6)
    self.assertAlmostEqual(
      float(moments["kernel"][0, 0]), -float(moments["scale"][0])
    )

  def test_a_first_step_is_as_long_as_the_rate(self):
    grads = {"kernel": jnp.full((2, 2), 1e-3), "scale": jnp.full(2, -4.0)}
    found = updated(grads, PARAMS, clip=0.0)
    # Adam divides a first gradient by its own size, but for 1e-8.
    np.testing.assert_allclose(found["kernel"], 0.5, atol=1e-4)
    np.testing.assert_allclose(found["scale"], 1.5, atol=1e-4)


if __name__ == "__main__":
  absltest.main()
