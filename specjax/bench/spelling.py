# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What to say about a name that does not exist."""

from collections.abc import Iterable
import difflib


def suggestion(word: str, known: Iterable[str]) -> str:
  """ "did you mean 'x'?" or the list of what there is."""
  known = list(known)
  close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
  if close:
    return f"did you mean {close[0]!r}?"
  return f"use one of {', '.join(known)}" if known else "there is none here"
