# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""tokens.jsonl: every round of every answer, with the laws behind it.

Full softmaxes on the host are slow, so this is a pass of its own and is never
timed. The slots that a round reaches are those of the path that it keeps, the
root first. A line holds:

  position    of the round's first token in prompt and answer
  drafted     ids, and how many were accepted; emitted ids
  log_p       of the drafted tokens under the target's law, one a drafted token
  log_q       of the drafted tokens under the draft's law (0 without one)
  children    how many each reached slot has
  ranks       which of them was kept, 0 the first; null where none was
  entropy     nats, of the target's law at each reached slot
  overlap     sum of min(p, q) at each reached slot with children, q the law of
              the first: what `rejection` accepts
  coupled     what `coupled` accepts there (see `agreement.coupled_overlap`)
  margin      see `recording.margins`, at each reached slot
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specjax import session as session_lib
from specjax.bench import agreement, measure, recording


def lines(
  bench: measure.Bench,
  name: str,
  method: session_lib.Method,
  records: Sequence[Mapping[str, Any]] = (),
) -> Iterator[dict[str, Any]]:
  """One line a round of the answers of one method, as in the first run.

  Args:
    bench: prompts and settings.
    name: of the method.
    method: drafts and verifies.
    records: answers of the first run, for methods that learn from them.
  """
  for batch in bench.batches:
    learnt = measure.informed(bench, records, 0, batch, name, method)
    session = bench.session(learnt, batch)
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


def acceptance(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Means over the tested positions of a method's lines, and those by rank."""
  means: dict[str, Any] = {"acceptance_by_rank": by_rank(rounds)}
  for key, field in (
    ("acceptance_overlap", "overlap"),
    ("acceptance_coupled", "coupled"),
  ):
    values = [x for line in rounds for x in line[field]]
    means[key] = float(np.mean(values)) if values else None
  return means


def by_rank(rounds: Sequence[dict[str, Any]]) -> list[list[float]]:
  """table[depth][rank]: how often the child of that rank was the one kept.

  Counted where a round's kept path comes to that depth and the slot has such a
  child. Depths and ranks that no round came to are left out.
  """
  tries, hits = collections.Counter(), collections.Counter()
  for line in rounds:
    for depth, count in enumerate(line["children"]):
      tries.update((depth, rank) for rank in range(count))
      hits[depth, line["ranks"][depth]] += 1
  table: list[list[float]] = []
  for depth, rank in sorted(tries):
    if rank == 0:
      table.append([])
    table[depth].append(hits[depth, rank] / tries[depth, rank])
  return table


def _round(seen, row, margins) -> dict[str, Any]:
  draft, kept = seen.draft, seen.acceptance
  count, accepted = int(draft.count[row]), int(kept.accepted[row])
  emitted = int(kept.count[row])
  log_p = np.asarray(seen.log_p[row], np.float64)
  tokens = np.asarray(draft.tokens[row])[:count]
  parents = np.asarray(draft.parents[row])[:count]
  path = np.asarray(kept.path[row])
  reached = path[:emitted].tolist()
  children = [np.flatnonzero(parents == slot).tolist() for slot in reached]
  ranks = [
    children[depth].index(path[depth + 1] - 1) if depth < accepted else None
    for depth in range(emitted)
  ]
  overlap, coupled = [], []
  for slot, nodes in zip(reached, children):
    if nodes:
      p, q = np.exp(log_p[slot]), _law(draft, row, nodes[0], log_p.shape[1])
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
    "log_p": log_p[parents, tokens].tolist(),
    "log_q": log_q,
    "children": list(map(len, children)),
    "ranks": ranks,
    "entropy": [agreement.entropy(log_p[slot]) for slot in reached],
    "overlap": overlap,
    "coupled": coupled,
    "margin": (
      None if margins is None else [float(margins[slot]) for slot in reached]
    ),
  }


def _law(draft, row, node, vocab) -> np.ndarray:
  """q of a node; all mass on the token where the draft has no law."""
  if draft.log_q is not None:
    return np.exp(np.asarray(draft.log_q[row, node], np.float64))
  law = np.zeros(vocab)
  law[int(draft.tokens[row, node])] = 1
  return law
