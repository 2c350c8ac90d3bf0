# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums over the slots of a batch, a chunk at a time, and their gradient.

Logits over a vocabulary are the largest arrays of training. They exist for one
chunk of slots only: the forward pass takes a chunk's value and its gradient at
once, adds both up and lets the logits go, so nothing is kept or computed again.
Slots that count go first and how many chunks run is decided at run time: slots
of prompts and of padding cost nothing.

Axis letters: N slots of a batch, C slots of a chunk.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp

# (parameters, what is frozen, what is known at C slots, their numbers [C], and
# which of them to add) -> (what is differentiated, further sums).
Sums = Callable[[Any, Any, Any, jax.Array, jax.Array], tuple[jax.Array, Any]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 5))
def total(
  function: Sums,
  params: Any,
  frozen: Any,
  known: Any,
  counts: jax.Array,
  chunk: int,
) -> tuple[jax.Array, Any]:
  """What `function` gives for all slots that count, added up.

  Args:
    function: of one chunk; its sums leave out slots that are not to be added.
    params: differentiated.
    frozen: whole arrays, given to every chunk; not differentiated.
    known: pytree of [N, ...], cut into chunks; differentiated but for integers.
    counts: [N] bool.
    chunk: C.

  Returns:
    The first sum, which can be differentiated, and the others, which cannot.
  """

  def add(sums, part, index, valid):
    new = function(params, frozen, part, index, valid)
    return jax.tree.map(jnp.add, sums, new)

  return _walk(
    add, _zeros(function, params, frozen, known, chunk), known, counts, chunk
  )


def each(
  function: Callable[[Any], Any], known: Any, counts: jax.Array, chunk: int
) -> Any:
  """What `function` gives for slots that count, zeros elsewhere.

  Args:
    function: pytree of [C, ...] -> pytree of [C, ...].
    known: pytree of [N, ...].
    counts: [N] bool.
    chunk: C.
  """
  shapes = jax.eval_shape(function, _chunk_of(known, chunk))
  found = jax.tree.map(
    lambda x: jnp.zeros((len(counts), *x.shape[1:]), x.dtype), shapes
  )

  def put(found, part, index, valid):
    return _put(found, index, valid, function(part))

  return _walk(put, found, known, counts, chunk)


def _forward(function, params, frozen, known, counts, chunk):
  """The sums, and the gradient of the first."""

  def value(params, reals, others, index, valid):
    part = jax.tree.map(_either, reals, others, is_leaf=_is_none)
    first, others = function(params, frozen, part, index, valid)
    return first, (first, others)

  def add(carry, part, index, valid):
    sums, grads, at_slots = carry
    (mine, theirs), new = jax.grad(value, argnums=(0, 1), has_aux=True)(
      params, *_split(part), index, valid
    )
    sums, grads = jax.tree.map(jnp.add, (sums, grads), (new, mine))
    # Every slot is in one chunk, so its gradient is complete.
    return sums, grads, _put(at_slots, index, valid, theirs)

  sums = _zeros(function, params, frozen, known, chunk)
  grads, at_slots = jax.tree.map(jnp.zeros_like, (params, _split(known)[0]))
  sums, grads, at_slots = _walk(
    add, (sums, grads, at_slots), known, counts, chunk
  )
  return sums, (grads, at_slots)


def _backward(function, chunk, kept, given):
  del function, chunk
  scale, _ = given
  grads, at_slots = jax.tree.map(lambda g: scale.astype(g.dtype) * g, kept)
  return grads, None, at_slots, None


total.defvjp(_forward, _backward)


def _split(tree):
  """What can be differentiated, and the rest; each None where the other is."""
  is_real = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)
  return (
    jax.tree.map(lambda x: x if is_real(x) else None, tree),
    jax.tree.map(lambda x: None if is_real(x) else x, tree),
  )


def _either(a, b):
  return b if a is None else a


def _is_none(x):
  return x is None


def _walk(add, carry, known, counts, chunk):
  """carry after add(carry, chunk of slots, their numbers, which are new).

  The last chunk is filled up with the first slot that counts, again: what is
  known at others need not be numbers, and a NaN spoils a gradient even where
  its value is left out.
  """
  order = jnp.argsort(~counts, stable=True)
  number = jnp.sum(counts)

  def body(i, carry):
    lane = i * chunk + jnp.arange(chunk)
    valid = lane < number
    index = order[jnp.where(valid, lane, 0)]
    take = lambda x: jnp.take(x, index, axis=0, mode="clip")
    return add(carry, jax.tree.map(take, known), index, valid)

  return jax.lax.fori_loop(0, (number + chunk - 1) // chunk, body, carry)


def _put(slots, index, valid, part):
  """pytree of [N, ...] with a chunk in its places."""

  def put(x, new):
    place = jnp.where(valid, index, len(x))
    return x.at[place].set(new, mode="drop")

  return jax.tree.map(put, slots, part)


def _zeros(function, params, frozen, known, chunk):
  """Sums of no slot."""
  number = jax.ShapeDtypeStruct((chunk,), jnp.int32)
  valid = jax.ShapeDtypeStruct((chunk,), bool)
  shapes = jax.eval_shape(
    function, params, frozen, _chunk_of(known, chunk), number, valid
  )
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def _chunk_of(known, chunk):
  """Shapes of a chunk of slots, whatever N is."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((chunk, *x.shape[1:]), x.dtype), known
  )
