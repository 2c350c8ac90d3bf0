# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of speculative decoding, each with its definition.

Counts of tokens and rounds stand here, seconds in `speed`.

The field gives one name to several numbers, so every function here says what it
divides by what. All work on per-round counts of answers:

  drafted   tokens the target was given to check (before any cut)
  accepted  drafted tokens that were kept
  emitted   accepted and the target's own token; fewer where a stop cut it
  rejected  the round ended because the target refused a drafted token

A round that emitted nothing (padding, an error) counts nowhere. Ratios without
a denominator are None, never 0.
"""

import collections
from collections.abc import Callable, Sequence
import dataclasses

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Answer:
  """One answer of one run.

  Attributes:
    id: of its prompt.
    group: of its prompt, for tables.
    run: number of the paired run.
    tokens: ids up to the stop, EOS included.
    emitted, drafted, accepted, rejected: [R], one entry a round.
    prefill_seconds: reading the prompt (of the batch it ran in).
    decode_seconds: all rounds (of the batch).
    sample: which of several answers to the prompt.
  """

  id: str
  group: str
  run: int
  tokens: tuple[int, ...]
  emitted: np.ndarray
  drafted: np.ndarray
  accepted: np.ndarray
  rejected: np.ndarray
  prefill_seconds: float
  decode_seconds: float
  sample: int = 0

  @property
  def key(self) -> tuple[str, int]:
    """The same for this answer in every run and of every method."""
    return self.id, self.sample


Answers = Sequence[Answer]


def _rounds(answers: Answers) -> tuple[np.ndarray, ...]:
  """emitted, drafted, accepted, rejected of all rounds that emitted."""
  if not answers:
    return tuple(np.zeros(0, np.int64) for _ in range(4))
  columns = [
    np.concatenate([np.asarray(getattr(a, name)) for a in answers])
    for name in ("emitted", "drafted", "accepted", "rejected")
  ]
  counts = columns[0] > 0
  return tuple(column[counts].astype(np.int64) for column in columns)


def _ratio(numerator: float, denominator: float) -> float | None:
  return float(numerator / denominator) if denominator else None


def acceptance_rate(answers: Answers) -> float | None:
  """alpha = accepted / (accepted + rounds that ended in a rejection).

  The share of tests that a drafted token passed. A token drafted behind a
  rejection was never tested, and a round cut by a stop is no rejection.
  """
  _, _, accepted, rejected = _rounds(answers)
  return _ratio(accepted.sum(), accepted.sum() + rejected.sum())


def accepted_per_draft(answers: Answers) -> float | None:
  """accepted / drafted, what vLLM and llama.cpp call the acceptance rate.

  It falls with the draft length even where alpha stays.
  """
  _, drafted, accepted, _ = _rounds(answers)
  return _ratio(accepted.sum(), drafted.sum())


def acceptance_by_position(answers: Answers) -> dict[str, list[float | None]]:
  """Acceptance of the i-th drafted token.

  Returns:
    unconditional: rounds that kept more than i tokens / rounds with a draft.
    conditional: of the rounds whose i-th token was tested, the share that kept
      it; tested means kept or refused, so stops and short drafts count nowhere.
  """
  _, drafted, accepted, rejected = _rounds(answers)
  unconditional, conditional = [], []
  for i in range(int(drafted.max(initial=0))):
    kept = int((accepted > i).sum())
    refused = int(((accepted == i) & (rejected > 0)).sum())
    unconditional.append(_ratio(kept, int((drafted > 0).sum())))
    conditional.append(_ratio(kept, kept + refused))
  return {"unconditional": unconditional, "conditional": conditional}


def block_efficiency(answers: Answers) -> float | None:
  """tau, micro: tokens emitted / target calls, the target's own included.

  Others call it acceptance length or mean accepted tokens. Long answers weigh
  more.
  """
  emitted = _rounds(answers)[0]
  return _ratio(emitted.sum(), emitted.size)


def block_efficiency_macro(answers: Answers) -> float | None:
  """tau, macro: mean over answers of each answer's own tokens a call."""
  each = [block_efficiency([answer]) for answer in answers]
  return mean([x for x in each if x is not None])


