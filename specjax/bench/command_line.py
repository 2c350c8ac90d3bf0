# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all commands share: flags, overrides of a config, errors in one line."""

import argparse
from collections.abc import Callable, Sequence
import sys
import traceback

from specjax.bench import spelling

_OVERRIDE = "--config."


class Parser(argparse.ArgumentParser):
  """Raises ValueError where argparse would print and exit.

  Args:
    command: how it is started, "python -m specjax.run".
    usage: the same with its flags, for errors.
  """

  def __init__(self, command: str, usage: str):
    super().__init__(command, allow_abbrev=False)
    self._usage = usage
    self.add_argument(
      "--debug", action="store_true", help="show where an error was raised"
    )

  def error(self, message):
    raise ValueError(f"{message}: usage is {self._usage}")

  def read(
    self, argv: Sequence[str], needed: Sequence[str] = ()
  ) -> tuple[argparse.Namespace, list[str]]:
    """Flags, and the overrides `key.key=value` of the config.

    Args:
      argv: the command line.
      needed: flags that must be given.

    Raises:
      ValueError: an unknown flag, or a needed one is missing.
    """
    flags, rest = self.parse_known_args(list(argv))
    overrides, rest = take_overrides(rest)
    if rest:
      word = rest[0].lstrip("-").partition("=")[0]
      advice = spelling.suggestion(word, vars(flags))
      raise ValueError(f"unknown argument {rest[0]!r}: {advice}")
    for name in needed:
      if not getattr(flags, name):
        raise ValueError(f"no {name}: {self._usage}")
    return flags, overrides


def take_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
  """Splits `--config.key=value` and `--config.key value` from the rest."""
  overrides, rest = [], []
  words = list(words)
  while words:
    word = words.pop(0)
    if not word.startswith(_OVERRIDE):
      rest.append(word)
      continue
    override = word.removeprefix(_OVERRIDE)
    if "=" not in override and words and not words[0].startswith("--"):
      override += f"={words.pop(0)}"
    overrides.append(override)
  return overrides, rest


def main(
  run: Callable[[Sequence[str]], None],
  argv: Sequence[str],
  stopped: Callable[[], str] = lambda: "stopped",
) -> int:
  """Runs and returns the exit status: 0, 1 (a fault), 2 (a mistake) or 130."""
  try:
    run(argv)
  except KeyboardInterrupt:
    print(stopped(), file=sys.stderr)
    return 130
  except (ValueError, OSError) as error:
    return _fail(error, argv, 2)
  except Exception as error:
    return _fail(error, argv, 1)
  return 0


def _fail(error: Exception, argv: Sequence[str], status: int) -> int:
  """Says what was wrong in one line."""
  if "--debug" in argv:
    traceback.print_exception(error)
    return status
  text = " ".join(str(error).split()) or type(error).__name__
  if status == 1:
    text = f"{type(error).__name__}: {text} (--debug shows where)"
  # A message may quote a file's content.
  text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
  print(f"error: {text}", file=sys.stderr)
  return status
