# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Acceptance on held-out texts, without decoding.

Laws are those of serving, over the whole vocabulary: what a draft cannot say
counts as refused. Each of several temperatures is judged on the same texts.

Axis letters: B rows, S slots, N = B * S, C slots of a chunk, K positions,
Q columns, V vocabulary.
"""

from collections.abc import Iterable, Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from train import acceptance, packing, renewal, slots, supervision, teacher
from train.objectives import objective as objective_lib

CHUNK = 64  # slots whose logits exist at a time


def starts(
  objective: objective_lib.Objective,
  params: Any,
  batches: Iterable[packing.Batch],
  samplings: Mapping[str, sampling_lib.Sampling],
  depth: int,
) -> dict[str, acceptance.Starts]:
  """What becomes of drafts from every slot of held-out texts.

  Args:
    objective: what was trained.
    params: its parameters.
    batches: packed rows; no conversation is in two of them.
    samplings: settings of serving by name, one row each.
    depth: K, positions to judge; no more than the objective's outputs unless it
      is teacher-forced.

  Returns:
    For each of `samplings` the starts that count, for `acceptance.measures`.
  """
  if not objective.teacher_forced and depth > objective.depth:
    raise ValueError(
      f"depth {depth} is more than the {objective.depth} tokens that the draft "
      "was made for: use less"
    )
  parts: dict[str, list[acceptance.Starts]] = {name: [] for name in samplings}
  for batch in batches:
    found, counted = jax.device_get(
      judge(objective, params, batch, dict(samplings), depth)
    )
    some = counted[..., 0]
    for name, accepted in found.items():
      parts[name].append(
        acceptance.Starts(
          accepted[some],
          counted[some],
          renewal.begun(accepted, counted)[some],
          np.asarray(batch.source)[some],
          np.asarray(batch.positions)[some],
        )
      )
  return {name: acceptance.join(part) for name, part in parts.items()}


def measures(
  objective: objective_lib.Objective,
  params: Any,
  batches: Iterable[packing.Batch],
  samplings: Mapping[str, sampling_lib.Sampling],
  depth: int,
) -> dict[str, dict[str, Any]]:
  """`acceptance.measures` of `starts`, by the names of `samplings`."""
  found = starts(objective, params, batches, samplings, depth)
  return {name: acceptance.measures(part) for name, part in found.items()}


@functools.partial(jax.jit, static_argnames=("depth",))
def judge(
  objective: objective_lib.Objective,
  params: Any,
  batch: packing.Batch,
  samplings: dict[str, sampling_lib.Sampling],
  depth: int,
) -> tuple[dict[str, jax.Array], jax.Array]:
  """Acceptance [B, S, K] under `rejection` by name, and what counts.

  At temperature 0 it is whether the likeliest tokens are the same.
  """
  seen = teacher.read(objective.target, batch)
  known, _ = objective.read(params, batch, seen)
  rows = supervision.output_rows(objective)
  hidden = teacher.flat(seen.hidden)
  outputs = objective.depth

  def accepted(part):
    known, index = part
    logits = objective.logits(params, known, rows)
    log_q = _on_target(objective, logits)
    at = index[:, None] + 1 + jnp.arange(outputs)[None]
    true = objective.target.unembed(jnp.take(hidden, at, axis=0, mode="clip"))
    return {
      name: _overlap(true, log_q, sampling)
      for name, sampling in samplings.items()
    }

  counted = teacher.counted(batch, max(depth, outputs))
  numbers = jnp.arange(hidden.shape[0])
  any_depth = jnp.any(counted, axis=-1).reshape(-1)
  if objective.teacher_forced:  # Later slots are other starts' positions.
    any_depth = teacher.flat(_of_answers(batch))
  found = slots.each(accepted, (teacher.flat(known), numbers), any_depth, CHUNK)
  B, S = batch.tokens.shape
  shaped = {k: x.reshape(B, S, outputs) for k, x in found.items()}
  if objective.teacher_forced:
    shaped = {
      name: jnp.stack(
        [teacher.later(x[..., 0], k) for k in range(depth)], axis=-1
      )
      for name, x in shaped.items()
    }
  return {k: x[..., :depth] for k, x in shaped.items()}, counted[..., :depth]


def _of_answers(batch):
  """[B, S] slots whose draft token is of an answer."""
  return teacher.later(jnp.asarray(batch.loss), 2)


def _on_target(objective, logits):
  """[C, K, V] logits; what cannot be drafted has -inf."""
  if objective.ids is None:
    return logits
  full = jnp.full((*logits.shape[:2], objective.target.vocab_size), -jnp.inf)
  return full.at[..., objective.ids].set(logits)


def _overlap(true, draft, sampling):
  """[C, K] sum of min(p, q) under settings of serving."""
  log_p, log_q = (
    sampling_lib.log_probs(x[None], sampling)[0] for x in (true, draft)
  )
  return jnp.sum(jnp.exp(jnp.minimum(log_p, log_q)), axis=-1)
