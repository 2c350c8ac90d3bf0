# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Public fault reports: each is a test here or names what it waits for.

`tests/fault_cases.json` lists the cases, `@pytest.mark.fault_case("B01")`
marks the tests that reproduce them, and `docs/fault_cases.md` is the table made
of both: `python tests/fault_cases_test.py --write` renews it.
"""

import ast
from collections.abc import Iterator
import json
import pathlib
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "fault_cases.json"
TABLE = ROOT / "docs" / "fault_cases.md"
INTRODUCTION = """# Fault cases

Faults that users and developers of speculative decoding systems reported in
public, each reduced to a small input. A case is a test of this project, or it
names the part of the project it waits for. This page is generated:
`python tests/fault_cases_test.py --write`.

| case | reports | what goes wrong | tests | waits for |
|---|---|---|---|---|
"""


def load_cases() -> list[dict]:
  return json.loads(CASES.read_text())


def _mark(decorator: ast.expr) -> tuple[str, list[ast.expr]]:
  """Name and arguments of a decorator `pytest.mark.name(...)`, else ""."""
  args = decorator.args if isinstance(decorator, ast.Call) else []
  function = decorator.func if isinstance(decorator, ast.Call) else decorator
  prefix, _, name = ast.unparse(function).rpartition(".")
  return (name, args) if prefix == "pytest.mark" else ("", [])


def _definitions(
  node: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
  for child in ast.iter_child_nodes(node):
    if isinstance(child, ast.FunctionDef | ast.ClassDef):
      yield prefix + child.name, child
      yield from _definitions(child, f"{prefix}{child.name}.")


def marked_tests(source: str) -> list[tuple[str, str]]:
  """(case, qualified test name) for each fault_case mark of a file."""
  found = []
  for name, node in _definitions(ast.parse(source)):
    for mark, args in map(_mark, node.decorator_list):
      if mark == "fault_case":
        found += [(ast.literal_eval(arg), name) for arg in args]
  return found


def misplaced_marks(source: str) -> list[str]:
  """Tests whose mark stands above `parameterized`, where pytest loses it."""
  bad = []
  for name, node in _definitions(ast.parse(source)):
    decorators = list(enumerate(node.decorator_list))
    expanding = [
      i for i, d in decorators if ast.unparse(d).startswith("parameterized")
    ]
    marks = [i for i, d in decorators if _mark(d)[0]]
    if expanding and marks and min(marks) < max(expanding):
      bad.append(name)
  return bad


def _test_files() -> list[pathlib.Path]:
  return sorted((ROOT / "tests").rglob("*_test.py"))


def cases_to_tests() -> dict[str, list[str]]:
  """Case -> `tests/file.py::Class.test` names, in file order."""
  result: dict[str, list[str]] = {}
  for path in _test_files():
    for case, name in marked_tests(path.read_text()):
      where = path.relative_to(ROOT).as_posix()
      result.setdefault(case, []).append(f"{where}::{name}")
  return result


def table() -> str:
  tests = cases_to_tests()
  rows = []
  for case in load_cases():
    links = [
      f"[{name.split('.')[-1]}](../{name.split('::')[0]})"
      for name in tests.get(case["id"], [])
    ]
    cells = (
      case["id"],
      ", ".join(case["reports"]),
      case["subject"],
      ", ".join(links),
      case["waiting_for"] or "",
    )
    rows.append("| " + " | ".join(cells) + " |")
  return INTRODUCTION + "\n".join(rows) + "\n"


class FaultCasesTest(absltest.TestCase):
  def test_every_case_is_tested_or_waits_for_a_named_part(self):
    tests = cases_to_tests()
    open_cases = [
      case["id"]
      for case in load_cases()
      if case["id"] not in tests and not case["waiting_for"]
    ]
    self.assertEmpty(open_cases, f"neither tested nor waiting: {open_cases}")

  def test_marks_name_known_cases(self):
    known = {case["id"] for case in load_cases()}
    self.assertLen(known, len(load_cases()), "an id stands twice")
    self.assertEmpty(set(cases_to_tests()) - known)

  def test_marks_reach_the_expanded_tests(self):
    bad = [
      f"{path.relative_to(ROOT)}::{name}: put the mark below parameterized"
      for path in _test_files()
      for name in misplaced_marks(path.read_text())
    ]
    self.assertEmpty(bad, "\n".join(bad))

  def test_the_table_is_up_to_date(self):
    self.assertEqual(
      TABLE.read_text(),
      table(),
      "run `python tests/fault_cases_test.py --write`",
    )

  def test_the_scanner_itself(self):
    source = (
      "class A:\n"
      "  @pytest.mark.fault_case('B01', 'B03')\n"
      "  @parameterized.parameters(1)\n"
      "  def test_x(self, i): pass\n"
      "@parameterized.parameters(1)\n"
      "@pytest.mark.fault_case('B04')\n"
      "def test_y(): pass\n"
    )
    self.assertEqual(
      marked_tests(source),
      [("B01", "A.test_x"), ("B03", "A.test_x"), ("B04", "test_y")],
    )
    self.assertEqual(misplaced_marks(source), ["A.test_x"])


if __name__ == "__main__":
  if "--write" in sys.argv:
    TABLE.write_text(table())
  else:
    absltest.main()
