# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From the tensors of a file to the parameters of a decoder.

A checkpoint format gives its tensors by name (`weights.Stored`) and a table of
names; which there must be, and in which shape, follows from the configuration.
A checkpoint that differs is refused as a whole, before a tensor is read.
"""

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any

from jax.sharding import Mesh
import numpy as np

from specjax.models import int8, layout, placement, weights
from specjax.models.transformer import TransformerConfig

Path = layout.Path


@dataclasses.dataclass(frozen=True)
class Fused:
  """Query, key and value in one stored tensor, each of as many heads.

  Attributes:
    name: of the tensor.
    by_head: its rows are query, key and value of one head after the other; else
      all of query, all of key, all of value.
  """

  name: str
  by_head: bool


def stored_names(
  paths: Iterable[Path], table: Mapping[Path, str | Fused]
) -> dict[Path, str]:
  """The file's name of each parameter's tensor.

  Args:
    paths: parameter paths.
    table: names by path; those inside a layer are given without the layer's
      own part, with `{layer}` where the file writes its index.
  """
  names = {}
  for path in paths:
    entry = table_entry(table, path)
    name = entry.name if isinstance(entry, Fused) else entry
    names[path] = name.format(layer=path[0].removeprefix("layer_"))
  return names


def table_entry(table: Mapping[Path, str | Fused], path: Path) -> str | Fused:
  """What a table says of a parameter."""
  return table[path[1:] if path[0].startswith("layer_") else path]


def load_params(
  config: TransformerConfig,
  tensors: Mapping[str, weights.Stored],
  table: Mapping[Path, str | Fused],
  dtype: np.dtype,
  source: str,
  interleaved: bool = False,
  mesh: Mesh | None = None,
) -> dict[str, Any]:
  """Reads all parameters of a model.

  Args:
    config: sizes; every tensor's shape must follow from them.
    tensors: what the file holds; a name that no parameter has is an error.
    table: the file's names, see `stored_names`.
    dtype: of the result; 8-bit matrices (`config.quantization`) apart.
    source: what error messages call the file.
    interleaved: query and key rows come in pairs (2i, 2i + 1) of a rotation
      instead of (i, i + head_dim / 2), and are put back.
    mesh: devices that share the parameters; None is one device.

  Returns:
    The parameter tree of `Transformer`, jax arrays.
  """
  layout.check_config(config, source)
  needed = len(set(stored_names(layout.layer_shapes(config), table).values()))
  if config.num_layers * needed > len(tensors):
    raise ValueError(
      f"{source}: {config.num_layers} layers need "
      f"{config.num_layers * needed} tensors, it holds {len(tensors)}"
    )
  shapes = layout.parameter_shapes(config)
  names = stored_names(shapes, table)
  check_names(set(names.values()), set(tensors), source)
  parts = {
    path: _stored_part(config, path, table, tensors[name], source, name)
    for path, name in names.items()
  }
  for path, stored in parts.items():
    check_shape(path, shapes[path], names[path], stored, source)
  plan = placement.plan(config, mesh)
  params: dict[str, Any] = {}
  for path, stored in parts.items():
    rotated = interleaved and path[-2] in ("query", "key")
    array = weights.read_tensor(
      stored,
      dtype,
      transpose=path[-1] == "kernel",
      paired_head=config.head_dim if rotated else None,
      label=f"{source}: tensor {names[path]}",
    )
    for leaf, value in int8.leaves(config, path, array).items():
      put(params, leaf, plan.put(leaf, value))
  return params


def put(tree: dict[str, Any], path: Path, leaf: Any) -> None:
  """Puts a parameter into its place of a tree."""
  for part in path[:-1]:
    tree = tree.setdefault(part, {})
  tree[path[-1]] = leaf


def _stored_part(
  config: TransformerConfig,
  path: Path,
  table: Mapping[Path, str | Fused],
  stored: weights.Stored,
  source: str,
  name: str,
) -> weights.Stored:
  """The tensor, or a fused tensor's rows of this parameter."""
  entry = table_entry(table, path)
  if not isinstance(entry, Fused):
    return stored
  size = config.head_dim * (1 if entry.by_head else config.num_heads)
  if stored.shape[0] != 3 * config.num_heads * config.head_dim:
    raise ValueError(
      f"{source}: tensor {name} has shape {stored.shape}, query, key and value "
      f"of {config.num_heads} heads of {config.head_dim} were expected"
    )
  first = layout.PROJECTIONS.index(path[-2]) * size
  return stored.part(3 * size, first, size)


def check_shape(
  path: Path,
  shape: tuple[int, ...],
  name: str,
  stored: weights.Stored,
  source: str,
) -> None:
  """Refuses a tensor of another shape; a file's matrices are transposed."""
  wanted = shape[::-1] if path[-1] == "kernel" else shape
  if stored.shape != wanted:
    raise ValueError(
      f"{source}: tensor {name} has shape {stored.shape}, the configuration "
      f"asks for {wanted}"
    )


def check_names(wanted: set[str], found: set[str], source: str) -> None:
  """Refuses a file that lacks tensors or has others."""
  for problem, names in (
    ("lacks", wanted - found),
    ("has unknown", found - wanted),
  ):
    if names:
      shown = ", ".join(weights.one_line(name) for name in sorted(names)[:5])
      more = f" and {len(names) - 5} more" if len(names) > 5 else ""
      plural = "s" if len(names) > 1 else ""
      raise ValueError(f"{source} {problem} tensor{plural} {shown}{more}")
