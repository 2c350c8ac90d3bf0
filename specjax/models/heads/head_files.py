# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders with draft heads: what all layouts share.

A folder has a config.json and one safetensors file. Which tensors there must
be, and in which shape, follows from the configuration; a file that differs is
refused before a tensor is read. A map of a reduced vocabulary is a tensor too:
without it the head's columns would be taken for other tokens.

Axis letters: D the target's width, Q columns of an own output matrix,
V vocabulary.
"""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sharding, types
from specjax.models import (
  huggingface,
  parameters,
  safetensors_header,
  sources,
  weights,
)
from specjax.models.heads import head as heads_lib
from specjax.text import untrusted

Path = tuple[str, ...]
_Head = TypeVar("_Head", bound=heads_lib.Head)

SINGLE = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class Folder:
  """A folder whose configuration was read.

  Attributes:
    path: on this machine.
    raw: its config.json.
  """

  path: pathlib.Path
  raw: Mapping[str, Any]

  @property
  def name(self) -> str:
    return self.path.name

  def tensors(
    self, file: str = SINGLE, integers: tuple[str, ...] = ()
  ) -> dict[str, weights.Stored]:
    """Where the tensors of a file lie.

    Raises:
      ValueError: there is only a pickle, or the file is damaged.
      FileNotFoundError: there is none.
    """
    path = self.path / file
    if not path.is_file():
      for other in sorted(self.path.iterdir()):
        if other.suffix in huggingface.PICKLES:
          raise ValueError(
            f"{other.name} is a pickle, which could run code and is never "
            f"read: convert the heads to {file}"
          )
      raise FileNotFoundError(f"{path} is missing: name a folder with heads")
    return safetensors_header.read(path, integers=integers)


def open_folder(name: str | os.PathLike[str]) -> Folder:
  """A folder by its path, or fetched from the hub.

  Raises:
    FileNotFoundError: there is no such folder, or it has no config.json.
    ValueError: not a folder, or its config.json is malformed.
  """
  label = os.fspath(name)
  path = pathlib.Path(os.path.expanduser(label))
  # Else it would be called a model that is missing, or taken for a preset.
  if not (":" in label or (label and path.exists())):
    raise FileNotFoundError(
      f"heads or adapter {label!r}: there is no such folder; name one, or "
      "hf:owner/name@revision"
    )
  source = sources.resolve(name)
  if source.kind != "folder":
    raise ValueError(
      f"heads {label!r} are not a folder with config.json and "
      "safetensors: name one"
    )
  config = source.path / "config.json"
  if not config.is_file():
    raise FileNotFoundError(f"{config} is missing: name a folder with heads")
  return Folder(source.path, untrusted.read_object(config))


def read_head(
  kind: type[_Head],
  config: Any,
  tensors: Mapping[str, weights.Stored],
  names: Mapping[Path, str],
  folder: Folder,
  target: types.Model,
) -> _Head:
  """The head whose parameters are tensors of these names, in the target's type.

  Args:
    kind: of head.
    config: its sizes.
    tensors: all that the file holds; matrices are [outputs, inputs].
    names: tensor of each parameter; those that are not there are zeros.
    folder: for errors.
    target: the model that is drafted for.
  """
  shapes = jax.eval_shape(lambda: kind.init(config, jax.random.key(0)).params)
  leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
  paths = [tuple(key.key for key in keys) for keys, _ in leaves]
  wanted = {names[path] for path in paths if path in names}
  parameters.check_names(wanted, set(tensors), folder.name)
  dtype = np.dtype(embedding_of(target).dtype)
  params = []
  for path, (_, leaf) in zip(paths, leaves):
    if path not in names:
      params.append(jnp.zeros(leaf.shape, dtype))
      continue
    stored, is_matrix = tensors[names[path]], path[-1] == "kernel"
    wanted = leaf.shape[::-1] if is_matrix else leaf.shape
    what = f"{folder.name}: tensor {names[path]}"
    if stored.shape != wanted:
      raise ValueError(
        f"{what} has shape {stored.shape}, the configuration asks for {wanted}"
      )
    array = weights.read_tensor(stored, dtype, transpose=is_matrix, label=what)
    params.append(jnp.asarray(array))
  return kind(jax.tree.unflatten(tree, params), None, config)


def embedding_of(target: types.Model) -> jax.ShapeDtypeStruct:
  """Shape [B, D] and type of the target's embedding of a token a row."""
  tokens = jax.ShapeDtypeStruct((fewest_rows(target),), jnp.int32)
  return jax.eval_shape(target.embed, tokens)


def fewest_rows(target: types.Model) -> int:
  """B of the smallest batch that the target's mesh can split."""
  rules = sharding.rules_of(target)
  return 1 if rules is None else rules.mesh.shape[sharding.DATA]


def check_width(width: int, target: types.Model, folder: Folder) -> None:
  """Refuses heads of a target of another width."""
  own = embedding_of(target).shape[-1]
  if width != own:
    raise ValueError(
      f"{folder.name} has heads for a model of width {width}, the target's is "
      f"{own}: use heads that were trained for it"
    )


def columns(
  target: types.Model, size: int, ids: np.ndarray | None, folder: Folder
) -> jax.Array | None:
  """`Head.columns` of an own output matrix.

  Args:
    target: whose ids they are.
    size: Q.
    ids: [Q] the id that each column stands for; None: column i is id i.
    folder: for errors.

  Raises:
    ValueError: fewer columns than ids and no map, or a map that is none.
  """
  known, vocab = target.num_tokens, target.vocab_size
  if ids is None:
    if size < known:
      raise ValueError(
        f"{folder.name} drafts {size} of the target's {known} tokens and does "
        "not say which: get the file with its map (d2t or token_map)"
      )
    if size == vocab == known:
      return None
    ids = np.arange(size)
  elif len(ids) != size or len(np.unique(ids)) != size:
    raise ValueError(
      f"{folder.name}: the map of the reduced vocabulary does not name {size} "
      "different tokens: fetch the file again"
    )
  elif ids.min() < 0 or ids.max() >= max(vocab, known):
    raise ValueError(
      f"{folder.name}: the map of the reduced vocabulary names token "
      f"{int(ids[(ids < 0) | (ids >= vocab)][0])}, the target's ids end at "
      f"{vocab - 1}: use heads that were trained for it"
    )
  found = np.full(vocab, -1, np.int32)
  inside = ids < known
  found[ids[inside]] = np.arange(size, dtype=np.int32)[inside]
  return jnp.asarray(found)


def read_integers(stored: weights.Stored, label: str) -> np.ndarray:
  """A vector of whole numbers, int64."""
  return weights.read_tensor(
    stored, np.dtype(np.int64), transpose=False, label=label
  )
