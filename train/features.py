# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the target says, worked out once and kept on disk.

The target is frozen, so a second epoch, or a second run on the same
conversations, need not ask it again. A slot takes 2 (D + F) + 8 bytes: float16
for what a network reads, whole numbers and float32 for the law's own. A folder
is bound to its target, conversations, width and temperature; it serves every
drafter, and is made anew where one reads a layer that it lacks.

Axis letters: B rows, S slots, N tokens of all conversations, D model width,
F features width.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from specjax.bench import storage
from specjax.models import model as model_lib
from train import batches, conversations, packing, teacher

_NOTE, _DONE = "features.json", "done"
_ROWS = 8  # rows that the target reads at a time
_LAYERS = "feature_layers"


@dataclasses.dataclass(frozen=True)
class Binding:
  """What a folder of features is of, and of nothing else.

  Attributes:
    target: fingerprint of its weights.
    data: digest of the conversations.
    width: S of the rows that the target reads.
    temperature: see `teacher.read`.
  """

  target: str
  data: str
  width: int
  temperature: float


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


def check(
  folder: str | os.PathLike[str], bound: Binding
) -> tuple[int, ...] | None:
  """The layers whose features a folder is for; None where it is a new one.

  Raises:
    ValueError: it holds those of something else.
  """
  path = pathlib.Path(folder) / _NOTE
  if not path.exists():
    return None
  found = json.loads(path.read_text(encoding="utf-8"))
  wanted = dataclasses.asdict(bound)
  changed = [key for key, value in wanted.items() if found.get(key) != value]
  if changed:
    raise ValueError(
      f"{folder} holds features of another {', '.join(changed)}: name a new "
      "folder for data.features"
    )
  return tuple(found[_LAYERS])


def prepare(
  folder: str | os.PathLike[str],
  target: model_lib.Model,
  examples: Sequence[conversations.Example],
  bound: Binding,
  say: Callable[[str], None],
) -> Features:
  """The folder's features, worked out as far as they are missing.

  Args:
    folder: made if it is missing; one that was stopped is gone on with.
    target: gives the layers that are wanted; a folder may have others too.
    examples: at most `bound.width` tokens each.
    bound: what the folder is of.
    say: is told the size first, and how it goes.

  Raises:
    ValueError: the folder holds those of something else; a feature is too large
      for float16.
  """
  there = check(folder, bound)
  folder, wanted = pathlib.Path(folder), target.feature_layers
  layers = tuple(sorted({*(there or ()), *wanted}))
  target = target.replace(feature_layers=layers)
  if layers != there:
    taken = size(examples, target) / 1e9
    say(f"features of the target: {taken:.2f} GB in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DONE).unlink(missing_ok=True)
    _allocate(folder, target, examples)
    note = dataclasses.asdict(bound) | {_LAYERS: layers}
    storage.write(storage.locate(folder / _NOTE), json.dumps(note).encode())
  _fill(folder, target, examples, bound, say)
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


def _fill(folder, target, examples, bound, say) -> None:
  """Batches that were not done yet, counted in a file beside the arrays."""
  counter = folder / _DONE
  done = int(counter.read_text()) if counter.exists() else 0
  starts, layers = _starts(examples), target.feature_layers
  arrays = _arrays(folder, layers, "r+")
  read = jax.jit(functools.partial(teacher.read, temperature=bound.temperature))
  whole = list(batches.all_rows(examples, bound.width, _ROWS))
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
      _put(array, place, given[name][some], name)
    if number % 10 == 0 or number == len(whole):
      for array in arrays.values():
        array.flush()
      storage.write(storage.locate(counter), str(number).encode())
      say(f"features: {number} of {len(whole)} batches")


def _put(array: np.memmap, place, values, name: str) -> None:
  """Values in their places of an array, none of them made infinite by it."""
  most = np.max(np.abs(values), initial=0)
  if array.dtype == np.float16 and not most <= np.finfo(np.float16).max:
    raise ValueError(
      f"the target's {name} has values of {most:.3g}, too large for float16: "
      "leave data.features empty"
    )
  array[place] = values
