# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Llama-family weights from GGUF files, dequantised.

Every type that the `gguf` library dequantises is read; the others, and every
architecture but "llama", are refused by name. GGUF files of this architecture
keep the rows of each query and key head as interleaved pairs, which is undone
here, and write llama3 frequency scaling as one divisor a pair of channels.
"""

from collections.abc import Mapping
import functools
import os
import pathlib
from typing import Any

import numpy as np

from specjax.models import gguf_header, parameters, weights
from specjax.models.transformer import TransformerConfig

_EMBEDDING = "token_embd.weight"
_UNEMBEDDING = "output.weight"
_ROPE_FACTORS = "rope_freqs.weight"

_NAMES: dict[parameters.Path, str] = {
  ("embed", "embedding"): _EMBEDDING,
  ("final_norm", "scale"): "output_norm.weight",
  ("unembed", "kernel"): _UNEMBEDDING,
  ("attention_norm", "scale"): "blk.{layer}.attn_norm.weight",
  ("attention", "query", "kernel"): "blk.{layer}.attn_q.weight",
  ("attention", "key", "kernel"): "blk.{layer}.attn_k.weight",
  ("attention", "value", "kernel"): "blk.{layer}.attn_v.weight",
  ("attention", "output", "kernel"): "blk.{layer}.attn_output.weight",
  ("mlp_norm", "scale"): "blk.{layer}.ffn_norm.weight",
  ("mlp", "gate", "kernel"): "blk.{layer}.ffn_gate.weight",
  ("mlp", "up", "kernel"): "blk.{layer}.ffn_up.weight",
  ("mlp", "down", "kernel"): "blk.{layer}.ffn_down.weight",
}

# Keys that change the arithmetic, with the values that mean "not used".
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  "split.count": (0, 1),
  "llama.expert_count": (0,),
  "llama.attention.sliding_window": (0,),
  "llama.attention.scale": (0.0,),
  "llama.attention.causal": (True,),
  "llama.attention.clamp_kqv": (0.0,),
  "llama.attention.max_alibi_bias": (0.0,),
  "llama.use_parallel_residual": (False,),
  "llama.embedding_scale": (0.0, 1.0),
  "llama.residual_scale": (0.0, 1.0),
  "llama.logit_scale": (0.0, 1.0),
  "llama.rope.scale_linear": (0.0, 1.0),
  "llama.rope.scaling.type": ("none",),
  "llama.rope.scaling.factor": (0.0, 1.0),
}


def load(
  path: str | os.PathLike[str], dtype: Any = "float32"
) -> tuple[TransformerConfig, dict[str, Any], dict[str, Any]]:
  """Loads a GGUF file.

  Args:
    path: the file.
    dtype: of the parameters, see `weights.DTYPES`.

  Returns:
    Configuration, parameter tree and the file's keys and values, in which the
    tokenizer is found.

  Raises:
    ValueError: damaged, or not a model that can be computed exactly.
  """
  path = pathlib.Path(path)
  parameter_dtype = weights.parse_dtype(dtype)
  header = gguf_header.read(path)
  architecture = header.metadata.get("general.architecture")
  if architecture != "llama":
    raise ValueError(
      f"{path.name}: general.architecture is "
      f"{weights.one_line(architecture)}, only 'llama' is supported"
    )
  tensors = {name: _stored(path, info) for name, info in header.tensors.items()}
  factors = tensors.pop(_ROPE_FACTORS, None)
  config = read_config(header, path.name, _read_factors(factors, path.name))
  params = parameters.load_params(
    config, tensors, _NAMES, parameter_dtype, path.name, interleaved=True
  )
  return config, params, header.metadata


def read_config(
  header: gguf_header.Header,
  source: str,
  rope_factors: tuple[float, ...] | None = None,
) -> TransformerConfig:
  """The configuration that a header states."""
  metadata = header.metadata
  for key, neutral in _NEUTRAL.items():
    if key in metadata and metadata[key] not in neutral:
      raise ValueError(
        f"{source}: {key} = {weights.one_line(metadata[key])} is not supported"
      )
  number = functools.partial(_number, metadata, source)
  embed_dim = number("llama.embedding_length", int)
  num_heads = number("llama.attention.head_count", int)
  head_dim = number(
    "llama.attention.key_length", int, embed_dim // max(num_heads, 1)
  )
  for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
    if number(key, int, head_dim) != head_dim:
      raise ValueError(
        f"{source}: {key} is {metadata[key]}, only heads of one size "
        f"({head_dim}), rotated in full, are supported"
      )
  return TransformerConfig(
    vocab_size=_vocab_size(header, source),
    embed_dim=embed_dim,
    num_layers=number("llama.block_count", int),
    num_heads=num_heads,
    num_kv_heads=number("llama.attention.head_count_kv", int, num_heads),
    head_dim=head_dim,
    mlp_dim=number("llama.feed_forward_length", int),
    max_position=number("llama.context_length", int),
    norm_eps=number("llama.attention.layer_norm_rms_epsilon", float),
    rope_theta=number("llama.rope.freq_base", float, 10000.0),
    rope_factors=rope_factors,
    tie_embeddings=_UNEMBEDDING not in header.tensors,
  )


def _number(
  metadata: Mapping[str, Any],
  source: str,
  key: str,
  kind: type,
  default: int | float | None = None,
) -> Any:
  value = metadata.get(key, default)
  if value is None:
    raise ValueError(f"{source}: key {key} is missing")
  if isinstance(value, bool) or not isinstance(value, kind):
    raise ValueError(
      f"{source}: {key} is {weights.one_line(value)}, one {kind.__name__} was "
      "expected"
    )
  # The shortest decimal of the stored float32: 1e-05, not 9.99999974e-06.
  return float(str(np.float32(value))) if kind is float else value


def _vocab_size(header: gguf_header.Header, source: str) -> int:
  """Rows of the embedding, which the other statements must agree with."""
  if _EMBEDDING not in header.tensors:
    raise ValueError(f"{source} lacks tensor '{_EMBEDDING}'")
  rows = header.tensors[_EMBEDDING].shape[0]
  stated = header.metadata.get("llama.vocab_size", rows)
  if stated != rows:
    raise ValueError(
      f"{source}: llama.vocab_size is {weights.one_line(stated)}, "
      f"{_EMBEDDING} has {rows} rows"
    )
  tokens = header.metadata.get("tokenizer.ggml.tokens", ())
  if not isinstance(tokens, list | tuple) or len(tokens) > rows:
    raise ValueError(
      f"{source}: tokenizer.ggml.tokens must be a list of at most {rows} "
      "tokens, the rows of the embedding"
    )
  return rows


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


def _read_factors(
  stored: weights.Stored | None, source: str
) -> tuple[float, ...] | None:
  """Divisors of the rotary frequencies, one a pair of channels."""
  if stored is None:
    return None
  # A tuple of Python numbers is no place for a matrix.
  if len(stored.shape) != 1 or stored.shape[0] > parameters.MAX_HEAD_DIM:
    raise ValueError(f"{source}: {_ROPE_FACTORS} has shape {stored.shape}")
  values = weights.read_tensor(
    stored,
    weights.DTYPES["float32"],
    transpose=False,
    label=f"{source}: tensor {_ROPE_FACTORS}",
  )
  return tuple(values.tolist())
