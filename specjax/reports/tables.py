# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of a summary as the terminal shows them, 100 columns wide.

What stands in them may come from a model or a file, so it is plain text with
its control characters shown, never markup.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
import unicodedata

WIDTH = 100  # columns that the tables fit into
_POSITIONS = 12  # that are shown
_QUALITY = (
  "method",
  "tau",
  "alpha",
  "tokens/s",
  "speedup",
  "decode",
  "no loops",
  "matched",
  "degenerate",
)
_COSTS = (
  "seconds",
  "first ms",
  "token ms",
  "gap ms",
  "a gap",
  "MB",
  "draft/verify/other",
)
_LEGEND = (
  "tau: tokens a target call. alpha: share of tested drafts kept. speedup: "
  "tokens/s over plain decoding (width {width}) in paired runs, prompts "
  "included; decode: without them; no loops: speedup over the answers that do "
  "not loop. matched: same ids as plain decoding. degenerate: share of answers "
  "that loop.",
  "first: from prompt to first tokens, p50 / p90 of {streamed} streamed "
  "answers; token: decoding time of a token, p50 / p90 over answers; gap: "
  "between streamed rounds, p50 / p90 / max; a gap: tokens that one brings. "
  "MB: what the decoding program needs. draft/verify/other: shares of time.",
)


def visible(text: str) -> str:
  """Text with control characters written out: ESC becomes \\x1b."""

  def escape(char: str) -> str:
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn")
    # A joiner of letters and emoji is no danger.
    if not hidden or char in "\n\t\u200c\u200d":
      return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

  return "".join(map(escape, text))


def text(content: str):
  """Text for `rich`."""
  import rich.text

  return rich.text.Text(visible(content))


def number(value: float | None, digits: int = 2) -> str:
  """A number, or n/a for None."""
  return "n/a" if value is None else f"{value:.{digits}f}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]):
  """A table for `rich`; the first column is a name, the others numbers."""
  import rich.box
  import rich.table

  made = rich.table.Table(
    box=rich.box.SIMPLE_HEAD,
    pad_edge=False,
    show_edge=False,
    collapse_padding=True,
  )
  for place, name in enumerate(columns):
    made.add_column(text(name), justify="right" if place else "left")
  for row in rows:
    made.add_row(*map(text, row))
  return made


def heading(summary: Mapping[str, Any]) -> str:
  """What was measured, on what."""
  target, samples = summary["target"], summary.get("samples", 1)
  several = f", {samples} samples a prompt" if samples > 1 else ""
  return f"{target['name']}, {target['note']}, on {_device(summary)}{several}"


def tables(summary: Mapping[str, Any]) -> list[Any]:
  """The tables that have something to show."""
  methods = summary["methods"]
  every = {"plain": summary["plain"], **methods}
  shown = [
    table(_QUALITY, [_quality(name, every[name]) for name in every]),
    table(_COSTS, [_costs(name, every[name]) for name in every]),
  ]
  groups = dict.fromkeys(g for m in methods.values() for g in m["by_category"])
  if groups:
    rows = [_categories(name, methods[name], groups) for name in methods]
    shown.append(table(("tau / decode", *groups), rows))
  kept = {
    name: methods[name]["acceptance_by_position"]["unconditional"]
    for name in methods
  }
  longest = max(map(len, kept.values()), default=0)
  if longest:
    cut = f" (of {longest})" if longest > _POSITIONS else ""
    positions = [str(i + 1) for i in range(min(longest, _POSITIONS))]
    rows = [(x, *map(number, kept[x][:_POSITIONS])) for x in kept]
    shown.append(table((f"kept at{cut}", *positions), rows))
  return shown


def notes(summary: Mapping[str, Any]) -> list[str]:
  """What the columns have no room for, and what they mean."""
  plain, lines = summary["plain"], []
  for name, measures in {"plain": plain, **summary["methods"]}.items():
    matched = measures["matched"]
    if matched is None:
      lines.append(f"{name} draws from streams of its own: no ids to compare")
    elif matched["first_difference_margin"] is not None:
      margin = matched["first_difference_margin"]
      lines.append(f"{name} differs first at a margin of {margin:.1e} at most")
  for name, draft in summary.get("drafts", {}).items():
    if "quantization" in draft:
      lines.append(f"{name} drafts with {draft['quantization']} weights")
  known = {"width": plain["width"], "streamed": plain["streamed"]}
  return lines + [line.format(**known) for line in _LEGEND]


def _device(summary) -> str:
  device = summary["device"]
  is_cpu = device["platform"] == "cpu"
  name = f"{device['processor']}, {device['cores']} cores" if is_cpu else ""
  name = name or device["kind"]
  mesh = summary["mesh"]
  if mesh["data"] * mesh["model"] == 1:
    return name
  return f"mesh {mesh['data']} x {mesh['model']} of {name}"


def _quality(name: str, measures: Mapping[str, Any]) -> tuple[str, ...]:
  speedup, matched = measures["speedup"], measures["matched"]
  spread = f" ± {number(speedup['std'])}" if speedup["std"] else ""
  return (
    name,
    number(measures["block_efficiency"]),
    number(measures["acceptance_rate"]),
    number(measures["tokens_per_second"], 1),
    number(speedup["mean"]) + spread,
    number(speedup["decode_only"]),
    number(speedup["without_degenerate"]),
    "n/a" if matched is None else f"{matched['equal']}/{matched['total']}",
    number(measures["degenerate"]),
  )


def _costs(name: str, measures: Mapping[str, Any]) -> tuple[str, ...]:
  gaps, share = measures["gaps"], measures.get("time_share")
  peak = measures["memory"]["peak"]
  return (
    name,
    _milliseconds(measures["time_to_first_token"], "p50", "p90"),
    _milliseconds(measures["time_per_output_token"], "p50", "p90"),
    _milliseconds(gaps, "p50", "p90", "max"),
    number(gaps and gaps["tokens"]),
    number(peak and peak / 1e6, 0),
    " / ".join(number(share[x]) for x in ("draft", "verify", "other"))
    if share
    else "n/a",
  )


def _milliseconds(seconds: Mapping[str, float] | None, *names: str) -> str:
  if seconds is None:
    return "n/a"
  values = [1e3 * seconds[name] for name in names]
  # Three digits are enough, and the columns are narrow.
  return " / ".join(number(x, 1 if x < 100 else 0) for x in values)


def _categories(name: str, measures, groups: Iterable[str]) -> tuple[str, ...]:
  parts = [measures["by_category"].get(group) for group in groups]
  cells = [
    f"{number(part['block_efficiency'])} / "
    f"{number(part['speedup']['decode_only'])}"
    if part
    else ""
    for part in parts
  ]
  return name, *cells