def is_degenerate(tokens: Sequence[int]) -> bool:
  """Whether one 4-gram occurs four times or more.

  Small models loop, and loops flatter every drafter.
  """
  grams = zip(tokens, tokens[1:], tokens[2:], tokens[3:])
  return max(collections.Counter(grams).values(), default=0) >= 4


def degenerate(answers: Answers) -> float | None:
  """Share of answers in which one 4-gram occurs four times or more."""
  return mean([float(is_degenerate(a.tokens)) for a in answers])


def matched(answers: Answers, reference: Answers) -> dict[str, int]:
  """Answers with exactly the reference's ids, in every run.

  A prompt counts once, or once for each of its samples.
  """
  wanted = {a.key: a.tokens for a in reference}
  keys = {a.key for a in answers if a.key in wanted}
  different = {a.key for a in answers if a.tokens != wanted.get(a.key)} & keys
  return {"equal": len(keys) - len(different), "total": len(keys)}


def first_difference(tokens: Sequence[int], other: Sequence[int]) -> int | None:
  """Index of the first token that differs, or where the shorter one ends."""
  if tuple(tokens) == tuple(other):
    return None
  pairs = enumerate(zip(tokens, other))
  shorter = min(len(tokens), len(other))
  return next((i for i, (a, b) in pairs if a != b), shorter)


def bootstrap(
  numerators: np.ndarray, denominators: np.ndarray, seed: int = 0
) -> tuple[float, float] | None:
  """Interval (95 percent) of a ratio of sums, by resampling prompts.

  Rounds of one answer resemble each other, and so do answers to one prompt:
  whole prompts are drawn, with all their samples and runs.

  Args:
    numerators: [N, P], one column a prompt; N ratios are averaged.
    denominators: [N, P].
    seed: of the resampling.

  Returns:
    None with fewer than two prompts.
  """
  prompts = numerators.shape[1]
  if prompts < 2 or not denominators.any():
    return None
  rng = np.random.default_rng(seed)
  drawn = rng.integers(prompts, size=(RESAMPLES, prompts))
  top = numerators[:, drawn].sum(-1)
  bottom = denominators[:, drawn].sum(-1)
  with np.errstate(invalid="ignore", divide="ignore"):
    values = (top / bottom).mean(0)
  tail = 100 * (1 - LEVEL) / 2
  low, high = np.nanpercentile(values, [tail, 100 - tail])
  return float(low), float(high)


def acceptance_rate_interval(answers: Answers) -> tuple[float, float] | None:
  """95 percent interval of `acceptance_rate` over prompts."""
  return _interval(
    answers, lambda _, kept, refused: (kept.sum(), kept.sum() + refused.sum())
  )


def block_efficiency_interval(answers: Answers) -> tuple[float, float] | None:
  """95 percent interval of `block_efficiency` over prompts."""
  return _interval(answers, lambda emitted, *_: (emitted.sum(), emitted.size))


def _interval(
  answers: Answers, counts: Callable[..., tuple[int, int]]
) -> tuple[float, float] | None:
  """Of a ratio; `counts` takes emitted, accepted and rejected of an answer."""
  sums: dict[str, np.ndarray] = {}
  for answer in answers:
    emitted, _, accepted, rejected = _rounds([answer])
    part = np.array(counts(emitted, accepted, rejected))
    sums[answer.id] = sums.get(answer.id, 0) + part
  if not sums:
    return None
  table = np.stack(list(sums.values()), axis=1)
  return bootstrap(table[:1], table[1:])


def mean(values: Sequence[float]) -> float | None:
  """The mean; None of nothing."""
  return float(np.mean(values)) if len(values) else None
