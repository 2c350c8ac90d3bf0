# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every file imports only from the rows below its own.

The table below is the architecture. A new file must be placed in it, so that
its author decides what it may know. Imports are read from the syntax tree, so
an import inside a function counts as well; only `if TYPE_CHECKING:` blocks do
not, since an annotation makes nothing depend on anything at run time.
"""

import ast
import fnmatch
import pathlib

from absl.testing import absltest, parameterized

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Lowest first. A pattern stands for the modules of one folder.
ROWS = (
  ("cache", "streams", "text.chat", "text.pretokenizers"),
  ("sampling.constraints", "sampling.thresholds", "sampling.token_lists"),
  ("sampling.automata", "sampling.history", "sampling.settings"),
  ("text.untrusted", "text.vocabulary"),
  ("types", "text.bpe", "text.records", "text.tokenizer_files"),
  ("trees.tree", "sampling", "sharding", "tokenizers", "checkpoints"),
  ("models", "models.*"),
  ("trees.plans", "trees.search"),
  ("trees.pool",),
  (
    "trees.growth",
    "drafters.rollout",
    "verifiers.ratio",
    "drafters.reading",
    "drafters.unread",
    "drafters.recorded",
    "laws.enumeration",
  ),
  ("trees.branching", "policies.parts"),
  ("drafters", "drafters.*", "verifiers", "verifiers.*", "policies.policy"),
  (
    "policies.gain",
    "policies.stand_ins",
    "drafters.assisted_model",
    "drafters.cross_vocabulary",
    "verifiers.multi_path",
  ),
  ("decoding.stopping", "decoding.draft_models"),
  ("decoding.fitting",),
  ("decoding.prefill", "decoding.step"),
  ("decoding.decode",),
  ("decoding.refill",),
  ("laws.cells", "laws.races", "laws.drafts"),
  ("policies.calibration",),
  ("exact", "counterfactual", "policies.cost", "reports.metrics", "data"),
  ("reports.speed", "reports.tables"),
  ("answers",),
  ("session",),
  ("api", "reports.report"),
  ("testing.cases", "testing.recording", "testing.table"),
  ("testing.scripted", "testing.reuse"),
  ("testing.trials",),
  ("testing.shapes",),
  ("testing.rules", "testing.proposals", "testing.mutants"),
  ("bench.agreement", "bench.backend", "bench.storage", "bench.spelling"),
  ("bench.plugins", "bench.sections", "bench.command_line"),
  (
    "bench.parts",
    "bench.sampling_section",
  ),
  ("bench.dotted_keys",),
  ("bench.schema", "bench.proof_schema", "bench.build"),
  ("bench.configuration",),
  ("bench.recording", "bench.passes", "bench.workdir"),
  ("bench.loading", "bench.measured", "bench.memory"),
  ("bench.inputs",),
  ("bench.measure", "bench.replay"),
  ("bench.answering", "bench.summary", "bench.trace", "bench.streaming"),
  ("bench.findings", "bench.sweep_table"),
  ("bench.comparison", "bench.exactness"),
  ("bench.sweep",),
  ("run",),
  (
    "__init__",
    "__main__",
    "bench",
    "decoding",
    "laws",
    "policies",
    "reports",
    "testing",
    "text",
    "trees",
  ),
)

# Families of files that may import each other.
MUTUAL = ("models.*",)

# Who may import a distribution; everybody else may not.
RESTRICTED = {
  "flax.linen": ("specjax/models/*",),
  "flax.nnx": (),
  "torch": ("tests/parity/*", "experiments/transformers_baseline/*"),
  "transformers": ("tests/parity/*", "experiments/transformers_baseline/*"),
}


KNOWN_IN_EXAMPLES = (
  "cache",
  "types",
  "sampling",
  "models",
  "models.a",
  "models.b",
  "drafters",
  "drafters.a",
  "drafters.b",
  "drafters.rollout",
  "trees.tree",
  "decoding.decode",
  "run",
)


def _python_files(folder: str) -> list[pathlib.Path]:
  return sorted((ROOT / folder).rglob("*.py"))


def _module(path: pathlib.Path) -> str:
  """Name below specjax: specjax/models/gguf.py is models.gguf."""
  parts = path.relative_to(ROOT / "specjax").with_suffix("").parts
  if len(parts) > 1 and parts[-1] == "__init__":
    parts = parts[:-1]
  return ".".join(parts)


def _is_type_checking(node: ast.If) -> bool:
  test = node.test
  name = test.attr if isinstance(test, ast.Attribute) else test
  name = name.id if isinstance(name, ast.Name) else name
  return name == "TYPE_CHECKING"


def _import_nodes(node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
  found = []
  for child in ast.iter_child_nodes(node):
    if isinstance(child, ast.Import | ast.ImportFrom):
      found.append(child)
    elif isinstance(child, ast.If) and _is_type_checking(child):
      for other in child.orelse:
        found.extend(_import_nodes(ast.Module([other], [])))
    else:
      found.extend(_import_nodes(child))
  return found


def imported_names(source: str) -> set[str]:
  """Dotted names that a file imports; `from a import b` gives a.b."""
  names = set()
  for node in _import_nodes(ast.parse(source)):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif node.level:
      names.add("." * node.level + (node.module or ""))
    else:
      names.update(f"{node.module}.{alias.name}" for alias in node.names)
  return names


def imported_modules(source: str, known: frozenset[str]) -> set[str]:
  """The modules of specjax (names below it) that a file imports."""
  modules = set()
  for name in imported_names(source):
    top, _, rest = name.partition(".")
    if top != "specjax":
      continue
    # `from specjax.types import Draft` names an attribute, not a module.
    while rest and rest not in known:
      rest = rest.rpartition(".")[0]
    modules.add(rest or "__init__")
  return modules


def row_of(module: str) -> int | None:
  """The row that names a module; an exact name wins over a pattern."""
  for exact in (True, False):
    for row, patterns in enumerate(ROWS):
      for pattern in patterns:
        if (pattern == module) if exact else fnmatch.fnmatch(module, pattern):
          return row
  return None


def violations(module: str, source: str, known: frozenset[str]) -> list[str]:
  """One line for each import of `module` that the table forbids."""
  own = row_of(module)
  if own is None:
    return [f"specjax.{module} stands in no row: add it to ROWS"]
  bad = []
  for other in sorted(imported_modules(source, known)):
    row = row_of(other)
    if other == module or row is None or row < own:
      continue
    mutual = any(
      fnmatch.fnmatch(module, family) and fnmatch.fnmatch(other, family)
      for family in MUTUAL
    )
    if row == own and mutual:
      continue
    bad.append(f"specjax.{module} (row {own}) imports {other} (row {row})")
  return bad


def _is_within(name: str, package: str) -> bool:
  return name == package or name.startswith(package + ".")


class LayeringTest(parameterized.TestCase):
  def test_files_import_only_from_rows_below(self):
    files = {_module(path): path for path in _python_files("specjax")}
    known = frozenset(files) | {"models", "drafters", "verifiers"}
    bad = []
    for module, path in files.items():
      bad += violations(module, path.read_text(), known)
    self.assertNotEmpty(files)
    self.assertEmpty(bad, "\n".join(bad))

  def test_restricted_packages_stay_in_their_rooms(self):
    bad = []
    folders = ("specjax", "train", "configs", "experiments", "tests")
    for path in [p for folder in folders for p in _python_files(folder)]:
      where = path.relative_to(ROOT).as_posix()
      for name in imported_names(path.read_text()):
        for package, rooms in RESTRICTED.items():
          allowed = any(fnmatch.fnmatch(where, room) for room in rooms)
          if _is_within(name, package) and not allowed:
            bad.append(f"{where} imports {name}")
    self.assertEmpty(bad, "\n".join(bad))

  @parameterized.parameters("train", "configs", "experiments", "tests")
  def test_the_library_does_not_know_its_users(self, package):
    bad = [
      f"{path.relative_to(ROOT)} imports {name}"
      for path in _python_files("specjax")
      for name in imported_names(path.read_text())
      if _is_within(name, package)
    ]
    self.assertEmpty(bad, "\n".join(bad))

  def test_imports_are_absolute(self):
    bad = [
      f"{path.relative_to(ROOT)} imports {name}"
      for path in _python_files("specjax") + _python_files("train")
      for name in imported_names(path.read_text())
      if name.startswith(".")
    ]
    self.assertEmpty(bad, "\n".join(bad))

  @parameterized.named_parameters(
    ("upwards", "cache", "from specjax.decoding import decode", True),
    ("attribute", "cache", "from specjax.types import Draft", True),
    ("same_row", "trees.tree", "from specjax import sampling", True),
    ("in_function", "trees.tree", "def f():\n  import specjax.run", True),
    ("own_package", "reports.metrics", "import specjax", True),
    ("drafters", "drafters.a", "from specjax.drafters import b", True),
    ("no_row", "orphan", "", True),
    ("downwards", "decoding.decode", "from specjax import cache, types", False),
    ("rollout", "drafters.a", "from specjax.drafters import rollout", False),
    ("models", "models.a", "from specjax.models import b", False),
    (
      "annotation",
      "types",
      "import typing\nif typing.TYPE_CHECKING:\n  import specjax.sampling",
      False,
    ),
  )
  def test_the_check_itself(self, module, source, is_bad):
    known = frozenset(KNOWN_IN_EXAMPLES)
    self.assertEqual(bool(violations(module, source, known)), is_bad)


if __name__ == "__main__":
  absltest.main()
