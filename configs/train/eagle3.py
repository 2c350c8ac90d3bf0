# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""An EAGLE-3 head for SmolLM2 that can draft 4,096 tokens.

  python -m train.run --config=configs/train/eagle3.py:ANSWERS --workdir=DIR

ANSWERS/train and ANSWERS/validation are workdirs of `train.regenerate`, for two
sets of conversations.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The argument is the folder with the answers."""
  return ConfigDict(
    {
      "target": "smollm2-135m-instruct-q4_1",
      "objective": {"type": "eagle", "kind": "eagle3", "depth": 3},
      "losses": {"forward_kl": 1.0},
      "data": {
        "train": (f"{arg or 'runs/answers'}/train/answers.jsonl",),
        "validation": (f"{arg or 'runs/answers'}/validation/answers.jsonl",),
        "features": f"{arg or 'runs/answers'}/features",
        "width": 384,
        "draft_vocab": 4096,
      },
      "optimizer": {"learning_rate": 1e-3, "warmup": 0.03, "clip": 0.5},
      "evaluation": {
        "every": 250,
        "depth": 3,
        "limit": 5000,
        "select": "temperature_0",
      },
      "epochs": 6,
      "batch_size": 8,
    }
  ).lock()
