# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""tokens.jsonl: every round of every answer, with the laws behind it.

Full softmaxes on the host are slow, so this is a pass of its own and is never
timed. A line holds, for the slots that the round reached:

  position    of the round's first token in prompt and answer
  drafted     ids, and how many were accepted; emitted ids
  log_p       of the drafted tokens under the target's law, one a drafted token
  log_q       of the drafted tokens under the draft's law (0 without one)
  entropy     nats, of the target's law at each reached slot
  overlap     sum of min(p, q) at each tested slot: what `rejection` accepts
  coupled     what `coupled` accepts there (see `agreement.coupled_overlap`)
  margin      see `recording.margins`, at each reached slot

Chains only: of a tree, the first path stands for all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specjax import session as session_lib
from specjax.bench import agreement, measure, recording


def lines(
  bench: measure.Bench, name: str, method: session_lib.Method
) -> Iterator[dict[str, Any]]:
  """One line a round of the answers of one method."""
  for batch in bench.batches:
    session = bench.session(method, batch)
    for number, (before, seen) in enumerate(recording.steps(session)):
      margins = recording.margins(before, seen, session.sampling)
      for row, index in enumerate(batch):
        if before.active[row]:
          yield {
            "method": name,
            "question_id": bench.task.prompts[index].id,
            "sample": bench.task.prompts[index].sample,
            "row": row,
            "round": number,
            "position": int(before.lengths[row]),
          } | _round(seen, row, None if margins is None else margins[row])


def acceptance(rounds: Sequence[dict[str, Any]]) -> dict[str, float | None]:
  """Means over the tested positions of a method's lines."""
  means: dict[str, float | None] = {}
  for key, field in (
    ("acceptance_overlap", "overlap"),
    ("acceptance_coupled", "coupled"),
  ):
    values = [x for line in rounds for x in line[field]]
    means[key] = float(np.mean(values)) if values else None
  return means


def _round(seen, row, margins) -> dict[str, Any]:
  draft, kept = seen.draft, seen.acceptance
  count, accepted = int(draft.count[row]), int(kept.accepted[row])
  emitted = int(kept.count[row])
  log_p = np.asarray(seen.log_p[row], np.float64)
  tokens = np.asarray(draft.tokens[row])[:count]
  reached = range(emitted)
  overlap, coupled = [], []
  for slot in range(min(emitted, count)):
    p, q = np.exp(log_p[slot]), _law(draft, row, slot, log_p.shape[1])
    overlap.append(agreement.overlap(p, q))
    coupled.append(agreement.coupled_overlap(p, q))
  log_q = [0.0] * count
  if draft.log_q is not None:
    laws = np.asarray(draft.log_q[row])
    log_q = [float(laws[i, token]) for i, token in enumerate(tokens)]
  return {
    "drafted": tokens.tolist(),
    "accepted": accepted,
    "emitted": np.asarray(kept.tokens[row])[:emitted].tolist(),
    "log_p": [float(log_p[i, token]) for i, token in enumerate(tokens)],
    "log_q": log_q,
    "entropy": [agreement.entropy(log_p[slot]) for slot in reached],
    "overlap": overlap,
    "coupled": coupled,
    "margin": (
      None if margins is None else [float(margins[slot]) for slot in reached]
    ),
  }


def _law(draft, row, slot, vocab) -> np.ndarray:
  """q at a slot; all mass on the token where the draft has no law."""
  if draft.log_q is not None:
    return np.exp(np.asarray(draft.log_q[row, slot], np.float64))
  law = np.zeros(vocab)
  law[int(draft.tokens[row, slot])] = 1
  return law
