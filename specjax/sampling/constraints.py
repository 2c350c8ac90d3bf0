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
    # Rows first: a comparison of the whole table is the dearer of the two.
    return jnp.take(self.table[state] != DEAD, self.classes, axis=-1)


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


def track(
  constraint: Any, batch: int, vocab: int | None = None
) -> Track | None:
  """A constraint at the start of every row; None if no row has one.

  Args:
    constraint: for all rows; or one a row, automata and None for free rows.
    batch: B.
    vocab: ids that exist, which those of an automaton are compared with.

  Raises:
    ValueError: it is none, not one a row, or rows have others than automata of
      one vocabulary; or one that the model has not.
  """
  if constraint is None or isinstance(constraint, Track):
    return constraint
  if _is_constraint(constraint):
    _check_vocab(constraint, vocab)
    first = constraint.start(batch)
    return Track(constraint, first, first)
  if not isinstance(constraint, list | tuple):
    raise ValueError(
      f"sampling.constraint is {constraint!r:.40}: give what automata.choices "
      "or automata.regex make, or one for each row"
    )
  if len(constraint) != batch:
    raise ValueError(
      f"sampling.constraint has {len(constraint)} for {batch} rows: give one, "
      "or one each"
    )
  if all(row is None for row in constraint):
    return None
  machine, first = _union(constraint)
  _check_vocab(machine, vocab)
  return Track(machine, first, first)


def _check_vocab(constraint, vocab):
  known = constraint.classes.size if isinstance(constraint, Automaton) else 0
  if vocab is not None and known > vocab:
    raise ValueError(
      f"sampling.constraint knows {known} tokens but the model has {vocab}: "
      "compile it with the target's tokenizer"
    )


def _is_constraint(value: Any) -> bool:
  return all(
    callable(getattr(value, name, None))
    for name in ("start", "advance", "allows")
  )


def automaton(steps: np.ndarray, states: int, vocab: int) -> Automaton:
  """From its steps alone: tokens whose steps are equal are one class.

  Most tokens have none and are of the dead class, so that little depends on the
  size of the vocabulary.

  Args:
    steps: [E, 3] int32 state, token and next state, one a state and token.
    states: how many, the dead one included.
    vocab: ids, the first ones.
  """
  steps = steps[np.lexsort((steps[:, 0], steps[:, 1]))]
  tokens, first = np.unique(steps[:, 1], return_index=True)
  classes = np.full(vocab, DEAD, np.int32)
  known: dict[bytes, int] = {}
  for token, moves in zip(tokens, np.split(steps[:, ::2], first[1:])):
    classes[token] = known.setdefault(moves.tobytes(), len(known) + 1)
  table = np.full((states, len(known) + 1), DEAD, np.int32)
  table[steps[:, 0], classes[steps[:, 1]]] = steps[:, 2]
  return Automaton(jnp.asarray(classes), jnp.asarray(table))


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
  tables, first, offset = [np.array([[0], [1]])], {id(None): 1}, 1
  kinds = [np.zeros(parts[0].classes.size, np.int32)]
  for part in parts:
    table = np.asarray(part.table)[1:]
    tables.append(np.where(table == DEAD, DEAD, table + offset))
    first[id(part)] = offset + 1
    offset += len(table)
    kinds.append(np.asarray(part.classes))
  # A class of the union is a combination of classes, one of each part.
  joint = kinds[0]
  for kind in kinds[1:]:
    _, joint = np.unique(
      joint.astype(np.int64) * (kind.max() + 1) + kind, return_inverse=True
    )
  _, token = np.unique(joint, return_index=True)
  table = np.concatenate([t[:, k[token]] for t, k in zip(tables, kinds)])
  dead = np.zeros((len(table), 1), table.dtype)
  machine = Automaton(
    jnp.asarray(joint + 1, jnp.int32),
    jnp.asarray(np.concatenate([dead, table], axis=1), jnp.int32),
  )
  return machine, jnp.asarray([first[id(row)] for row in rows], jnp.int32)
