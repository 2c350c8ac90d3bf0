# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a compiled loop takes for granted of drafts and of a drafter's state.

Axis letters: B batch, T nodes, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.testing import scripted, trials
from specjax.testing.trials import require


def check(trial: trials.Trial) -> int:
  """Nodes looked at.

  Raises:
    AssertionError: what is not as `types.Drafter` says.
  """
  nodes, depth = trial.drafter.num_nodes, trial.drafter.max_depth
  require(0 <= depth <= nodes, f"max_depth is {depth}, num_nodes {nodes}")
  for rows in (len(trial.prompts), 1):
    _check_types(trial, rows)
  looked_at = 0
  for round_ in trial.walk():
    _check_draft(trial, jax.device_get(round_.draft))
    looked_at += int(np.sum(round_.draft.count))
  return looked_at


def _check_types(trial, rows):
  """Shapes for a batch of `rows`, found without running anything."""
  rule = scripted.Scripted()
  prompts = trial.prompts[:rows]
  state, settings = trial.start(rule, prompts=prompts, run=False)
  draft, after = jax.eval_shape(
    trials.propose, trial.target, trial.drafter, rule, state, settings
  )
  shape = rows, trial.drafter.num_nodes
  for name in ("tokens", "parents", "count"):
    leaf = getattr(draft, name)
    wanted = shape[:1] if name == "count" else shape
    require(
      leaf.shape == wanted and jnp.issubdtype(leaf.dtype, jnp.integer),
      f"Draft.{name} is {leaf.dtype} {leaf.shape}, not integers {wanted}",
    )
  wanted = (*shape, trial.target.vocab_size)
  require(
    draft.log_q is None or draft.log_q.shape == wanted,
    f"Draft.log_q has another shape than {wanted}",
  )
  require(
    draft.max_depth == trial.drafter.max_depth,
    f"Draft.max_depth is {draft.max_depth}, the drafter's "
    f"{trial.drafter.max_depth}",
  )
  kind = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  same = kind((state.drafter, state.cache))
  back = kind((after.drafter, after.cache))
  require(same == back, "propose returns a state of other shapes or types")


def _check_draft(trial, draft):
  nodes, known = trial.drafter.num_nodes, trial.target.num_tokens
  valid, slots = trials.valid(draft), np.arange(nodes)[None]
  require(
    np.all((draft.count >= 0) & (draft.count <= nodes)),
    f"Draft.count is {draft.count.tolist()}, not within 0 to {nodes}",
  )
  in_range = (draft.tokens >= 0) & (draft.tokens < known)
  require(np.all(in_range | ~valid), f"a token is none of the {known} known")
  if draft.is_chain:
    ordered = draft.parents == slots
  else:
    ordered = (draft.parents >= 0) & (draft.parents <= slots)
    ordered[:, 1:] &= draft.parents[:, 1:] >= draft.parents[:, :-1]
  require(
    np.all(ordered | ~valid),
    "Draft.parents are no slots in breadth-first order",
  )
  if draft.log_q is not None:
    mass = np.exp(draft.log_q, dtype=np.float64).sum(axis=-1)
    # A softmax in float32 over a large vocabulary is as far from 1 as that.
    is_law = np.abs(mass - 1) < 1e-3
    require(np.all(is_law | ~valid), "Draft.log_q is no law: its sum is not 1")
