# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How much of a draft is accepted, by position, with intervals.

  conditional  P(position k is accepted, given that all before it were)
  prefix       P(the first k + 1 positions are all accepted)
  alpha        the conditional one over all positions
  tau          1 + sum of the prefix ones: tokens a target call, the target's
               own included; of a draft of K tokens

These take every slot as a start. `alpha_renewal` and `tau_renewal` weigh it by
how often a decoding loop would start there, see `renewal`.

A start's own running product is averaged, not the averages multiplied: starts
that are easy at one position are easy at the next. A start counts at a position
if the text's answer reaches that far. Bootstrap over conversations.

Axis letters: n starts, K positions, C conversations.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Starts:
  """Drafts that start from slots of texts.

  Attributes:
    accepted: [n, K] probability that a position is accepted, 0 to 1.
    counted: [n, K] bool, whether the answer reaches that far.
    begun: [n] how often a decoding loop would start there.
    source: [n] the conversation.
    position: [n] tokens of the conversation before the slot's own.
  """

  accepted: np.ndarray
  counted: np.ndarray
  begun: np.ndarray
  source: np.ndarray
  position: np.ndarray

  def where(self, kept: np.ndarray) -> "Starts":
    """Some of them, [n] bool."""
    return Starts(*(getattr(self, name)[kept] for name in _FIELDS))


_FIELDS = tuple(field.name for field in dataclasses.fields(Starts))


def join(parts: Sequence[Starts]) -> Starts:
  """All starts of some batches."""
  return Starts(
    *(
      np.concatenate([getattr(part, name) for part in parts])
      for name in _FIELDS
    )
  )


def measures(starts: Starts) -> dict[str, Any]:
  """The measures of all conversations together; None where nothing counts.

  Raises:
    ValueError: no start counts.
  """
  if not starts.counted[:, 0].any():
    raise ValueError(
      "no answer of the evaluation is long enough for a draft: give longer ones"
    )
  even = _totals(starts, np.ones(len(starts.begun)))
  prefix, before, count = even.sum(axis=0)
  return {
    **_ratios(even, ""),
    "conditional": _listed(_divide(prefix, before)),
    "prefix": _listed(_divide(prefix, count)),
    "starts": int(count[0]),
    **_ratios(_totals(starts, starts.begun), "_renewal"),
  }


def by_context(starts: Starts, width: int) -> list[dict[str, Any]]:
  """alpha of the starts in each stretch of `width` tokens of a conversation.

  What falls with the position was trained on texts that are too short.
  """
  found = []
  for number in np.unique(starts.position // width):
    part = starts.where(starts.position // width == number)
    if part.counted[:, 0].any():
      prefix, before, count = _totals(part, np.ones(len(part.begun))).sum(0)
      found.append(
        {
          "from": int(number * width),
          "alpha": float(prefix.sum() / before.sum()),
          "starts": int(count[0]),
        }
      )
  return found


def _totals(starts: Starts, weight: np.ndarray) -> np.ndarray:
  """Sums of each conversation, [C, 3, K].

  They are products of acceptance up to a position, the same up to the position
  before where it counts too, and starts that count.
  """
  some = starts.counted[:, 0]
  counted, weight = starts.counted[some], weight[some, None, None]
  accepted = starts.accepted[some].astype(np.float64)
  _, place = np.unique(starts.source[some], return_inverse=True)
  product = np.cumprod(np.where(counted, accepted, 0), axis=1)
  before = np.concatenate([np.ones((len(product), 1)), product[:, :-1]], axis=1)
  values = np.stack([product, np.where(counted, before, 0), counted], axis=1)
  found = np.zeros((int(place.max()) + 1, *values.shape[1:]))
  np.add.at(found, place, weight * values)
  return found


def _ratios(totals: np.ndarray, suffix: str, seed: int = 0) -> dict[str, Any]:
  """alpha and tau, each with its 95 percent interval by conversation."""
  number = len(totals)
  drawn = np.random.default_rng(seed).multinomial(
    number, np.full(number, 1 / number), size=_RESAMPLES
  )
  resampled = np.einsum("rc,cjk->rjk", drawn.astype(float), totals)
  found: dict[str, Any] = {}
  for name, ratio in (("alpha", _alpha), ("tau", _tau)):
    bounds = np.nanpercentile(ratio(resampled), [2.5, 97.5])
    found[f"{name}{suffix}"] = float(ratio(totals.sum(axis=0)))
    found[f"{name}{suffix}_interval"] = tuple(bounds.tolist())
  return found


def _alpha(totals):
  """[...] of sums [..., 3, K]."""
  prefix, before = totals[..., 0, :], totals[..., 1, :]
  return _divide(prefix.sum(-1), before.sum(-1))


def _tau(totals):
  prefix, count = totals[..., 0, :], totals[..., 2, :]
  return 1 + np.nansum(_divide(prefix, count), axis=-1)


def _divide(a, b):
  """a / b, NaN where nothing was counted."""
  return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)


def _listed(values):
  """[K] as JSON knows them."""
  return [None if np.isnan(x) else x for x in values.tolist()]
