# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Medusa heads for SmolLM2, which read some rows of its own output matrix.

  python -m train.run --config=configs/train/medusa.py:ANSWERS --workdir=DIR

ANSWERS/train, ANSWERS/invented and ANSWERS/validation are workdirs of
`train.regenerate`: answers to users, to questions of `train.invent`, and to
users that are held out.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The argument is the folder with the answers."""
  answers = arg or "runs/answers"
  return ConfigDict(
    {
      "target": "smollm2-135m-instruct-q4_1",
      "objective": {"type": "medusa", "num_heads": 3, "num_layers": 1},
      "losses": {"forward_kl": 1.0},
      "data": {
        "train": (
          f"{answers}/train/answers.jsonl",
          f"{answers}/invented/answers.jsonl",
        ),
        "validation": (f"{answers}/validation/answers.jsonl",),
        "features": f"{answers}/features",
        "width": 384,
        "draft_vocab": 4096,
      },
      "optimizer": {"learning_rate": 1e-3, "warmup": 0.05},
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
