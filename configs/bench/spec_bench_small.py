# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup on 8 fixed prompts of each Spec-Bench group.

  python -m specjax.run --workdir=runs/spec_bench_small \
    --config=configs/bench/spec_bench_small.py:PATH/spec_bench.jsonl

PATH/spec_bench.jsonl holds Spec-Bench's 480 questions (`question.jsonl` of its
repository with ids `spec_bench/81` and so on, and a `group` a line); they embed
news articles, so they are read from where you keep them. First turns, 128
tokens, greedy, three paired runs: about an hour on two CPU cores. The ids were
drawn before anything was timed.
"""

import pathlib

from ml_collections import ConfigDict

IDS = pathlib.Path(__file__).with_name("spec_bench_small_ids.json")
LENGTHS = (4, 7, 10)


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; `arg` is the path of spec_bench.jsonl."""
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.prompts = arg
  config.prompt_ids = str(IDS)
  config.max_new_tokens = 128
  config.batch_size = 1
  config.runs = 3
  config.seed = 0
  config.sampling = ConfigDict({"temperature": 0.0})
  config.methods = ConfigDict(
    {
      f"ngram_{length}": {
        "drafter": {"type": "ngram", "length": length, "max_n": 3},
        "verifier": {"type": "coupled"},
        "policy": {"type": "fixed", "length": length},
      }
      for length in LENGTHS
    }
  )
  config.lock()
  return config
