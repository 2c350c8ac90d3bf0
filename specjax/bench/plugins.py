# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Things that a config names by `type`, and makes from its other keys.

A `type` is `package.module:Name`, a class or a function that makes the thing;
short names are abbreviations. The keys of its section follow from the
signature. What a config names is code that is run.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import importlib
import inspect
import types as python_types
import typing
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import spelling

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


def find(where: str, kind: Any, names: Mapping[str, str]) -> Callable[..., Any]:
  """What a `type` names.

  Args:
    where: the section's dotted key, for errors.
    kind: the `type`.
    names: short ones -> package.module:Name.

  Raises:
    ValueError: there is no such thing, or it fails while it is imported.
  """
  path = names.get(kind, kind)
  module, colon, name = str(path).partition(":")
  if not (colon and module and name):
    advice = spelling.suggestion(str(kind), names)
    raise ValueError(
      f"{where}.type is {kind!r}: {advice} (or name package.module:Class)"
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
    raise failure(f"{where}.type is {kind!r}", error) from error
  if not callable(found):
    raise ValueError(f"{where}.type is {kind!r}, which is no class or function")
  return found


def arguments(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
  """Arguments that can be given by name; others take what they default to."""
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


def keys(
  named: Mapping[str, inspect.Parameter], without: Sequence[str]
) -> dict[str, tuple[Any, tuple[type, ...]]]:
  """Keys of a section: name -> (default or ..., types), see `sections.Keys`.

  Args:
    named: the arguments.
    without: those that are not the config's to give. Nor are those whose
      default is nothing that a config could say.
  """
  found: dict[str, tuple[Any, tuple[type, ...]]] = {}
  for name, argument in named.items():
    if name in without:
      continue
    if argument.default is argument.empty:
      found[name] = ..., _types(argument.annotation)
    elif isinstance(argument.default, tuple(_VALUES)):
      found[name] = argument.default, _types(argument.annotation)
  return found


def build(
  where: str,
  function: Callable[..., Any],
  section: ConfigDict,
  provided: Mapping[str, Any],
  protocol: Any,
) -> Any:
  """The thing that a complete section describes.

  Args:
    where: the section's dotted key, for errors.
    function: makes it, see `find`.
    section: `type` and arguments.
    provided: arguments that are not the config's.
    protocol: what it must be.

  Raises:
    ValueError: it cannot be made, or lacks a member of its protocol.
  """
  given = {}
  for name in arguments(function):
    if name in provided:
      given[name] = provided[name]
    elif name in section:
      given[name] = section[name]
  what = f"{where} {section.type!r}"
  try:
    made = function(**given)
  except Exception as error:  # Whatever the code of a plug-in raises.
    raise failure(what, error) from error
  _check(what, made, protocol)
  return made


def failure(what: str, error: Exception) -> ValueError:
  """What a plug-in raised, in one line."""
  text = " ".join(str(error).split())
  if not isinstance(error, ValueError | OSError):
    text = f"{type(error).__name__}: {text}"
  return ValueError(f"{what}: {text}")


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


def _check(what: str, made: Any, protocol: Any) -> None:
  """Refuses what lacks a member, or could not pass through jit."""
  import jax
  import numpy as np

  missing = [
    name
    for name in vars(protocol)
    if not name.startswith("_") and not hasattr(made, name)
  ]
  kind = type(made).__name__
  if missing:
    raise ValueError(
      f"{what}: {kind} has no {', '.join(missing)}: see "
      f"{protocol.__module__}.{protocol.__name__}"
    )
  numbers = (jax.Array, np.ndarray, np.generic, bool, int, float)
  leaves = jax.tree.leaves(made)
  if not all(isinstance(leaf, numbers) for leaf in leaves):
    raise ValueError(
      f"{what}: {kind} is no pytree of arrays: derive it from "
      "flax.struct.PyTreeNode, or register it with "
      "jax.tree_util.register_static"
    )
  is_key = lambda x: jax.dtypes.issubdtype(x, jax.dtypes.prng_key)
  if any(is_key(getattr(leaf, "dtype", None)) for leaf in leaves):
    raise ValueError(
      f"{what}: {kind} holds a random key: take randomness from the streams of "
      "the round, so that an answer depends on its seed alone"
    )
