# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Streams that tell what is read of them."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import streams as streams_lib


class Read(NamedTuple):
  """One number, or vector of noise, that was read from a stream."""

  row: int
  tag: int
  round: int
  position: int
  slot: int


class Recorder(streams_lib.Streams):
  """Streams that say what is read of them, in compiled code too.

  Attributes:
    note: called with every number, for example the `append` of a list.
  """

  note: Callable[[Read], Any] = struct.field(pytree_node=False, default=print)

  def _draw(self, draw, tag, positions, slots):
    rows = jnp.arange(len(self.keys)).reshape(-1, *[1] * (positions.ndim - 1))
    rounds = self.round.reshape(rows.shape)
    at = jnp.broadcast_arrays(rows, rounds, positions, slots)
    jax.debug.callback(functools.partial(self._read, tag), *at)
    return super()._draw(draw, tag, positions, slots)

  def _read(self, tag, *at):
    for row, round_, position, slot in zip(*(np.ravel(x).tolist() for x in at)):
      self.note(Read(row, tag, round_, position, slot))
