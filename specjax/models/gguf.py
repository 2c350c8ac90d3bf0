# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights from GGUF files, dequantised.

Every type that the `gguf` library dequantises is read, the others are refused
by name. What a file's keys and tensors mean is `gguf_architectures`.
"""

import dataclasses
import os
import pathlib
from typing import Any

from jax.sharding import Mesh
import numpy as np

from specjax.models import (
  gguf_architectures,
  gguf_config,
  gguf_header,
  layout,
  parameters,
  weights,
)
from specjax.models.transformer import TransformerConfig

# Vectors whose entries lie in pairs of a rotation where matrices' rows do.
_ROTATED_BIASES = (".attn_q.bias", ".attn_k.bias")


def load(
  path: str | os.PathLike[str],
  dtype: Any = "float32",
  quantization: str | None = None,
  mesh: Mesh | None = None,
) -> tuple[TransformerConfig, dict[str, Any], dict[str, Any]]:
  """Loads a GGUF file.

  Args:
    path: the file.
    dtype: of the parameters, see `weights.DTYPES`.
    quantization: "int8" makes 8-bit matrices of what is read.
    mesh: devices that share the parameters; None is one device.

  Returns:
    Configuration, parameter tree and the file's keys and values, in which the
    tokenizer is found.

  Raises:
    ValueError: damaged, or not a model that can be computed exactly.
  """
  path = pathlib.Path(path)
  parameter_dtype = weights.parse_dtype(dtype)
  header = gguf_header.read(path)
  _, row = gguf_config.find_architecture(header, path.name)
  tensors = {name: _stored(path, info) for name, info in header.tensors.items()}
  factors = None
  if row.interleaved:
    # Llama 3's scaling of frequencies; no other graph reads this tensor.
    factors = tensors.pop(gguf_architectures.ROPE_FACTORS, None)
    tensors = {name: _as_rows(name, t) for name, t in tensors.items()}
  config = dataclasses.replace(
    gguf_config.read_config(
      header, path.name, _read_factors(factors, path.name)
    ),
    quantization=quantization,
  )
  params = parameters.load_params(
    config,
    tensors,
    row.names,
    parameter_dtype,
    path.name,
    interleaved=row.interleaved,
    mesh=mesh,
  )
  return config, params, header.metadata


def _stored(path: pathlib.Path, info: gguf_header.TensorInfo) -> weights.Stored:
  import gguf
  from gguf import quants

  kind = gguf.GGMLQuantizationType[info.type_name]
  block = np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
  try:
    quants.dequantize(block, kind)
  except NotImplementedError:
    raise ValueError(
      f"{path.name}: tensor {weights.one_line(info.name)} has type "
      f"{info.type_name}, which cannot be dequantised: use another file"
    ) from None
  return weights.Stored(
    path=path,
    offset=info.offset,
    shape=info.shape,
    row_bytes=info.row_bytes,
    decode=lambda raw: quants.dequantize(raw, kind),
  )


def _as_rows(name: str, stored: weights.Stored) -> weights.Stored:
  """A rotated bias as a matrix of one column, whose rows can change places."""
  if not name.endswith(_ROTATED_BIASES) or len(stored.shape) != 1:
    return stored
  return stored.part(stored.shape[0], 0, stored.shape[0])


def _read_factors(
  stored: weights.Stored | None, source: str
) -> tuple[float, ...] | None:
  """Divisors of the rotary frequencies, one a pair of channels."""
  if stored is None:
    return None
  name = gguf_architectures.ROPE_FACTORS
  # A tuple of Python numbers is no place for a matrix.
  if len(stored.shape) != 1 or stored.shape[0] > layout.MAX_HEAD_DIM:
    raise ValueError(f"{source}: {name} has shape {stored.shape}")
  values = weights.read_tensor(
    stored,
    weights.DTYPES["float32"],
    transpose=False,
    label=f"{source}: tensor {name}",
  )
  return tuple(values.tolist())
