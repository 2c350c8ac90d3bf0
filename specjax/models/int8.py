# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrices as 8-bit integers with one scale an output channel.

The model that comes out is another model: its tokens are its own, and tables
name it so. Activations, norms and biases keep their type, products are summed
in float32. Weights take a quarter of float32's memory where they are kept; but
XLA's CPU compiler widens them once for a decoding loop, which then holds both.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import placement
from specjax.models.transformer import TransformerConfig

Path = tuple[str, ...]

KINDS = ("none", "int8")
LARGEST = 127  # -128 is left out, so that the range is symmetric
SCALE = "int8_scale"

# Axis over which a channel's largest value is taken: the inputs.
_INPUTS = {"kernel": 0, "embedding": 1}


def parse(kind: str) -> str | None:
  """`TransformerConfig.quantization` of a user's word.

  Raises:
    ValueError: an unknown word.
  """
  if kind not in KINDS:
    raise ValueError(
      f"quantization {kind!r} is not one of {', '.join(KINDS)}: choose one"
    )
  return None if kind == "none" else kind


def leaves(
  config: TransformerConfig, path: Path, array: Any
) -> dict[Path, Any]:
  """A parameter as it is kept: itself, or 8-bit integers and their scales."""
  if config.quantization is None or path[-1] not in _INPUTS:
    return {path: array}
  values, scale = quantize(array, _INPUTS[path[-1]])
  return {path: values, (*path[:-1], SCALE): scale}


def shapes(
  config: TransformerConfig, path: Path, shape: tuple[int, ...]
) -> dict[Path, tuple[int, ...]]:
  """The shapes of `leaves` of a parameter of this shape."""
  if config.quantization is None or path[-1] not in _INPUTS:
    return {path: shape}
  outputs = shape[1 - _INPUTS[path[-1]]]
  return {path: shape, (*path[:-1], SCALE): (outputs,)}


def quantize(array: Any, axis: int) -> tuple[np.ndarray, np.ndarray]:
  """Integers [in, out] (or [out, in]) and scales [out] of a matrix.

  Args:
    array: the matrix.
    axis: its input axis.

  Returns:
    int8 values, nearest to array / scale, and scales in the matrix's type; the
    largest value of a channel is 127 or -127.
  """
  array = np.asarray(array)
  largest = np.max(np.abs(array.astype(np.float32)), axis=axis)
  scale = np.where(largest > 0, largest / LARGEST, 1)
  # A scale that the matrix's type rounds to 0 would divide by it.
  least = float(jnp.finfo(array.dtype).tiny)
  scale = np.maximum(scale, least).astype(array.dtype)
  divisor = np.expand_dims(scale.astype(np.float32), axis)
  values = np.empty(array.shape, np.int8)
  # A few rows at a time: the quotient never exists in full.
  for start in range(0, len(array), 1024):
    rows = slice(start, start + 1024)
    part = divisor[rows] if axis == 1 else divisor
    quotient = np.rint(array[rows].astype(np.float32) / part)
    values[rows] = np.clip(quotient, -LARGEST, LARGEST)
  return values, scale


def model(model: Any) -> Any:
  """The 8-bit model of a loaded one; parameters other than matrices are shared.

  Raises:
    ValueError: it is quantised already.
  """
  if model.config.quantization is not None:
    raise ValueError("the model is 8-bit already: load it as it is stored")
  config = dataclasses.replace(model.config, quantization="int8")
  plan = placement.Plan(config, model.rules)
  flat = {}
  found, _ = jax.tree_util.tree_flatten_with_path(model.params)
  for keys, leaf in found:
    flat |= leaves(config, tuple(key.key for key in keys), leaf)
  params: dict[str, Any] = {}
  for path, leaf in flat.items():
    node = params
    for part in path[:-1]:
      node = node.setdefault(part, {})
    # What was on the devices stays there.
    is_new = isinstance(leaf, np.ndarray)
    node[path[-1]] = plan.move(path, leaf) if is_new else leaf
  return model.replace(config=config, params=params)
