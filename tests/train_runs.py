# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny training run on disk, for tests of the command line of training."""

import json
import pathlib
from typing import Any

import numpy as np

from tests import runs

_FILE = """import json
from ml_collections import ConfigDict


def get_config(arg=""):
  return ConfigDict(json.loads({text!r})).lock()
"""


def write_texts(path: pathlib.Path, number: int, seed: int) -> pathlib.Path:
  """Random texts of the tiny model's words; the second half is the answer."""
  rng = np.random.default_rng(seed)
  lines = []
  for i in range(number):
    length = int(rng.integers(6, 20))
    ids = rng.integers(2, len(runs.WORDS), length).tolist()
    mask = [int(slot >= length // 2) for slot in range(length)]
    line = {"id": f"{path.stem}-{i}", "input_ids": ids, "loss_mask": mask}
    lines.append(json.dumps(line) + "\n")
  path.write_text("".join(lines))
  return path


def write_config(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
  """A config that trains two Medusa heads for six steps; makes its files."""
  model = folder / "model.gguf"
  if not model.exists():
    runs.write_model(model)
    write_texts(folder / "train.jsonl", 40, 0)
    write_texts(folder / "validation.jsonl", 6, 1)
  values = {
    "target": str(model),
    "objective": {"type": "medusa", "num_heads": 2},
    "data": {
      "train": str(folder / "train.jsonl"),
      "validation": str(folder / "validation.jsonl"),
      "width": 24,
    },
    "optimizer": {"learning_rate": 0.01, "warmup": 0.0},
    "evaluation": {"every": 3, "depth": 2, "rows": 4},
    "steps": 6,
    "batch_size": 4,
    "save_every": 2,
    "tensorboard": False,
  } | changes
  path = folder / f"config_{len(list(folder.glob('config_*.py')))}.py"
  path.write_text(_FILE.format(text=json.dumps(values)))
  return path
