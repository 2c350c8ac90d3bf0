# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proofs: the exact output law of every lossless rule, and broken ones.

  python -m specjax.run --config=configs/exactness.py --workdir=runs/exactness

Prints a line for each rule, structure of drafts and kind of them with the total
variation between decoding and plain sampling over at least two rounds (expect
under 1e-14; 1e-6 is allowed), then the broken rules with the total variation
they are caught at. Two CPU cores need five minutes.
"""

from ml_collections import ConfigDict

KINDS = (
  "independent",
  "without replacement",
  "deterministic",
  "mixed",
  "as given",
)
# Slots of the nodes' parents, and the depth drafted in each round.
STRUCTURES = {
  "chain of 3, 1, 2, 0": {"parents": (0, 1, 2), "depths": (3, 1, 2, 0)},
  "2 siblings": {"parents": (0, 0), "depths": (1,)},
  "6 nodes, 2 deep": {"parents": (0, 0, 1, 1, 2, 2), "depths": (2,)},
  "6 nodes, 3 deep": {"parents": (0, 0, 1, 2, 3, 3), "depths": (3,)},
}
CHAINS, ALL = tuple(STRUCTURES)[:1], tuple(STRUCTURES)
# Rules of siblings that were drawn independently of each other.
INDEPENDENT = ("k_seq", "multi_path")


def get_config(arg: str = "") -> ConfigDict:
  """All proofs; it takes no argument."""
  del arg
  rules: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
  for rule in ("coupled", "multi_candidate", "traversal", *INDEPENDENT):
    rules[rule] = rule, ALL, KINDS[:1] if rule in INDEPENDENT else KINDS
  for rule in INDEPENDENT:  # A chain has no siblings.
    rules[f"{rule} on chains"] = rule, CHAINS, KINDS[1:]
  for rule in ("rejection", "block"):
    rules[rule] = rule, CHAINS, KINDS
  config = ConfigDict()
  config.exactness = ConfigDict(
    {
      "vocab": 3,
      "memory": 1,
      "structures": STRUCTURES,
      "rules": {
        name: {
          "verifier": {"type": rule},
          "structures": structures,
          "drafters": drafters,
        }
        for name, (rule, structures, drafters) in rules.items()
      },
      "mutants": True,
    }
  )
  config.lock()
  return config
