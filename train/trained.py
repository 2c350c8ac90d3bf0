# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run on disk, as others read it: its config, vocabulary and weights."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from ml_collections import ConfigDict
import numpy as np

from specjax.bench import configuration
from train import saving, schema

CHECKPOINTS, CONFIG = "checkpoints", "config.json"
# What a checkpoint's note says of the tokens that can be drafted.
DRAFT_IDS = "draft_ids"


@dataclasses.dataclass(frozen=True)
class Trained:
  """The best checkpoint of a run, else its newest.

  Attributes:
    folder: of the run.
    step: updates that were made.
    note: saved with it.
  """

  folder: pathlib.Path
  step: int
  note: Mapping[str, Any]

  def config(self, overrides: Sequence[str] = ()) -> ConfigDict:
    """What it was trained with, and what is to be another way now.

    Raises:
      FileNotFoundError: no config.
      ValueError: an override of no key, or out of range.
    """
    path = self.folder / CONFIG
    if not path.exists():
      raise FileNotFoundError(f"no {path}: name a folder of a run")
    given = json.loads(path.read_text(encoding="utf-8"))
    return configuration.complete(given, overrides, schema)

  def draft_ids(self) -> np.ndarray | None:
    """[Q] int32 the tokens that its columns stand for; None is all.

    Raises:
      ValueError: its checkpoint does not say.
    """
    if DRAFT_IDS not in self.note:
      raise ValueError(
        f"{self.folder} does not say which tokens it drafts: train it again"
      )
    ids = self.note[DRAFT_IDS]
    return None if ids is None else np.asarray(ids, np.int32)

  def parameters(self, like: Any) -> Any:
    """Its weights alone, placed as in `like`.

    Raises:
      ValueError: they have other shapes.
    """
    with saving.Saver(self.folder / CHECKPOINTS, None) as saver:
      return saver.load_parameters(self.step, like)


def find(folder: str | os.PathLike[str]) -> Trained | None:
  """What a folder holds; None where no checkpoint is complete."""
  folder = pathlib.Path(folder)
  if not (folder / CHECKPOINTS).is_dir():
    return None
  with saving.Saver(folder / CHECKPOINTS, None) as saver:
    found = saver.latest if saver.best is None else saver.best
    return None if found is None else Trained(folder, found, saver.note(found))


def read(folder: str | os.PathLike[str], named: str) -> Trained:
  """What a folder holds.

  Args:
    folder: of a run.
    named: the key or flag that names it, for errors.

  Raises:
    FileNotFoundError, ValueError: there is none.
  """
  found = find(folder)
  if found is not None:
    return found
  name = os.fspath(folder)
  if not (pathlib.Path(folder) / CHECKPOINTS).is_dir():
    raise FileNotFoundError(
      f"{named} {name!r} has no {CHECKPOINTS}/ in it: name a folder of a run"
    )
  raise ValueError(f"{named} {name!r} has no complete checkpoint")
