# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, evaluations, checkpoints, and how it ends."""

from collections.abc import Callable, Generator, Mapping
import contextlib
import dataclasses
import signal
from typing import Any

import jax
import numpy as np
import optax

from specjax import sharding
from train import batches as batches_lib
from train import features as features_lib
from train import saving, step, supervision, tracking
from train.objectives import objective as objective_lib


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is trained, how, and for how long.

  Attributes:
    objective: with its target.
    judged: losses.
    optimizer: of `steps` updates.
    rate: learning rate of each step.
    order: of the rows; a batch is all rows of one update.
    features: what the target says of them, from a disk; None asks it anew.
    accumulation: micro-batches of an update.
    steps: updates.
    evaluate: measures of the parameters, with "tau" among them.
    evaluate_every, save_every: updates between two.
    note: saved with each checkpoint, and compared when a run is resumed.
    key: of the first parameters.
  """

  objective: objective_lib.Objective
  judged: supervision.Supervision
  optimizer: optax.GradientTransformation
  rate: optax.Schedule
  order: batches_lib.Order
  features: features_lib.Features | None
  accumulation: int
  steps: int
  evaluate: Callable[[Any], Mapping[str, Any]]
  evaluate_every: int
  save_every: int
  note: Mapping[str, Any]
  key: jax.Array


def run(
  plan: Plan,
  saver: saving.Saver,
  tracker: tracking.Tracker,
  state: step.State,
) -> tuple[step.State, bool]:
  """Trains to the end, or until the process is asked to stop.

  Args:
    plan: of the run.
    saver: its checkpoints.
    tracker: its measures.
    state: to begin with; consumed.

  Returns:
    The newest state, which is saved, and whether all steps were made.

  Raises:
    FloatingPointError: a loss that is no number; names step and conversations.
  """
  update = jax.jit(
    step.update, static_argnames="optimizer", donate_argnames="state"
  )
  start = int(state.step)
  loader = plan.order.batches(start)
  late = _Late(plan, tracker)
  if start == 0:
    _evaluate(plan, state, tracker)
  done = start
  with _asked_to_stop() as is_asked:
    while done < plan.steps and not is_asked():
      batch = next(loader)
      seen = None if plan.features is None else plan.features.at(batch)
      state, sums, norm = update(
        plan.objective,
        plan.judged,
        plan.optimizer,
        state,
        *_placed(plan, (batch, seen)),
      )
      done += 1
      late.push(done, batch, sums, norm)
      measures = None
      if done % plan.evaluate_every == 0 or done == plan.steps:
        late.flush()
        measures = _evaluate(plan, state, tracker)
      if measures is not None or done % plan.save_every == 0:
        late.flush()
        saver.save(done, state, plan.note, measures)
    late.flush()
    saver.save(done, state, plan.note)
  saver.wait()
  return state, done == plan.steps


class _Late:
  """Numbers of the step before, read while a device works on the next."""

  def __init__(self, plan: Plan, tracker: tracking.Tracker):
    self._plan, self._tracker = plan, tracker
    self._held: tuple | None = None

  def push(self, number, batch, sums, norm) -> None:
    self.flush()
    self._held = number, batch, sums, norm

  def flush(self) -> None:
    """Writes what is held.

    Raises:
      FloatingPointError: the loss is no number.
    """
    if self._held is None:
      return
    number, batch, sums, norm = self._held
    self._held = None
    sums, norm = jax.device_get((sums, norm))
    loss = float(sums.loss / max(sums.weight, 1e-9))
    if not (np.isfinite(loss) and np.isfinite(norm)):
      examples = self._plan.order.examples
      sources = np.unique(batch.source[batch.source >= 0])
      names = ", ".join(examples[i].id for i in sources[:8])
      raise FloatingPointError(
        f"step {number}: loss {loss}, gradient norm {float(norm)}; its "
        f"{len(sources)} conversations: {names}"
      )
    count = np.maximum(sums.counted, 1)
    self._tracker.step(
      number,
      int(np.sum(batch.segments > 0)),
      {
        "loss": loss,
        "alpha": float(sums.accepted.sum() / count.sum()),
        "acceptance": (sums.accepted / count).tolist(),
        "top1": (sums.hits / count).tolist(),
        "learning_rate": float(np.asarray(self._plan.rate(number - 1))),
        "gradient_norm": float(norm),
        "loss_tokens": int(sums.counted[0]),
      },
    )


def _evaluate(plan, state, tracker) -> dict[str, float]:
  """Writes the measures; the one that decides which checkpoint is best."""
  measures = plan.evaluate(state.params)
  tracker.write(int(state.step), "evaluation", measures)
  return {"tau": float(measures["tau"])}


def _placed(plan: Plan, rows: Any) -> Any:
  """[A * B, ...] as [A, B, ...], the rows B split among the devices."""
  split = jax.tree.map(
    lambda x: x.reshape(plan.accumulation, -1, *x.shape[1:]), rows
  )
  rules = sharding.rules_of(plan.objective.target)
  if rules is None:
    return split
  return jax.tree.map(
    lambda x: sharding.put(
      x, rules.place(None, "batch", *(None,) * (x.ndim - 2))
    ),
    split,
  )


@contextlib.contextmanager
def _asked_to_stop() -> Generator[Callable[[], bool], None, None]:
  """Whether SIGTERM or SIGINT came; a second one ends the process at once."""
  asked = []
  numbers = (signal.SIGTERM, signal.SIGINT)
  before = {number: signal.getsignal(number) for number in numbers}

  def note(number, frame):
    del frame
    asked.append(number)
    signal.signal(number, before[number])

  try:
    for number in numbers:
      signal.signal(number, note)
    yield lambda: bool(asked)
  finally:
    for number in numbers:
      signal.signal(number, before[number])
