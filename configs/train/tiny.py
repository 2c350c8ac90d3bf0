# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""An EAGLE-3 head for a target of random weights that nobody has to fetch.

  python -m experiments.tiny_distillation.run --workdir=runs/tiny

makes the target and its texts, and trains with this config. Two CPU cores need
a minute and a half.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The argument is the folder of target and texts, `runs/tiny` by default."""
  folder = arg or "runs/tiny"
  return ConfigDict(
    {
      "target": f"{folder}/target",
      "objective": {"type": "eagle", "kind": "eagle3", "depth": 3},
      "losses": {"forward_kl": 1.0},
      "data": {
        "train": f"{folder}/train.jsonl",
        "validation": f"{folder}/validation.jsonl",
        "width": 96,
      },
      "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.01},
      "evaluation": {"every": 250, "depth": 3, "select": "temperature_1"},
      "epochs": 10,
      "batch_size": 16,
      "save_every": 250,
    }
  ).lock()
