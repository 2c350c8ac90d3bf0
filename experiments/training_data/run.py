# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Does it matter whose answers a draft learns from, and what of them?

  python -m experiments.training_data.run --conversations=FILE \
    --answers=runs/answers --workdir=runs/data

trains a head and a draft model, each three times with equal steps and equally
many tokens of answers to questions in one order: the text of the recorded
answers, the text of the target's own answers, and the target's laws along its
own answers. Writes data.json: acceptance on held-out answers of the target. The
same command goes on where it was stopped; `--drafts` trains one of them alone.
"""

import argparse
import itertools
import json
import pathlib
from typing import Any

from specjax import data
from specjax.reports import report
from specjax.text import records
from train import run

CONFIG = "experiments/training_data/config.py"
ROWS = (("original", "text"), ("regenerated", "text"), ("regenerated", "laws"))
SHOWN = ("draft", "answers", "taught")
JUDGED = ("temperature_0", "temperature_1")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
  """Trains what is missing and shows the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--conversations", required=True)
  parser.add_argument("--answers", default="runs/answers")
  parser.add_argument("--workdir", default="runs/data")
  parser.add_argument("--drafts", nargs="+", default=["medusa", "draft_model"])
  flags = parser.parse_args(argv)
  folder, answers = pathlib.Path(flags.workdir), pathlib.Path(flags.answers)
  folder.mkdir(parents=True, exist_ok=True)
  write_texts(folder, pathlib.Path(flags.conversations), answers)
  rows = []
  for draft, (whose, taught) in itertools.product(flags.drafts, ROWS):
    own = folder / f"{draft}-{whose}-{taught}"
    config = f"{CONFIG}:{folder},{draft},{whose},{taught}"
    status = run.main([f"--config={config}", f"--workdir={own}"])
    if status or not (own / "summary.json").exists():  # Refused, or stopped.
      raise SystemExit(status)
    after = json.loads((own / "summary.json").read_text())["after"]
    rows.append(
      {
        "draft": draft,
        "answers": whose,
        "taught": taught,
        **{name: after[name]["alpha"] for name in JUDGED},
        **{f"{n}_interval": after[n]["alpha_interval"] for n in JUDGED},
      }
    )
    (folder / "data.json").write_text(json.dumps(rows, indent=2) + "\n")
  report.show_table(
    (*SHOWN, "alpha at 0", "alpha at 1"),
    [
      (*(row[n] for n in SHOWN), *(f"{row[n]:.3f}" for n in JUDGED))
      for row in rows
    ],
  )
  return rows


def write_texts(
  folder: pathlib.Path, conversations: pathlib.Path, answers: pathlib.Path
) -> None:
  """The same questions with both answers, in the order of the target's.

  Raises:
    SystemExit: the answers are to other conversations, or others than those
      that the folder was begun with.
  """
  recorded = dict(_first_answers(conversations))
  asked = [
    line
    for line in _lines(answers / "train" / "answers.jsonl")
    if line["turn"] == 0 and line["id"] in recorded
  ]
  if not asked:
    raise SystemExit(f"{answers} has no answer to {conversations}")
  held_out = _lines(answers / "validation" / "answers.jsonl")
  for name, lines in (
    ("regenerated", asked),
    ("validation", held_out),
    ("original", [recorded[line["id"]] for line in asked]),
  ):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path = folder / f"{name}.jsonl"
    if path.exists() and path.read_text() != text:
      raise SystemExit(f"{path} has other texts: name a new --workdir")
    half = folder / f"{name}.new"
    half.write_text(text)
    half.replace(path)


def _first_answers(path: pathlib.Path):
  """Conversations up to their first answer, by id."""
  for number, (_, record, where) in enumerate(data.read_records(path)):
    messages = records.messages(record, where) or []
    roles = [message["role"] for message in messages]
    if "assistant" in roles:
      end = roles.index("assistant") + 1
      name = records.name(record, number)
      yield name, {"id": name, "messages": messages[:end]}


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
  return [record for _, record, _ in data.read_records(path)]


if __name__ == "__main__":
  main()
