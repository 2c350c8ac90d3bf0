# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A round's random numbers as data: what stands in for streams in proofs.

A verifier's `draw` runs once with a stand-in for `Streams`. It hands out places
instead of numbers, one for each (tag, position, slot), so a rule that reads a
stream twice gets one number twice, as it would in decoding. `Outcome` then runs
`verify` with whatever numbers are put in those places.

Noise is not handed out but asked for inside `verify`: such a rule is a race
(`races.py`), the others have cells (`cells.py`).

Axis letters: N rows, P = max_depth + 1 emitted tokens at most,
V vocabulary, U random numbers.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import streams as streams_lib
from specjax import types

# Position of the token that the root predicts. Not 0: noise keyed by anything
# else than the absolute position must not find what it asks for.
ROOT = 7
NOISE, LENGTHS = "noise", "lengths"
CHUNK = 1024  # rows a call, so that few shapes compile


@dataclasses.dataclass(frozen=True)
class Place:
  """Indices of uniforms, in place of their values."""

  index: tuple[int, ...]
  shape: tuple[int, ...]


class Places:
  """Stands in for `Streams` while `draw` runs, for one row."""

  def __init__(self):
    self.keys: dict[tuple[int, int, int], int] = {}

  def uniform(self, tag, positions, slots) -> Place:
    positions, slots = np.broadcast_arrays(positions, slots)
    index = (
      self.keys.setdefault((tag, int(p), int(s)), len(self.keys))
      for p, s in zip(positions.ravel(), slots.ravel())
    )
    return Place(tuple(index), positions.shape[1:])

  def gumbel(self, tag, positions, slots, vocab):
    raise ValueError(
      "noise drawn in `draw` cannot be enumerated: hand on the streams and "
      "draw in `verify`, as coupled.DepthNoise does"
    )


@dataclasses.dataclass(frozen=True)
class NoiseTable:
  """Stands in for `Streams` inside `verify`: noise by distance from the root.

  SAMPLE noise is keyed by position alone, so slots are not looked at.
  """

  noise: jax.Array  # [N, P, V] for positions ROOT, ROOT + 1, ...

  def gumbel(self, tag, positions, slots, vocab) -> jax.Array:
    del slots
    if tag != streams_lib.SAMPLE or vocab != self.noise.shape[-1]:
      raise ValueError("noise of another stream or width has no place here")
    distance = positions - ROOT
    return jnp.take_along_axis(
      self.noise, distance[:, :, None], axis=1, mode="fill"
    )


@dataclasses.dataclass(frozen=True)
class Draw:
  """What `draw` returned for one row: places, NOISE or LENGTHS as leaves."""

  leaves: tuple[Place | str, ...]
  treedef: Any
  size: int  # U

  @property
  def is_race(self) -> bool:
    return NOISE in self.leaves

  def fill(self, numbers: jax.Array) -> Any:
    """The round's numbers for N rows: uniforms [N, U] or noise [N, P, V]."""

    def put(leaf):
      if isinstance(leaf, Place):
        index = np.array(leaf.index, int)
        return numbers[:, index].reshape(-1, *leaf.shape)
      if leaf == NOISE:
        return NoiseTable(numbers)
      return jnp.full((numbers.shape[0],), ROOT)

    return jax.tree.unflatten(self.treedef, map(put, self.leaves))


def read_draw(verifier: types.Verifier, draft: types.Draft) -> Draw:
  """Runs `draw` for the first row of a draft, of whose shape all are.

  Raises:
    ValueError: it returns something else than numbers of the streams, or the
      lengths that lazy noise is asked for with.
  """
  places: Any = Places()
  # Inside a compiled function too, places must come out as numbers.
  with jax.ensure_compile_time_eval():
    one = jax.tree.map(lambda x: jnp.asarray(x[:1]), draft)
    drawn = verifier.draw(places, jnp.full((1,), ROOT), one)
  found, treedef = jax.tree.flatten(drawn)
  is_race = any(leaf is places for leaf in found)

  def name(leaf):
    if isinstance(leaf, Place):
      return leaf
    if leaf is places:
      return NOISE
    if is_race and jnp.shape(leaf) == (1,):
      return LENGTHS
    raise ValueError(
      f"{type(verifier).__name__}.draw returns an array of its own: it may "
      "only hand on what the streams give"
    )

  return Draw(tuple(map(name, found)), treedef, len(places.keys))


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What `verify` does, as a function of rows and their numbers."""

  verifier: types.Verifier
  draw: Draw

  def __call__(
    self, rows: tuple[jax.Array, types.Draft], numbers: jax.Array
  ) -> jax.Array:
    """Emitted tokens, then kept slots [N, 2 P]; beyond `count` V and -1."""
    log_p, draft = rows
    kept = self.verifier.verify(log_p, draft, self.draw.fill(numbers))
    valid = jnp.arange(kept.tokens.shape[1])[None] < kept.count[:, None]
    tokens = jnp.where(valid, kept.tokens, log_p.shape[-1])
    return jnp.concatenate([tokens, jnp.where(valid, kept.path, -1)], axis=1)


def in_chunks(
  function: Callable[..., Any], rows: Any, chunk: int = CHUNK
) -> Any:
  """function(rows) with `chunk` rows of a pytree [N, ...] at a time."""
  size = len(jax.tree.leaves(rows)[0])
  results = []
  for start in range(0, size, chunk):
    index = np.minimum(np.arange(start, start + chunk), size - 1)
    part = jax.tree.map(lambda x, i=index: np.asarray(x)[i], rows)
    result = function(part)
    results.append(
      jax.tree.map(lambda x, n=size - start: np.asarray(x)[:n], result)
    )
  return jax.tree.map(lambda *x: np.concatenate(x), *results)
