# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best that a drafter can do that knows the last token alone.

Axis letters: n positions, V vocabulary.
"""

import numpy as np

_HALVINGS = 50


def acceptance(laws: np.ndarray, last: np.ndarray) -> float:
  """Largest mean of sum_x min(p(x), q(x | last)) over all tables q.

  Args:
    laws: [n, V] the target's p at some positions.
    last: [n] the token before each.
  """
  kept = 0.0
  for token in np.unique(last):
    found = laws[last == token]
    kept += np.minimum(found, _best(found)).sum()
  return float(kept / len(laws))


def _best(laws: np.ndarray) -> np.ndarray:
  """[V] the law q that keeps most of some laws [n, V].

  The gain of more q(x) is the share of positions with p(x) > q(x). Where the
  whole is largest it is the same for all x, so q(x) is one quantile of p(x) for
  all of them: the one at which q sums to 1.
  """
  low, high = 0.0, 1.0
  for _ in range(_HALVINGS):
    middle = (low + high) / 2
    if np.quantile(laws, middle, axis=0).sum() > 1:
      high = middle
    else:
      low = middle
  q = np.quantile(laws, low, axis=0)
  return q / q.sum()
