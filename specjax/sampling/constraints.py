# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers that must have a form: a state along the path that masks tokens.

A `Constraint` is any pytree with three pure functions; `Automaton` is the one
that choices and regular expressions become (`specjax/sampling/automata.py`). A
`Track`
carries it through decoding, one state a row, or one a node of a draft tree.

Axis letters: B batch, n tokens read, S states, C token classes, V vocabulary.
"""

from typing import Any, Protocol

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

DEAD = 0  # the state, and the class, from which nothing leads anywhere


class Constraint(Protocol):
  """Which tokens may follow. A state is a pytree of arrays [B, ...]."""

  def start(self, batch: int) -> Any:
    """States [B] before the first token of an answer."""

  def advance(self, state: Any, token: jax.Array) -> Any:
    """States after tokens [B, ...]: elementwise, and defined for any id."""

  def allows(self, state: Any) -> jax.Array:
    """[B, ..., V] bool; ids past its last are forbidden."""


class Automaton(struct.PyTreeNode):
  """Transitions between states by classes of tokens that act alike.

  State 0 is dead, state 1 the start; an accepting state allows EOS.
  """

  classes: jax.Array  # [V] int32 class of each token
  table: jax.Array  # [S, C] int32 next state

  def start(self, batch: int) -> jax.Array:
    return jnp.ones((batch,), jnp.int32)

  def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
    kind = self.classes.at[token].get(mode="fill", fill_value=DEAD)
    return self.table[state, kind]

  def allows(self, state: jax.Array) -> jax.Array:
    return jnp.take((self.table != DEAD)[state], self.classes, axis=-1)


class Track(struct.PyTreeNode):
  """A constraint under way.

  Attributes:
    constraint: one for all rows.
    first: states [B] at the start of an answer.
    state: [B, ...] now.
  """

  constraint: Any
  first: Any
  state: Any

  def restart(self) -> "Track":
    return self.replace(state=self.first)

  def extend(self, tokens: jax.Array, valid: jax.Array) -> "Track":
    """Reads tokens [B, ..., n] in order, those that are `valid`."""

    def read(state, column):
      token, ok = column
      moved = self.constraint.advance(state, token)
      kept = lambda new, old: jnp.where(
        ok.reshape(ok.shape + (1,) * (old.ndim - ok.ndim)), new, old
      )
      return jax.tree.map(kept, moved, state), None

    columns = jnp.moveaxis(tokens, -1, 0), jnp.moveaxis(valid, -1, 0)
    return self.replace(state=jax.lax.scan(read, self.state, columns)[0])

  def spread(self, slots: int) -> "Track":
    """The same state at each of several slots."""

    def repeat(x):
      return jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))

    return self.replace(state=jax.tree.map(repeat, self.state))

  def take(self, rows: Any) -> "Track":
    """The track of some rows, on the host."""
    pick = lambda x: np.asarray(x)[rows]
    return self.replace(
      first=jax.tree.map(pick, self.first), state=jax.tree.map(pick, self.state)
    )

  def allows(self, vocab: int) -> jax.Array:
    """[B, ..., V] bool."""
    allowed = self.constraint.allows(self.state)
    missing = vocab - allowed.shape[-1]
    padding = [(0, 0)] * (allowed.ndim - 1) + [(0, missing)]
    return jnp.pad(allowed, padding, constant_values=False)


def track(constraint: Any, batch: int) -> Track:
  """A constraint at the start of every row.

  Args:
    constraint: for all rows; or one a row, automata and None for free rows.
    batch: B.

  Raises:
    ValueError: not one a row, or rows whose constraints are no automata of one
      vocabulary.
  """
  if isinstance(constraint, Track):
    return constraint
  if not isinstance(constraint, list | tuple) or hasattr(constraint, "start"):
    first = constraint.start(batch)
    return Track(constraint, first, first)
  if len(constraint) != batch:
    raise ValueError(
      f"sampling.constraint has {len(constraint)} for {batch} rows: give one, "
      "or one each"
    )
  machine, first = _union(constraint)
  return Track(machine, first, first)


def automaton(columns: np.ndarray) -> Automaton:
  """From next states [S, V], state 0 dead; tokens of equal columns share."""
  unique, classes = np.unique(columns, axis=1, return_inverse=True)
  dead = np.zeros((len(columns), 1), unique.dtype)
  table = np.concatenate([dead, unique], axis=1)
  return Automaton(
    jnp.asarray(classes.reshape(-1) + 1, jnp.int32),
    jnp.asarray(table, jnp.int32),
  )


def _union(rows):
  """One automaton of all rows' states, and each row's first state [B]."""
  parts = list({id(row): row for row in rows if row is not None}.values())
  if not all(isinstance(part, Automaton) for part in parts):
    raise ValueError(
      "sampling.constraint has rows that are no Automaton: only choices and "
      "regular expressions can differ by row"
    )
  if len({part.classes.size for part in parts}) != 1:
    raise ValueError(
      "sampling.constraint has rows of several vocabularies: compile all with "
      "the target's tokenizer"
    )
  # A row without constraint stays in one state that every token leads back to.
  width = parts[0].classes.size
  classes = [np.zeros(width, np.int32)]
  tables, first, offset = [np.array([[0], [1]])], {id(None): 1}, 1
  for part in parts:
    table = np.asarray(part.table)[1:]
    tables.append(np.where(table == DEAD, DEAD, table + offset))
    first[id(part)] = offset + 1
    offset += len(table)
    classes.append(np.asarray(part.classes))
  # A class of the union is a combination of classes, one of each part.
  kinds, joint = np.unique(np.stack(classes), axis=1, return_inverse=True)
  table = np.concatenate([t[:, kind] for t, kind in zip(tables, kinds)])
  dead = np.zeros((len(table), 1), table.dtype)
  machine = Automaton(
    jnp.asarray(joint.reshape(-1) + 1, jnp.int32),
    jnp.asarray(np.concatenate([dead, table], axis=1), jnp.int32),
  )
  return machine, jnp.asarray([first[id(row)] for row in rows], jnp.int32)
