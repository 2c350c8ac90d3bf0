# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of time, each with its definition; all in seconds.

The target's first token comes from the first round and not from reading the
prompt, so decoding time divided by all tokens is the time of a token: nothing
is taken off either, where engines that draw the first token while they read
divide by one token less. A round of speculative decoding brings several tokens
at once, so the gap between two rounds (others' inter-token latency) is not the
time of a token: both are given, and the tokens that a gap brings.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from specjax.reports import metrics


@dataclasses.dataclass(frozen=True)
class Arrival:
  """How one answer came, round by round.

  Attributes:
    group: of its prompt, for tables.
    first_seconds: from the prompt's ids given until the host has the tokens of
      the first round, which may be several.
    gap_seconds: [R - 1] from the tokens of a round to those of the next.
    gap_tokens: [R - 1] how many each gap brought.
  """

  group: str
  first_seconds: float
  gap_seconds: np.ndarray
  gap_tokens: np.ndarray


def tokens_per_second(
  answers: metrics.Answers, *, decode_only: bool = False
) -> float | None:
  """Mean over answers of new tokens / wall time.

  The time includes reading the prompt unless `decode_only`. It is the mean of
  the answers' rates (Spec-Bench's), not all tokens / all time.
  """
  return metrics.mean(_rates(answers, decode_only))


def time_per_output_token(
  answers: metrics.Answers,
) -> dict[str, float] | None:
  """p50 and p90 over answers of decoding time / new tokens, prompt left out.

  Other than the mean of rates it shows the slow answers: p90 is the time of a
  token in the answer that nine of ten are faster than.
  """
  times = [a.decode_seconds / len(a.tokens) for a in answers if a.tokens]
  return _percentiles(times)


def time_to_first_token(
  arrivals: Sequence[Arrival],
) -> dict[str, float] | None:
  """p50 and p90 over answers of the time until the first tokens are there.

  From token ids to token ids: it holds the reading of the prompt and one whole
  round, not the tokenizer, and no compilation.
  """
  return _percentiles([a.first_seconds for a in arrivals])


def gaps(arrivals: Sequence[Arrival]) -> dict[str, float] | None:
  """Between rounds, as who watches the answer grow sees them.

  Returns:
    p50, p90 and max in seconds over all gaps of all answers, and tokens, the
    mean that a gap brings. Every round is a call of its own here, so a gap is
    longer than a round of the timed runs by what a call costs.
  """
  if not any(len(a.gap_seconds) for a in arrivals):
    return None
  seconds = np.concatenate([a.gap_seconds for a in arrivals])
  tokens = np.concatenate([a.gap_tokens for a in arrivals])
  found: Any = _percentiles(seconds)
  return {
    **found,
    "max": float(seconds.max()),
    "tokens": float(tokens.mean()),
  }


def speedups(
  answers: metrics.Answers,
  plain: metrics.Answers,
  *,
  decode_only: bool = False,
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


def speedup(answers: metrics.Answers, plain: metrics.Answers) -> dict[str, Any]:
  """Speedup over plain decoding, the ratio of means in paired runs.

  Returns:
    mean, std (sample, None for one run), decode_only (its mean, prompts not
    timed), interval and decode_only_interval (bootstrap over prompts),
    without_degenerate and decode_only_without_degenerate (means over the
    answers that do not loop).
  """
  runs = speedups(answers, plain)
  fresh = {a.key for a in answers if not metrics.is_degenerate(a.tokens)}
  kept = [a for a in answers if a.key in fresh]
  return {
    "mean": metrics.mean(runs),
    "std": float(np.std(runs, ddof=1)) if len(runs) > 1 else None,
    "decode_only": metrics.mean(speedups(answers, plain, decode_only=True)),
    "interval": speedup_interval(answers, plain),
    "decode_only_interval": speedup_interval(answers, plain, decode_only=True),
    "without_degenerate": metrics.mean(speedups(kept, plain)),
    "decode_only_without_degenerate": metrics.mean(
      speedups(kept, plain, decode_only=True)
    ),
  }


def speedup_interval(
  answers: metrics.Answers,
  plain: metrics.Answers,
  *,
  decode_only: bool = False,
) -> tuple[float, float] | None:
  """95 percent interval of `speedup`'s mean over prompts."""
  runs = sorted({a.run for a in answers})
  pairs = [_paired(answers, plain, run) for run in runs]
  if not pairs or len({tuple(a.key for a in ours) for ours, _ in pairs}) > 1:
    return None  # The runs have not answered the same prompts.
  ours = np.array([_prompt_rates(a, decode_only) for a, _ in pairs])
  theirs = np.array([_prompt_rates(b, decode_only) for _, b in pairs])
  return metrics.bootstrap(ours, theirs)


def _paired(
  answers: metrics.Answers, plain: metrics.Answers, run: int
) -> tuple[list[metrics.Answer], list[metrics.Answer]]:
  """Answers of both to the same prompts of a run, in one order."""
  theirs = {a.key: a for a in plain if a.run == run}
  ours = [a for a in answers if a.run == run and a.key in theirs]
  return ours, [theirs[a.key] for a in ours]


def _rates(answers: metrics.Answers, decode_only: bool) -> list[float]:
  rates = []
  for answer in answers:
    seconds = answer.decode_seconds
    seconds += 0 if decode_only else answer.prefill_seconds
    rates.append(len(answer.tokens) / seconds if seconds else 0.0)
  return rates


def _prompt_rates(answers: metrics.Answers, decode_only: bool) -> list[float]:
  """One sum of rates a prompt, over its samples."""
  sums: dict[str, float] = {}
  for answer, rate in zip(answers, _rates(answers, decode_only)):
    sums[answer.id] = sums.get(answer.id, 0.0) + rate
  return list(sums.values())


def _percentiles(
  values: Sequence[float] | np.ndarray,
) -> dict[str, float] | None:
  if not len(values):
    return None
  p50, p90 = np.percentile(values, (50, 90))
  return {"p50": float(p50), "p90": float(p90)}
