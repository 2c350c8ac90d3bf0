# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafters, verifiers and policies by name: the project's own and plug-ins.

A part's `type` is `package.module:Name`; the short names below are nothing but
abbreviations. The name is a class, or a function that makes the part, and the
other keys of the section are its arguments. A few arguments come from the run
and are never keys:

  target    the loaded target
  drafter   for verifiers and policies: the method's drafter
  batch_size  for policies: rows of a batch
  tokenizer, draft_tokenizer
            for drafters: the target's and the model's; only a drafter that
            asks for the latter may have a model of another vocabulary
  model     for drafters: the config names a model, the part gets it loaded, in
            the `quantization` that the section asks for

An argument of a drafter that is annotated as a `types.Drafter` is a section of
its own, with a `type`: so a cascade is made of any two drafters. One annotated
as `types.Drafter | None` with a default of None may be left out: its `type` is
None then.

A part is code that is run: use only configs you trust.
"""

from collections.abc import Iterator, Mapping
import inspect
import typing
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import plugins

NAMES: Mapping[str, Mapping[str, str]] = {
  "drafter": {
    "empty": "specjax.drafters.empty:Empty",
    "ngram": "specjax.drafters.ngram:NGram",
    "suffix": "specjax.drafters.suffix:suffix",
    "lookahead": "specjax.drafters.lookahead:Lookahead",
    "early_exit": "specjax.drafters.early_exit:early_exit",
    "assisted_model": "specjax.drafters.assisted_model:assisted_model",
    "cascade": "specjax.drafters.cascade:cascade",
    "cross_vocabulary": ("specjax.drafters.cross_vocabulary:cross_vocabulary"),
    "synthetic": "specjax.drafters.synthetic:synthetic",
    "medusa": "specjax.drafters.medusa:medusa",
    "chained": "specjax.drafters.chained:chained",
    "eagle": "specjax.drafters.eagle:eagle",
    "block_parallel": "specjax.drafters.block_parallel:block_parallel",
    "draft_model": "specjax.drafters.draft_model:DraftModel",
    "draft_tree": "specjax.drafters.tree_draft_model:static_tree",
    "dynamic_tree": "specjax.drafters.tree_draft_model:dynamic_tree",
  },
  "verifier": {
    "coupled": "specjax.verifiers.coupled:Coupled",
    "rejection": "specjax.verifiers.rejection:Rejection",
    "block": "specjax.verifiers.block:Block",
    "multi_path": "specjax.verifiers.multi_path:MultiPath",
    "multi_candidate": "specjax.verifiers.multi_candidate:MultiCandidate",
    "k_seq": "specjax.verifiers.k_seq:KSeq",
    "traversal": "specjax.verifiers.traversal:Traversal",
    "typical": "specjax.verifiers.lossy:Typical",
    "lenient": "specjax.verifiers.lossy:Lenient",
    "threshold": "specjax.verifiers.lossy:Threshold",
  },
  "policy": {
    "fixed": "specjax.policies.policy:fixed",
    "heuristic": "specjax.policies.policy:heuristic",
    "confidence": "specjax.policies.policy:confidence",
    "entropy": "specjax.policies.policy:entropy",
    "expected_gain": "specjax.policies.cost:expected_gain",
    "pausing": "specjax.policies.cost:pausing",
  },
}
_PROVIDED = {
  "drafter": ("target", "tokenizer", "draft_tokenizer"),
  "verifier": ("target", "drafter"),
  "policy": ("target", "drafter", "batch_size"),
}


def keys(
  where: str, part: str, kind: Any
) -> dict[str, tuple[Any, tuple[type, ...]]]:
  """Keys of a part's section: name -> (default or ..., types).

  Args:
    where: the section's dotted key, for errors.
    part: "drafter", "verifier" or "policy".
    kind: its `type`.

  Raises:
    ValueError: there is no such part, or it fails while it is imported.
  """
  arguments = _arguments(where, part, kind)
  found = {"type": (..., (str,))}
  found |= plugins.keys(arguments, without=_PROVIDED[part])
  if part == "drafter":
    for name, optional in nested(where, kind).items():
      default = ConfigDict({"type": None}) if optional else ...
      found[name] = default, (object,)
    if "model" in arguments:
      found |= {"model": (..., (str,)), "quantization": ("none", (str,))}
  return found


def needs(where: str, part: str, kind: str) -> set[str]:
  """Which of the arguments that are no plain values a part asks for."""
  given = {*_PROVIDED[part]}
  if part == "drafter":
    given |= {"model", *nested(where, kind)}
  return {*_arguments(where, part, kind)} & given


def nested(where: str, kind: Any) -> dict[str, bool]:
  """Arguments of a drafter that are drafters: sections within its own.

  Returns:
    By name, whether it may be left out.
  """
  from specjax import types

  return {
    name: argument.default is None
    for name, argument in _arguments(where, "drafter", kind).items()
    if types.Drafter
    in (argument.annotation, *typing.get_args(argument.annotation))
  }


def sections(
  where: str, section: ConfigDict
) -> Iterator[tuple[str, ConfigDict]]:
  """A drafter's complete section and those within it, with dotted keys."""
  yield where, section
  for name in nested(where, section.type):
    if section[name].type is not None:
      yield from sections(f"{where}.{name}", section[name])


def build(
  where: str, part: str, section: ConfigDict, provided: Mapping[str, Any]
) -> Any:
  """The part that a complete section describes.

  Args:
    where: the section's dotted key, for errors.
    part: "drafter", "verifier" or "policy".
    section: `type` and arguments.
    provided: what the run has by name, all that the part `needs`.

  Raises:
    ValueError: it cannot be made, or lacks a member of its protocol.
  """
  from specjax import types

  function = plugins.find(where, section.type, NAMES[part])
  protocol = getattr(types, part.capitalize())
  return plugins.build(where, function, section, provided, protocol)


def _arguments(
  where: str, part: str, kind: str
) -> dict[str, inspect.Parameter]:
  return plugins.arguments(plugins.find(where, kind, NAMES[part]))
