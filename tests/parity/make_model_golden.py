# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of model_golden_test.py with Transformers.

  python -m tests.parity.make_model_golden MODEL.gguf tests/golden

needs the extra `parity` and runs in float32. Three files:

model_tiny.npz: for each of CASES, logits of TOKENS, the ids that greedy
  decoding adds to them, and what Transformers divides the rotary frequencies
  by. Weights are `checkpoint_files.random_tensors`.
model_families.npz: "CASE/logits" and "CASE/greedy" of `family_files.CONFIGS`.
model_smollm2.npz: the same of the default model, read by Transformers' own GGUF
  reader: of each position the largest logits and a fixed sample of the others.
"""

import pathlib
import sys
import tempfile
from typing import Any

import numpy as np

from tests import checkpoint_files, family_files

CASES = {
  # Llama 2: one kv head a query head, an output matrix of its own.
  "llama2": dict(num_kv_heads=4, tie_embeddings=False),
  # Llama 3.1: fewer kv heads, scaled rotary frequencies.
  "llama3": dict(rope_theta=500000.0, tie_embeddings=False),
  # Llama 3.2: tied, and heads wider than the model's width divided by them.
  "llama3_wide_heads": dict(rope_theta=500000.0, head_dim=16),
  "smollm2": dict(embed_dim=48, num_heads=6, rope_theta=100000.0),
}
SCALING = {
  "rope_type": "llama3",
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32,
}
TOKENS = np.random.default_rng(7).integers(
  0, checkpoint_files.TINY.vocab_size, 40
)
FAMILY_TOKENS = TOKENS[:24]
NEW_TOKENS = 64
TEXT = (
  "The river rises in the hills and runs slowly through the old town. In 1987 "
  "there were 24 mills along it; def mean(values): return sum(values) /"
)
LARGEST, SAMPLED = 8, 24


def is_scaled(name: str) -> bool:
  return name.startswith("llama3")


def write_case(name: str, folder: pathlib.Path) -> pathlib.Path:
  """The case's checkpoint as a Hugging Face folder."""
  config = checkpoint_files.tiny(**CASES[name])
  raw = checkpoint_files.folder_config(config)
  raw["architectures"] = ["LlamaForCausalLM"]
  if is_scaled(name):
    raw["rope_scaling"] = SCALING
  tensors = checkpoint_files.random_tensors(config)
  return checkpoint_files.write_folder(folder, raw, tensors)


def logits(network: Any, tokens: np.ndarray) -> np.ndarray:
  import torch

  with torch.inference_mode():
    return network(torch.tensor(tokens[None])).logits[0].numpy()


def _greedy(network: Any, tokens: np.ndarray) -> np.ndarray:
  """The ids of NEW_TOKENS steps, whatever the model thinks ends a text."""
  import torch

  ids, cache, new = torch.tensor(tokens[None]), None, []
  with torch.inference_mode():
    for _ in range(NEW_TOKENS):
      output = network(ids, past_key_values=cache, use_cache=True)
      cache = output.past_key_values
      ids = output.logits[:, -1:].argmax(-1)
      new.append(int(ids))
  return np.array(new)


def tiny(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Arrays "CASE/logits", "CASE/greedy" and "CASE/rope_factors"."""
  import transformers

  arrays = {}
  for name in CASES:
    path = write_case(name, folder / name)
    network = transformers.LlamaForCausalLM.from_pretrained(path).eval()
    arrays[f"{name}/logits"] = logits(network, TOKENS)
    arrays[f"{name}/greedy"] = _greedy(network, TOKENS)
    rotary = network.model.rotary_emb
    size, theta = 2 * len(rotary.inv_freq), CASES[name].get("rope_theta", 1e4)
    plain = 1 / theta ** (np.arange(0, size, 2) / size)
    arrays[f"{name}/rope_factors"] = plain / rotary.inv_freq.numpy()
  return arrays


def families(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Arrays "CASE/logits" and "CASE/greedy" of a checkpoint of every family."""
  arrays = {}
  for name in family_files.CONFIGS:
    network = load(family_files.write(name, folder / name))
    arrays[f"{name}/logits"] = logits(network, FAMILY_TOKENS)
    arrays[f"{name}/greedy"] = _greedy(network, FAMILY_TOKENS)
  return arrays


def load(folder: pathlib.Path) -> Any:
  """Transformers' network of a folder, in float32."""
  import torch
  import transformers

  return transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32
  ).eval()


def smollm2(model: pathlib.Path) -> dict[str, np.ndarray]:
  """Arrays of the default model."""
  import torch
  import transformers

  tokenizer = transformers.AutoTokenizer.from_pretrained(
    model.parent, gguf_file=model.name
  )
  network = transformers.AutoModelForCausalLM.from_pretrained(
    model.parent, gguf_file=model.name, dtype=torch.float32
  ).eval()
  tokens = np.array(tokenizer(TEXT).input_ids)
  full = logits(network, tokens)
  largest = np.argsort(-full, axis=1)[:, :LARGEST]
  rng = np.random.default_rng(0)
  others = rng.integers(0, full.shape[1], (len(tokens), SAMPLED))
  ids = np.concatenate([largest, others], axis=1)
  return {
    "tokens": tokens,
    "ids": ids,
    "logits": np.take_along_axis(full, ids, axis=1),
    "greedy": _greedy(network, tokens),
  }


def _save(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
  np.savez_compressed(path, allow_pickle=False, **arrays)


def main(arguments: list[str]) -> None:
  if len(arguments) != 2:
    raise SystemExit(__doc__)
  model, folder = map(pathlib.Path, arguments)
  with tempfile.TemporaryDirectory() as scratch:
    _save(folder / "model_tiny.npz", tiny(pathlib.Path(scratch)))
    families_folder = pathlib.Path(scratch) / "families"
    _save(folder / "model_families.npz", families(families_folder))
  _save(folder / "model_smollm2.npz", smollm2(model))


if __name__ == "__main__":
  main(sys.argv[1:])
