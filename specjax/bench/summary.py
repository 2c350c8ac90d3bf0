# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""summary.json: the measures of a run, from its records."""

import collections
from collections.abc import Sequence
import importlib.metadata
import math
import os
import pathlib
import platform
import re
from typing import Any

import jax
import numpy as np

from specjax import session as session_lib
from specjax.bench import loading, replay
from specjax.models import gguf_header
from specjax.reports import metrics, speed
from specjax.verifiers import coupled

_UNQUANTISED = ("F64", "F32", "F16", "BF16")
_LIBRARIES = ("specjax", "jax", "jaxlib", "flax", "numpy")


def method(
  answers: metrics.Answers,
  plain: metrics.Answers,
  reference: metrics.Answers,
  arrivals: Sequence[speed.Arrival] = (),
  *,
  comparable: bool = True,
) -> dict[str, Any]:
  """The measures of one method, or of plain decoding, by category too.

  Args:
    answers: of the method, all runs.
    plain: of plain decoding, all runs.
    reference: of `plain_reference`.
    arrivals: of the answers that were streamed.
    comparable: whether tokens should equal the reference's: not under a rule
      that draws from streams of its own.
  """
  whole = _measures(answers, plain, reference, arrivals, comparable)
  groups = list(dict.fromkeys(a.group for a in answers))
  whole["by_category"] = {}
  if len(groups) > 1:
    for group in groups:
      ours, theirs, came = (
        [x for x in some if x.group == group]
        for some in (answers, plain, arrivals)
      )
      whole["by_category"][group] = _measures(
        ours, theirs, reference, came, comparable
      )
  return whole


def add_replay(measures: dict[str, Any], times: Sequence[replay.Times]) -> None:
  """Adds time shares, the cost ratio and the speedup that they predict."""
  measures["time_share"] = replay.shares(times) if times else None
  measures["cost_ratio"] = replay.cost_ratio(times) if times else None
  measures["replay_seconds"] = {
    name: sum(getattr(t, name) for t in times)
    for name in ("full", "recorded", "forward", "plain")
  }
  measures["speedup"]["predicted"] = (
    replay.predicted_speedup(times) if times else None
  )


def device() -> dict[str, Any]:
  """What it ran on."""
  first = jax.devices()[0]
  return {
    "platform": first.platform,
    "kind": first.device_kind,
    "count": jax.device_count(),
    "processor": _processor(),
    "cores": os.cpu_count(),
  }


def versions() -> dict[str, str]:
  """Of Python and the libraries that decide numbers and speed."""
  found = {"python": platform.python_version()}
  for name in _LIBRARIES:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      found[name] = "not installed"  # Run from a checkout.
  return found


def note(weights: loading.Weights, dtype: str) -> str:
  """What numbers a target computes with: its label in every table."""
  kind = None
  if weights.source.kind == "gguf":
    kind = quantisation(weights.source.path)
  if weights.quantization == "int8":
    origin = f" of {kind}" if kind else ""
    return f"int8 weights (per output channel){origin}, computed in {dtype}"
  return f"{kind}, dequantised to {dtype}" if kind else f"{dtype} weights"


def quantisation(path: pathlib.Path) -> str | None:
  """Bits of a GGUF file's matrices, "4-bit (Q4_1)"; None if not quantised.

  The type that most of the file's numbers have decides.
  """
  counts = collections.Counter()
  for info in gguf_header.read(path).tensors.values():
    counts[info.type_name] += math.prod(info.shape)
  name = counts.most_common(1)[0][0]
  if name in _UNQUANTISED:
    return None
  bits = re.search(r"(?:Q|FP)(\d)", name)
  return f"{bits[1]}-bit ({name})" if bits else f"quantised ({name})"


def is_comparable(
  method: session_lib.Method, settings: session_lib.Settings
) -> bool:
  """Whether a method draws its tokens from the stream plain decoding uses."""
  greedy = not np.any(settings.sampling.temperature)
  return greedy or isinstance(method.verifier, coupled.Coupled)


def unequal(
  answers: metrics.Answers, reference: metrics.Answers
) -> list[tuple[metrics.Answer, metrics.Answer]]:
  """Answers that differ from the reference's, with it; one of all runs."""
  wanted = {a.key: a for a in reference}
  found = {}
  for answer in answers:
    other = wanted.get(answer.key)
    if other is not None and answer.tokens != other.tokens:
      found.setdefault(answer.key, (answer, other))
  return list(found.values())


def _measures(
  answers, plain_answers, reference, arrivals, comparable
) -> dict[str, Any]:
  matched = None
  if comparable:
    counts = metrics.matched(answers, reference)
    matched = {**counts, "first_difference_margin": None}
  return {
    "answers": len(answers),
    "block_efficiency": metrics.block_efficiency(answers),
    "block_efficiency_interval": metrics.block_efficiency_interval(answers),
    "block_efficiency_macro": metrics.block_efficiency_macro(answers),
    "acceptance_rate": metrics.acceptance_rate(answers),
    "acceptance_rate_interval": metrics.acceptance_rate_interval(answers),
    "accepted_per_draft": metrics.accepted_per_draft(answers),
    "acceptance_by_position": metrics.acceptance_by_position(answers),
    "tokens_per_second": speed.tokens_per_second(answers),
    "decode_tokens_per_second": speed.tokens_per_second(
      answers, decode_only=True
    ),
    "time_per_output_token": speed.time_per_output_token(answers),
    "time_to_first_token": speed.time_to_first_token(arrivals),
    "gaps": speed.gaps(arrivals),
    "streamed": len(arrivals),
    "new_tokens": metrics.mean([len(a.tokens) for a in answers]),
    "speedup": speed.speedup(answers, plain_answers),
    "matched": matched,
    "degenerate": metrics.degenerate(answers),
  }


def _processor() -> str:
  """Name of the processor, as exactly as the system tells."""
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line for line in file if line.startswith("model name")]
    return names[0].partition(":")[2].strip()
  except (OSError, IndexError):
    return platform.processor() or platform.machine()
