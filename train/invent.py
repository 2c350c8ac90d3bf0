# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that lets a target make up questions to itself.

  python -m train.invent --config=configs/train/invent.py:HOW_MANY \
    --workdir=DIR [--config.key=value ...]

A chat model that is given its template up to where a user speaks goes on as a
user (Magpie, arXiv 2406.08464). What it asks is as varied as what it was tuned
on, and nobody's data. DIR gets questions.jsonl, conversations of one question
each, which `train.regenerate` takes as they are. The same command goes on where
a run was stopped or killed, with another `limit` too. A mistake is one line and
exit status 2.
"""

from collections.abc import Sequence
import sys
from typing import Any

from train import generating, invent_schema


def _prepare(config: Any) -> generating.Begin:
  from train import inventing

  return lambda program, tokenizer, found: inventing.Inventing(
    tokenizer,
    systems=tuple(config.systems),
    temperatures=tuple(map(float, config.temperatures)),
    limit=config.limit,
    found=found,
  )


COMMAND = generating.Command(
  "train.invent", "questions.jsonl", invent_schema, _prepare, ":HOW_MANY"
)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  return COMMAND.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
  sys.exit(main())
