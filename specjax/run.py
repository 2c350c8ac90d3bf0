# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: compares methods on prompts, or answers one prompt.

  python -m specjax.run --config=configs/quickstart.py --workdir=DIR \
    [--config.key=value ...]

With a list or file of prompts every method answers all of them, and DIR gets
results.jsonl, summary.json and what they depend on (config.json, inputs.json);
the same command continues a run that was stopped. A config with a `sweep` does
so for each of its settings and adds sweep.csv. A config of proofs, which is
configs/exactness.py, writes exactness.json. DIR may be on a disk or in a store
(gs://BUCKET/FOLDER, s3://, az://). With
`--config.prompts="text"` the one answer is printed as it grows and nothing is
written: --method and --mark are for this, --workdir and --overwrite for a
comparison. A mistake is one line and exit status 2.
"""

import argparse
from collections.abc import Sequence
import sys
from typing import Any

from specjax.bench import command_line, configuration, proof_schema, spelling

_USAGE = "python -m specjax.run --config=FILE.py --workdir=DIR"
_STOPPED = "stopped: the same command continues the run"
_FOR_ONE_TEXT = ("method", "mark")
_FOR_A_COMPARISON = ("workdir", "overwrite")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and the overrides `key.key=value` of the config.

  Raises:
    ValueError: an unknown flag, or no config.
  """
  parser = command_line.Parser("python -m specjax.run", _USAGE)
  parser.add_argument("--config", help="a Python file with get_config(arg)")
  parser.add_argument("--workdir", help="folder of the results")
  parser.add_argument(
    "--method",
    help="which method answers a single prompt, or plain; the first if left",
  )
  parser.add_argument(
    "--mark",
    action="store_true",
    help="where the output is no terminal, show accepted drafts as «text»",
  )
  parser.add_argument(
    "--overwrite", action="store_true", help="replace what is in the workdir"
  )
  flags, overrides = parser.read(argv)
  if not flags.config:
    raise ValueError(f"no config: {_USAGE}, for example configs/quickstart.py")
  return flags, overrides


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags, overrides = parse(argv)
  config = configuration.read(flags.config, overrides)
  if proof_schema.is_given(config):
    _refuse_idle(flags, inline=False)
    _need_workdir(flags)
    from specjax.bench import exactness

    exactness.run(config, flags.workdir, overwrite=flags.overwrite)
    return
  # What has been wrong so far costs no import of the libraries below.
  from specjax.bench import build

  inline = build.is_inline(config)
  _refuse_idle(flags, inline)
  if inline and config.sweep:
    raise ValueError(
      "prompts is one text, which no sweep is run on: give a list or file"
    )
  if inline:
    _check_method(flags.method, config)
    from specjax.bench import answering

    answering.answer(config, flags.method, mark=flags.mark)
    return
  _need_workdir(flags)
  from specjax.bench import comparison, sweep

  runner = sweep.run if config.sweep else comparison.compare
  runner(config, flags.workdir, overwrite=flags.overwrite)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status: 0, 1 (a fault), 2 (a mistake) or 130."""
  argv = sys.argv[1:] if argv is None else argv
  # Only a comparison has a workdir, and leaves something to go on with.
  kept = any(word.startswith("--workdir") for word in argv)
  return command_line.main(run, argv, lambda: _STOPPED if kept else "stopped")


def _refuse_idle(flags: argparse.Namespace, inline: bool) -> None:
  """Refuses flags that would do nothing."""
  idle = _FOR_A_COMPARISON if inline else _FOR_ONE_TEXT
  kind = "a single text" if inline else "a list or file of prompts"
  for name in idle:
    if getattr(flags, name):
      raise ValueError(f"--{name} does nothing with {kind}: remove it")


def _need_workdir(flags: argparse.Namespace) -> None:
  if not flags.workdir:
    raise ValueError(f"no workdir: add --workdir=DIR ({_USAGE})")


def _check_method(name: str | None, config: Any) -> None:
  known = (*config.methods, "plain")
  if name is not None and name not in known:
    advice = spelling.suggestion(name, known)
    raise ValueError(f"unknown method {name!r}: {advice}")


if __name__ == "__main__":
  sys.exit(main())
