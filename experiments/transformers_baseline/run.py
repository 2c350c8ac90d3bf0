# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plain decoding against Transformers' `generate`, paired in one process.

  python -m experiments.transformers_baseline.run --output=result.json

Both run greedily in float32 on all cores, with the same dequantised weights and
the same prompt ids; every answer has exactly `--new_tokens` tokens. Calls
alternate, so that a slow minute of the machine falls on both.
"""

from collections.abc import Callable, Sequence
import json
import os
import pathlib
import statistics
import time

from absl import app, flags
import jax
import numpy as np

from experiments.transformers_baseline import torch_model
import specjax

MODEL = flags.DEFINE_string("model", "smollm2-135m-instruct-q4_1", "Name.")
LENGTHS = flags.DEFINE_list("prompt_tokens", ["16", "64", "256"], "Lengths.")
NEW_TOKENS = flags.DEFINE_integer("new_tokens", 64, "Tokens of each answer.")
REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Timed pairs a length.")
OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result.")

PASSAGE = """The lighthouse at the end of the harbour was built of grey stone in
the year the railway came. For a hundred winters its keeper climbed the ninety
steps at dusk, trimmed the lamp and wrote the weather into a book. On clear
nights the beam was seen from the islands, twenty miles away, and the fishermen
set their course by it. When the lamp became electric the keeper stayed on, to
paint the railings, to feed the cats and to answer the letters of children who
asked how bright a star would have to be to guide a ship. He answered each one
by hand, and to each letter he added a drawing of the tower in the rain.
"""

Run = Callable[[Sequence[int], int], list[int]]


def specjax_runner(model, tokenizer) -> Run:
  """Plain decoding in specjax: prompt ids, number of tokens -> new ids."""

  def run(ids, new_tokens):
    settings = specjax.Settings(max_new_tokens=new_tokens, ignore_eos=True)
    session = specjax.Session(
      model, tokenizer, specjax.Method(), settings, [list(ids)]
    )
    for _ in session.rounds():
      pass
    return session.results()[0].tokens.tolist()

  return run


def transformers_runner(model) -> Run:
  """The same with `LlamaForCausalLM.generate`."""
  import torch

  torch.set_num_threads(os.cpu_count() or 1)
  network = torch_model.from_specjax(model)

  def run(ids, new_tokens):
    prompt = torch.tensor([list(ids)])
    with torch.inference_mode():
      output = network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=new_tokens,
        do_sample=False,
      )
    return output[0, len(ids) :].tolist()

  return run


def _timed(run: Run, ids: Sequence[int], new_tokens: int):
  start = time.perf_counter()
  tokens = run(ids, new_tokens)
  return time.perf_counter() - start, tokens


def compare(
  ours: Run, theirs: Run, ids: Sequence[int], new_tokens: int
) -> dict:
  """Seconds of both over `--repetitions` alternating pairs, after a warm-up."""
  seconds: dict[str, list[float]] = {"specjax": [], "transformers": []}
  runs = {"specjax": ours, "transformers": theirs}
  tokens = {name: run(ids, new_tokens) for name, run in runs.items()}
  for _ in range(REPETITIONS.value):
    for name, run in runs.items():
      elapsed, again = _timed(run, ids, new_tokens)
      seconds[name].append(elapsed)
      if again != tokens[name]:
        raise ValueError(f"{name} gave other tokens when run again")
  equal = np.equal(tokens["specjax"], tokens["transformers"])
  median = {name: statistics.median(times) for name, times in seconds.items()}
  return {
    "prompt_tokens": len(ids),
    "new_tokens": new_tokens,
    "median_seconds": median,
    "ratio": median["transformers"] / median["specjax"],
    "equal": bool(equal.all()),
    "first_difference": None if equal.all() else int(np.argmin(equal)),
    "seconds": seconds,
  }


def _versions() -> dict[str, str]:
  import torch
  import transformers

  return {
    "jax": jax.__version__,
    "torch": torch.__version__,
    "transformers": transformers.__version__,
  }


def main(argv: Sequence[str]) -> None:
  del argv
  model, tokenizer = specjax.load(MODEL.value)
  ours, theirs = specjax_runner(model, tokenizer), transformers_runner(model)
  passage = tokenizer.encode(PASSAGE) * 8
  rows = []
  print("prompt  new  specjax  transformers  ratio  equal")
  for length in map(int, LENGTHS.value):
    row = compare(ours, theirs, passage[:length], NEW_TOKENS.value)
    rows.append(row)
    median = row["median_seconds"]
    print(
      f"{length:6d} {row['new_tokens']:4d} {median['specjax']:7.2f}s"
      f" {median['transformers']:12.2f}s {row['ratio']:6.2f}"
      f"  {row['equal'] or row['first_difference']}"
    )
  result = {
    "model": MODEL.value,
    "cores": os.cpu_count(),
    "versions": _versions(),
    "rows": rows,
  }
  if OUTPUT.value:
    pathlib.Path(OUTPUT.value).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
  app.run(main)
