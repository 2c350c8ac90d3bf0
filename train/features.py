# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the target says, worked out once and kept on disk.

The target is frozen, so a second epoch, or a second run on the same
conversations, need not ask it again. A slot takes 2 (D + F) + 8 bytes: float16
for what a network reads, whole numbers and float32 for the law's own. A folder
is bound to its target, conversations and temperature; it serves every drafter,
and is made anew where one reads a layer that it lacks.

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
_LAYERS = "feature_layers"


class Features:
  """What the target says about the slots of some conversations."""

  def __init__(
    self,
    folder: pathlib.Path,
    examples: Sequence[conversations.Example],
    layers: Sequence[int],
  ):
    self._starts = _starts(examples)
    self._arrays = _arrays(folder, layers, "r")
    self._layers = layers

  def at(self, batch: packing.Batch) -> teacher.Teacher:
    """Of a batch [B, S]; slots of padding get those of some token."""
    source = np.maximum(np.asarray(batch.source), 0)
    place = self._starts[source] + np.asarray(batch.positions)

    # On the host: a step moves them to its devices.
    given: dict[str, Any] = {
      name: array[place] for name, array in self._arrays.items()
    }
    layers = [given.pop(_layer(i)) for i in self._layers]
    joined: Any = np.concatenate(layers, axis=-1) if layers else None
    return teacher.Teacher(
      hidden=given["hidden"].astype(np.float32),
      features=None if joined is None else joined.astype(np.float32),
      log_total=given["log_total"],
      best=given["best"],
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
    target: gives the layers that are wanted; a folder may have others too.
    examples: at most `width` tokens each.
    note: what the folder is bound to, as JSON knows it.
    width: S of the rows that the target reads.
    temperature: see `teacher.read`.
    say: is told the size first, and how it goes.

  Raises:
    ValueError: the folder holds those of another target or other conversations.
  """
  folder, wanted = pathlib.Path(folder), target.feature_layers
  note = {**note, "temperature": temperature, "width": width}
  path = folder / _NOTE
  found = json.loads(path.read_text()) if path.exists() else note
  there = tuple(found.pop(_LAYERS, ()))
  if found != note:
    raise ValueError(
      f"{folder} holds features of another target, other conversations or "
      "width: name a new folder for data.features"
    )
  target = target.replace(feature_layers=tuple(sorted({*there, *wanted})))
  if not path.exists() or target.feature_layers != there:
    taken = size(examples, target) / 1e9
    say(f"features of the target: {taken:.2f} GB in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DONE).unlink(missing_ok=True)
    _allocate(folder, target, examples)
    layers = list(target.feature_layers)
    path.write_text(json.dumps({**note, _LAYERS: layers}))
  _fill(folder, target, examples, width, temperature, say)
  return Features(folder, examples, wanted)


def _layer(index: int) -> str:
  return f"layer_{index}"


def _starts(examples) -> np.ndarray:
  """Where each conversation's tokens begin in the arrays."""
  lengths = [len(example.tokens) for example in examples]
  return np.concatenate([[0], np.cumsum(lengths)])[:-1]


def _arrays(folder, layers, mode) -> dict[str, np.memmap]:
  names = ("hidden", "log_total", "best", *map(_layer, layers))
  return {
    name: np.lib.format.open_memmap(folder / f"{name}.npy", mode)
    for name in names
  }


def _allocate(folder, target, examples) -> None:
  tokens = sum(len(example.tokens) for example in examples)
  wide = (np.float16, (tokens, target.config.embed_dim))
  kinds = {
    "hidden": wide,
    "log_total": (np.float32, (tokens,)),
    "best": (np.int32, (tokens,)),
    **{_layer(i): wide for i in target.feature_layers},
  }
  for name, (dtype, shape) in kinds.items():
    np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)


def _fill(folder, target, examples, width, temperature, say) -> None:
  """Batches that were not done yet, counted in a file beside the arrays."""
  counter = folder / _DONE
  done = int(counter.read_text()) if counter.exists() else 0
  starts, layers = _starts(examples), target.feature_layers
  arrays = _arrays(folder, layers, "r+")
  read = jax.jit(functools.partial(teacher.read, temperature=temperature))
  whole = list(batches.all_rows(examples, width, _ROWS))
  for number, batch in enumerate(whole[done:], done + 1):
    seen = jax.device_get(read(target, batch))
    some = batch.source >= 0
    place = starts[batch.source[some]] + batch.positions[some]
    given = {
      "hidden": seen.hidden,
      "log_total": seen.log_total,
      "best": seen.best,
    }
    if layers:
      parts = np.split(seen.features, len(layers), axis=-1)
      given |= dict(zip(map(_layer, layers), parts))
    for name, array in arrays.items():
      array[place] = given[name][some]
    if number % 50 == 0 or number == len(whole):
      for array in arrays.values():
        array.flush()
      other = counter.with_suffix(".new")
      other.write_text(str(number))
      os.replace(other, counter)
      say(f"features: {number} of {len(whole)} batches")
