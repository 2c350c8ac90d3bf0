# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The drafters in the repository: what they weigh, and what is said of them.

`python tests/shipped_test.py --write` renews the tables of their README from
their metrics.
"""

from collections.abc import Iterable
import json
import pathlib
import sys
from typing import Any

from absl.testing import absltest
import pytest
import safetensors.numpy

import specjax
from specjax.drafters import draft_model, eagle, early_exit, medusa

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "configs" / "drafters" / "smollm2"
README = SHIPPED / "README.md"
BEGIN = "<!-- tests/shipped_test.py makes what follows -->\n"
END = "<!-- tests/shipped_test.py made this -->\n"
WEIGHTS, HELD_OUT = "model.safetensors", "metrics.json"
BENCH = "spec_bench_small.json"
SIZES = ("drafter", "own parameters", "MB", "before", "after", "without loops")
RATES = (
  "drafter",
  "alpha before",
  "alpha (95 %)",
  "without loops",
  "tau before",
  "tau (95 %)",
  "without loops",
)
MOST_BYTES = 30_000_000
LENGTH = 3
MAKE = {
  "draft_model": lambda target, folder: draft_model.DraftModel(
    specjax.load(folder)[0], LENGTH
  ),
  "eagle3": lambda target, folder: eagle.eagle(target, folder, LENGTH),
  "early_exit": lambda target, folder: early_exit.early_exit(
    target, 0, LENGTH, folder
  ),
  "medusa": lambda target, folder: medusa.medusa(target, folder, LENGTH),
}
QUESTION = (
  "Tom has 3 boxes with 12 pencils each and gives away 7 pencils. How many "
  "pencils are left?"
)


def folders() -> list[pathlib.Path]:
  return sorted(path.parent for path in SHIPPED.glob("*/config.json"))


def tables() -> str:
  """Sizes and first tokens, then alpha and tau on both kinds of answers."""
  found = folders()
  tokens = lambda name: f"{_read(found[0], name)['loss_tokens']:,} tokens"
  parts = (
    "First drafted token kept, held-out conversations:",
    _table(SIZES, map(_sizes, found)),
    f"Three drafted tokens, held-out conversations ({tokens(HELD_OUT)}):",
    _table(RATES, (_rates(folder, HELD_OUT) for folder in found)),
    f"The same on `spec_bench_small` ({tokens(BENCH)}):",
    _table(RATES, (_rates(folder, BENCH) for folder in found)),
  )
  return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _table(headings: tuple[str, ...], rows: Iterable[list[str]]) -> str:
  lines = [headings, ["---"] * len(headings), *rows]
  return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _read(folder: pathlib.Path, name: str) -> dict[str, Any]:
  return json.loads((folder / name).read_text())


def _greedy(folder: pathlib.Path, name: str) -> list[dict[str, Any]]:
  """Greedy measures before and after training, and after without loops."""
  found = _read(folder, name)["measures"]["temperature_0"]
  after = found["after"]
  return [found["before"]["all"], after["all"], after["without_degenerate"]]


def _name(folder: pathlib.Path) -> str:
  return f"[{folder.name}]({folder.name})"


def _sizes(folder: pathlib.Path) -> list[str]:
  path = folder / WEIGHTS
  first = [f"{x['conditional'][0]:.3f}" for x in _greedy(folder, HELD_OUT)]
  size = path.stat().st_size / 1e6
  return [_name(folder), f"{_own(path) / 1e6:.2f} M", f"{size:.1f}", *first]


def _rates(folder: pathlib.Path, name: str) -> list[str]:
  before, after, fresh = _greedy(folder, name)
  return [
    _name(folder),
    f"{before['alpha']:.3f}",
    _interval(after, "alpha", 3),
    _interval(fresh, "alpha", 3),
    f"{before['tau']:.2f}",
    _interval(after, "tau", 2),
    _interval(fresh, "tau", 2),
  ]


def _own(path: pathlib.Path) -> int:
  """Weights in a file; the map of a vocabulary is none."""
  return sum(x.size for x in _tensors(path).values() if x.dtype.kind == "f")


def _tensors(path: pathlib.Path) -> dict[str, Any]:
  return safetensors.numpy.load_file(path)


def _interval(found: Any, name: str, digits: int) -> str:
  low, high = found[f"{name}_interval"]
  value = found[name]
  return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def renewed(text: str) -> str:
  """The README with its tables as the metrics have them."""
  start, rest = text.split(BEGIN)
  return start + BEGIN + "\n" + tables() + "\n" + END + rest.split(END)[1]


class ShippedTest(absltest.TestCase):
  def test_each_has_its_metrics_and_they_are_small(self):
    self.assertNotEmpty(folders())
    for folder in folders():
      names = {path.name for path in folder.iterdir()}
      self.assertEqual(names, {"config.json", WEIGHTS, HELD_OUT, BENCH})
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    self.assertLess(sum(path.stat().st_size for path in files), MOST_BYTES)

  def test_the_tables_are_those_of_the_metrics(self):
    text = README.read_text()
    self.assertEqual(text, renewed(text), "run it with --write")

  def test_weights_are_finite(self):
    for folder in folders():
      for name, x in _tensors(folder / WEIGHTS).items():
        bad = (x != x) | (abs(x) == float("inf"))
        self.assertFalse(bad.any(), f"{folder.name}: {name}")


class DecodingTest(absltest.TestCase):
  @pytest.fixture(autouse=True)
  def _find(self, real_model_path):
    self.target, self.tokenizer = specjax.load(str(real_model_path))

  @pytest.mark.slow
  def test_each_drafts_what_the_target_says(self):
    answer = lambda **method: specjax.generate(
      self.target, self.tokenizer, QUESTION, max_new_tokens=64, **method
    )[0]
    plain = answer()
    for folder in folders():
      drafter = MAKE[folder.name](self.target, str(folder))
      found = answer(drafter=drafter)
      self.assertEqual(found.tokens.tolist(), plain.tokens.tolist())
      # Untrained, they save one round in fifty.
      self.assertLess(len(found.emitted), len(plain.tokens) / 1.1, folder.name)


if __name__ == "__main__":
  if "--write" in sys.argv:
    README.write_text(renewed(README.read_text()))
  else:
    absltest.main()
