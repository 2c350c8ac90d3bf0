# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The law of a rule that compares uniforms with something: cells by bisection.

`verify` emits the same tokens all over a cell of its uniforms. The edges are
found one number after the other: those of the second inside each cell of the
first, and so on. Numbers not split yet are held at every corner of their cube,
so that an edge shows whenever some of them make it matter. Each outcome is
taken to hold on one interval of a number; random points in every finished cell
check that.

Axis letters: N rows, U uniforms, C cells, R corners, P emitted tokens.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.laws import enumeration

BISECTIONS = 60  # from [0, 1] down to neighbouring float64 numbers
TOP = 1 - 2.0**-53  # the largest number below 1
ALL_CORNERS = 4  # numbers not split yet, up to which all corners are tried


def split(
  verifier: types.Verifier,
  draw: enumeration.Draw,
  log_p: jax.Array,
  draft: types.Draft,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Row [C], volume [C] and emitted tokens [C, P] of each cell of N rows.

  Raises:
    ValueError: an outcome does not hold on one interval.
  """
  rows = jax.tree.map(np.asarray, (log_p, draft))
  owner = np.arange(log_p.shape[0])
  low = np.zeros((len(owner), draw.size))
  high = np.ones_like(low)

  def run(function, owner, *numbers):
    cells = jax.tree.map(lambda x: x[owner], rows)
    return enumeration.in_chunks(function, (*cells, *numbers))

  for axis in range(draw.size):
    corners = _corners(draw.size, axis)
    edge = functools.partial(_edge, verifier, draw, axis, corners)
    pieces = []
    while len(owner):
      high[:, axis] = right = run(edge, owner, low, high)
      pieces.append((owner, low, high))
      more = right < 1
      owner, low, high = (x[more] for x in (owner, low, high))
      low[:, axis], high[:, axis] = right[more], 1
    owner, low, high = (np.concatenate(x) for x in zip(*pieces))
  outcome = functools.partial(_outcome, verifier, draw)
  emitted = run(outcome, owner, (low + high) / 2)
  # Points of the narrowest cells may coincide with edges.
  wide = np.all(high - low > 1e-9, axis=1)
  rng = np.random.default_rng(0)
  for _ in range(2):
    point = low + (high - low) * rng.uniform(0.001, 0.999, low.shape)
    if np.any((run(outcome, owner, point) != emitted)[wide]):
      raise ValueError(
        f"{type(verifier).__name__}.verify emits several token sequences "
        "inside one cell: an outcome must hold on one interval of a uniform"
      )
  return owner, np.prod(high - low, axis=1), emitted


@functools.partial(jax.jit, static_argnums=(0, 1))
def _outcome(verifier, draw, cells):
  return enumeration.emitted(verifier, draw, *cells)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _edge(verifier, draw, axis, corners, cells):
  """Where the outcome at low[:, axis] ends, 1 for the last; [C]."""
  *rows, low, high = cells
  places = jnp.arange(draw.size)[None, None]
  log_p, draft = jax.tree.map(
    lambda x: jnp.repeat(x, len(corners), axis=0), tuple(rows)
  )
  middle = ((low + high) / 2)[:, None]

  def outcome(x):
    # Known numbers sit in the middle of their cells, later ones at corners.
    later = jnp.where(places == axis, x[:, None, None], corners[None])
    numbers = jnp.where(places < axis, middle, later)
    numbers = numbers.reshape(-1, draw.size)
    emitted = enumeration.emitted(verifier, draw, log_p, draft, numbers)
    return emitted.reshape(len(x), -1)

  left = jnp.take(low, axis, axis=1)
  reference = outcome(left)
  same = lambda x: jnp.all(outcome(x) == reference, axis=1)

  def body(_, bounds):
    lo, hi = bounds
    half = (lo + hi) / 2
    inside = same(half)
    return jnp.where(inside, half, lo), jnp.where(inside, hi, half)

  _, edge = jax.lax.fori_loop(0, BISECTIONS, body, (left, jnp.ones_like(left)))
  return jnp.where(same(jnp.full_like(left, TOP)), 1.0, edge)


def _corners(size: int, axis: int) -> np.ndarray:
  """[R, U] points that the numbers after `axis` are held at."""
  later = size - axis - 1
  ends = (1e-6, 1 - 1e-6)
  if later <= ALL_CORNERS:
    points = np.array(list(itertools.product(ends, repeat=later)))
  else:
    points = np.random.default_rng(0).uniform(size=(16, later))
    points[0], points[1] = ends
  return np.pad(points, ((0, 0), (axis + 1, 0)))
