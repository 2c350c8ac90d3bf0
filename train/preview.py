# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that shows which tokens a draft is trained to guess.

  python -m train.preview --config=configs/train/medusa.py [--count=3] \
    [--split=validation] [--config.key=value ...]

Prints the first conversations as the target reads them, special tokens and all,
with the tokens of answers in colour, or as «text» where the output is no
terminal. Control characters are written out. A mistake is one line and exit
status 2; so is a mask that covers everything, or nothing.
"""

import argparse
from collections.abc import Iterator, Sequence
import itertools
import sys

from specjax import tokenizers
from specjax.bench import command_line, configuration
from specjax.reports import report as report_lib

_USAGE = "python -m train.preview --config=FILE.py"
_SPLITS = ("train", "validation")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags, and overrides of the config.

  Raises:
    ValueError: an unknown flag, a wrong value, or no config.
  """
  parser = command_line.Parser("python -m train.preview", _USAGE)
  parser.add_argument("--config", help="a config of train.run")
  parser.add_argument(
    "--count", type=int, default=3, help="how many conversations"
  )
  parser.add_argument("--split", choices=_SPLITS, default=_SPLITS[0])
  flags, overrides = parser.read(argv, needed=("config",))
  if flags.count < 1:
    raise ValueError(f"--count is {flags.count}: use 1 or more")
  return flags, overrides


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags, overrides = parse(argv)
  from train import schema

  config = configuration.read(flags.config, overrides, schema)
  from specjax.bench import backend
  from train import conversations, packing

  _, tokenizer, _ = backend.load(config)
  examples, report = conversations.read(
    config.data[flags.split], tokenizer, config.data.licenses
  )
  kept, shortened = packing.cut(examples, config.data.width)
  for example in kept[: flags.count]:
    show(example, tokenizer)
  report_lib.say(f"{report}; {shortened} cut to {config.data.width} tokens")
  conversations.check(kept, report)


def show(example, tokenizer: tokenizers.Tokenizer) -> None:
  """Prints one conversation."""
  view = report_lib.AnswerView(mark=True)
  for text, counts in pieces(example, tokenizer):
    view.write(text, counts)
  view.end(
    f"{example.id}: {int(example.loss.sum())} of {len(example.tokens)} tokens "
    "count"
  )


def pieces(
  example, tokenizer: tokenizers.Tokenizer
) -> Iterator[tuple[str, bool]]:
  """Texts of tokens that count, and of those that do not, in turn.

  A character whose tokens are of both kinds stands where it is complete.
  """
  detokenizer = tokenizer.detokenizer(skip_special=False)
  pairs = zip(example.tokens.tolist(), example.loss.tolist())
  counts = False
  for counts, run_of in itertools.groupby(pairs, lambda pair: pair[1]):
    yield detokenizer.push(token for token, _ in run_of), counts
  yield detokenizer.flush(), counts


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(run, argv)


if __name__ == "__main__":
  sys.exit(main())
