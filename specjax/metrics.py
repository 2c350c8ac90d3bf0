# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of speculative decoding, each with its definition.

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
from typing import Any

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
  return _mean([x for x in each if x is not None])


def tokens_per_second(
  answers: Answers, *, decode_only: bool = False
) -> float | None:
  """Mean over answers of new tokens / wall time.

  The time includes reading the prompt unless `decode_only`. It is the mean of
  the answers' rates (Spec-Bench's), not all tokens / all time.
  """
  return _mean(_rates(answers, decode_only))


def speedups(
  answers: Answers, plain: Answers, *, decode_only: bool = False
) -> list[float]:
  """For each run, tokens_per_second / the same of plain in that run.

  Only prompts that both have answered in a run count.
  """
  result = []
  for run in sorted({a.run for a in answers}):
    ours, theirs = _paired(answers, plain, run)
    top = tokens_per_second(ours, decode_only=decode_only)
    bottom = tokens_per_second(theirs, decode_only=decode_only)
    if top is not None and bottom:
      result.append(top / bottom)
  return result


def speedup(answers: Answers, plain: Answers) -> dict[str, Any]:
  """Speedup over plain decoding, the ratio of means in paired runs.

  Returns:
    mean, std (sample, None for one run), decode_only (its mean, prompts not
    timed), interval (bootstrap over prompts), without_degenerate and
    decode_only_without_degenerate (means over the answers that do not loop).
  """
  runs = speedups(answers, plain)
  decode = speedups(answers, plain, decode_only=True)
  fresh = {a.id for a in answers if not is_degenerate(a.tokens)}
  kept = [a for a in answers if a.id in fresh]
  return {
    "mean": _mean(runs),
    "std": float(np.std(runs, ddof=1)) if len(runs) > 1 else None,
    "decode_only": _mean(decode),
    "interval": speedup_interval(answers, plain),
    "without_degenerate": _mean(speedups(kept, plain)),
    "decode_only_without_degenerate": _mean(
      speedups(kept, plain, decode_only=True)
    ),
  }


def is_degenerate(tokens: Sequence[int]) -> bool:
  """Whether one 4-gram occurs four times or more.

  Small models loop, and loops flatter every drafter.
  """
  grams = zip(tokens, tokens[1:], tokens[2:], tokens[3:])
  return max(collections.Counter(grams).values(), default=0) >= 4


def degenerate(answers: Answers) -> float | None:
  """Share of answers in which one 4-gram occurs four times or more."""
  return _mean([float(is_degenerate(a.tokens)) for a in answers])


def matched(answers: Answers, reference: Answers) -> dict[str, int]:
  """Prompts whose answers have exactly the reference's ids, in every run."""
  wanted = {a.id: a.tokens for a in reference}
  ids = {a.id for a in answers if a.id in wanted}
  different = {a.id for a in answers if a.tokens != wanted.get(a.id)} & ids
  return {"equal": len(ids) - len(different), "total": len(ids)}


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

  Rounds of one answer resemble each other, so whole prompts are drawn, with all
  their runs.

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


def speedup_interval(
  answers: Answers, plain: Answers
) -> tuple[float, float] | None:
  """95 percent interval of `speedup`'s mean over prompts."""
  runs = sorted({a.run for a in answers})
  pairs = [_paired(answers, plain, run) for run in runs]
  if not pairs or len({tuple(a.id for a in ours) for ours, _ in pairs}) > 1:
    return None  # The runs have not answered the same prompts.
  ours = np.array([_rates(a, False) for a, _ in pairs])
  theirs = np.array([_rates(b, False) for _, b in pairs])
  return bootstrap(ours, theirs)


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


def _paired(
  answers: Answers, plain: Answers, run: int
) -> tuple[list[Answer], list[Answer]]:
  """Answers of both to the same prompts of a run, in one order."""
  theirs = {a.id: a for a in plain if a.run == run}
  ours = [a for a in answers if a.run == run and a.id in theirs]
  return ours, [theirs[a.id] for a in ours]


def _rates(answers: Answers, decode_only: bool) -> list[float]:
  rates = []
  for answer in answers:
    seconds = answer.decode_seconds
    seconds += 0 if decode_only else answer.prefill_seconds
    rates.append(len(answer.tokens) / seconds if seconds else 0.0)
  return rates


def _mean(values: Sequence[float]) -> float | None:
  return float(np.mean(values)) if len(values) else None
