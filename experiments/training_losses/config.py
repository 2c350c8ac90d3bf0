# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One Medusa head under one loss: a cell of the table that `run` fills."""

from ml_collections import ConfigDict


def get_config(arg: str) -> ConfigDict:
  """The argument is the folder of the answers, loss, temperature and seed."""
  answers, loss, temperature, seed = arg.split(",")
  return ConfigDict(
    {
      "target": "smollm2-135m-instruct-q4_1",
      "objective": {"type": "medusa", "num_heads": 1, "num_layers": 1},
      "losses": {loss: 1.0},
      "sampling": {"temperature": float(temperature)},
      "data": {
        "train": f"{answers}/train/answers.jsonl",
        "validation": f"{answers}/validation/answers.jsonl",
        "features": f"{answers}/features-train",
        "width": 384,
        "draft_vocab": 4096,
      },
      "optimizer": {"learning_rate": 1e-3, "warmup": 0.05},
      "evaluation": {"every": 1_000_000, "depth": 1, "limit": 6000},
      "epochs": 1,
      "batch_size": 8,
      "tensorboard": False,
      "seed": int(seed),
    }
  ).lock()
