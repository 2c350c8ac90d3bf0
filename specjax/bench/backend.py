# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Setting jax up for a run, and loading its target."""

import gc
import os
import pathlib
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from specjax import sharding, tokenizers
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


def mesh(config: ConfigDict) -> Mesh | None:
  """The devices that a config names; None is a single one.

  Raises:
    ValueError: there are not as many.
  """
  return sharding.make_mesh(config.mesh.data, config.mesh.model)


def load(
  config: ConfigDict,
) -> tuple[Any, tokenizers.Tokenizer, sources.Source]:
  """The target, its tokenizer, and where it came from."""
  devices = mesh(config)
  source = sources.resolve(config.target)
  model, tokenizer = sources.load(
    source, config.dtype, config.quantization, devices
  )
  return model, tokenizer, source


def free_programs() -> None:
  """Drops compiled programs once they hold half the mappings there may be.

  A program keeps some tens of memory mappings, a comparison of three methods a
  few thousand. Linux allows 65,530 as a rule and ends who asks for more.
  """
  held, limit = _mappings()
  if held > limit // 2:
    jax.clear_caches()
    gc.collect()


def _mappings() -> tuple[int, int]:
  """Memory mappings that this process holds and may hold; 0, 0 if unknown."""
  try:
    held = pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
    limit = int(pathlib.Path("/proc/sys/vm/max_map_count").read_bytes())
  except OSError:  # Not Linux.
    return 0, 0
  return held, limit
