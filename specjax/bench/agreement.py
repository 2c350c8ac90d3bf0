# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How often draws from a target's and a draft's law agree, from the laws.

Float64 on the host, for traces: one vector at a time.
"""

import numpy as np


def overlap(p: np.ndarray, q: np.ndarray) -> float:
  """sum of min(p, q) over the vocabulary: P(accept) of token-level rejection.

  The largest acceptance any lossless rule reaches with one draft of law q.
  """
  return float(np.minimum(p, q).sum())


def coupled_overlap(p: np.ndarray, q: np.ndarray) -> float:
  """P(accept) of the coupled rule when drafts share the target's noise.

  sum_i 1 / sum_j max(p_j / p_i, q_j / q_i) (arXiv 2408.07978). Sorted by p / q,
  the maximum is p_j / p_i for all j before i and q_j / q_i from i on.
  """
  with np.errstate(divide="ignore", invalid="ignore"):
    order = np.argsort(-np.where(q > 0, p / q, np.inf), kind="stable")
  p, q = np.asarray(p, np.float64)[order], np.asarray(q, np.float64)[order]
  before = np.cumsum(p) - p
  after = np.cumsum(q[::-1])[::-1]
  both = (p > 0) & (q > 0)
  return float(np.sum(1 / (before[both] / p[both] + after[both] / q[both])))


def entropy(log_p: np.ndarray) -> float:
  """Entropy of a law in nats."""
  known = log_p[np.isfinite(log_p)]
  return float(-np.sum(np.exp(known) * known)) + 0.0
