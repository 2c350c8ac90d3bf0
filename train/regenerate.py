# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that lets a target answer the questions of a data set.

  python -m train.regenerate --config=configs/train/regenerate.py:PATH \
    --workdir=DIR [--config.key=value ...]

A draft learns most from what its target says itself. DIR gets answers.jsonl,
one line a generation, which `data.train` of a training config takes as it is:
prompt_ids and answer_ids, in tokens, with id, index (the number of the
conversation), turn, source, license, temperature and reason ("eos" or
"length"). The same command goes on where a run was stopped or killed, with
another `limit` too. The order of conversations is mixed, so that a part of the
answers is a fair sample. A mistake is one line and exit status 2.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import sys
import time
from typing import Any

from specjax.bench import command_line, configuration, storage

_USAGE = "python -m train.regenerate --config=FILE.py:PATH --workdir=DIR"
_ANSWERS, _CONFIG = "answers.jsonl", "config.json"
_SECONDS = 20.0  # between two lines on the terminal


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and overrides of the config.

  Raises:
    ValueError: an unknown flag, no config or no workdir.
  """
  parser = command_line.Parser("python -m train.regenerate", _USAGE)
  parser.add_argument("--config", help="a Python file with get_config(arg)")
  parser.add_argument("--workdir", help="folder of the answers")
  parser.add_argument(
    "--overwrite", action="store_true", help="replace what is in the workdir"
  )
  return parser.read(argv, needed=("config", "workdir"))


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags, overrides = parse(argv)
  from train import regenerate_schema

  config = configuration.read(flags.config, overrides, regenerate_schema)
  folder = storage.locate(flags.workdir)
  lines = storage.lines(folder / _ANSWERS)
  plain = configuration.plain(config)
  if not flags.overwrite:
    _check_same(folder, lines, plain, regenerate_schema.FREE)
  from train import questions

  asked, report = questions.read(config.conversations, config.licenses)
  print(report)
  if not asked:
    raise ValueError(f"no conversation to answer: {report}")
  program, tokenizer = _loaded(config)
  storage.make_folder(folder)
  if flags.overwrite:
    lines.remove()
  storage.write(folder / _CONFIG, json.dumps(plain, indent=2).encode())
  _answer(config, program, tokenizer, asked[: config.limit or None], lines)


def _check_same(
  folder: Any,
  lines: storage.Lines,
  plain: Mapping[str, Any],
  free: Sequence[str],
) -> None:
  """Refuses a workdir of another config, before anything is loaded."""
  content = storage.read(folder / _CONFIG)
  if content is None and lines.exists():
    raise ValueError(
      f"{folder} has answers without a {_CONFIG}: choose another workdir or "
      "add --overwrite"
    )
  old = plain if content is None else json.loads(content)
  changed = [
    key for key in configuration.differences(old, plain) if key not in free
  ]
  if changed:
    raise ValueError(
      f"{folder} was begun with another {', '.join(changed[:3])}: choose "
      "another workdir or add --overwrite"
    )


def _answer(
  config, program, tokenizer, conversations, lines: storage.Lines
) -> None:
  """Asks what has no answer yet, and keeps each answer as it comes."""
  from train import asking

  found = [json.loads(line) for line in lines.read()]
  queue = asking.Asking(
    conversations,
    tokenizer,
    temperatures=tuple(map(float, config.temperatures)),
    turns=config.turns,
    room=program.room(),
    found={(line["index"], line["turn"]): line for line in found},
  )
  begin = said = time.monotonic()
  answers = tokens = 0
  for answer in program.answer(queue):
    lines.append([json.dumps(queue.record(answer)).encode()])
    answers, tokens = answers + 1, tokens + len(answer.tokens)
    if time.monotonic() - said > _SECONDS:
      said = time.monotonic()
      print(f"{answers} answers, {tokens / (said - begin):.0f} tokens/s")
  lines.join()
  skipped = "".join(f", {n} {why}" for why, n in queue.skipped.items())
  print(
    f"{answers} answers of {tokens} tokens; {queue.answered} were there "
    f"before; {queue.skipped.total()} questions skipped{skipped}"
  )


def _loaded(config) -> tuple[Any, Any]:
  """The `refill.Program` that answers, and the target's tokenizer."""
  from specjax.bench import backend
  from specjax.decoding import refill
  from specjax.drafters import empty
  from specjax.policies import policy
  from specjax.verifiers import coupled

  backend.set_up()
  target, tokenizer, _ = backend.load(config)
  if tokenizer.chat_template is None:
    raise ValueError(
      f"target {config.target!r} has no chat template: use one that was tuned "
      "to answer"
    )
  program = refill.Program(
    target,
    empty.Empty(),
    coupled.Coupled(),
    policy.Fixed(0),
    tuple(tokenizer.eos_ids),
    config.max_new_tokens,
    config.capacity,
    rows=config.rows,
    reading=config.reading,
    rounds=config.rounds,
    seed=config.seed,
  )
  return program, tokenizer


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(
    run, argv, lambda: "stopped: the same command goes on"
  )


if __name__ == "__main__":
  sys.exit(main())
