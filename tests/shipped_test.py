# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The drafters in the repository: what they weigh, and what is said of them.

`python tests/shipped_test.py --write` renews the table of their README from
their metrics.
"""

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
HEADINGS = (
  "drafter",
  "own parameters",
  "MB",
  "judged on",
  "first token kept, before",
  "after",
  "without loops",
  "alpha (95 %)",
  "tau (95 %)",
)
MOST_BYTES = 30_000_000
LENGTH = 3
MAKE = {
  "draft_model": lambda target, folder: draft_model.DraftModel(
    specjax.load(folder)[0], LENGTH
  ),
  "eagle3": lambda target, folder: eagle.eagle(target, folder, LENGTH),
  "early_exit": lambda target, folder: early_exit.early_exit(
    target, 2, LENGTH, folder
  ),
  "medusa": lambda target, folder: medusa.medusa(target, folder, LENGTH),
}
QUESTION = "Explain in a few sentences why the sky is blue."


def folders() -> list[pathlib.Path]:
  return sorted(path.parent for path in SHIPPED.glob("*/config.json"))


def table() -> str:
  rows = [HEADINGS, ["---"] * len(HEADINGS), *map(_row, folders())]
  return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def _row(folder: pathlib.Path) -> list[str]:
  """Greedy acceptance before and after training."""
  found = json.loads((folder / "metrics.json").read_text())
  greedy = found["measures"]["temperature_0"]
  before, after = greedy["before"]["all"], greedy["after"]["all"]
  fresh = greedy["after"]["without_degenerate"]
  path = folder / "model.safetensors"
  return [
    f"[{folder.name}]({folder.name})",
    f"{_own(path) / 1e6:.2f} M",
    f"{path.stat().st_size / 1e6:.1f}",
    f"{found['loss_tokens']:,} tokens",
    f"{before['conditional'][0]:.3f}",
    f"**{after['conditional'][0]:.3f}**",
    f"{fresh['conditional'][0]:.3f}",
    _interval(after, "alpha", 3),
    _interval(after, "tau", 2),
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
  """The README with its table as the metrics have it."""
  start, rest = text.split(BEGIN)
  return start + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


class ShippedTest(absltest.TestCase):
  def test_each_has_its_metrics_and_they_are_small(self):
    self.assertNotEmpty(folders())
    for folder in folders():
      names = {path.name for path in folder.iterdir()}
      self.assertEqual(
        names, {"config.json", "metrics.json", "model.safetensors"}
      )
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    self.assertLess(sum(path.stat().st_size for path in files), MOST_BYTES)

  def test_the_table_is_that_of_the_metrics(self):
    text = README.read_text()
    self.assertEqual(text, renewed(text), "run it with --write")

  def test_weights_are_finite(self):
    for folder in folders():
      for name, x in _tensors(folder / "model.safetensors").items():
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
