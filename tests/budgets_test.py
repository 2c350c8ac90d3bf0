# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Size and naming budgets, with no exceptions.

A file that passes its budget is split by noun. The lists of exceptions below
are empty and tested to stay so.
"""

import ast
import pathlib
import re

from absl.testing import absltest, parameterized

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES = 300
TEST_FILE_LINES = 500
FUNCTION_LINES = 40
SOURCES = ("specjax", "train", "configs", "experiments")
# Names that say nothing about what is inside.
FORBIDDEN_NAMES = ("utils", "util", "helpers", "common", "base", "manager")
HEADER = (
  "# Copyright 2026 The specjax Authors.\n"
  "# SPDX-License-Identifier: Apache-2.0\n"
)
EXCEPTIONS: tuple[str, ...] = ()


def _python_files(*folders: str) -> list[pathlib.Path]:
  return [
    p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))
  ]


def _name(path: pathlib.Path) -> str:
  return path.relative_to(ROOT).as_posix()


def function_lengths(source: str) -> dict[str, int]:
  """Lines of each function, decorators and docstring not counted."""
  lengths = {}
  for node in ast.walk(ast.parse(source)):
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      continue
    first, last = node.lineno, node.end_lineno or node.lineno
    lines = last - first + 1
    if ast.get_docstring(node) is not None:
      doc = node.body[0]
      lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    lengths[f"{node.name}:{first}"] = lines
  return lengths


class BudgetsTest(parameterized.TestCase):
  @parameterized.parameters(
    (SOURCES, FILE_LINES), (("tests",), TEST_FILE_LINES)
  )
  def test_files_are_short(self, folders, budget):
    long = [
      f"{_name(path)}: {lines} lines, the budget is {budget}"
      for path in _python_files(*folders)
      if (lines := len(path.read_text().splitlines())) > budget
      and _name(path) not in EXCEPTIONS
    ]
    self.assertEmpty(long, "\n".join(long))

  def test_functions_are_short(self):
    long = [
      f"{_name(path)}:{name}: {lines} lines, the budget is {FUNCTION_LINES}"
      for path in _python_files(*SOURCES)
      for name, lines in function_lengths(path.read_text()).items()
      if lines > FUNCTION_LINES and _name(path) not in EXCEPTIONS
    ]
    self.assertEmpty(long, "\n".join(long))

  def test_there_are_no_exceptions(self):
    self.assertEmpty(EXCEPTIONS)

  def test_names_say_what_is_inside(self):
    vague = [
      _name(path)
      for path in _python_files(*SOURCES, "tests")
      if set(path.relative_to(ROOT).with_suffix("").parts)
      & set(FORBIDDEN_NAMES)
    ]
    self.assertEmpty(vague)

  def test_nothing_is_left_for_later(self):
    marker = re.compile(r"\b(TODO|FIXME|XXX)\b")
    left = [
      f"{_name(path)}:{number}"
      for path in _python_files(*SOURCES, "tests")
      if path != pathlib.Path(__file__).resolve()
      for number, line in enumerate(path.read_text().splitlines(), 1)
      if marker.search(line)
    ]
    self.assertEmpty(left)

  def test_every_file_states_its_licence(self):
    bare = [
      _name(path)
      for path in _python_files(*SOURCES, "tests")
      if (text := path.read_text()) and not text.startswith(HEADER)
    ]
    self.assertEmpty(bare)

  def test_the_ruler_counts_lines_without_docstring(self):
    source = 'def f(\n  x,\n):\n  """One.\n\n  Two.\n  """\n  return x\n'
    self.assertEqual(function_lengths(source), {"f:1": 4})


if __name__ == "__main__":
  absltest.main()
