# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line of training: a target and conversations become a drafter.

  python -m train.run --config=configs/train/medusa.py --workdir=DIR \
    [--config.key=value ...]

DIR gets config.json, metrics.jsonl, checkpoints/, and when it ends drafter/, a
folder that drafters load by its path (`heads`, `model` or `adapter` in a config
of `specjax.run`), and summary.json. The same command continues a run that was
stopped or killed. A mistake is one line and exit status 2.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import pathlib
import sys
from typing import Any

from specjax.bench import command_line, configuration

_USAGE = "python -m train.run --config=FILE.py --workdir=DIR"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and overrides of the config.

  Raises:
    ValueError: an unknown flag, no config or no workdir.
  """
  parser = command_line.Parser("python -m train.run", _USAGE)
  parser.add_argument("--config", help="a Python file with get_config(arg)")
  parser.add_argument("--workdir", help="folder of checkpoints and measures")
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
  from train import schema

  config = configuration.read(flags.config, overrides, schema)
  folder = pathlib.Path(flags.workdir)
  plain = configuration.plain(config)
  overwrite = flags.overwrite and (folder / "config.json").exists()
  if not overwrite:
    _check_same(folder, plain)
  from train import training

  training.train(config, plain, folder, overwrite)


def _check_same(folder: pathlib.Path, plain: Mapping[str, Any]) -> None:
  """Refuses a workdir of another config, before anything is loaded."""
  from train import schema

  path = folder / "config.json"
  if not path.exists():
    if folder.is_dir() and any(folder.iterdir()):
      raise ValueError(f"{folder} has other files in it: name a new folder")
    return
  begun = json.loads(path.read_text(encoding="utf-8"))
  differ = configuration.differences(_completed(begun, path), plain)
  changed = [key for key in differ if key not in schema.FREE]
  if changed:
    raise ValueError(
      f"{folder} was begun with another {', '.join(changed[:3])}: name another "
      "folder, or --overwrite"
    )


def _completed(begun: Mapping[str, Any], path: pathlib.Path) -> dict[str, Any]:
  """With their defaults for keys that are newer than the run."""
  from train import schema

  try:
    return configuration.plain(configuration.complete(begun, (), schema))
  except ValueError as error:
    raise ValueError(
      f"{path}, of an earlier run: {error}; name another folder, or --overwrite"
    ) from error


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(run, argv, lambda: "stopped")


if __name__ == "__main__":
  sys.exit(main())
