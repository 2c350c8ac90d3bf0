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

A part is code that is run: use only configs you trust.
"""

from collections.abc import Callable, Mapping
import functools
import importlib
import inspect
import types as python_types
import typing
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import spelling

NAMES: Mapping[str, Mapping[str, str]] = {
  "drafter": {
    "empty": "specjax.drafters.empty:Empty",
    "ngram": "specjax.drafters.ngram:NGram",
    "suffix": "specjax.drafters.suffix:suffix",
    "lookahead": "specjax.drafters.lookahead:Lookahead",
    "early_exit": "specjax.drafters.early_exit:early_exit",
    "assisted_model": "specjax.drafters.assisted_model:assisted_model",
    "cascade": "specjax.drafters.cascade:lookup_or_model",
    "cascade_early_exit": "specjax.drafters.cascade:lookup_or_early_exit",
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
    "multi_path": "specjax.verifiers.block:MultiPath",
    "multi_candidate": "specjax.verifiers.multi_candidate:MultiCandidate",
    "k_seq": "specjax.verifiers.multi_candidate:KSeq",
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
# What a config can hold, by the annotation of an argument.
_VALUES: Mapping[Any, tuple[type, ...]] = {
  bool: (bool,),
  int: (int,),
  float: (int, float),
  str: (str,),
  tuple: (tuple, list),
  type(None): (type(None),),
}
_ANYTHING = (object,)


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
  found: dict[str, tuple[Any, tuple[type, ...]]] = {"type": (..., (str,))}
  for name, argument in _arguments(where, part, kind).items():
    if name in _PROVIDED[part]:
      continue
    if part == "drafter" and name == "model":
      found |= {"model": (..., (str,)), "quantization": ("none", (str,))}
    elif argument.default is argument.empty:
      found[name] = ..., _types(argument.annotation)
    elif isinstance(argument.default, tuple(_VALUES)):
      found[name] = argument.default, _types(argument.annotation)
  return found


def needs(where: str, part: str, kind: str) -> set[str]:
  """Which of the arguments that come from the run a part asks for."""
  given = *_PROVIDED[part], *(["model"] if part == "drafter" else [])
  return {*_arguments(where, part, kind)} & {*given}


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
  arguments = {}
  for name in _arguments(where, part, section.type):
    if name in provided:
      arguments[name] = provided[name]
    elif name in section:
      arguments[name] = section[name]
  try:
    made = _constructor(where, part, section.type)(**arguments)
  except Exception as error:  # Whatever the code of a plug-in raises.
    raise _failure(f"{where} {section.type!r}", error) from error
  _check(f"{where} {section.type!r}", part, made)
  return made


def _arguments(
  where: str, part: str, kind: str
) -> dict[str, inspect.Parameter]:
  """Arguments that can be given by name; others take what they default to."""
  function = _constructor(where, part, kind)
  try:
    signature = inspect.signature(function, eval_str=True)
  except NameError:  # An annotation for type checkers alone.
    signature = inspect.signature(function)
  named = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
  )
  return {
    name: argument
    for name, argument in signature.parameters.items()
    if argument.kind in named
  }


def _constructor(where: str, part: str, kind: Any) -> Callable[..., Any]:
  path = NAMES[part].get(kind, kind)
  module, colon, name = str(path).partition(":")
  if not (colon and module and name):
    advice = spelling.suggestion(str(kind), NAMES[part])
    raise ValueError(
      f"{where}.type is {kind!r}: {advice}; or name package.module:Class"
    )
  try:
    found = functools.reduce(getattr, name.split("."), _import(module))
  except AttributeError:
    advice = spelling.suggestion(name, _public(_import(module)))
    raise ValueError(
      f"{where}.type is {kind!r}: {module} has no {name!r}, {advice}"
    ) from None
  except ModuleNotFoundError as error:
    raise ValueError(
      f"{where}.type is {kind!r}: {error}; start in the folder that holds it, "
      "or install it"
    ) from error
  except Exception as error:  # Whatever the code of a plug-in raises.
    raise _failure(f"{where}.type is {kind!r}", error) from error
  if not callable(found):
    raise ValueError(f"{where}.type is {kind!r}, which is no class or function")
  return found


def _import(module: str) -> Any:
  try:
    return importlib.import_module(module)
  except AttributeError as error:  # Not to be taken for a missing name.
    raise ImportError(f"{type(error).__name__}: {error}") from error


def _public(module: Any) -> list[str]:
  """What a module defines itself."""
  return [
    name
    for name, value in vars(module).items()
    if getattr(value, "__module__", None) == module.__name__ and name[0] != "_"
  ]


def _types(annotation: Any) -> tuple[type, ...]:
  """Types of a config's value for an annotated argument."""
  origin = typing.get_origin(annotation)
  if origin in (typing.Union, python_types.UnionType):
    members = map(_types, typing.get_args(annotation))
    known = [member for member in members if member != _ANYTHING]
    return sum(known, ()) or _ANYTHING
  return _VALUES.get(origin or annotation, _ANYTHING)


def _check(what: str, part: str, made: Any) -> None:
  """Refuses what the decoding loop could not use."""
  import jax
  import numpy as np

  from specjax import types

  protocol = getattr(types, part.capitalize())
  missing = [
    name
    for name in vars(protocol)
    if not name.startswith("_") and not hasattr(made, name)
  ]
  kind = type(made).__name__
  if missing:
    raise ValueError(
      f"{what}: {kind} has no {', '.join(missing)}: see "
      f"specjax.types.{protocol.__name__}"
    )
  numbers = (jax.Array, np.ndarray, np.generic, bool, int, float)
  if not all(isinstance(leaf, numbers) for leaf in jax.tree.leaves(made)):
    raise ValueError(
      f"{what}: {kind} is no pytree of arrays: derive it from "
      "flax.struct.PyTreeNode, or register it with "
      "jax.tree_util.register_static"
    )


def _failure(what: str, error: Exception) -> ValueError:
  text = " ".join(str(error).split())
  if not isinstance(error, ValueError):
    text = f"{type(error).__name__}: {text}"
  return ValueError(f"{what}: {text}")
