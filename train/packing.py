# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversations in rows of one width, several to a row, apart by a mask.

Axis letters: B rows of a batch, S slots of a row.

  tokens     7 8 9 3 4 0
  segments   1 1 1 2 2 0     0 is padding
  positions  0 1 2 0 1 0     in the conversation
  loss       0 1 1 0 1 0     tokens of answers
  source     5 5 5 2 2 -1    which conversation
"""

from collections.abc import Sequence
from typing import Any

from flax import struct
import jax
import numpy as np

from train import conversations

_OPEN_ROWS = 32  # rows that wait for what still fits


class Batch(struct.PyTreeNode):
  """Rows of packed conversations; see the module."""

  tokens: Any  # [B, S] int32
  segments: Any  # [B, S] int32
  positions: Any  # [B, S] int32
  loss: Any  # [B, S] bool
  source: Any  # [B, S] int32


def cut(
  examples: Sequence[conversations.Example], width: int
) -> tuple[list[conversations.Example], int]:
  """Examples of at most `width` tokens, and how many lost their ends.

  One whose answers all lie behind is left out; it counts as cut.
  """
  kept, shortened = [], 0
  for example in examples:
    if len(example.tokens) > width:
      shortened += 1
      example = conversations.Example(
        example.id, example.tokens[:width], example.loss[:width]
      )
    if example.loss.any():
      kept.append(example)
  return kept, shortened


def rows(lengths: Sequence[int], width: int) -> list[tuple[int, ...]]:
  """Which examples share a row: the first row that has room, in order.

  Raises:
    ValueError: an example longer than a row.
  """
  longest = max(lengths, default=0)
  if longest > width:
    raise ValueError(
      f"a conversation of {longest} tokens does not fit rows of {width}: cut "
      "it, or make rows wider"
    )
  full: list[tuple[int, ...]] = []
  open_rows: list[tuple[int, list[int]]] = []  # (room left, examples)
  for index, length in enumerate(lengths):
    for place, (room, members) in enumerate(open_rows):
      if length <= room:
        open_rows[place] = (room - length, [*members, index])
        break
    else:
      open_rows.append((width - length, [index]))
    if len(open_rows) > _OPEN_ROWS:
      fullest = min(range(len(open_rows)), key=lambda i: open_rows[i][0])
      full.append(tuple(open_rows.pop(fullest)[1]))
  return full + [tuple(members) for _, members in open_rows]


def fill(
  examples: Sequence[conversations.Example], members: Sequence[int], width: int
) -> Batch:
  """One row, [S] each, of the examples with these indices."""
  zeros = lambda value=0: np.full(width, value, np.int32)
  row = Batch(zeros(), zeros(), zeros(), zeros().astype(bool), zeros(-1))
  start = 0
  for segment, index in enumerate(members, 1):
    example = examples[index]
    slots = slice(start, start + len(example.tokens))
    row.tokens[slots] = example.tokens
    row.segments[slots] = segment
    row.positions[slots] = np.arange(len(example.tokens))
    row.loss[slots] = example.loss
    row.source[slots] = index
    start = slots.stop
  return row


def stack(batch: Sequence[Batch]) -> Batch:
  """Rows as one batch [B, S]."""
  return jax.tree.map(lambda *x: np.stack(x), *batch)
