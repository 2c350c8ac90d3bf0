# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a decoding loop keeps of its drafts, worked out on texts of the target.

Measures on held-out texts take every slot as a start. A decoding loop starts
where its last round ended: more often where drafts are refused, and never tests
the token behind a draft that was kept whole, so it keeps a little less. Both
follow from the same numbers. The target would have drawn the text's token x
itself, and the draft would have kept it with probability min(1, q(x) / p(x)):
token and verdict have the joint law of `rejection` (arXiv 2211.17192).

Axis letters: C conversations, S slots, K depths.
"""

import numpy as np

_RESAMPLES = 1000


def sums(keep: np.ndarray, counted: np.ndarray) -> tuple[float, float]:
  """Expected tokens that a loop over one text keeps, and tests.

  Args:
    keep: [S, K] min(1, q / p) of the text's token at depth k from slot t.
    counted: [S, K] whether the answer reaches that far.
  """
  slots, depth = keep.shape
  begun = np.zeros(slots + depth + 1)  # probability that a round starts there
  begun[np.argmax(counted[:, 0])] = 1
  kept = tested = 0.0
  for slot in np.flatnonzero(counted[:, 0]):
    alive = begun[slot]
    for k in range(depth):
      if not counted[slot, k]:
        break
      tested += alive
      begun[slot + k + 1] += alive * (1 - keep[slot, k])
      alive *= keep[slot, k]
      kept += alive
    else:  # All were kept, and the target added a token of its own.
      begun[slot + depth + 1] += alive
  return kept, tested


def alpha(
  keep: np.ndarray, counted: np.ndarray, seed: int = 0
) -> tuple[float, tuple[float, float]]:
  """Share of tested tokens that are kept, and its 95 percent interval.

  Args:
    keep, counted: [C, S, K], one conversation a row; see `sums`.
    seed: of the bootstrap over conversations.
  """
  found = np.array([sums(*row) for row in zip(keep, counted)])
  drawn = np.random.default_rng(seed).multinomial(
    len(found), np.full(len(found), 1 / len(found)), size=_RESAMPLES
  )
  kept, tested = (drawn @ found).T
  low, high = np.percentile(kept / tested, [2.5, 97.5])
  return float(found[:, 0].sum() / found[:, 1].sum()), (float(low), float(high))
