# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How often a decoding loop would begin a round at each slot of a text.

Where every slot is a start alike, easy and hard slots weigh the same. A loop
begins a round where the one before ended: more often where drafts are refused,
and never at the token behind a draft that was kept whole. So it keeps a little
less of its drafts. Weighed by what is worked out here, measures on held-out
texts are those of the loop.

Axis letters: B rows, S slots, K positions of a draft.
"""

import numpy as np


def begun(accepted: np.ndarray, counted: np.ndarray) -> np.ndarray:
  """Probability that a round begins at a slot, float64 [B, S].

  The first slot of every answer begins one. Verdicts are drawn by their laws,
  whatever token the text has there.

  Args:
    accepted: [B, S, K] probability that a position is accepted if it is tested.
    counted: [B, S, K] whether the answer reaches that far; positions that count
      come first.
  """
  B, S, K = accepted.shape
  accepted, some = np.where(counted, accepted, 0), counted[..., 0]
  first = some & ~np.pad(some, ((0, 0), (1, 0)))[:, :-1]
  # Numbers of answers; past the end there is none.
  answer = np.pad(
    np.cumsum(first, axis=1), ((0, 0), (0, K + 1)), constant_values=-1
  )
  found = np.zeros((B, S + K + 1))
  found[:, :S] = first

  def give(slot, steps, mass):
    found[:, slot + steps] += np.where(
      answer[:, slot + steps] == answer[:, slot], mass, 0
    )

  for slot in np.flatnonzero(some.any(axis=0)):
    alive = np.where(some[:, slot], found[:, slot], 0)
    for k in range(K):
      alive = np.where(counted[:, slot, k], alive, 0)
      kept = alive * accepted[:, slot, k]
      give(slot, k + 1, alive - kept)
      alive = kept
    # All were kept, and the target added a token of its own.
    give(slot, K + 1, alive)
  return np.where(some, found[:, :S], 0)
