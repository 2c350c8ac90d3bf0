# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best fixed tree for what a run has measured."""

import os

from specjax.trees import tree


def from_run(
  workdir: str | os.PathLike[str], method: str, nodes: int
) -> tuple[tuple[int, ...], ...]:
  """Paths of the tree that would have kept most, for a drafter's key `tree`.

  The run must have `trace` on and a method that drafts a wide tree: the search
  knows the depths and ranks that this one has tried. Each is taken to be as
  good below any node of its depth, as in Medusa (arXiv 2401.10774).

  Args:
    workdir: of the run.
    method: whose `acceptance_by_rank` is used.
    nodes: of the tree; see `tree.from_acceptance`.

  Raises:
    FileNotFoundError: the run has no summary.
    ValueError: it has no such method, or did not measure it.
  """
  import json

  from etils import epath

  summary = epath.Path(workdir) / "summary.json"
  if not summary.exists():
    raise FileNotFoundError(
      f"{summary} does not exist: run the wide tree there first, with trace on"
    )
  methods = json.loads(summary.read_text())["methods"]
  if method not in methods:
    raise ValueError(
      f"{summary} has no method {method!r}: use {', '.join(sorted(methods))}"
    )
  table = methods[method].get("acceptance_by_rank")
  if not table:
    raise ValueError(
      f"{summary} has no acceptance by rank of {method!r}: run it with "
      "--config.trace=true and a drafter that drafts something"
    )
  return tree.from_acceptance(table, nodes).paths
