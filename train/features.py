# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the target says, worked out once and kept on disk.

The target is frozen, so a second epoch, or a second run on the same
conversations, need not ask it again. A slot takes 2 (D + F) + 8 bytes: float16
for what a network reads, whole numbers and float32 for the law's own. A folder
is bound to its target, conversations, layers and temperature.

Axis letters: B rows, S slots, N tokens of all conversations, D model width,
F features width.
"""

from collections.abc import Callable, Sequence
import functools
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from specjax.models import model as model_lib
from train import batches, conversations, packing, teacher

_NOTE, _DONE = "features.json", "done"
_ROWS = 8  # rows that the target reads at a time
_DTYPES = {
  "hidden": np.float16,
  "features": np.float16,
  "log_total": np.float32,
  "best": np.int32,
}
_GIVEN = {**_DTYPES, "hidden": np.float32, "features": np.float32}


class Features:
  """What the target says about the slots of some conversations."""

  def __init__(
    self, folder: pathlib.Path, examples: Sequence[conversations.Example]
  ):
    lengths = [len(example.tokens) for example in examples]
    self._starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    self._arrays = {
      name: np.load(folder / f"{name}.npy", mmap_mode="r")
      for name in _DTYPES
      if (folder / f"{name}.npy").exists()
    }

  def at(self, batch: packing.Batch) -> teacher.Teacher:
    """Of a batch [B, S]; slots of padding get those of some token."""
    source = np.maximum(np.asarray(batch.source), 0)
    place = self._starts[source] + np.asarray(batch.positions)

    def take(name):
      return self._arrays[name][place].astype(_GIVEN[name])

    has_features = "features" in self._arrays
    return teacher.Teacher(
      hidden=take("hidden"),
      features=take("features") if has_features else None,
      log_total=take("log_total"),
      best=take("best"),
    )


def size(examples: Sequence[conversations.Example], target: Any) -> int:
  """Bytes that a folder will take."""
  tokens = sum(len(example.tokens) for example in examples)
  width = target.config.embed_dim * (1 + len(target.feature_layers))
  return tokens * (2 * width + 8)


def prepare(
  folder: str | os.PathLike[str],
  target: model_lib.Model,
  examples: Sequence[conversations.Example],
  note: dict[str, Any],
  width: int,
  temperature: float,
  say: Callable[[str], None],
) -> Features:
  """The folder's features, worked out as far as they are missing.

  Args:
    folder: made if it is missing; one that was stopped is gone on with.
    target: gives the layers that are wanted.
    examples: at most `width` tokens each.
    note: what the folder is bound to, as JSON knows it.
    width: S of the rows that the target reads.
    temperature: see `teacher.read`.
    say: is told the size first, and how it goes.

  Raises:
    ValueError: the folder holds those of another target or other conversations.
  """
  folder = pathlib.Path(folder)
  whole = {
    **note,
    "feature_layers": list(target.feature_layers),
    "temperature": temperature,
    "width": width,
  }
  path = folder / _NOTE
  if path.exists() and json.loads(path.read_text()) != whole:
    raise ValueError(
      f"{folder} holds features of another target, other conversations, layers "
      "or width: name a new folder for data.features"
    )
  taken = size(examples, target) / 1e9
  say(f"features of the target: {taken:.2f} GB in {folder}")
  folder.mkdir(parents=True, exist_ok=True)
  if not path.exists():
    _allocate(folder, target, examples)
    path.write_text(json.dumps(whole))
  _fill(folder, target, examples, width, temperature, say)
  return Features(folder, examples)


def _allocate(folder, target, examples) -> None:
  tokens = sum(len(example.tokens) for example in examples)
  width = target.config.embed_dim
  shapes = {
    "hidden": (tokens, width),
    "features": (tokens, width * len(target.feature_layers)),
    "log_total": (tokens,),
    "best": (tokens,),
  }
  for name, shape in shapes.items():
    if shape[-1]:
      np.lib.format.open_memmap(
        folder / f"{name}.npy", "w+", _DTYPES[name], shape
      )


def _fill(folder, target, examples, width, temperature, say) -> None:
  """Batches that were not done yet, counted in a file beside the arrays."""
  counter = folder / _DONE
  done = int(counter.read_text()) if counter.exists() else 0
  lengths = [len(example.tokens) for example in examples]
  starts = np.concatenate([[0], np.cumsum(lengths)])
  arrays = {
    name: np.load(folder / f"{name}.npy", mmap_mode="r+")
    for name in _DTYPES
    if (folder / f"{name}.npy").exists()
  }
  read = jax.jit(functools.partial(teacher.read, temperature=temperature))
  whole = list(batches.all_rows(examples, width, _ROWS))
  for number, batch in enumerate(whole[done:], done + 1):
    seen = jax.device_get(read(target, batch))
    some = batch.source >= 0
    place = starts[batch.source[some]] + batch.positions[some]
    for name, array in arrays.items():
      array[place] = getattr(seen, name)[some]
    if number % 50 == 0 or number == len(whole):
      for array in arrays.values():
        array.flush()
      other = counter.with_suffix(".new")
      other.write_text(str(number))
      os.replace(other, counter)
      say(f"features: {number} of {len(whole)} batches")
