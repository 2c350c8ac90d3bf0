# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The README's tables of drafters, rules and policies are made from the code.

`python tests/features_test.py --write` renews them. A row is a short name of
`bench.parts.NAMES`; its text is the first paragraph of a docstring, what it
claims is read from its class, and its proof is found among the tests.
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import pathlib
import sys
import typing
from typing import Any

from absl.testing import absltest, parameterized

from specjax.bench import parts

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN = "<!-- tests/features_test.py makes what follows -->\n"
END = "<!-- tests/features_test.py made this -->\n"
HEADINGS = {
  "drafter": ("drafter", "what it does", "drafts", "needs", "proof"),
  "verifier": ("rule", "what it does", "exact", "verifies", "proof"),
  "policy": ("policy", "what it does", "proof"),
}
# What an argument without a default asks of the user.
NEEDS = {
  "heads": "trained heads",
  "model": "a draft model",
  "answers": "recorded answers",
}
# Where parts are proven whose module has no test file of its own name. A rule
# has a proof in all that refer to it, a drafter in the first: further ones only
# compare with it.
SHARED = {
  "drafter": ("equality", "head_drafters"),
  "verifier": ("exact", "proofs", "verifiers"),
  "policy": (),
}


@dataclasses.dataclass(frozen=True)
class Part:
  """What a short name stands for."""

  kind: str  # "drafter", "verifier" or "policy"
  name: str
  function: Any  # makes the part; its class, or a function
  made: type

  @classmethod
  def of(cls, kind: str, name: str) -> "Part":
    module, _, attribute = parts.NAMES[kind][name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    if inspect.isclass(function):
      return cls(kind, name, function, function)
    made = typing.get_type_hints(function)["return"]
    # Of a union the first: the others are made of it, as for cascades.
    made = next(iter(typing.get_args(made)), made)
    return cls(kind, name, function, made)

  @property
  def text(self) -> str:
    """The function's own words, or those of the class that it names."""
    own = _first_paragraph(self.function)
    named = f"{self.made.__name__}`" in own
    return _first_paragraph(self.made) if named else own

  @property
  def structures(self) -> str:
    """A rule refuses trees, or does not; a chain is as deep as it has nodes."""
    if self.kind == "verifier":
      return "chain" if self.made.chain_only else "chain, tree"
    depth, nodes = (
      inspect.getsource(getattr(self.made, name).fget).split("return ")[-1]
      for name in ("max_depth", "num_nodes")
    )
    if depth.strip() in (nodes.strip(), "self.num_nodes"):
      return "chain"
    planned = typing.get_type_hints(self.made).get("plan")
    return "chain, tree" if planned else "tree"

  @property
  def needs(self) -> str:
    arguments = inspect.signature(self.function).parameters.values()
    required = [a.name for a in arguments if a.default is a.empty]
    return ", ".join(NEEDS[name] for name in required if name in NEEDS)

  @property
  def proofs(self) -> list[pathlib.Path]:
    """Test files named after its modules, else the shared ones."""
    names = {self.name, self.function.__name__, self.made.__name__}
    modules = (self.function.__module__, self.made.__module__)
    own = dict.fromkeys(module.rpartition(".")[2] for module in modules)
    known, shared = (
      [path for path in map(_test_file, files) if _refers(path, names)]
      for files in (own, SHARED[self.kind])
    )
    return known or (shared if self.kind == "verifier" else shared[:1])

  @property
  def row(self) -> str:
    links = ", ".join(f"[{p.stem}](tests/{p.name})" for p in self.proofs)
    middle = ()
    if self.kind == "drafter":
      middle = self.structures, self.needs
    elif self.kind == "verifier":
      middle = "yes" if self.made.lossless else "no", self.structures
    return _line(f"`{self.name}`", self.text, *middle, links)


def _first_paragraph(documented: Any) -> str:
  paragraph = inspect.cleandoc(documented.__doc__).split("\n\n")[0]
  return " ".join(paragraph.split()).rstrip(".").replace("|", "\\|")


def _line(*cells: str) -> str:
  return f"| {' | '.join(cells)} |\n"


def _test_file(name: str) -> pathlib.Path:
  return ROOT / "tests" / f"{name}_test.py"


def _refers(path: pathlib.Path, names: set[str]) -> bool:
  return path.exists() and not names.isdisjoint(_words(path))


@functools.cache
def _words(path: pathlib.Path) -> frozenset[str]:
  """`x` of every `a.x` in a file, and its strings: a part may go by those."""
  nodes = [*ast.walk(ast.parse(path.read_text()))]
  attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
  values = {node.value for node in nodes if isinstance(node, ast.Constant)}
  return frozenset(attributes | {x for x in values if isinstance(x, str)})


def all_parts(kind: str) -> list[Part]:
  return [Part.of(kind, name) for name in parts.NAMES[kind]]


def tables() -> str:
  """What stands between the README's two comments."""
  made = ""
  for kind, heading in HEADINGS.items():
    made += "\n" + _line(*heading) + _line(*("---",) * len(heading))
    made += "".join(part.row for part in all_parts(kind))
  return made + "\n"


def with_tables(text: str) -> str:
  """The text of a README, its tables made anew."""
  before, _, rest = text.partition(BEGIN)
  _, end, after = rest.partition(END)
  if not end:
    raise ValueError(f"the README lacks the lines {BEGIN!r} and {END!r}")
  return before + BEGIN + tables() + END + after


class FeaturesTest(parameterized.TestCase):
  def test_the_readme_is_up_to_date(self):
    text = README.read_text()
    message = "run `python tests/features_test.py --write`"
    self.assertEqual(text, with_tables(text), message)

  @parameterized.parameters(*HEADINGS)
  def test_every_part_has_a_proof(self, kind):
    bare = [part.name for part in all_parts(kind) if not part.proofs]
    self.assertEmpty(bare, f"no test file refers to {bare}: see SHARED")

  def test_proofs_of_exact_rules_find_their_law(self):
    """They enumerate what the rule emits, and compare."""
    for part in all_parts("verifier"):
      used = frozenset().union(*map(_words, part.proofs))
      if part.made.lossless:
        self.assertContainsSubset({"law", "total_variation"}, used, part.name)

  def test_what_is_read_from_classes(self):
    """Checked where it is known by hand."""
    for kind, name, expected in (
      ("drafter", "cascade", "chain"),
      ("drafter", "lookahead", "tree"),
      ("drafter", "eagle", "chain, tree"),
      ("verifier", "rejection", "chain"),
      ("verifier", "traversal", "chain, tree"),
    ):
      self.assertEqual(Part.of(kind, name).structures, expected, name)
    self.assertEqual(Part.of("drafter", "medusa").needs, "trained heads")
    self.assertEqual(Part.of("drafter", "early_exit").needs, "")

  def test_a_readme_without_the_place(self):
    with self.assertRaisesRegex(ValueError, "lacks the lines"):
      with_tables("# specjax\n")


if __name__ == "__main__":
  if "--write" in sys.argv:
    README.write_text(with_tables(README.read_text()))
  else:
    absltest.main()
