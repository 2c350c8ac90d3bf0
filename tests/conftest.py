# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of the test run.

Tests see one CPU device: width and invariance tests depend on it. A test that
needs a mesh starts a process of its own with as many devices as it wants.
"""

import gc
import os
import pathlib

import jax
import pytest

from specjax.bench import backend

DEFAULT_MODEL = "smollm2-135m-instruct-q4_1"


def _cache_folder() -> pathlib.Path:
  """Folder of compiled programs, kept from run to run."""
  cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
  own = os.environ.get("SPECJAX_CACHE") or pathlib.Path(cache) / "specjax"
  folder = pathlib.Path(own) / "xla"
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  return folder


def pytest_configure(config: pytest.Config) -> None:
  """Sets what all tests rely on, before any test module is imported."""
  del config
  # A silent [B] + [B, V] broadcast is nearly always a fault.
  jax.config.update("jax_numpy_rank_promotion", "raise")
  # The CPU's default, said aloud so that accelerators are held to it too.
  jax.config.update("jax_default_matmul_precision", "highest")
  jax.config.update("jax_compilation_cache_dir", str(_cache_folder()))
  # Small ones too: `_free_programs` has every module begin without any.
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture(scope="session")
def real_model_path() -> pathlib.Path:
  """The default model's GGUF file, fetched on first use (93 MB)."""
  from specjax.models import sources

  return sources.resolve(DEFAULT_MODEL).path


@pytest.fixture(scope="module", autouse=True)
def _free_programs():
  """Drops compiled programs after each test module.

  A program keeps some tens of memory mappings. One process that holds those of
  all modules reaches Linux' usual limit (65,530 mappings), and the next program
  to be loaded then ends it with a segmentation fault.
  """
  yield
  jax.clear_caches()
  gc.collect()


@pytest.fixture(autouse=True)
def _stay_below_the_limit():
  """The same within a module of many programs, such as the slow products."""
  yield
  backend.free_programs()
