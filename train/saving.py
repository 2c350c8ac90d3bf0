# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run (Orbax), written beside it; the best and last are kept.

A checkpoint appears under its step when it is complete and not before, so a run
that is killed while it saves goes on from the one before.
"""

from collections.abc import Mapping
import contextlib
import os
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

_T = TypeVar("_T")


class Saver(contextlib.AbstractContextManager):
  """The checkpoints of one run.

  Args:
    folder: of the checkpoints, one folder a step; made if it is missing.
    keep: newest checkpoints to keep, beside the best by the measure `tau`; None
      is another run's folder, which is only read.
  """

  def __init__(self, folder: str | os.PathLike[str], keep: int | None):
    from orbax.checkpoint import v1 as ocp

    policies = ocp.training.preservation_policies
    best = policies.BestN(
      get_metric_fn=lambda measures: measures["tau"],
      n=1,
      keep_checkpoints_without_metrics=False,
    )
    kept: Any = policies.AnyPreservationPolicy([policies.LatestN(keep), best])
    self._steps: Any = ocp.training.Checkpointer(
      os.path.abspath(folder),
      preservation_policy=kept,
      # Who only reads must not clear away what is being written there.
      cleanup_tmp_directories=keep is not None,
    )

  @property
  def latest(self) -> int | None:
    """Step of the newest complete checkpoint."""
    found = self._steps.latest
    return None if found is None else int(found.step)

  @property
  def best(self) -> int | None:
    """Step of the one with the largest tau; None if none was evaluated."""
    measured = [
      (found.metrics["tau"], found.step)
      for found in self._steps.checkpoints
      if found.metrics and "tau" in found.metrics
    ]
    return int(max(measured)[1]) if measured else None

  def save(
    self,
    step: int,
    state: Any,
    note: Mapping[str, Any],
    measures: Mapping[str, float] | None = None,
  ) -> None:
    """Begins to write a checkpoint; waits for the one before.

    Args:
      step: updates made so far.
      state: pytree of arrays; it is copied before this returns.
      note: whatever JSON can hold.
      measures: of an evaluation of this very state, "tau" among them.
    """
    self.wait()
    if self.latest == step:
      return
    self._steps.save_async(
      step,
      # The next step may write over these very buffers while they are saved.
      jax.tree.map(jnp.copy, state),
      force=True,
      metrics=None if measures is None else dict(measures),
      custom_metadata=dict(note),
    )

  def load(self, step: int, like: _T) -> _T:
    """The state of a step, with shapes, dtypes and devices as in `like`."""
    shapes = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      like,
    )
    return self._steps.load(step, shapes)

  def load_all(self, step: int) -> dict[str, Any]:
    """The state of a step as nested dicts, on one device, whatever it is."""
    place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shapes = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
      self._steps.metadata(step).metadata,
    )
    return self._steps.load(step, shapes)

  def load_parameters(self, step: int, like: _T) -> _T:
    """The parameters alone, of a state that may have another optimiser."""
    found = self.load_all(step)["params"]
    shapes = lambda tree: jax.tree.map(lambda x: x.shape, tree)
    if shapes(found) != shapes(like):
      raise ValueError(
        f"checkpoint {step} holds parameters of other shapes: use "
        "the objective and data.draft_vocab that it was trained with"
      )
    return jax.tree.map(
      lambda x, y: jax.device_put(np.asarray(x, y.dtype), y.sharding),
      found,
      like,
    )

  def note(self, step: int) -> dict[str, Any]:
    """What was noted with a step."""
    return dict(self._steps.metadata(step).custom_metadata or {})

  def wait(self) -> None:
    """Until what was begun is written."""
    self._steps.wait()

  def __exit__(self, *error) -> None:
    self._steps.close()
