# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where two texts part, and how close the two best tokens are there.

Slots of a tree are added up in another order than those of a chain, so two
tokens closer than rounding may change places; a larger margin is a fault.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax import sampling as sampling_lib
from tests import reference

MOST = 1e-3  # float32 logits of the tiny models are right to some 1e-5


class Difference(NamedTuple):
  """The first token of a row that differs."""

  row: int
  place: int
  margin: float


def differences(
  target: Any,
  sampling: sampling_lib.Sampling,
  prompts: Sequence[Sequence[int]],
  got: Sequence[Sequence[int]],
  expected: Sequence[Sequence[int]],
) -> Iterator[Difference]:
  """Of answers to prompts; one that ends early is infinitely far off."""
  for row, (one, other) in enumerate(zip(got, expected, strict=True)):
    if one == other:
      continue
    places = [i for i, (a, b) in enumerate(zip(one, other)) if a != b]
    gap = np.inf
    if places and len(one) == len(other):
      gap = margin(target, sampling, row, [*prompts[row], *other[: places[0]]])
    yield Difference(row, min(places, default=len(one)), gap)


def margin(
  target: Any, sampling: sampling_lib.Sampling, row: int, text: list[int]
) -> float:
  """Gap of the two best perturbed log-probabilities after a text.

  In float64, by the independent reference.
  """
  chosen = {
    name: getattr(sampling, name)[row].item()
    for name in ("temperature", "top_k", "top_p", "min_p")
  }
  logits = reference.transformer_logits(target.params, target.config, text)[-1]
  if chosen["temperature"] == 0:
    law = logits - np.logaddexp.reduce(logits)
  else:
    key = jax.random.fold_in(reference.row_key(0, row), reference.SAMPLE_TAG)
    key = jax.random.fold_in(key, len(text))
    noise = np.asarray(jax.random.gumbel(key, logits.shape, np.float32))
    law = reference.log_probs(logits, **chosen) + noise
  second, first = np.sort(law)[-2:]
  return float(first - second)
