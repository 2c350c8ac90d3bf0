# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The stored result of the slow tier.

  python -m pytest -m slow --junitxml=slow.xml
  PYTHONPATH=. python tests/slow_tier.py slow.xml

writes docs/slow_tier.md: the commit, the machine, and tests by file. Reports of
several calls (one a file, say) are put together.
"""

import collections
import importlib.metadata
import pathlib
import platform
import subprocess
import sys
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "slow_tier.md"
_VERSIONS = ("jax", "jaxlib", "flax", "numpy")


def read(paths: list[str]) -> dict[str, collections.Counter]:
  """Tests passed, failed and skipped, and their seconds, by file."""
  found: dict[str, collections.Counter] = collections.defaultdict(
    collections.Counter
  )
  for path in paths:
    for case in ElementTree.parse(path).iter("testcase"):
      counts = found[case.attrib["classname"].split(".")[1]]
      outcomes = {child.tag for child in case}
      if outcomes & {"failure", "error"}:
        counts["failed"] += 1
      else:
        counts["skipped" if "skipped" in outcomes else "passed"] += 1
      counts["seconds"] += round(float(case.attrib["time"]))
  return found


def page(found: dict[str, collections.Counter]) -> str:
  """The text of docs/slow_tier.md."""
  commit = subprocess.run(
    ["git", "rev-parse", "HEAD"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.strip()
  versions = ", ".join(
    f"{name} {importlib.metadata.version(name)}" for name in _VERSIONS
  )
  total = sum(found.values(), collections.Counter())
  lines = [
    "# The slow tier",
    "",
    "`python -m pytest -m slow`: the full products and large samples whose",
    "pairwise covering the default tier runs.",
    "",
    f"Commit {commit}, Python {platform.python_version()}, {versions}, "
    f"{platform.machine()}, CPU only: **{total['passed']} passed, "
    f"{total['failed']} failed, {total['skipped']} skipped**, "
    f"{total['seconds'] / 60:.0f} minutes of one core.",
    "",
    "| file | passed | failed | seconds |",
    "|---|---|---|---|",
  ]
  for name, counts in sorted(found.items()):
    lines.append(
      f"| [{name}](../tests/{name}.py) | {counts['passed']} | "
      f"{counts['failed']} | {counts['seconds']} |"
    )
  made = "<!-- tests/slow_tier.py made this -->"
  return "\n".join([*lines, "", made, ""])


if __name__ == "__main__":
  PAGE.write_text(page(read(sys.argv[1:])), encoding="utf-8")
