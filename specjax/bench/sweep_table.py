# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Summaries as one tidy table: a row a setting, method and category."""

from collections.abc import Iterable, Mapping, Sequence
import csv
import io
from typing import Any

from specjax.bench import dotted_keys, measure

ALL = "all"  # the category of all prompts


def rows(
  values: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[dict[str, Any]]:
  """The rows of one setting: its values, method, category, then measures."""
  found = []
  every = {measure.PLAIN: summary["plain"], **summary["methods"]}
  for name, measures in every.items():
    parts = {ALL: measures, **measures.get("by_category", {})}
    for category, part in parts.items():
      names = {"method": name, "category": category}
      found.append({**_measures(part), **values, **names})
  return found


def write(keys: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
  """The rows as CSV; a measure that a row lacks is left empty there."""
  rows = list(rows)
  first = (*keys, "method", "category")
  found = dict.fromkeys((*first, *(key for row in rows for key in row)))
  # A measure may be None as a whole where others have its parts.
  whole = {key for key in found if any(x.startswith(f"{key}.") for x in found)}
  columns = [key for key in found if key in first or key not in whole]
  file = io.StringIO()
  writer = csv.DictWriter(file, columns, extrasaction="ignore")
  writer.writeheader()
  writer.writerows(rows)
  return file.getvalue()


def _measures(part: Mapping[str, Any]) -> dict[str, Any]:
  """Numbers, texts and truths by dotted key; an interval as low and high."""
  part = {key: part[key] for key in part if key != "by_category"}
  found = {}
  for key, value in dotted_keys.flat(part).items():
    if isinstance(value, Sequence) and not isinstance(value, str):
      if key.endswith("interval") and len(value) == 2:
        found |= {f"{key}.low": value[0], f"{key}.high": value[1]}
    else:
      found[key] = value
  return found
