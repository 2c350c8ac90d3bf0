# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which loss raises acceptance most, for greedy decoding and at temperature 1?

  python -m experiments.training_losses.run --answers=runs/answers \
    --workdir=runs/losses

trains a head for every loss, temperature of the target's laws and seed, and
writes losses.json: acceptance of the first token on held-out conversations.
The same command goes on where it was stopped.
"""

import argparse
import itertools
import json
import pathlib
from typing import Any

import numpy as np

from specjax.reports import report
from train import run

CONFIG = "experiments/training_losses/config.py"
LOSSES = ("forward_kl", "tv", "lk", "log_alpha_coupled")
TEMPERATURES = (0, 1)
JUDGED = ("temperature_0", "temperature_1")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
  """Trains what is missing and shows the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--answers", default="runs/answers")
  parser.add_argument("--workdir", default="runs/losses")
  parser.add_argument("--seeds", type=int, default=3)
  flags = parser.parse_args(argv)
  folder = pathlib.Path(flags.workdir)
  rows: list[dict[str, Any]] = []
  for loss, temperature in itertools.product(LOSSES, TEMPERATURES):
    found = [
      _trained(folder, flags.answers, loss, temperature, seed)
      for seed in range(flags.seeds)
    ]
    rows.append(
      {
        "loss": loss,
        "trained_at": str(temperature),
        **{name: [one[name]["alpha"] for one in found] for name in JUDGED},
      }
    )
    (folder / "losses.json").write_text(json.dumps(rows, indent=2) + "\n")
  report.show_table(
    ("loss", "trained at", "alpha at 0", "alpha at 1"),
    [
      (row["loss"], row["trained_at"], *(_cell(row[name]) for name in JUDGED))
      for row in rows
    ],
  )
  return rows


def _trained(
  folder: pathlib.Path, answers: str, loss: str, temperature: int, seed: int
) -> dict[str, Any]:
  """Measures after training; a run that is done is read."""
  own = folder / f"{loss}-{temperature}-{seed}"
  config = f"{CONFIG}:{answers},{loss},{temperature},{seed}"
  status = run.main([f"--config={config}", f"--workdir={own}"])
  if status or not (own / "summary.json").exists():  # Refused, or stopped.
    raise SystemExit(status)
  return json.loads((own / "summary.json").read_text())["after"]


def _cell(values: list[float]) -> str:
  """Mean over seeds and its standard error."""
  error = np.std(values, ddof=1) / np.sqrt(len(values)) if values[1:] else 0
  return f"{np.mean(values):.4f} ±{error:.4f}"


if __name__ == "__main__":
  main()
