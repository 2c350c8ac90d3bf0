# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows: progress, tables, an answer as it grows.

Model text is data: it goes through `rich.text.Text`, never through markup, and
its control characters are shown, not obeyed.
"""

from collections.abc import Callable, Generator, Mapping
import contextlib
import sys
from typing import Any, TextIO
import unicodedata

WIDTH = 100  # columns that the tables fit into
_COLUMNS = (
  "method",
  "tau",
  "alpha",
  "tokens/s",
  "speedup",
  "decode",
  "matched",
  "degenerate",
  "draft/verify/other",
)
_POSITIONS = 12  # that are shown
_LEGEND = (
  "tau: tokens a target call. alpha: share of tested drafts kept. speedup: "
  "tokens/s over plain decoding (width {width}) in paired runs, prompts "
  "included; decode: without them. matched: same ids as plain decoding. "
  "degenerate: share of answers that loop. draft/verify/other: shares of time."
)
ACCEPTED_STYLE = "green underline"


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


@contextlib.contextmanager
def progress(
  total: int, done: int, file: TextIO | None = None
) -> Generator[Callable[[int, str], None]]:
  """A bar with the time left, on stderr; nothing where that is no terminal.

  Args:
    total: steps in all.
    done: steps that an earlier run has made; they do not count for the speed.
    file: in place of stderr.

  Yields:
    A function (steps, what is going on).
  """
  import rich.console
  import rich.progress as bars

  console = rich.console.Console(file=file or sys.stderr)
  columns = (
    bars.TextColumn("{task.description}", markup=False),
    bars.BarColumn(),
    bars.MofNCompleteColumn(),
    bars.TimeElapsedColumn(),
    bars.TextColumn("left", markup=False),
    bars.TimeRemainingColumn(),
  )
  with bars.Progress(
    *columns,
    console=console,
    disable=not console.is_terminal,
    transient=True,
  ) as bar:
    task = bar.add_task("starting", total=total, completed=done)
    yield lambda steps, what: bar.update(
      task, advance=steps, description=visible(what)
    )


def show(summary: Mapping[str, Any], file: TextIO | None = None) -> None:
  """Prints the tables of a summary."""
  import rich.console

  console = rich.console.Console(file=file, highlight=False)
  if not console.is_terminal:
    console.width = WIDTH
  target, plain = summary["target"], summary["plain"]
  console.print(
    _text(f"{target['name']}, {target['note']}, on {_device(summary)}")
  )
  for table in (_main_table, _category_table, _position_table):
    shown = table(summary)
    if shown is not None:
      console.print()
      console.print(shown)
  console.print()
  for line in _notes(summary):
    console.print(_text(line))
  console.print(_text(_LEGEND.format(width=plain["width"])))


def say(line: str, file: TextIO | None = None) -> None:
  """Prints one line."""
  import rich.console

  console = rich.console.Console(file=file, highlight=False)
  console.print(_text(line), soft_wrap=True)


class AnswerView:
  """Prints an answer piece by piece; drafted and accepted text is marked."""

  def __init__(self, file: TextIO | None = None, *, mark: bool = False):
    """On a terminal by colour; elsewhere by « » if `mark`, else not at all."""
    import rich.console

    self._console = rich.console.Console(file=file, highlight=False)
    self._mark = mark and not self._console.is_terminal

  def write(self, text: str, accepted: bool) -> None:
    import rich.text

    text = visible(text)
    if not text:
      return
    if self._console.is_terminal:
      style = ACCEPTED_STYLE if accepted else ""
      self._console.print(rich.text.Text(text, style), end="", soft_wrap=True)
    else:
      brackets = self._mark and accepted
      self._console.file.write(f"«{text}»" if brackets else text)
    self._console.file.flush()

  def end(self, line: str) -> None:
    """Ends the answer and adds one line about it."""
    self._console.file.write("\n\n")
    self._console.print(_text(line), soft_wrap=True)


def number(value: float | None, digits: int = 2) -> str:
  return "n/a" if value is None else f"{value:.{digits}f}"


def _text(text: str):
  import rich.text

  return rich.text.Text(visible(text))


def _device(summary) -> str:
  device = summary["device"]
  if device["platform"] == "cpu":
    return f"{device['processor']}, {device['cores']} cores"
  return device["kind"]


def _main_table(summary):
  table = _table(_COLUMNS)
  plain = summary["plain"]
  table.add_row(
    *map(
      _text,
      (
        "plain",
        "1.00",
        "",
        number(plain["tokens_per_second"], 1),
        "1.00",
        "1.00",
        "",
        number(plain["degenerate"]),
        "",
      ),
    )
  )
  for name in summary["methods"]:
    table.add_row(*map(_text, _row(name, summary["methods"][name])))
  return table


def _row(name: str, measures: Mapping[str, Any]) -> tuple[str, ...]:
  speedup = measures["speedup"]
  spread = "" if speedup["std"] is None else f" ± {number(speedup['std'])}"
  matched, share = measures["matched"], measures.get("time_share")
  parts = ("draft", "verify", "other")
  return (
    name,
    number(measures["block_efficiency"]),
    number(measures["acceptance_rate"]),
    number(measures["tokens_per_second"], 1),
    number(speedup["mean"]) + spread,
    number(speedup["decode_only"]),
    "n/a" if matched is None else f"{matched['equal']}/{matched['total']}",
    number(measures["degenerate"]),
    " / ".join(number(share[part]) for part in parts) if share else "n/a",
  )


def _notes(summary) -> list[str]:
  """What the column `matched` has no room for."""
  lines = []
  for name, measures in summary["methods"].items():
    matched = measures["matched"]
    if matched is None:
      lines.append(f"{name} draws from streams of its own: no ids to compare")
    elif matched["first_difference_margin"] is not None:
      margin = matched["first_difference_margin"]
      lines.append(f"{name} differs first at a margin of {margin:.1e} at most")
  return lines


def _category_table(summary):
  methods = summary["methods"]
  groups = list(
    dict.fromkeys(g for m in methods.values() for g in m["by_category"])
  )
  if not groups:
    return None
  table = _table(("tau / decode", *groups))
  for name in methods:
    cells = [name]
    for group in groups:
      part = methods[name]["by_category"].get(group)
      cells.append(
        ""
        if part is None
        else f"{number(part['block_efficiency'])} / "
        f"{number(part['speedup']['decode_only'])}"
      )
    table.add_row(*map(_text, cells))
  return table


def _position_table(summary):
  methods = summary["methods"]
  rows = {
    name: methods[name]["acceptance_by_position"]["unconditional"]
    for name in methods
  }
  longest = max(map(len, rows.values()), default=0)
  if not longest:
    return None
  positions = [str(i + 1) for i in range(min(longest, _POSITIONS))]
  cut = f" (of {longest})" if longest > _POSITIONS else ""
  table = _table((f"kept at{cut}", *positions))
  for name, values in rows.items():
    table.add_row(*map(_text, (name, *map(number, values[:_POSITIONS]))))
  return table


def _table(columns):
  import rich.box
  import rich.table

  table = rich.table.Table(
    box=rich.box.SIMPLE_HEAD,
    pad_edge=False,
    show_edge=False,
    collapse_padding=True,
  )
  for place, name in enumerate(columns):
    table.add_column(_text(name), justify="right" if place else "left")
  return table
