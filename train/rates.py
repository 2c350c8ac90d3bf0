# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How fast training runs on this machine, and what memory it holds."""

from collections.abc import Callable, Mapping
import functools
import math
import pathlib
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict
import numpy as np

from specjax import types
from specjax.bench import backend
from train import (
  batches,
  build,
  conversations,
  loop,
  optimizer,
  packing,
  saving,
  step,
  teacher,
  tracking,
  work,
)
from train.objectives import objective as objective_lib

_TURNS = 3  # of each measurement; the fastest call is taken
_TURN_SECONDS = 1.0
# For the memory: steps, those between two looks, tokens of a row.
_STEPS, _EVERY, _WIDTH = 40, 10, 64


def measures(config: ConfigDict) -> dict[str, Any]:
  """What a config of training reaches, its data not read.

  Returns:
    matrix_rate, operations a second of float32 products of the target's shape;
    of "teacher" (the target's pass) and "step" (what is left of an update when
    that is known) operations, seconds, share of matrix_rate, and
    tokens_per_second; "memory", bytes held after some steps.

  Raises:
    ValueError, OSError: no such target or objective.
  """
  backend.set_up()
  target, _, _ = backend.load(config)
  ids = build.draft_ids([], config.data.draft_vocab, target.num_tokens)
  objective = build.objective(config, target, ids)
  return {
    "device": jax.devices()[0].device_kind,
    **_rates(config, objective),
    "memory": _memory(config, objective),
  }


def random_batch(target: types.Model, rows: int, width: int) -> packing.Batch:
  """Rows of one text each, the second half its answer."""
  slots = np.broadcast_to(np.arange(width, dtype=np.int32), (rows, width))
  rng = np.random.default_rng(0)
  return packing.Batch(
    tokens=rng.integers(0, target.num_tokens, slots.shape, np.int32),
    segments=np.ones_like(slots),
    positions=slots,
    loss=slots >= width // 2,
    source=np.broadcast_to(np.arange(rows)[:, None], slots.shape),
  )


def _rates(config, objective) -> dict[str, Any]:
  judged = build.judged(config)
  rows = config.batch_size // config.accumulation
  batch = random_batch(objective.target, rows, config.data.width)
  read = jax.jit(
    functools.partial(teacher.read, temperature=judged.temperature or 1.0)
  )
  seen = read(objective.target, batch)
  state = step.init(objective, _optimizer(config), build.key(config))
  needed = {
    "teacher": work.of_teacher(objective.target, batch),
    "step": work.of_step(objective, judged, state.params, batch, seen),
  }
  product, needed["matrix"] = _product(objective.target, batch.tokens.size)
  seconds = _fastest(
    {
      "matrix": product,
      "teacher": lambda: read(objective.target, batch),
      "step": _stepping(config, objective, judged, state, batch, seen),
    }
  )
  rate = {name: needed[name] / seconds[name] for name in seconds}
  found = {
    name: {
      "operations": needed[name],
      "seconds": seconds[name],
      "share": rate[name] / rate["matrix"],
      "tokens_per_second": batch.tokens.size / seconds[name],
    }
    for name in ("teacher", "step")
  }
  return {"matrix_rate": rate["matrix"], **found}


def _optimizer(config):
  return optimizer.make(optimizer.Settings(**config.optimizer), _STEPS)


def _stepping(config, objective, judged, state, *known) -> Callable[[], Any]:
  """A function that makes one step, from where the last one ended."""
  rule = _optimizer(config)
  update = jax.jit(
    step.update, static_argnames="optimizer", donate_argnames="state"
  )
  known = jax.tree.map(lambda x: x[None], known)

  def advance():
    nonlocal state
    state, *sums = update(objective, judged, rule, state, *known)
    return sums

  return advance


def _product(target, tokens) -> tuple[Callable[[], Any], float]:
  """[tokens, D] x [D, M], as in the target's MLP, and its operations."""
  c = target.config
  x = jnp.ones((tokens, c.embed_dim), jnp.float32)
  matrix = jnp.ones((c.embed_dim, c.mlp_dim), jnp.float32)
  multiply = jax.jit(jnp.matmul)
  return lambda: multiply(x, matrix), 2.0 * tokens * matrix.size


def _fastest(functions: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
  """Seconds of each one's fastest call; a first one is left out.

  They take turns, so that what else the machine does reaches all of them; short
  ones are called again until a turn is long enough.
  """
  for function in functions.values():
    jax.block_until_ready(function())
  fastest = dict.fromkeys(functions, math.inf)
  for name in [*functions] * _TURNS:
    spent = 0.0
    while spent < _TURN_SECONDS:
      begin = time.perf_counter()
      jax.block_until_ready(functions[name]())
      seconds = time.perf_counter() - begin
      spent, fastest[name] = spent + seconds, min(fastest[name], seconds)
  return fastest


def _memory(
  config: ConfigDict, objective: objective_lib.Objective
) -> list[dict[str, int]]:
  """Bytes held after some steps of the whole loop, checkpoints and all."""
  found = []

  def look(params):
    del params
    found.append(held())
    return {"tau": 1.0}

  plan = _small_plan(config, objective, look)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    with (
      saving.Saver(folder / "checkpoints", 1) as saver,
      tracking.Tracker(folder, 0, _STEPS, False) as tracker,
    ):
      state = step.init(objective, plan.optimizer, plan.key)
      loop.run(plan, saver, tracker, state)
  # The first look is before the first step.
  return [
    {"step": number * _EVERY, "bytes": size}
    for number, size in enumerate(found)
    if number
  ]


def _small_plan(config, objective, evaluate) -> loop.Plan:
  """A run on a few short texts, evaluated and saved every few steps."""
  rows = 2 * config.mesh.data
  batch = random_batch(objective.target, 8 * rows, _WIDTH)
  examples = [
    conversations.Example(str(i), *text)
    for i, text in enumerate(zip(batch.tokens, batch.loss))
  ]
  return loop.Plan(
    objective=objective,
    judged=build.judged(config),
    optimizer=_optimizer(config),
    rate=optimizer.schedule(optimizer.Settings(**config.optimizer), _STEPS),
    order=batches.Order(examples, _WIDTH, rows, config.seed),
    features=None,
    accumulation=1,
    steps=_STEPS,
    evaluate=evaluate,
    evaluate_every=_EVERY,
    save_every=_EVERY,
    note={},
    key=build.key(config),
  )


def held() -> int:
  """Bytes in use on the first device; where it does not say, by the process."""
  stats = jax.local_devices()[0].memory_stats() or {}
  if "bytes_in_use" in stats:
    return int(stats["bytes_in_use"])
  import resource

  pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
  return int(pages) * resource.getpagesize()
