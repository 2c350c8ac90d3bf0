# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How much arithmetic a program must do, read off from the shapes of its parts.

Two operations for each multiplication of the matrix products that a batch
needs, nothing else: norms, softmaxes and losses are little beside them. Of
attention the pairs of tokens that see each other count, of output matrices the
slots whose drafts are judged. What a backward pass works out again counts too.

Axis letters: B rows, S slots, C slots of a key block, D model width, K depths,
Q columns.
"""

from collections.abc import Callable, Iterator
import math
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp

from specjax import types
from specjax.models import attention
from train import packing, supervision, teacher
from train.objectives import objective as objective_lib


def of_teacher(target: types.Model, batch: packing.Batch) -> float:
  """Operations of `teacher.read` on rows of one text each."""
  B, S = batch.tokens.shape

  def hidden(target, batch):
    cache = target.init_cache(B, S, S)
    mask = teacher.mask(batch)
    return target(batch.tokens, cache, batch.positions, mask).hidden

  given = jax.eval_shape(hidden, target, batch)
  slot = jax.ShapeDtypeStruct(given.shape[-1:], given.dtype)
  answer = float(jnp.sum(batch.loss[:, 1:]))
  return operations(hidden, target, batch, turns=_turns(S)) + (
    answer * operations(lambda target, x: target.unembed(x), target, slot)
  )


def of_step(
  objective: objective_lib.Objective,
  judged: supervision.Supervision,
  params: Any,
  batch: packing.Batch,
  seen: teacher.Teacher,
) -> float:
  """Operations of a step on rows of one text each, the target's pass apart."""
  rows = supervision.output_rows(objective)

  def read(params):
    known = objective.read(params, batch, seen)[0]
    is_real = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)
    return sum(jnp.sum(x) for x in jax.tree.leaves(known) if is_real(x))

  def output(params, known):
    return jnp.sum(objective.logits(params, known, rows))

  known = jax.eval_shape(lambda p: objective.read(p, batch, seen)[0], params)
  slot = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((1, *x.shape[2:]), x.dtype), known
  )
  law = jax.eval_shape(lambda p, x: objective.logits(p, x, rows), params, slot)
  each = operations(
    jax.value_and_grad(output, (0, 1), allow_int=True), params, slot
  )
  if judged.temperature:  # The target's laws; those of greedy ones are known.
    each += 2.0 * seen.hidden.shape[-1] * law.size
  starts = float(jnp.sum(teacher.counted(batch, 1)))
  turns = _turns(batch.tokens.shape[1])
  return starts * each + operations(
    jax.value_and_grad(read), params, turns=turns
  )


def _turns(width: int) -> float:
  """Key blocks that hold as many pairs as a causal text of S tokens has."""
  return (width + 1) / 2 / min(attention.KEY_BLOCK, width)


def operations(
  function: Callable[..., Any], *args: Any, turns: float = 0.0
) -> float:
  """Of the matrix products of `function(*args)`.

  Args:
    function: is traced, not run.
    args: arrays, or their shapes.
    turns: of a loop whose number of turns is not known before it runs.
  """
  return _count(jax.make_jaxpr(function)(*args).jaxpr, turns)


def _count(jaxpr: core.Jaxpr, turns: float) -> float:
  total = 0.0
  # A compiler drops what no result needs.
  needed = {id(variable) for variable in jaxpr.outvars}
  for equation in reversed(jaxpr.eqns):
    if needed.isdisjoint(map(id, equation.outvars)):
      continue
    needed.update(map(id, equation.invars))
    kind = equation.primitive.name
    inside = [_count(inner, turns) for inner in _inner(equation)]
    if kind == "dot_general":
      total += _product(equation)
    elif kind == "scan":
      total += equation.params["length"] * sum(inside)
    elif kind == "while":
      total += turns * sum(inside)
    elif kind == "cond":
      total += max(inside)
    else:
      total += sum(inside)
  return total


def _product(equation: Any) -> float:
  """2 x elements of the result x elements that each of them sums over."""
  (contracted, _), _ = equation.params["dimension_numbers"]
  left = equation.invars[0].aval.shape
  terms = math.prod(left[axis] for axis in contracted)
  return 2.0 * terms * math.prod(equation.outvars[0].aval.shape)


def _inner(equation: Any) -> Iterator[core.Jaxpr]:
  """Programs that an operation runs."""
  for value in equation.params.values():
    for item in value if isinstance(value, tuple | list) else (value,):
      if isinstance(item, core.ClosedJaxpr):
        yield item.jaxpr
      elif isinstance(item, core.Jaxpr):
        yield item
