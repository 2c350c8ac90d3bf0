# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that judges a trained draft on held-out conversations.

  python -m train.evaluate --workdir=DIR [--data=PATH ...] [--limit=TOKENS] \
    [--out=FILE] [--config.key=value ...]

DIR is a folder of `train.run`; its best checkpoint is judged, and beside it an
untrained draft ("before", whatever `init_from` the run began with). Without
--data they are judged on the conversations that the run held out. Prints a
table and writes evaluation.json into DIR, or FILE: acceptance at temperature 0,
at 1 and as served, by position, with and without answers that loop, each with
its interval, see `train.acceptance`. An override judges under something else
than what was trained, such as --config.sampling.temperature=0.7 or
--config.data.width=1024. A mistake is one line and exit status 2.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import os
import pathlib
import sys
from typing import Any

import numpy as np

from specjax.bench import command_line, storage

_USAGE = "python -m train.evaluate --workdir=DIR"
_FILE = "evaluation.json"
_ALL, _FRESH = "all", "without_degenerate"
_STRETCH = 128  # tokens of a text whose starts are judged together


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and overrides of the run's config.

  Raises:
    ValueError: an unknown flag, a wrong value, or no workdir.
  """
  parser = command_line.Parser("python -m train.evaluate", _USAGE)
  parser.add_argument("--workdir", help="folder of train.run")
  parser.add_argument(
    "--data",
    action="append",
    help="held-out conversations; may be given several times",
  )
  parser.add_argument(
    "--limit", type=int, default=0, help="tokens of answers; 0 takes all"
  )
  parser.add_argument("--out", help=f"in place of {_FILE} in the workdir")
  flags, overrides = parser.read(argv, needed=("workdir",))
  if flags.limit < 0:
    raise ValueError(f"--limit is {flags.limit}: use 0 or more")
  return flags, overrides


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags, overrides = parse(argv)
  from train import trained

  found = trained.read(flags.workdir, "--workdir")
  out = pathlib.Path(flags.out or found.folder / _FILE)
  if not out.absolute().parent.is_dir():
    raise ValueError(f"--out {str(out)!r} is in no folder: make it first")
  config = found.config(overrides)
  paths = _held_out(flags.data, config)
  result = evaluation(found, config, paths, flags.limit)
  show(result)
  text = json.dumps(result, indent=2) + "\n"
  storage.write(storage.locate(out), text.encode())


def _held_out(given: Sequence[str] | None, config) -> list[str]:
  """Sources of conversations; none of them is a file that was trained on."""
  from train import conversations

  listed = conversations.listed
  paths = listed(config.data.validation if given is None else given)
  learnt = {os.path.abspath(path) for path in listed(config.data.train)}
  for path in paths:
    if os.path.abspath(path) in learnt:
      raise ValueError(f"--data {path!r} was trained on: hold others out")
  return paths


def evaluation(
  found: Any, config: Any, paths: Sequence[str], limit: int
) -> dict[str, Any]:
  """Judges a draft, and an untrained one.

  Args:
    found: `trained.Trained`.
    config: of the run, as it is to be judged.
    paths: sources of conversations.
    limit: tokens of answers; 0 takes all.

  Returns:
    What evaluation.json holds. `measures` is by setting, draft ("before",
    "after") and answers ("all", "without_degenerate"; None where all loop);
    `by_context` is alpha after training by setting, along the texts.
  """
  from specjax.bench import backend
  from specjax.models import sources
  from specjax.reports import report as report_lib
  from train import build, training

  backend.set_up()
  target, tokenizer, _ = backend.load(config)
  objective = build.objective(config, target, found.draft_ids())
  examples, line = build.read_examples(config, paths, tokenizer, limit)
  report_lib.say(line)
  if found.note["target"] != sources.fingerprint(target):
    report_lib.say("the target's weights are not those of the training")
  looping = [is_looping(example) for example in examples]
  measures, along = _judged(found, config, objective, examples, looping)
  return {
    "step": found.step,
    "target": config.target,
    "objective": config.objective.type,
    "sources": list(paths),
    "digest": training.digest(examples),
    "conversations": len(examples),
    "degenerate": sum(looping) / len(examples),
    "loss_tokens": sum(int(example.loss.sum()) for example in examples),
    "measures": measures,
    "by_context": along,
  }


def _judged(found, config, objective, examples, looping):
  """Measures by setting, draft and answers, and alpha along the text."""
  from specjax.reports import report as report_lib
  from train import acceptance, batches, build, frozen

  before = objective.init(build.key(config))
  after = found.parameters(before)
  settings, _ = build.samplings(build.sampling(config.sampling))
  width, rows = config.data.width, config.evaluation.rows
  texts = list(batches.all_rows(examples, width, rows))
  measures = {name: {} for name in settings}
  along = {}
  depth = build.judged_depth(config, objective)
  judged = {}
  with report_lib.progress(2 * len(texts), 0) as say:

    def told(draft):
      for batch in texts:
        yield batch
        say(1, f"judging the draft {draft} training")

    for draft, params in (("before", before), ("after", after)):
      judged[draft] = frozen.starts(
        objective, params, told(draft), settings, depth
      )
  for draft, by_name in judged.items():
    for name, starts in by_name.items():
      fresh = starts.where(~np.asarray(looping)[starts.source])
      measures[name][draft] = {
        _ALL: acceptance.measures(starts),
        _FRESH: acceptance.measures(fresh) if len(fresh.source) else None,
      }
      along[name] = acceptance.by_context(starts, _STRETCH)
  return measures, along


def is_looping(example: Any) -> bool:
  """Whether an answer of a conversation repeats itself, as reports count it."""
  from specjax.reports import metrics

  edges = np.flatnonzero(np.diff(example.loss.astype(int))) + 1
  parts = zip(np.split(example.tokens, edges), np.split(example.loss, edges))
  return any(
    metrics.is_degenerate(tokens.tolist()) for tokens, loss in parts if loss[0]
  )


def show(result: Mapping[str, Any]) -> None:
  """Prints the tables."""
  from specjax.reports import report as report_lib

  named = {
    (name, draft, part.replace(_FRESH, "no loops")): found
    for name, drafts in result["measures"].items()
    for draft, parts in drafts.items()
    for part, found in parts.items()
    if found is not None
  }
  report_lib.say(
    f"step {result['step']} on {result['conversations']} conversations with "
    f"{result['loss_tokens']} tokens of answers; {result['degenerate']:.0%} of "
    "the conversations loop"
  )
  columns = ("alpha", "interval", "in a loop", "tau", "interval")
  report_lib.show_table(
    ("sampling", "draft", "answers", *columns),
    [(*names, *_cells(found)) for names, found in named.items()],
  )
  report_lib.say(
    "alpha: share of tested tokens that are kept, every slot a start; in a "
    "loop: weighed by where a decoding loop starts; tau: tokens a target call. "
    "By position, kept if those before were / with all before:"
  )
  depth = len(next(iter(named.values()))["prefix"])
  report_lib.show_table(
    ("sampling", "draft", "answers", *(str(k + 1) for k in range(depth))),
    [(*names, *_positions(found)) for names, found in named.items()],
  )


def _cells(found: Mapping[str, Any]) -> list[str]:
  bounds = lambda pair: f"{pair[0]:.3f}-{pair[1]:.3f}"
  return [
    f"{found['alpha']:.3f}",
    bounds(found["alpha_interval"]),
    f"{found['alpha_renewal']:.3f}",
    f"{found['tau']:.3f}",
    bounds(found["tau_interval"]),
  ]


def _positions(found: Mapping[str, Any]) -> list[str]:
  shown = lambda x: "-" if x is None else f"{x:.3f}"
  pairs = zip(found["conditional"], found["prefix"])
  return [f"{shown(a)} / {shown(b)}" for a, b in pairs]


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(run, argv)


if __name__ == "__main__":
  sys.exit(main())
