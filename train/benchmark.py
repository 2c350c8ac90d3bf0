# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that measures how well training uses a machine.

  python -m train.benchmark --config=configs/train/eagle3.py --workdir=DIR \
    [--config.key=value ...]

Prints the rate at which the machine multiplies float32 matrices of the shape of
the target's, the share of it that the target's pass and the step of the
optimiser reach, and the memory that is held as steps go by; benchmark.json in
DIR has the same. The config is one of `train.run`; its data are not read: texts
are random tokens that fill rows of its width, the second half an answer.

Arithmetic is that of the matrix products that a batch needs, as `train.work`
reads it off from shapes: of attention the pairs of tokens that see each other,
of output matrices the slots that count. A mistake is one line and exit status
2.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import pathlib
import sys
from typing import Any

from specjax.bench import command_line, configuration, storage

_USAGE = "python -m train.benchmark --config=FILE.py --workdir=DIR"
_FILE = "benchmark.json"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and overrides of the config.

  Raises:
    ValueError: an unknown flag, no config or no workdir.
  """
  parser = command_line.Parser("python -m train.benchmark", _USAGE)
  parser.add_argument("--config", help="a config of train.run")
  parser.add_argument("--workdir", help="folder of benchmark.json")
  return parser.read(argv, needed=("config", "workdir"))


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags, overrides = parse(argv)
  from train import schema

  config = configuration.read(flags.config, overrides, schema)
  folder = pathlib.Path(flags.workdir)
  from specjax.reports import report as report_lib
  from train import rates

  report_lib.say("measuring: a few minutes on two cores")
  plain = configuration.plain(config)
  result = {"config": plain, **rates.measures(config)}
  show(result)
  folder.mkdir(parents=True, exist_ok=True)
  text = json.dumps(result, indent=2) + "\n"
  storage.write(storage.locate(folder / _FILE), text.encode())


def show(result: Mapping[str, Any]) -> None:
  """Prints the table."""
  from specjax.reports import report as report_lib

  report_lib.say(
    f"{result['device']}: float32 matrices at "
    f"{result['matrix_rate'] / 1e9:.1f} billion operations a second"
  )
  report_lib.show_table(
    ("part", "billion operations", "seconds", "share", "tokens/s"),
    [
      (
        name,
        f"{part['operations'] / 1e9:.1f}",
        f"{part['seconds']:.3f}",
        f"{part['share']:.0%}",
        f"{part['tokens_per_second']:.0f}",
      )
      for name in ("teacher", "step")
      for part in (result[name],)
    ],
  )
  held = ", ".join(
    f"{x['bytes'] / 2**20:.0f} at step {x['step']}" for x in result["memory"]
  )
  report_lib.say(f"MB held: {held}")


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(run, argv)


if __name__ == "__main__":
  sys.exit(main())
