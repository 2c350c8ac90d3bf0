# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How much of a draft is accepted, by position, with intervals.

  conditional  P(position k is accepted, given that all before it were)
  prefix       P(the first k + 1 positions are all accepted)
  alpha        the conditional one over all positions
  tau          1 + sum of the prefix ones: tokens a target call, the target's
               own included; of a draft of K tokens

A start's own running product is averaged, not the averages multiplied: starts
that are easy at one position are easy at the next. A start counts at a position
if the text's answer reaches that far. Bootstrap over conversations.

Axis letters: n starts, K positions, C conversations.
"""

import dataclasses
from typing import Any

import numpy as np

_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Totals:
  """Sums of each conversation, from which every measure follows.

  Attributes:
    prefix: [C, K] products of acceptance up to a position.
    before: [C, K] the same up to the position before, where it counts too.
    count: [C, K] starts that count.
  """

  prefix: np.ndarray
  before: np.ndarray
  count: np.ndarray


def totals(
  accepted: np.ndarray, counted: np.ndarray, source: np.ndarray
) -> Totals:
  """Adds up starts by conversation.

  Args:
    accepted: [n, K] probability that a position is accepted, 0 to 1.
    counted: [n, K] bool.
    source: [n] conversation of each start.
  """
  some = counted[:, 0]
  accepted, counted = accepted[some].astype(np.float64), counted[some]
  _, place = np.unique(source[some], return_inverse=True)
  product = np.cumprod(np.where(counted, accepted, 0), axis=1)
  before = np.concatenate([np.ones((len(product), 1)), product[:, :-1]], axis=1)
  number = int(place.max()) + 1 if len(place) else 0

  def add(values):
    found = np.zeros((number, values.shape[1]))
    np.add.at(found, place, values)
    return found

  return Totals(
    add(product), add(np.where(counted, before, 0)), add(counted.astype(float))
  )


def join(parts: list[Totals]) -> Totals:
  """Totals of batches that share no conversation."""
  return Totals(
    *(
      np.concatenate([getattr(part, field.name) for part in parts])
      for field in dataclasses.fields(Totals)
    )
  )


def measures(total: Totals) -> dict[str, Any]:
  """The measures of all conversations together.

  Raises:
    ValueError: no start counts.
  """
  if not len(total.count) or not total.count[:, 0].any():
    raise ValueError(
      "no answer of the evaluation is long enough for a draft: give longer ones"
    )
  found = _ratios(*(np.sum(x, axis=0) for x in dataclasses.astuple(total)))
  return found | intervals(total)


def intervals(total: Totals, seed: int = 0) -> dict[str, tuple[float, float]]:
  """95 percent intervals of alpha and tau, by conversation."""
  rng = np.random.default_rng(seed)
  number = len(total.count)
  drawn = rng.multinomial(
    number, np.full(number, 1 / number), size=_RESAMPLES
  ).astype(float)
  sums = [drawn @ x for x in dataclasses.astuple(total)]
  alpha, tau = zip(*(_pair(*row) for row in zip(*sums)))
  bounds = lambda x: tuple(np.nanpercentile(x, [2.5, 97.5]).tolist())
  return {"alpha_interval": bounds(alpha), "tau_interval": bounds(tau)}


def _ratios(prefix, before, count) -> dict[str, Any]:
  alpha, tau = _pair(prefix, before, count)
  return {
    "alpha": float(alpha),
    "tau": float(tau),
    "conditional": _divide(prefix, before).tolist(),
    "prefix": _divide(prefix, count).tolist(),
    "starts": int(count[0]),
  }


def _pair(prefix, before, count):
  return (
    _divide(prefix.sum(), before.sum()),
    1 + np.nansum(_divide(prefix, count)),
  )


def _divide(a, b):
  """a / b, NaN where nothing was counted."""
  return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)
