# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup: how many tokens to draft, greedy and at temperature 0.7.

  python -m specjax.run --config=configs/sweep/ngram_lengths.py \
    --workdir=runs/ngram_lengths

Two temperatures by three lengths are six comparisons, each in a folder of its
own, and one table of all, sweep.csv. Two CPU cores need some minutes. On every
machine expect 1.26, 1.32 and 1.36 tokens a target call with 2, 4 and 7 drafted
tokens, 1.27, 1.35 and 1.37 at temperature 0.7, and all answers matched; speed
depends on the machine.

  import pandas as pd
  table = pd.read_csv("runs/ngram_lengths/sweep.csv")
  table[table.category == "all"].pivot_table(
    "block_efficiency",
    "methods.ngram.drafter.length",
    ["sampling.temperature", "method"],
  )

A command-line flag changes the values; what has been run is not run again:

  --config.sweep.methods.ngram.drafter.length="(2, 4, 7, 10)"
"""

from ml_collections import ConfigDict

REWRITE = """\
Rewrite this shopping list in alphabetical order, one item a line, and change \
nothing else about the items:

two red onions
one loaf of rye bread
half a litre of oat milk
six brown eggs
a bunch of flat parsley
"""

ANSWER = """\
Read the notice and answer with the full sentence that says it: when does the \
pool open on Sundays?

The pool is closed for cleaning on the first Monday of every month. On working \
days the pool opens at half past six in the morning. On Sundays the pool opens \
at nine in the morning and the sauna stays closed. Children under eight swim \
with an adult.
"""

EXPLAIN = "Explain to a child why the moon seems to follow a moving car."

LETTER = "Write a short letter to a neighbour who watered your plants."


def get_config(arg: str = "") -> ConfigDict:
  """The sweep; it takes no argument."""
  del arg
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.prompts = (REWRITE, ANSWER, EXPLAIN, LETTER)
  config.categories = ("copying", "copying", "free", "free")
  config.max_new_tokens = 48
  config.runs = 2
  config.replays = 2
  config.methods = ConfigDict(
    {"ngram": {"drafter": {"type": "ngram", "length": 4, "max_n": 3}}}
  )
  config.sweep = ConfigDict(
    {
      "methods.ngram.drafter.length": (2, 4, 7),
      "sampling.temperature": (0.0, 0.7),
    },
    allow_dotted_keys=True,
  )
  config.lock()
  return config
