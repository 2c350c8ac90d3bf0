# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft taught in one of three ways: a row of the table of `run`."""

from ml_collections import ConfigDict

LOSSES = {"text": "cross_entropy", "laws": "forward_kl"}
# Sizes and steps: one of a draft model takes ten times as long.
DRAFTS = {
  "medusa": ({"num_heads": 1, "num_layers": 1}, 600),
  "draft_model": ({"num_layers": 1, "mlp_dim": 1152}, 300),
}
TOKENS = 100_000  # of answers


def get_config(arg: str) -> ConfigDict:
  """The argument: folder of `run`, draft, whose answers, what is taught."""
  folder, draft, answers, taught = arg.split(",")
  sizes, steps = DRAFTS[draft]
  return ConfigDict(
    {
      "target": "smollm2-135m-instruct-q4_1",
      "objective": {"type": draft, **sizes},
      "losses": {LOSSES[taught]: 1.0},
      "data": {
        "train": f"{folder}/{answers}.jsonl",
        "validation": f"{folder}/validation.jsonl",
        "features": f"{folder}/features-{answers}",
        "limit": TOKENS,
        "width": 384,
        # A draft model has its target's vocabulary.
        "draft_vocab": 4096 if draft == "medusa" else 0,
      },
      "optimizer": {"learning_rate": 1e-3, "warmup": 0.05},
      "evaluation": {"every": 1_000_000, "depth": 1, "limit": 10_000},
      "steps": steps,
      "batch_size": 8,
      "tensorboard": False,
    }
  ).lock()
