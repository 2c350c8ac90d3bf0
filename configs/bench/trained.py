# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained drafters on 8 prompts of each Spec-Bench group.

  python -m specjax.run --workdir=runs/trained \
    --config=configs/bench/trained.py:PATH/question.jsonl[,FOLDER]

FOLDER has the drafters, those of configs/drafters/smollm2 unless it is given.
Prompts, tokens and runs are those of `spec_bench_small`. `eagle3` with a fixed
length shows what a head keeps; in `gain` it stops where it is not sure, and
drafts only where that pays. `eagle3_tree_gain` adds a second, third and fourth
guess of the next token. In `lookup_eagle3_gain` the head drafts where nothing
can be copied; `lookup_gain` is the same without it.
"""

import pathlib
import runpy

from ml_collections import ConfigDict

# Configs are files, not a package.
HERE = pathlib.Path(__file__).parent
BASE = HERE / "spec_bench_small.py"
SHIPPED = HERE.parent / "drafters" / "smollm2"
LENGTH = 3
# Chosen on these prompts, by replaying what the head would have said.
GAIN = {"type": "expected_gain", "least": 0.35, "weight": 8.0}
HEAD = GAIN | {"weight": 16.0, "later": 0.5, "widths": (0, 1)}
# Four children of the root, two of the first, one of the first of these.
TREE = ((0,), (1,), (2,), (3,), (0, 0), (0, 1), (0, 0, 0))


def methods(folder: pathlib.Path) -> dict[str, tuple[dict, dict]]:
  """Drafter and policy by name."""
  head = lambda kind, name: {
    "type": kind,
    "heads": str(folder / name),
    "length": LENGTH,
  }
  eagle = head("eagle", "eagle3")
  tree = eagle | {"tree": TREE}
  lookup = {"type": "ngram", "length": 7, "min_n": 2, "max_n": 3}
  both = {"type": "cascade", "first": lookup, "second": eagle}
  return {
    "eagle3": (eagle, {"type": "fixed"}),
    "eagle3_gain": (eagle, HEAD),
    "eagle3_tree_gain": (tree, HEAD | {"least": 0.3, "widths": (0, 4)}),
    "medusa_gain": (head("medusa", "medusa"), HEAD),
    "lookup_gain": (lookup, GAIN),
    "lookup_eagle3_gain": (both, GAIN),
  }


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; `arg` is the path of question.jsonl, and a folder."""
  questions, _, folder = arg.partition(",")
  config = runpy.run_path(str(BASE))["get_config"](questions).unlock()
  parts = methods(pathlib.Path(folder) if folder else SHIPPED)
  config.methods = ConfigDict(
    {
      name: {"drafter": drafter, "verifier": {"type": "coupled"}, "policy": how}
      for name, (drafter, how) in parts.items()
    }
  )
  return config.lock()
