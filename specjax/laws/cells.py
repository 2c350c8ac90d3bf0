# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a function of uniforms is constant: boxes, split at edges by bisection.

A rule reads its uniforms in an order that depends on what it has read, and may
read them in a loop over a tree. Nothing of that is known here: a box of the
uniforms is looked at in its middle, at both ends of each number, and at random
points. Where one of these gives another outcome, the way to it, one number
after the other, meets an edge; the edge is bisected down to neighbouring
float64 numbers and the box is split there. Boxes on which every point gives the
same are cells.

A decision between outcomes that a comparison of one number makes is seen from
the middle of a box whatever the others are, so the cells are exact. What is no
union of boxes (a comparison of a sum of two numbers) has no end of splits and
is refused.

Axis letters: N rows, U uniforms, C boxes, R points, O numbers of an outcome.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.laws import enumeration

BISECTIONS = 54  # from [0, 1] down to neighbouring float64 numbers
INSET = 2.0**-48  # how far inside a box its ends are looked at
NARROW = 2.0**-46  # boxes that are taken as they are, a few roundings wide
RANDOM = 8  # random points a box
MOST = 2000  # boxes a row on average, at which there is no end
NO_BOXES = (
  "outcomes do not hold on boxes of the uniforms: `verify` may compare each of "
  "them with something, not a sum or product of two"
)

# (a pytree of rows [N, ...], uniforms [N, U]) to outcomes [N, O]; hashable.
Function = Callable[[Any, jax.Array], jax.Array]


def split(
  function: Function, rows: Any, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Row [C], volume [C] and outcome [C, O] of each cell of N rows.

  Args:
    function: pure, each row by itself.
    rows: what it is a function of beside U = `size` uniforms.
    size: U.

  Raises:
    ValueError: outcomes do not hold on boxes.
  """
  rows = jax.tree.map(np.asarray, rows)
  owner = np.arange(len(jax.tree.leaves(rows)[0]))
  low, high = np.zeros((len(owner), size)), np.ones((len(owner), size))
  most = MOST * len(owner)
  random = np.random.default_rng(0)
  cells = []

  def run(step, owner, *numbers):
    own = jax.tree.map(lambda x: x[owner], rows)
    step = functools.partial(step, function)
    return enumeration.in_chunks(step, (own, *numbers))

  while len(owner):
    inside = random.uniform(0.001, 0.999, (1, RANDOM, size))
    inside = np.broadcast_to(inside, (len(owner), RANDOM, size))
    outcome, axis, way, end = run(_look, owner, low, high, inside)
    whole = (axis == size) | np.any(high - low < NARROW, axis=1)
    cells.append([x[whole] for x in (owner, low, high, outcome)])
    most -= np.count_nonzero(whole)
    left = owner, low, high, axis, way, end
    owner, low, high, axis, way, end = (x[~whole] for x in left)
    if 2 * len(owner) > most:
      raise ValueError(NO_BOXES)
    if len(owner):
      edge = run(_edge, owner, axis, way, end)[:, None]
      at = np.arange(size) == axis[:, None]
      owner, start, stop = np.tile(owner, 2), low, high
      low = np.concatenate([start, np.where(at, edge, start)])
      high = np.concatenate([np.where(at, edge, stop), stop])
  owner, low, high, outcome = (np.concatenate(x) for x in zip(*cells))
  # A last look at points that had no part in the splits.
  width = high - low
  point = low + width * random.uniform(0.001, 0.999, low.shape)
  other = np.any(run(_evaluate, owner, point) != outcome, axis=1)
  if np.any(other & np.all(width > 2 * NARROW, axis=1)):
    raise ValueError(NO_BOXES)
  return owner, np.prod(width, axis=1), outcome


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(function, points):
  return function(*points)


@functools.partial(jax.jit, static_argnums=0)
def _look(function, boxes):
  """What a box holds.

  Returns:
    The outcome [C, O] in the middle; the first number on the way to another
    outcome [C] that changes it, U if there is none; the point before that step
    [C, U], and where the step ends [C].
  """
  rows, low, high, inside = boxes
  size = low.shape[1]
  middle = (low + high) / 2
  point = middle[:, None]
  own = jnp.eye(size, dtype=bool)[None]
  ends = (
    jnp.where(own, (low + INSET)[:, None], point),
    jnp.where(own, (high - INSET)[:, None], point),
    low[:, None] + (high - low)[:, None] * inside,
  )
  points = jnp.concatenate([point, *ends], axis=1)
  outcomes = _at(function, rows, points)
  other = jnp.any(outcomes != outcomes[:, :1], axis=2)
  goal = jnp.argmax(other, axis=1)[:, None, None]
  goal = jnp.take_along_axis(points, goal, axis=1)
  # After step i the first i + 1 numbers are those of the goal.
  steps = jnp.where(jnp.tril(own | ~own), goal, point)
  differs = jnp.any(_at(function, rows, steps) != outcomes[:, :1], axis=2)
  axis = jnp.where(jnp.any(differs, axis=1), jnp.argmax(differs, axis=1), size)
  before = jnp.where(jnp.arange(size)[None] < axis[:, None], goal[:, 0], middle)
  end = jnp.take_along_axis(
    goal[:, 0], jnp.minimum(axis, size - 1)[:, None], axis=1
  )
  return outcomes[:, 0], axis, before, end[:, 0]


@functools.partial(jax.jit, static_argnums=0)
def _edge(function, steps):
  """The first float64 number [C] of the upper side of an edge."""
  rows, axis, before, end = steps
  own = jnp.arange(before.shape[1])[None] == axis[:, None]
  outcome = lambda x: function(rows, jnp.where(own, x[:, None], before))
  start = jnp.take_along_axis(before, axis[:, None], axis=1)[:, 0]
  reference = outcome(start)

  def body(_, bounds):
    same, other = bounds
    middle = (same + other) / 2
    is_same = jnp.all(outcome(middle) == reference, axis=1)
    return jnp.where(is_same, middle, same), jnp.where(is_same, other, middle)

  return jnp.maximum(*jax.lax.fori_loop(0, BISECTIONS, body, (start, end)))


def _at(function, rows, points):
  """Outcomes [C, R, O] at points [C, R, U] of each box."""
  count = points.shape[1]
  repeated = jax.tree.map(lambda x: jnp.repeat(x, count, axis=0), rows)
  outcomes = function(repeated, points.reshape(-1, points.shape[2]))
  return outcomes.reshape(*points.shape[:2], -1)
