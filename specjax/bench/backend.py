# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Setting jax up for a run, and loading its target."""

import os
from typing import Any

import jax
from ml_collections import ConfigDict

from specjax import tokenizers
from specjax.models import sources, wheels


def set_up() -> None:
  """Keeps compiled programs for the next run, and float32 exact.

  Accelerators multiply float32 with fewer bits unless told otherwise, and then
  a block of another width gives other tokens.
  """
  # Programs that are loaded run: nobody else may have put them there.
  folder = wheels.own_folder(wheels.cache_folder().parent / "xla")
  jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
  jax.config.update("jax_default_matmul_precision", "highest")


def load(
  config: ConfigDict,
) -> tuple[Any, tokenizers.Tokenizer, sources.Source]:
  """The target, its tokenizer, and where it came from."""
  source = sources.resolve(config.target)
  model, tokenizer = sources.load(source, config.dtype)
  return model, tokenizer, source
