# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a target of random weights to a drafter that decodes, and its measures.

  python -m experiments.tiny_distillation.run --workdir=runs/tiny

Writes metrics.json into the folder: acceptance at temperature 1 before and
after training, that of the best bigram, what a decoding loop should keep of its
drafts (`train.renewal`), and what it did.

Axis letters: n positions, V vocabulary.
"""

import argparse
import json
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.tiny_distillation import bigram, target
import specjax
from specjax.bench import backend
from specjax.drafters import eagle
from train import conversations, decoding, packing, run, teacher

CONFIG = "configs/train/tiny.py"
TEXTS = {"train": (3072, 1), "validation": (256, 2)}  # number, seed
_DEPTH = 3


def main(argv: list[str] | None = None) -> dict[str, Any]:
  """Does all of it; what is there already is used again."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--workdir", default="runs/tiny")
  folder = pathlib.Path(parser.parse_args(argv).workdir)
  backend.set_up()
  folder.mkdir(parents=True, exist_ok=True)
  if not (folder / "target").exists():
    target.write(folder / "target", seed=0)
  model, tokenizer = specjax.load(folder / "target")
  for name, (number, seed) in TEXTS.items():
    path = folder / f"{name}.jsonl"
    if not path.exists():
      target.write_texts(path, model, tokenizer, number, seed)
  training = folder / "training"
  status = run.main([f"--config={CONFIG}:{folder}", f"--workdir={training}"])
  if status:
    raise SystemExit(status)
  metrics = measures(folder, model, tokenizer)
  text = json.dumps(metrics, indent=2) + "\n"
  (folder / "metrics.json").write_text(text)
  print(text, end="")
  return metrics


def measures(folder: pathlib.Path, model, tokenizer) -> dict[str, Any]:
  """What metrics.json holds."""
  training = folder / "training"
  summary = json.loads((training / "summary.json").read_text())
  before, after = (summary[k]["temperature_1"] for k in ("before", "after"))
  laws, last = _laws(model, tokenizer, folder / "validation.jsonl")
  return {
    "alpha_before": before["alpha"],
    "alpha_after": after["alpha"],
    "alpha_bigram": bigram.acceptance(laws, last),
    "alpha_loop": after["alpha_renewal"],
    "alpha_interval": after["alpha_renewal_interval"],
    "alpha_decode": _decoded(training / "drafter", model, tokenizer),
    "nats_per_token": float(np.mean(-np.sum(_times_log(laws), axis=1))),
  }


def _laws(model, tokenizer, path) -> tuple[np.ndarray, np.ndarray]:
  """[n, V] the laws that first tokens of drafts are compared with, and [n] the
  token before each, of all texts.
  """
  examples, _ = conversations.read([path], tokenizer)
  width = target.PROMPT + target.NEW
  batch = packing.stack(
    [packing.fill(examples, (i,), width) for i in range(len(examples))]
  )

  @jax.jit
  def read(model):
    hidden = teacher.read(model, batch).hidden
    return jax.nn.softmax(model.unembed(hidden)), teacher.counted(batch, 1)

  laws, counted = jax.device_get(read(model))
  rows, slots = np.nonzero(counted[..., 0])
  return laws[rows, slots + 1], batch.tokens[rows, slots + 1]


def _times_log(p: np.ndarray) -> np.ndarray:
  return p * np.log(np.maximum(p, 1e-30))


def _decoded(heads, model, tokenizer) -> float | None:
  """Share of tested tokens that the loop kept, on the held-out prompts."""
  return decoding.measures(
    model,
    tokenizer,
    eagle.eagle(model, str(heads), _DEPTH),
    target.prompts(*TEXTS["validation"]),
    specjax.Sampling(temperature=1.0),
    target.NEW,
    seed=3,
    batch_size=128,
  )["alpha"]


if __name__ == "__main__":
  main()
