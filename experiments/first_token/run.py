# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Seconds from process start to the first character of an answer.

  python -m experiments.first_token.run

Each process answers one prompt through `specjax.run`. The model is fetched
before; the first process finds no compiled program, the others do.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from specjax.models import sources

CONFIG = "configs/quickstart.py"
MODEL = "smollm2-135m-instruct-q4_1"
PROMPT = "Explain in two sentences why the sky is blue."


def seconds(cache: str) -> float:
  """One process with its compiled programs under `cache`."""
  command = [sys.executable, "-m", "specjax.run", f"--config={CONFIG}"]
  begin = time.perf_counter()
  with subprocess.Popen(
    [*command, f"--config.prompts={PROMPT}"],
    stdout=subprocess.PIPE,
    env={**os.environ, "SPECJAX_CACHE": cache},
  ) as process:
    assert process.stdout is not None
    first = process.stdout.read(1)
    spent = time.perf_counter() - begin
    process.stdout.read()
  if not first or process.returncode:
    raise RuntimeError(f"specjax.run ended with status {process.returncode}")
  return spent


def main() -> None:
  model = sources.resolve(MODEL).path
  with tempfile.TemporaryDirectory() as cache:
    # The fetched model and its record, but none of the compiled programs.
    folder = pathlib.Path(cache) / "models"
    folder.mkdir(mode=0o700)
    for file in model.parent.iterdir():
      if file.is_file():
        shutil.copy2(file, folder)
    for name in ("cold", "warm", "warm"):
      print(f"{name} {seconds(cache):.1f} s", flush=True)


if __name__ == "__main__":
  main()
