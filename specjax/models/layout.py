# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What parameters a decoder has: their paths, shapes and logical axes."""

import dataclasses
import math

import numpy as np

from specjax.models.transformer import TransformerConfig

Path = tuple[str, ...]

PROJECTIONS = ("query", "key", "value")
# Far above any real head; keeps per-channel tables small for absurd files.
MAX_HEAD_DIM = 1 << 14
# Settings that may be 0.
_MAY_BE_ZERO = ("norm_offset",)


def check_config(config: TransformerConfig, source: str) -> None:
  """Refuses sizes that no model can have, before anything is allocated."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if isinstance(value, bool) or not isinstance(value, int | float):
      continue
    least = 0 if field.name in _MAY_BE_ZERO else np.nextafter(0, 1)
    if not (math.isfinite(value) and value >= least):
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
  rotated = config.num_rotated
  if rotated % 2 or rotated > config.head_dim:
    raise ValueError(
      f"{source}: rotary_dim {rotated} must be even and at most head_dim "
      f"{config.head_dim}"
    )
  _check_lists(config, source)


def _check_lists(config: TransformerConfig, source: str) -> None:
  factors, windows = config.rope_factors, config.windows
  if factors is not None and len(factors) != config.num_rotated // 2:
    raise ValueError(
      f"{source}: {len(factors)} rope factors for {config.num_rotated} rotated "
      f"channels, there must be {config.num_rotated // 2}"
    )
  if factors and not all(math.isfinite(f) and f > 0 for f in factors):
    raise ValueError(f"{source}: rope factors must be positive and finite")
  if windows is not None and len(windows) != config.num_layers:
    raise ValueError(
      f"{source}: {len(windows)} windows for {config.num_layers} layers: there "
      "must be one each"
    )
  if windows and not all(w is None or w > 0 for w in windows):
    raise ValueError(f"{source}: windows {windows!r:.60} must be positive")


def layer_shapes(config: TransformerConfig) -> dict[Path, tuple[int, ...]]:
  """Path in a layer and shape of its parameters; see `parameter_shapes`."""
  width, mlp = config.embed_dim, config.mlp_dim
  heads = config.num_heads * config.head_dim
  kv_heads = config.num_kv_heads * config.head_dim
  shapes: dict[Path, tuple[int, ...]] = {}

  def norm(*path, size=width):
    shapes[(*path, "scale")] = (size,)
    if config.norm == "layer":
      shapes[(*path, "bias")] = (size,)

  def matrix(*path, inputs, outputs, bias):
    shapes[(*path, "kernel")] = (inputs, outputs)
    if bias:
      shapes[(*path, "bias")] = (outputs,)

  norm("attention_norm")
  for name, outputs in zip(PROJECTIONS, (heads, kv_heads, kv_heads)):
    path, bias = ("attention", name), config.qkv_bias
    matrix(*path, inputs=width, outputs=outputs, bias=bias)
  if config.qk_norm:
    norm("attention", "query_norm", size=config.head_dim)
    norm("attention", "key_norm", size=config.head_dim)
  path, bias = ("attention", "output"), config.output_bias
  matrix(*path, inputs=heads, outputs=width, bias=bias)
  norm("mlp_norm")
  for name in ("gate", "up") if config.gated_mlp else ("up",):
    matrix("mlp", name, inputs=width, outputs=mlp, bias=config.mlp_bias)
  matrix("mlp", "down", inputs=mlp, outputs=width, bias=config.mlp_bias)
  if config.post_norms:
    norm("attention_post_norm")
    norm("mlp_post_norm")
  return shapes


def parameter_shapes(config: TransformerConfig) -> dict[Path, tuple[int, ...]]:
  """Path and shape of every parameter; matrices are [inputs, outputs].

  The scales of 8-bit matrices are not among them: they follow from these.
  """
  width, layer = config.embed_dim, layer_shapes(config)
  shapes: dict[Path, tuple[int, ...]] = {
    ("embed", "embedding"): (config.vocab_size, width),
    ("final_norm", "scale"): (width,),
  }
  if config.norm == "layer":
    shapes[("final_norm", "bias")] = (width,)
  for index in range(config.num_layers):
    for path, shape in layer.items():
      shapes[(f"layer_{index}", *path)] = shape
  if not config.tie_embeddings:
    shapes[("unembed", "kernel")] = (width, config.vocab_size)
  return shapes


def logical_axes(path: Path) -> tuple[str | None, ...]:
  """Which axis of a model each dimension of a parameter is, see `sharding`."""
  owner, leaf = path[-2:]
  if owner == "embed":
    return ("vocab", None) if leaf == "embedding" else ("vocab",)
  inputs, outputs = _AXES.get(owner, (None, None))
  return (inputs, outputs) if leaf == "kernel" else (outputs,)


# Logical axes of a matrix's inputs and outputs, where they may be split.
_AXES = {
  "query": (None, "heads"),
  "key": (None, "kv_heads"),
  "value": (None, "kv_heads"),
  "output": ("heads", None),
  "gate": (None, "mlp"),
  "up": (None, "mlp"),
  "down": ("mlp", None),
  "unembed": (None, "vocab"),
}
