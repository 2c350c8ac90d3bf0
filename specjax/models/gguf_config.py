# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The configuration that a GGUF file's keys state.

A key of the architecture that is neither computed nor known to change nothing
is refused by name.
"""

import dataclasses
from typing import Any, NoReturn

import numpy as np

from specjax.models import gguf_architectures, gguf_header, layout, weights
from specjax.models.gguf_architectures import Architecture
from specjax.models.transformer import TransformerConfig

# Keys that every architecture reads, besides that of its epsilon.
_READ = (
  "context_length",
  "embedding_length",
  "block_count",
  "feed_forward_length",
  "vocab_size",
  "attention.head_count",
  "attention.head_count_kv",
  "attention.key_length",
  "attention.value_length",
  "rope.freq_base",
  "rope.scaling.type",
  "rope.scaling.factor",
  "rope.scale_linear",
  gguf_architectures.ROTARY_DIM,
)
# Keys that change nothing by themselves.
_IDLE = (
  "expert_used_count",
  "rope.scaling.finetuned",
  "rope.scaling.original_context_length",
  "tensor_data_layout",
)
# Keys that change the arithmetic, with the values that mean "not used".
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  "attention.causal": (True,),
  "attention.clamp_kqv": (0.0,),
  "attention.max_alibi_bias": (0.0,),
  "attention.scale": (0.0,),
  "attention.sliding_window": (0,),
  "attn_logit_softcapping": (0.0,),
  "embedding_scale": (0.0, 1.0),
  "expert_count": (0,),
  "final_logit_softcapping": (0.0,),
  "logit_scale": (0.0, 1.0),
  "pooling_type": (0,),
  "residual_scale": (0.0, 1.0),
  "rope.scaling.attn_factor": (0.0, 1.0),
  "use_parallel_residual": (False,),
}
_SCALINGS = ("none", "linear")


def find_architecture(
  header: gguf_header.Header, source: str
) -> tuple[str, Architecture]:
  """Name and row of the architecture."""
  name = header.metadata.get("general.architecture")
  known = gguf_architectures.ARCHITECTURES
  if not isinstance(name, str) or name not in known:
    raise ValueError(
      f"{source}: general.architecture is {weights.one_line(name)}, supported "
      f"are {', '.join(known)}"
    )
  return name, known[name]


@dataclasses.dataclass(frozen=True)
class _Keys:
  """The keys of one architecture in a file."""

  header: gguf_header.Header
  source: str
  name: str

  def fail(self, problem: str) -> NoReturn:
    raise ValueError(f"{self.source}: {problem}")

  def read(self, key: str, kind: type, default: Any = None) -> Any:
    """A value of exactly one kind; without a default there must be one."""
    key = f"{self.name}.{key}"
    value = self.header.metadata.get(key, default)
    if value is None:
      self.fail(f"key {key} is missing")
    if type(value) is not kind:
      self.fail(
        f"{key} is {weights.one_line(value)}, one {kind.__name__} was expected"
      )
    # The shortest decimal of the stored float32: 1e-05, not 9.99999974e-06.
    return float(str(np.float32(value))) if kind is float else value

  def check(self, row: Architecture) -> None:
    """Refuses what would change the arithmetic and is not computed."""
    computed = {*_READ, *_IDLE, *row.keys, *row.flags.values(), row.norm_eps}
    neutral = {f"{self.name}.{key}": v for key, v in _NEUTRAL.items()}
    neutral["split.count"] = (0, 1)
    for key, value in self.header.metadata.items():
      own = key.startswith(f"{self.name}.")
      if own and key.removeprefix(f"{self.name}.") in computed:
        continue
      if (own or key in neutral) and value not in neutral.get(key, ()):
        self.fail(
          f"{weights.one_line(key)} = {weights.one_line(value)} is not "
          "supported"
        )


def read_config(
  header: gguf_header.Header,
  source: str,
  rope_factors: tuple[float, ...] | None = None,
) -> TransformerConfig:
  """The configuration that a header states.

  Args:
    header: of the file.
    source: what error messages call it.
    rope_factors: divisors of the rotary frequencies, if it has such a tensor.

  Raises:
    ValueError: a key that is missing, of another kind or not computed.
  """
  name, row = find_architecture(header, source)
  keys = _Keys(header, source, name)
  keys.check(row)
  heads = keys.read("attention.head_count", int)
  fields: dict[str, Any] = {
    "vocab_size": _vocab_size(keys),
    "embed_dim": keys.read("embedding_length", int),
    "num_layers": _num_layers(keys),
    "num_heads": heads,
    "num_kv_heads": keys.read("attention.head_count_kv", int, heads),
    "mlp_dim": keys.read("feed_forward_length", int),
    "max_position": keys.read("context_length", int),
    "norm_eps": keys.read(row.norm_eps, float),
    "rope_theta": keys.read("rope.freq_base", float, 10000.0),
    "tie_embeddings": gguf_architectures.UNEMBEDDING not in header.tensors,
  }
  fields |= _read_heads(keys, row, fields)
  for field, value in fields.items():
    if type(value) is int and value < 1:
      keys.fail(f"{field} is {value}, it must be positive")
  for field, value in row.fields.items():
    fields[field] = value(fields) if callable(value) else value
  for field, key in row.flags.items():
    fields[field] = keys.read(key, bool)
  for field, tensor in row.tensor_flags.items():
    fields[field] = tensor in header.tensors
  fields["rope_factors"] = _scale(keys, fields, rope_factors)
  return TransformerConfig(**fields | _read_windows(keys, row, fields))


def _num_layers(keys: _Keys) -> int:
  """A count that the file can hold: lists of that length follow from it."""
  layers, tensors = keys.read("block_count", int), len(keys.header.tensors)
  if layers > tensors:
    keys.fail(f"{layers} layers need more than the {tensors} tensors it holds")
  return layers


def _read_heads(
  keys: _Keys, row: Architecture, fields: dict[str, Any]
) -> dict[str, Any]:
  """Size of a head and the channels of it that are rotated."""
  size = fields["embed_dim"] // max(fields["num_heads"], 1)
  size = keys.read("attention.key_length", int, size)
  # Also bounds the lists that have an entry a channel.
  if size > layout.MAX_HEAD_DIM:
    keys.fail(f"heads of {size}, at most {layout.MAX_HEAD_DIM} are supported")
  rotary_dim = gguf_architectures.ROTARY_DIM
  is_partial = rotary_dim in row.keys
  for key in ("attention.value_length", rotary_dim):
    value = keys.read(key, int, size)
    is_whole = value == size or (is_partial and key == rotary_dim)
    if not is_whole or value > size:
      keys.fail(
        f"{keys.name}.{key} is {value}, only heads of one size ({size}), "
        "rotated in full, are supported"
      )
  rotated = keys.read(rotary_dim, int, size) if is_partial else None
  return {"head_dim": size, "rotary_dim": rotated}


def _scale(
  keys: _Keys,
  fields: dict[str, Any],
  rope_factors: tuple[float, ...] | None,
) -> tuple[float, ...] | None:
  """Divisors of the rotary frequencies, linear scaling among them."""
  scaling = keys.read("rope.scaling.type", str, "linear")
  if scaling not in _SCALINGS:
    keys.fail(
      f"{keys.name}.rope.scaling.type = {weights.one_line(scaling)} is not "
      f"supported, only {' and '.join(_SCALINGS)} are"
    )
  # The second spelling is an older one; 0 means 1 in both.
  old = keys.read("rope.scale_linear", float, 0.0)
  factor = keys.read("rope.scaling.factor", float, old)
  if scaling == "none" or factor in (0.0, 1.0):
    return rope_factors
  rotated = fields["rotary_dim"] or fields["head_dim"]
  divisors = rope_factors or (1.0,) * (rotated // 2)
  return tuple(factor * divisor for divisor in divisors)


def _read_windows(
  keys: _Keys, row: Architecture, fields: dict[str, Any]
) -> dict[str, Any]:
  """Windows of the layers, and what goes with them."""
  size = keys.read(gguf_architectures.WINDOW, int, 0)
  period = keys.read(gguf_architectures.WINDOW_PERIOD, int, row.window_period)
  if not size or period == 1:
    return {}
  windows = tuple(
    None if period and layer % period == period - 1 else size
    for layer in range(fields["num_layers"])
  )
  if row.local_theta is None:
    # Of the models with Llama's graph only Mistral has windows.
    return {"windows": windows, "family": "mistral"}
  theta = keys.read(gguf_architectures.LOCAL_THETA, float, row.local_theta)
  return {"windows": windows, "rope_local_theta": theta}


def _vocab_size(keys: _Keys) -> int:
  """Rows of the embedding, which the other statements must agree with."""
  embedding = gguf_architectures.EMBEDDING
  if embedding not in keys.header.tensors:
    raise ValueError(f"{keys.source} lacks tensor '{embedding}'")
  rows = keys.header.tensors[embedding].shape[0]
  stated = keys.read("vocab_size", int, rows)
  if stated != rows:
    keys.fail(
      f"{keys.name}.vocab_size is {stated}, {embedding} has {rows} rows"
    )
  tokens = keys.header.metadata.get("tokenizer.ggml.tokens", ())
  if not isinstance(tokens, list | tuple) or len(tokens) > rows:
    keys.fail(
      f"tokenizer.ggml.tokens must be a list of at most {rows} tokens, the "
      "rows of the embedding"
    )
  return rows
