# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proofs as a table: the exact law of each rule, and what broken ones show.

A folder gets config.json and exactness.json:

  {"rules": [{"verifier", "drafter", "structure", "rounds", "tv"}, ...],
   "mutants": [{"name", "kind", "tv", "caught"}, ...]}

`rounds` is how many the tokens looked at span at least, `tv` the total
variation between the law of decoding and that of plain sampling.
"""

from collections.abc import Iterator
import itertools
import os
from typing import Any

from ml_collections import ConfigDict

from specjax import exact
from specjax.bench import configuration, parts, proof_schema, storage, workdir
from specjax.reports import report
from specjax.testing import cases, mutants

RESULT = "exactness.json"
TOLERANCE = 1e-6
INDEPENDENT = "independent"  # of `cases.KINDS`


def run(
  config: ConfigDict,
  path: str | os.PathLike[str],
  *,
  overwrite: bool = False,
) -> None:
  """Proves every rule, then shows that the broken ones are found out.

  Args:
    config: of proofs, checked.
    path: of the workdir.
    overwrite: replace the result of another config.

  Raises:
    ValueError: a rule that is not lossless, or a kind of drafts that there is
      not; a folder of another run.
    RuntimeError: a law that is off, or a broken rule that passes.
  """
  rules = _rules(config)
  root = storage.locate(path)
  plain = configuration.plain(config)
  workdir.check(root, plain, overwrite=overwrite)
  storage.make_folder(root)
  workdir.write_json(root / workdir.CONFIG, plain)
  found: dict[str, list[dict[str, Any]]] = {"rules": [], "mutants": []}
  for line in _proofs(config, rules):
    found["rules"].append(line)
    report.say(", ".join(_cells(line)))
  for mutant in mutants.measure() if config.exactness.mutants else ():
    found["mutants"].append(mutant._asdict())
    report.say(f"{mutant.name}: {mutant.tv:.1e}")
  workdir.write_json(root / RESULT, found)
  for name, lines in found.items():
    if lines:
      report.say(name)
      report.show_table([*lines[0]], [_cells(line) for line in lines])
  _judge(found)
  report.say(f"{root / RESULT}")


def _rules(config: ConfigDict) -> dict[str, Any]:
  """The rules by name, each able to do what is asked of it."""
  made = {}
  for name, section in config.exactness.rules.items():
    where = f"{proof_schema.KEY}.rules.{name}"
    rule = parts.build(f"{where}.verifier", "verifier", section.verifier, {})
    if not rule.lossless:
      raise ValueError(f"{where} is not lossless: there is nothing to prove")
    for kind in section.drafters:
      if kind not in cases.KINDS:
        raise ValueError(
          f"{where}.drafters holds {kind!r}: use {', '.join(cases.KINDS)}"
        )
    for shape in section.structures:
      parents = config.exactness.structures[shape].parents
      if [*parents] != [*range(len(parents))]:
        _check_tree(where, rule, shape, section.drafters)
    made[name] = rule
  return made


def _check_tree(where, rule, shape, kinds) -> None:
  """Refuses trees that a rule is not made for: it would be off on them."""
  if rule.chain_only:
    raise ValueError(
      f"{where}.structures holds {shape!r}, a tree: the rule takes chains only"
    )
  other = [kind for kind in kinds if kind != INDEPENDENT]
  if getattr(rule, "independent_siblings", False) and other:
    raise ValueError(
      f"{where}.drafters holds {other[0]!r}: of siblings, as in {shape!r}, the "
      f"rule takes {INDEPENDENT!r} alone"
    )


def _proofs(config: ConfigDict, rules) -> Iterator[dict[str, Any]]:
  """One line a rule, structure and kind of draft."""
  section = config.exactness
  target, other = (
    cases.random(seed, section.vocab, section.memory) for seed in (1, 2)
  )
  for name, rule in rules.items():
    for shape in section.rules[name].structures:
      parents = section.structures[shape].parents
      depths = section.structures[shape].depths
      tokens = max(depths) + 2
      wanted = exact.joint(target, tokens)
      for kind in section.rules[name].drafters:
        drafts = cases.KINDS[kind](other)
        law = exact.law(rule, target, drafts, depths, tokens, parents)
        yield {
          "verifier": name,
          "drafter": kind,
          "structure": shape,
          "rounds": _rounds(depths, tokens),
          "tv": exact.total_variation(law, wanted),
        }


def _rounds(depths, tokens) -> int:
  """Rounds that it takes where everything is kept, depth + 1 tokens each."""
  emitted = itertools.accumulate(depth + 1 for depth in itertools.cycle(depths))
  return 1 + next(n for n, sum_ in enumerate(emitted) if sum_ >= tokens)


def _cells(line: dict[str, Any]) -> list[str]:
  return [
    f"{value:.1e}" if isinstance(value, float) else str(value)
    for value in line.values()
  ]


def _judge(found: dict[str, list[dict[str, Any]]]) -> None:
  for line in found["rules"]:
    if not line["tv"] <= TOLERANCE:
      raise RuntimeError(
        f"{line['verifier']} is off by {line['tv']:.1e} with {line['drafter']} "
        f"drafts on {line['structure']}"
      )
  for line in found["mutants"]:
    if not line["caught"]:
      raise RuntimeError(f"{line['name']} is not caught: {line['tv']:.1e}")
