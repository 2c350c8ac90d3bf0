# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drafter of yours on the prompts of the quickstart.

  python -m specjax.run --workdir=runs/mine \
    --config=configs/drafter.py:eagle,runs/eagle3/drafter

The argument is the type of the drafter and the folder that training left, or
that somebody published: heads (`eagle`, `medusa`, `chained`, `block_parallel`),
a `draft_model`, or the adapter of an `early_exit`. It runs once with a fixed
length, and once only where it is sure of a token and drafting pays (`gain`).
"""

import pathlib
import runpy

from ml_collections import ConfigDict

# Configs are files, not a package.
BASE = pathlib.Path(__file__).with_name("quickstart.py")
LENGTH = 3
POLICIES = {
  f"length_{LENGTH}": {"type": "fixed"},
  "gain": {
    "type": "expected_gain",
    "least": 0.3,
    "weight": 2.0,
    "widths": (0, 1),
  },
}


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; the argument is "TYPE,FOLDER"."""
  kind, _, folder = arg.partition(",")
  # An adapter knows the layers that it was trained behind.
  named = {
    "draft_model": {"model": folder},
    "early_exit": {"adapter": folder, "layers": 0},
  }
  drafter = {"type": kind, "length": LENGTH}
  drafter |= named.get(kind, {"heads": folder})
  config = runpy.run_path(str(BASE))["get_config"]().unlock()
  config.methods = {
    name: {
      "drafter": drafter,
      "verifier": {"type": "coupled"},
      "policy": policy,
    }
    for name, policy in POLICIES.items()
  }
  return config.lock()
