# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers made of rounds, for tests of measures."""

import numpy as np

from specjax.reports import metrics


def answer(
  rounds=(),
  *,
  name="a",
  group="g",
  run=0,
  tokens=None,
  prefill=0.0,
  decode=1.0,
  sample=0,
) -> metrics.Answer:
  """Rounds are (drafted, accepted, emitted, rejected)."""
  columns = np.array(rounds, int).reshape(-1, 4).T
  drafted, accepted, emitted, rejected = columns
  tokens = tuple(range(emitted.sum())) if tokens is None else tuple(tokens)
  return metrics.Answer(
    name,
    group,
    run,
    tokens,
    emitted,
    drafted,
    accepted,
    rejected,
    prefill,
    decode,
    sample,
  )
