# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny model and config on disk, for tests of the command line."""

import json
import pathlib

from specjax.bench import configuration
from tests import checkpoint_files

WORDS = ("<s>", "</s>", *"abcdefghijklmnopqrstu", "ab")
# Its rounds have one width: each further one is a pass more to compile.
ONE_WIDTH = {"type": "heuristic", "widths": []}
METHODS = {
  "ngram_2": {"drafter": {"type": "ngram", "length": 2}},
  "ngram_10": {
    "drafter": {"type": "ngram", "length": 10, "max_n": 2},
    "policy": ONE_WIDTH,
  },
}


def write_model(
  path: pathlib.Path, words=WORDS, merges=("a b",), template=None
) -> pathlib.Path:
  """A random two-layer GGUF model that knows single letters."""
  config = checkpoint_files.tiny(tie_embeddings=False)
  metadata: dict = checkpoint_files.gguf_metadata(config) | {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": list(words),
    "tokenizer.ggml.token_type": [3, 3] + [1] * (len(words) - 2),
    "tokenizer.ggml.merges": list(merges),
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
  }
  if template is not None:
    metadata["tokenizer.chat_template"] = template
  tensors = checkpoint_files.random_tensors(config)
  return checkpoint_files.write_gguf(
    path, metadata, checkpoint_files.gguf_tensors(config, tensors)
  )


def write_config(path: pathlib.Path, model: pathlib.Path, **changes):
  """A config file that compares METHODS on three prompts."""
  values = {
    "target": str(model),
    "methods": METHODS,
    "prompts": ["abcabcab", "dd", "efgef"],
    "categories": ["copy", "copy", "other"],
    "max_new_tokens": 12,
    "runs": 2,
  } | changes
  text = json.dumps(json.dumps(values))
  path.write_text(
    "import json\nfrom ml_collections import ConfigDict\n\n\n"
    "def get_config(arg=''):\n"
    f"  return ConfigDict(json.loads({text}), allow_dotted_keys=True).lock()\n"
  )
  return path


def read_config(path: pathlib.Path, *overrides: str):
  return configuration.read(str(path), overrides)
