# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafters that were trained here on 8 prompts of each Spec-Bench group.

  python -m specjax.run --workdir=runs/trained \
    --config=configs/bench/trained.py:PATH/question.jsonl,runs

The second part is the folder with the workdirs `medusa` and `eagle3` of
`train.run`. Prompts, tokens and runs are those of `spec_bench_small`. Each
drafter once with a fixed length, which shows what it keeps, and once in `gain`,
which drafts only where that pays. In `lookup_eagle3` the head drafts where
nothing can be copied.
"""

import pathlib
import runpy

from ml_collections import ConfigDict

# The config beside this one; configs are files, not a package.
BASE = pathlib.Path(__file__).with_name("spec_bench_small.py")
LENGTH = 3


def drafters(folder: str) -> dict[str, dict]:
  """Sections of the config by name."""
  where = lambda name: f"{folder}/{name}/drafter"
  eagle = {"type": "eagle", "heads": where("eagle3"), "length": LENGTH}
  lookup = {"type": "ngram", "length": 7, "min_n": 2, "max_n": 3}
  return {
    "eagle3": eagle,
    "medusa": {"type": "medusa", "heads": where("medusa"), "length": LENGTH},
    "lookup_eagle3": {"type": "cascade", "first": lookup, "second": eagle},
  }


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; `arg` is the path of question.jsonl, and a folder."""
  questions, _, folder = arg.rpartition(",")
  config = runpy.run_path(str(BASE))["get_config"](questions).unlock()
  config.methods = ConfigDict(
    {
      name + suffix: {
        "drafter": drafter,
        "verifier": {"type": "coupled"},
        "policy": {"type": policy},
      }
      for suffix, policy in (("", "fixed"), ("_gain", "expected_gain"))
      for name, drafter in drafters(folder).items()
    }
  )
  return config.lock()
