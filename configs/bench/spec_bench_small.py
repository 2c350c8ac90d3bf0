# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookup drafts on 8 fixed prompts of each Spec-Bench group.

  python -m specjax.run --workdir=runs/spec_bench_small \
    --config=configs/bench/spec_bench_small.py:PATH/question.jsonl

PATH/question.jsonl holds Spec-Bench's 480 questions, as its repository has them
(`question_id` 81 to 560) or with ids `spec_bench/81` and so on; they embed news
articles, so they are read from where you keep them. First turns, 128 tokens,
greedy, three paired runs: an hour on two CPU cores, with --config.runs=2 and
--config.replays=0 half of that. The ids were drawn before anything was timed.

Fixed draft lengths lose where nothing is copied. The methods in `gain` draft
only where it pays (`specjax.policies.gain.ExpectedGain`) and cost nothing while
they do not; in `pairs` two tokens at least must have occurred before.
"""

import json
import pathlib

from ml_collections import ConfigDict

IDS = pathlib.Path(__file__).with_name("spec_bench_small_ids.json")
PREFIX = "spec_bench/"
LENGTHS = (4, 7, 10)
ADAPTIVE = {
  "ngram_7_gain": {"type": "ngram", "length": 7, "max_n": 3},
  "ngram_7_pairs_gain": {"type": "ngram", "length": 7, "min_n": 2, "max_n": 3},
  "suffix_7_pairs_gain": {"type": "suffix", "length": 7, "min_match": 2},
}


def has_prefix(path: str) -> bool:
  """Whether a file of questions has ids of the prefixed form."""
  if not pathlib.Path(path).is_file():
    return True  # A file that is missing is refused where it is read.
  with open(path, encoding="utf-8", errors="replace") as file:
    return PREFIX in file.readline()


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; `arg` is the path of question.jsonl."""
  groups = json.loads(IDS.read_text())["groups"]
  ids = [name for group in groups.values() for name in group]
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.prompts = arg
  config.prompt_ids = tuple(
    ids if has_prefix(arg) else (name.removeprefix(PREFIX) for name in ids)
  )
  # The file's own categories split its first group into eight.
  config.categories = tuple(
    group for group, names in groups.items() for _ in names
  )
  config.max_new_tokens = 128
  config.batch_size = 1
  config.runs = 3
  config.seed = 0
  config.sampling = ConfigDict({"temperature": 0.0})
  fixed = {
    f"ngram_{length}": {"type": "ngram", "length": length, "max_n": 3}
    for length in LENGTHS
  } | {"suffix_7": {"type": "suffix", "length": 7}}
  config.methods = ConfigDict(
    {
      name: {
        "drafter": drafter,
        "verifier": {"type": "coupled"},
        "policy": {"type": policy},
      }
      for policy, drafters in (("fixed", fixed), ("expected_gain", ADAPTIVE))
      for name, drafter in drafters.items()
    }
  )
  config.lock()
  return config
