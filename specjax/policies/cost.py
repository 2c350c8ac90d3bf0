# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a round costs on this machine, and what drafting is worth there.

Measured before a run, on the real target; a policy gets the numbers as leaves
and sees no clock. From acceptance rates then follow a predicted speedup and the
best draft length:

  speedup(g) = plain seconds * expected tokens(g) / round seconds(g)

Newer seconds, or those of a longer context, can be given to a policy between
two chunks of rounds; no program is compiled anew:

  session.policy = session.policy.replace(
    seconds=costs.seconds(1, 2048), idle=costs.idle(1, 2048)
  )

(Of a cascade, `session.policy.policies` has one of these for each drafter.)

Axis letters: B batch, T draft length (max_depth).
"""

from collections.abc import Sequence
import dataclasses

import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.drafters import cascade
from specjax.policies import calibration, gain, parts, policy
from specjax.policies.calibration import CONTEXT
from specjax.trees import tree


@dataclasses.dataclass(frozen=True)
class Costs:
  """Seconds of rounds of a drafter.

  Attributes:
    table: of the target.
    outside: [T + 1] seconds of a round that drafts 0, 1, ... tokens, outside
      the target's pass.
    slots: [T + 1] slots of that pass, root included.
  """

  table: calibration.CostTable
  outside: np.ndarray
  slots: tuple[int, ...]

  def seconds(self, batch: int, context: int = CONTEXT) -> np.ndarray:
    """[T + 1] float32 of a round that drafts 0, 1, ... tokens in every row."""
    passes = [self.table.at(batch, width, context) for width in self.slots]
    return (self.outside + passes).astype(np.float32)

  def idle(self, batch: int, context: int = CONTEXT) -> float:
    """Seconds of a round whose drafter was asked and had nothing to draft."""
    asked = self.outside[min(1, len(self.outside) - 1)]
    return float(asked + self.table.at(batch, self.slots[0], context))


def measure(
  target: types.Model,
  drafter: types.Drafter,
  widths: Sequence[int],
  batches: Sequence[int],
  contexts: Sequence[int] = (CONTEXT,),
  widest: int = 0,
) -> Costs:
  """Times target and drafter; `widths` are node counts, as policies have them.

  Of a tree all nodes that its plan can give are taken to be verified. What is
  outside the target's pass is timed with the largest batch and the shortest
  context. For a drafter that finds less than is asked, a round costs less than
  it says here: a cascade's is that of a draft of its second drafter, verified
  at the width of what the first may copy. `widest` is the node count of such a
  cascade where one of its drafters, of chains, is measured alone.

  Raises:
    ValueError: widths that no policy takes, see `calibration` for the others.
  """
  policy.check_widths(widths)
  depth, nodes = drafter.max_depth, drafter.num_nodes
  needed = [_most_nodes(drafter, d) for d in range(depth + 1)]
  if widest > nodes:
    depth = nodes = widest
  rows = jnp.zeros((1, nodes), jnp.int32)
  draft = types.Draft(rows, rows, None, jnp.zeros((1,), jnp.int32), depth)
  programs = tree.widths(draft, widths)
  slots = [next(w for w in programs if w >= n) + 1 for n in needed]
  return Costs(
    calibration.calibrate(target, batches, slots, contexts),
    calibration.outside_seconds(
      target, drafter, widths, max(batches), min(contexts)
    ),
    tuple(slots),
  )


def _most_nodes(drafter, depth):
  """Of a draft that is cut to `depth`."""
  if drafter.max_depth == drafter.num_nodes:
    return depth
  plan = getattr(drafter, "plan", None)
  if plan is None:  # Nothing is known of its shape.
    return drafter.num_nodes if depth else 0
  return plan.within(depth)


def expected_gain(
  target: types.Model,
  drafter: types.Drafter,
  batch_size: int,
  context: int = CONTEXT,
  widths: tuple[int, ...] = (0, 3),
  first: float = 0.35,
  later: float = 0.7,
  weight: float = 4.0,
  memory: float = 0.98,
  least: float = 0.0,
) -> gain.ExpectedGain | parts.Parts:
  """`gain.ExpectedGain` with seconds that are measured now.

  A cascade's two drafters get one each, with these settings.
  """

  def gained(part):
    costs = measure(
      target, part, widths, [batch_size], [context], drafter.num_nodes
    )
    seconds = jnp.asarray(costs.seconds(batch_size, context))
    idle = jnp.float32(costs.idle(batch_size, context))
    return gain.ExpectedGain(
      seconds, idle, first, later, weight, memory, least, widths
    )

  if isinstance(drafter, cascade.Cascade):
    return parts.Parts(tuple(map(gained, drafter.parts)))
  return gained(drafter)


def pausing(
  target: types.Model,
  drafter: types.Drafter,
  batch_size: int,
  length: int = -1,
  least: float = 1.0,
  pause: int = 4,
  longest: int = 64,
  context: int = CONTEXT,
  widths: tuple[int, ...] = (0, 3),
) -> gain.Pausing:
  """`gain.Pausing` around a fixed length, off below a speedup of `least`.

  The seconds of a round are measured now; length -1 drafts as many as it can.
  """
  inner = policy.Fixed(policy.depth(drafter, length), widths)
  costs = measure(target, drafter, widths, [batch_size], [context])
  seconds = costs.seconds(batch_size, context)
  pays = float(least * seconds[inner.length] / seconds[0])
  return gain.Pausing(inner, pays, pause, longest)


def speedups(
  rates: Sequence[float], seconds: np.ndarray, plain: float
) -> np.ndarray:
  """Predicted speedup [T + 1] of drafting 0, 1, ... tokens.

  Decode only, and as if each position's acceptance did not depend on others.

  Args:
    rates: [T] conditional acceptance by position, see
      `metrics.acceptance_by_position`.
    seconds: [T + 1] of rounds.
    plain: of a round of plain decoding.
  """
  tokens = gain.expected_tokens(jnp.asarray(rates, jnp.float32))
  return plain * np.asarray(tokens) / seconds


def best_length(rates: Sequence[float], seconds: np.ndarray) -> int:
  """The draft length with most tokens a second; 0 is not to draft."""
  return int(np.argmax(speedups(rates, seconds, 1.0)))
