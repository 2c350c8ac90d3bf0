# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Laws of target and draft on held-out texts, one text a row.

Axis letters: C conversations, S slots, K depths, V vocabulary.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.bench import backend, configuration
from train import build, conversations, packing, saving, schema, teacher
from train.objectives import objective as objective_lib


@dataclasses.dataclass(frozen=True)
class HeldOut:
  """What two models say of the same texts.

  Attributes:
    tokens: [C, S].
    laws: [C, S, V] the target's after each slot.
    keep: [C, S, K] min(1, q / p) of the token that a draft from slot t is
      compared with at depth k.
    counted: [C, S, K] whether it is an answer's.
  """

  tokens: np.ndarray
  laws: np.ndarray
  keep: np.ndarray
  counted: np.ndarray


def read(
  config_spec: str, training: pathlib.Path, texts: pathlib.Path, width: int
) -> HeldOut:
  """Runs target and trained draft over texts.

  Args:
    config_spec: of the training run.
    training: its folder; the best checkpoint is taken.
    texts: to judge.
    width: S.
  """
  config = configuration.read(config_spec, (), schema)
  target, tokenizer, _ = backend.load(config)
  objective = build.objective(config, target, None)
  with saving.Saver(training / "checkpoints", None) as saver:
    like = objective.init(jax.random.key(0))
    params = saver.load_parameters(saver.best, like)
  examples, _ = conversations.read([texts], tokenizer)
  batch = packing.stack(
    [packing.fill(examples, (i,), width) for i in range(len(examples))]
  )
  return HeldOut(
    batch.tokens, *map(np.asarray, _judged(objective, params, batch))
  )


@jax.jit
def _judged(
  objective: objective_lib.Objective, params: Any, batch: packing.Batch
) -> Sequence[jax.Array]:
  seen = teacher.read(objective.target, batch)
  log_p = jax.nn.log_softmax(objective.target.unembed(seen.hidden))
  known, _ = objective.read(params, batch, seen)
  log_q = jax.nn.log_softmax(
    objective.logits(params, teacher.flat(known), None)
  ).reshape(*batch.tokens.shape, objective.depth, -1)
  tokens = jnp.asarray(batch.tokens)
  of = lambda laws, ids: jnp.take_along_axis(laws, ids[..., None], -1)[..., 0]
  true = of(log_p, teacher.later(tokens, 1))
  keep = [
    of(log_q[:, :, k], teacher.later(tokens, 2 + k))
    - teacher.later(true, 1 + k)
    for k in range(objective.depth)
  ]
  return (
    jnp.exp(log_p),
    jnp.exp(jnp.minimum(jnp.stack(keep, axis=-1), 0)),
    teacher.counted(batch, objective.depth),
  )
