# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One update: the target reads, the draft learns.

Axis letters: A micro-batches, B rows of one, S slots.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import optax

from specjax import sharding
from train import packing, supervision, teacher
from train.objectives import objective as objective_lib


class State(struct.PyTreeNode):
  """What a run carries from step to step, and all that a resumed one needs."""

  params: Any
  optimizer: Any
  step: jax.Array  # [] int32 updates made


def init(
  objective: objective_lib.Objective,
  optimizer: optax.GradientTransformation,
  key: jax.Array,
) -> State:
  """The state before the first update."""
  # Copies: what an objective shares with its target must not be donated.
  params = jax.tree.map(jnp.copy, objective.init(key))
  state = State(params, optimizer.init(params), jnp.int32(0))
  rules = sharding.rules_of(objective.target)
  if rules is None:
    return state
  # What a target's own weights did not place, every device holds.
  return jax.tree.map(
    lambda x: (
      x
      if isinstance(x.sharding, NamedSharding)
      else jax.device_put(x, rules.place())
    ),
    state,
  )


def update(
  objective: objective_lib.Objective,
  judged: supervision.Supervision,
  optimizer: optax.GradientTransformation,
  state: State,
  batches: packing.Batch,
  seen: teacher.Teacher | None = None,
) -> tuple[State, supervision.Sums, jax.Array]:
  """One step of the optimiser.

  Args:
    objective: what is trained, with its target.
    judged: how.
    optimizer: the update rule.
    state: consumed where it is donated.
    batches: [A, B, S]: their gradients are added up before they are used.
    seen: what the target says of them; None asks it now.

  Returns:
    The state, what the batches add up to, and the gradient's norm [].
  """

  def add(carry, given):
    sums, grads = carry
    new, more = gradient(objective, judged, state.params, *given)
    return jax.tree.map(jnp.add, (sums, grads), (new, more)), None

  given = batches, seen
  first = jax.tree.map(lambda x: x[0], given)
  shapes = jax.eval_shape(gradient, objective, judged, state.params, *first)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  (sums, grads), _ = jax.lax.scan(add, zeros, given)
  # Sums over sums: a mean of means would weigh short batches like long ones.
  grads = jax.tree.map(lambda g: g / jnp.maximum(sums.weight, 1e-9), grads)
  changes, moments = optimizer.update(grads, state.optimizer, state.params)
  params = optax.apply_updates(state.params, changes)
  state = State(params, moments, state.step + 1)
  return state, sums, optax.tree.norm(grads)


def gradient(
  objective: objective_lib.Objective,
  judged: supervision.Supervision,
  params: Any,
  batch: packing.Batch,
  seen: teacher.Teacher | None = None,
) -> tuple[supervision.Sums, Any]:
  """What one micro-batch adds up to, and the gradient of its summed loss."""
  if seen is None:
    seen = teacher.read(objective.target, batch, judged.temperature or 1.0)

  def loss(params):
    return judged.sums(objective, params, batch, seen)

  (_, sums), grads = jax.value_and_grad(loss, has_aux=True)(params)
  return sums, grads
