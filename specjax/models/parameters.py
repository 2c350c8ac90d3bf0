# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parameters of a Llama-family model: paths, shapes, where they come from.

A checkpoint format gives its tensors by name (`weights.Stored`) and a table of
names; this file knows which tensors there must be and in which shape, and
refuses the whole checkpoint before the first one is read if it is not so.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import math
from typing import Any

import jax
import numpy as np

from specjax.models import weights
from specjax.models.transformer import TransformerConfig

Path = tuple[str, ...]

# Far above any real head; keeps per-channel tables small for absurd files.
MAX_HEAD_DIM = 1 << 14
# Tensors of one layer: two norms, four of attention, three of the MLP.
_TENSORS_PER_LAYER = 9


def check_config(config: TransformerConfig, source: str) -> None:
  """Refuses sizes that no model can have, before anything is allocated."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if isinstance(value, bool) or not isinstance(value, int | float):
      continue
    if not (math.isfinite(value) and value > 0):
      raise ValueError(
        f"{source}: {field.name} is {value}, it must be positive"
      )
  if config.num_heads % config.num_kv_heads:
    raise ValueError(
      f"{source}: num_heads {config.num_heads} is not a multiple of "
      f"num_kv_heads {config.num_kv_heads}"
    )
  if config.head_dim % 2 or config.head_dim > MAX_HEAD_DIM:
    raise ValueError(
      f"{source}: head_dim {config.head_dim} must be even, for rotary "
      f"positions, and at most {MAX_HEAD_DIM}"
    )
  factors = config.rope_factors
  if factors is None:
    return
  if len(factors) != config.head_dim // 2:
    raise ValueError(
      f"{source}: {len(factors)} rope factors for head_dim "
      f"{config.head_dim}, there must be {config.head_dim // 2}"
    )
  if not all(math.isfinite(f) and f > 0 for f in factors):
    raise ValueError(f"{source}: rope factors must be positive and finite")


def parameter_shapes(config: TransformerConfig) -> dict[Path, tuple[int, ...]]:
  """Path and shape of every parameter; matrices are [inputs, outputs]."""
  width, mlp = config.embed_dim, config.mlp_dim
  heads = config.num_heads * config.head_dim
  kv_heads = config.num_kv_heads * config.head_dim
  layer = {
    ("attention_norm", "scale"): (width,),
    ("attention", "query", "kernel"): (width, heads),
    ("attention", "key", "kernel"): (width, kv_heads),
    ("attention", "value", "kernel"): (width, kv_heads),
    ("attention", "output", "kernel"): (heads, width),
    ("mlp_norm", "scale"): (width,),
    ("mlp", "gate", "kernel"): (width, mlp),
    ("mlp", "up", "kernel"): (width, mlp),
    ("mlp", "down", "kernel"): (mlp, width),
  }
  shapes: dict[Path, tuple[int, ...]] = {
    ("embed", "embedding"): (config.vocab_size, width),
    ("final_norm", "scale"): (width,),
  }
  for index in range(config.num_layers):
    for path, shape in layer.items():
      shapes[(f"layer_{index}", *path)] = shape
  if not config.tie_embeddings:
    shapes[("unembed", "kernel")] = (width, config.vocab_size)
  return shapes


def stored_names(
  paths: Iterable[Path], table: Mapping[Path, str]
) -> dict[Path, str]:
  """The file's name of each parameter.

  Args:
    paths: parameter paths.
    table: names by path; those inside a layer are given without the layer's
      own part, with `{layer}` where the file writes its index.
  """
  names = {}
  for path in paths:
    head, *rest = path
    if head.startswith("layer_"):
      name = table[tuple(rest)].format(layer=head.removeprefix("layer_"))
    else:
      name = table[path]
    names[path] = name
  return names


def load_params(
  config: TransformerConfig,
  tensors: Mapping[str, weights.Stored],
  table: Mapping[Path, str],
  dtype: np.dtype,
  source: str,
  interleaved: bool = False,
) -> dict[str, Any]:
  """Reads all parameters of a model.

  Args:
    config: sizes; every tensor's shape must follow from them.
    tensors: what the file holds; a name that no parameter has is an error.
    table: the file's names, see `stored_names`.
    dtype: of the result.
    source: what error messages call the file.
    interleaved: query and key rows come in pairs (2i, 2i + 1) of a rotation
      instead of (i, i + head_dim / 2), and are put back.

  Returns:
    The parameter tree of `Transformer`, jax arrays.
  """
  check_config(config, source)
  if config.num_layers * _TENSORS_PER_LAYER > len(tensors):
    raise ValueError(
      f"{source}: {config.num_layers} layers need "
      f"{config.num_layers * _TENSORS_PER_LAYER} tensors, it holds "
      f"{len(tensors)}"
    )
  shapes = parameter_shapes(config)
  names = stored_names(shapes, table)
  _check_names(set(names.values()), set(tensors), source)
  for path, name in names.items():
    _check_shape(path, shapes[path], name, tensors[name], source)
  params: dict[str, Any] = {}
  for path, name in names.items():
    rotated = interleaved and path[-2] in ("query", "key")
    node = params
    for part in path[:-1]:
      node = node.setdefault(part, {})
    array = weights.read_tensor(
      tensors[name],
      dtype,
      transpose=path[-1] == "kernel",
      paired_head=config.head_dim if rotated else None,
      label=f"{source}: tensor {name}",
    )
    node[path[-1]] = jax.device_put(array)
  return params


def _check_shape(
  path: Path,
  shape: tuple[int, ...],
  name: str,
  stored: weights.Stored,
  source: str,
) -> None:
  wanted = shape[::-1] if path[-1] == "kernel" else shape
  if stored.shape != wanted:
    raise ValueError(
      f"{source}: tensor {name} has shape {stored.shape}, the configuration "
      f"asks for {wanted}"
    )


def _check_names(wanted: set[str], found: set[str], source: str) -> None:
  for problem, names in (
    ("lacks", wanted - found),
    ("has unknown", found - wanted),
  ):
    if names:
      shown = ", ".join(weights.one_line(name) for name in sorted(names)[:5])
      more = f" and {len(names) - 5} more" if len(names) > 5 else ""
      plural = "s" if len(names) > 1 else ""
      raise ValueError(f"{source} {problem} tensor{plural} {shown}{more}")
