# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a target writes a file of lines, one a generation, in many sittings.

What `train.regenerate` and `train.invent` share. The config lies beside the
lines: a workdir is gone on with by the same config, and refused for another.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import time
from typing import Any, Protocol

from specjax import tokenizers
from specjax.bench import command_line, configuration, storage
from train import generating_schema

_CONFIG = "config.json"
_SECONDS = 20.0  # between two lines on the terminal


class Queue(Protocol):
  """Requests of a `refill.Program`, and what becomes of their answers.

  Attributes:
    answered: how many were found in the file.
    skipped: how many lead to no line, by the reason.
  """

  answered: int
  skipped: Any

  def take(self, most: int) -> list[Any]:
    """See `refill.Requests`."""
    ...

  def record(self, answer: Any) -> Mapping[str, Any] | None:
    """The line of a `refill.Answer`; None where it is not wanted."""
    ...


# From program, tokenizer and the lines found in the file.
Begin = Callable[[Any, tokenizers.Tokenizer, list[dict[str, Any]]], Queue]


@dataclasses.dataclass(frozen=True)
class Command:
  """A command that lets a target write.

  Attributes:
    name: of its module.
    file: that it writes in the workdir.
    rules: what its config may say.
    prepare: reads what the config names, before a model is loaded.
    argument: what stands behind the colon of --config.
  """

  name: str
  file: str
  rules: generating_schema.Rules
  prepare: Callable[[Any], Begin]
  argument: str = ""

  def parse(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Flags, and overrides of the config.

    Raises:
      ValueError: an unknown flag, no config or no workdir.
    """
    start = f"python -m {self.name}"
    usage = f"{start} --config=FILE.py{self.argument} --workdir=DIR"
    parser = command_line.Parser(start, usage)
    parser.add_argument("--config", help="a Python file with get_config(arg)")
    parser.add_argument("--workdir", help="folder of what is written")
    parser.add_argument(
      "--overwrite", action="store_true", help="replace what is in the workdir"
    )
    return parser.read(argv, needed=("config", "workdir"))

  def run(self, argv: Sequence[str]) -> None:
    """Does what the arguments say.

    Raises:
      ValueError, OSError: a mistake of the user, in one line.
    """
    flags, overrides = self.parse(argv)
    config = configuration.read(flags.config, overrides, self.rules)
    folder = storage.locate(flags.workdir)
    lines = storage.lines(folder / self.file)
    plain = configuration.plain(config)
    if not flags.overwrite:
      _check_same(folder, lines, plain)
    begin = self.prepare(config)
    program, tokenizer = _loaded(config)
    storage.make_folder(folder)
    if flags.overwrite:
      lines.remove()
    storage.write(folder / _CONFIG, json.dumps(plain, indent=2).encode())
    found = [json.loads(line) for line in lines.read()]
    _write(program, begin(program, tokenizer, found), lines)

  def main(self, argv: Sequence[str]) -> int:
    """Runs and returns the exit status."""
    return command_line.main(
      self.run, argv, lambda: "stopped: the same command goes on"
    )


def _check_same(
  folder: Any,
  lines: storage.Lines,
  plain: Mapping[str, Any],
) -> None:
  """Refuses a workdir of another config, before anything is loaded."""
  content = storage.read(folder / _CONFIG)
  if content is None and lines.exists():
    raise ValueError(
      f"{folder} has lines without a {_CONFIG}: choose another workdir or "
      "add --overwrite"
    )
  old = plain if content is None else json.loads(content)
  changed = [
    key
    for key in configuration.differences(old, plain)
    if key not in generating_schema.FREE
  ]
  if changed:
    raise ValueError(
      f"{folder} was begun with another {', '.join(changed[:3])}: choose "
      "another workdir or add --overwrite"
    )


def _write(program: Any, queue: Queue, lines: storage.Lines) -> None:
  """Keeps each answer as it comes."""
  begin = said = time.monotonic()
  answers = tokens = 0
  for answer in program.answer(queue):
    line = queue.record(answer)
    if line is not None:
      lines.append([json.dumps(line).encode()])
      answers += 1
    tokens += len(answer.tokens)
    if time.monotonic() - said > _SECONDS:
      said = time.monotonic()
      print(f"{answers} lines, {tokens / (said - begin):.0f} tokens/s")
  lines.join()
  skipped = "".join(f", {n} {why}" for why, n in queue.skipped.items())
  print(
    f"{answers} lines, {tokens} tokens; {queue.answered} were there before; "
    f"{queue.skipped.total()} skipped{skipped}"
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
