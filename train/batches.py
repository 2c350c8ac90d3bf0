# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches in an order that depends on the seed alone (`grain`).

Neither the number of processes nor of loader workers changes which rows a step
sees: batch i is the same everywhere, and process p of P takes every P-th row of
it from p on. The number of a step is all that a resumed run needs to know.
"""

from collections.abc import Iterator, Sequence
import dataclasses

from absl import flags
import numpy as np

from train import conversations, packing


@dataclasses.dataclass(frozen=True)
class Order:
  """Which rows make a batch.

  Attributes:
    examples: at most `width` tokens each.
    width: S, slots of a row.
    batch_size: rows of a batch, of all processes together.
    seed: of the order.
    workers: processes that fill rows; 0 is a thread of this one.
  """

  examples: Sequence[conversations.Example]
  width: int
  batch_size: int
  seed: int
  workers: int = 0

  def __post_init__(self):
    if len(self._rows) < self.batch_size:
      raise ValueError(
        f"batch_size is {self.batch_size} but there are {len(self._rows)} rows "
        f"of {self.width} tokens: use fewer rows or more conversations"
      )

  @property
  def _rows(self) -> list[tuple[int, ...]]:
    return packing.rows([len(e.tokens) for e in self.examples], self.width)

  @property
  def steps_per_epoch(self) -> int:
    """Batches of one pass over the rows."""
    return len(self._rows) // self.batch_size

  def batches(
    self, start: int, process: int = 0, processes: int = 1
  ) -> Iterator[packing.Batch]:
    """Batches from number `start` on, without end; this process's rows.

    Raises:
      ValueError: the batch does not divide among the processes.
    """
    import grain

    if self.batch_size % processes:
      raise ValueError(
        f"batch_size {self.batch_size} does not divide among {processes} "
        "processes: use a multiple"
      )
    rows = self._rows
    whole = self.steps_per_epoch * self.batch_size
    # Rows that a shuffled epoch leaves over are others in each epoch.
    data = (
      grain.MapDataset.source(rows)
      .seed(self.seed)
      .shuffle()
      .slice(slice(0, whole))
      .repeat()
      .map(lambda members: packing.fill(self.examples, members, self.width))
      .batch(self.batch_size, drop_remainder=True, batch_fn=packing.stack)
    )
    data = data.slice(slice(start, None)) if start else data
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
    loader = data.to_iter_dataset(options)
    if self.workers:
      # Workers ask for flags of grain's, which nobody else here parses.
      if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
      loader = loader.mp_prefetch(grain.MultiprocessingOptions(self.workers))
    for batch in loader:
      yield _take(batch, slice(process, None, processes))


def all_rows(
  examples: Sequence[conversations.Example], width: int, batch_size: int
) -> Iterator[packing.Batch]:
  """Every row once, in order; the last batch is filled with empty rows."""
  members = packing.rows([len(e.tokens) for e in examples], width)
  members += [()] * (-len(members) % batch_size)
  for first in range(0, len(members), batch_size):
    yield packing.stack(
      [
        packing.fill(examples, row, width)
        for row in members[first : first + batch_size]
      ]
    )


def _take(batch: packing.Batch, rows: slice) -> packing.Batch:
  return packing.Batch(
    *(np.asarray(x)[rows] for x in dataclasses.astuple(batch))
  )
