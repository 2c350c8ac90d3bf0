# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows: progress, tables, an answer as it grows.

Model text is data: it goes through `rich.text.Text`, never through markup, and
its control characters are shown, not obeyed.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
import contextlib
import sys
from typing import Any, TextIO

from specjax.reports import tables

ACCEPTED_STYLE = "green underline"


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
      task, advance=steps, description=tables.visible(what)
    )


def show(summary: Mapping[str, Any], file: TextIO | None = None) -> None:
  """Prints the tables of a summary."""
  import rich.console

  console = rich.console.Console(file=file, highlight=False)
  if not console.is_terminal:
    console.width = tables.WIDTH
  console.print(tables.text(tables.heading(summary)))
  for table in tables.tables(summary):
    console.print()
    console.print(table)
  console.print()
  for line in tables.notes(summary):
    console.print(tables.text(line))


def show_table(
  columns: Sequence[str],
  rows: Iterable[Sequence[str]],
  file: TextIO | None = None,
) -> None:
  """Prints one table; the first column is a name, the others numbers."""
  import rich.console

  console = rich.console.Console(file=file, highlight=False)
  if not console.is_terminal:
    console.width = tables.WIDTH
  console.print(tables.table(columns, rows))


def say(line: str, file: TextIO | None = None) -> None:
  """Prints one line."""
  import rich.console

  console = rich.console.Console(file=file, highlight=False)
  console.print(tables.text(line), soft_wrap=True)


class AnswerView:
  """Prints an answer piece by piece; drafted and accepted text is marked."""

  def __init__(self, file: TextIO | None = None, *, mark: bool = False):
    """On a terminal by colour; elsewhere by « » if `mark`, else not at all."""
    import rich.console

    self._console = rich.console.Console(file=file, highlight=False)
    self._mark = mark and not self._console.is_terminal

  def write(self, text: str, accepted: bool) -> None:
    import rich.text

    text = tables.visible(text)
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
    self._console.print(tables.text(line), soft_wrap=True)
