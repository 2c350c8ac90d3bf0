# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that lets a target answer the questions of a data set.

  python -m train.regenerate --config=configs/train/regenerate.py:PATH \
    --workdir=DIR [--config.key=value ...]

A draft learns most from what its target says itself. DIR gets answers.jsonl,
one line a generation, which `data.train` of a training config takes as it is:
prompt_ids and answer_ids, in tokens, with id, index (the number of the
conversation), turn, source, license, temperature and reason ("eos" or
"length"). What is asked is printed with its SHA-256, which says whether another
machine has the same training set. The same command goes on where a run was
stopped or killed, with another `limit` too. The order of conversations is
mixed, so that a part of the answers is a fair sample. A mistake is one line and
exit status 2.
"""

from collections.abc import Sequence
import sys
from typing import Any

from specjax.bench import sections
from train import generating, generating_schema


def _prepare(config: Any) -> generating.Begin:
  """Reads the conversations and says what they are."""
  from train import asking, questions

  asked, report = questions.read(config.conversations, config.licenses)
  print(report)
  asked = asked[: config.limit or None]
  if not asked:
    raise ValueError(f"no conversation to answer: {report}")
  print(f"{len(asked)} are asked, sha256 {questions.digest(asked)}")
  return lambda program, tokenizer, found: asking.Asking(
    asked,
    tokenizer,
    temperatures=tuple(map(float, config.temperatures)),
    turns=config.turns,
    room=program.room(),
    found={(line["index"], line["turn"]): line for line in found},
  )


def _check(config: Any) -> None:
  sections.check_least(config, {"turns": 1, "limit": 0})
  if not config.conversations:
    raise ValueError(
      "conversations is empty: name a file, --config=FILE.py:PATH, or "
      "datasets:NAME"
    )


_KEYS: sections.Keys = {
  "conversations": (..., (str, *sections.TEXTS)),
  "licenses": ((), sections.TEXTS),
  "turns": (1, (int,)),
  "limit": (0, (int,)),
  "capacity": (1024, (int,)),
}
COMMAND = generating.Command(
  "train.regenerate",
  "answers.jsonl",
  generating_schema.Rules(_KEYS, _check),
  _prepare,
  ":PATH",
)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  return COMMAND.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
  sys.exit(main())
