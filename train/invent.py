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

from specjax.bench import sections
from train import generating, generating_schema


def _prepare(config: Any) -> generating.Begin:
  from train import inventing

  return lambda program, tokenizer, found: inventing.Inventing(
    tokenizer,
    systems=tuple(config.systems),
    temperatures=tuple(map(float, config.temperatures)),
    limit=config.limit,
    found=found,
  )


def _check(config: Any) -> None:
  sections.check_least(config, {"limit": 1})
  if not config.systems or not all(isinstance(s, str) for s in config.systems):
    raise ValueError(
      f"systems is {config.systems!r:.80}: give at least one text, '' for none"
    )


_KEYS: sections.Keys = {
  "systems": (("",), sections.TEXTS),
  "limit": (..., (int,)),
  "capacity": (256, (int,)),
}
COMMAND = generating.Command(
  "train.invent",
  "questions.jsonl",
  generating_schema.Rules(_KEYS, _check),
  _prepare,
  ":HOW_MANY",
)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  return COMMAND.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
  sys.exit(main())
