# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers of an earlier run, for drafters that learn from them."""

import dataclasses
import json

from etils import epath


@dataclasses.dataclass(frozen=True)
class Answer:
  """One line of results.jsonl.

  Attributes:
    prompt_tokens: read before it.
    tokens: ids of the answer.
  """

  prompt_tokens: int
  tokens: tuple[int, ...]


def read(path: str, method: str = "plain") -> list[Answer]:
  """What `method` answered in the first run of a results.jsonl.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: it is no such file, or does not hold the method.
  """
  file = epath.Path(path)
  if not file.exists():
    raise FileNotFoundError(
      f"{path} does not exist: name the results.jsonl of an earlier run"
    )
  try:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found = {line["method"] for line in lines if line["run"] == 0}
    answers = [
      Answer(int(line["prompt_tokens"]), tuple(map(int, line["tokens"])))
      for line in lines
      if line["run"] == 0 and line["method"] == method
    ]
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{path} is no results.jsonl ({type(error).__name__}: {error}): name the "
      "one of an earlier run"
    ) from error
  if not answers:
    raise ValueError(
      f"{path} has no answers of {method!r}: choose one of "
      f"{', '.join(sorted(found)) or 'another file'}"
    )
  return answers
