# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file's `general.architecture` means.

One row an architecture: the switches of the decoder it sets, the tensors it has
and the keys it may state. What llama.cpp computes for an architecture decides,
with one exception: it evaluates GPT-NeoX's exact GELU by the tanh formula.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from specjax.models import layout, parameters

EMBEDDING = "token_embd.weight"
UNEMBEDDING = "output.weight"
ROPE_FACTORS = "rope_freqs.weight"

WINDOW = "attention.sliding_window"
WINDOW_PERIOD = "attention.sliding_window_pattern"
LOCAL_THETA = "rope.freq_base_swa"
ROTARY_DIM = "rope.dimension_count"

Names = Mapping[layout.Path, str | parameters.Fused]


@dataclasses.dataclass(frozen=True)
class Architecture:
  """One row; keys are given without the architecture's name and dot.

  Attributes:
    names: tensor of each parameter, those of switches that are off included.
    fields: further fields of TransformerConfig: a value, or a function of the
      fields that are sizes.
    flags: fields that are stated, true or false, by a key.
    tensor_flags: fields that are true where the file has a tensor.
    norm_eps: key of the norms' epsilon.
    keys: other keys that a file may state, because they are computed.
    interleaved: query and key rows lie in pairs of a rotation.
    window_period: of so many layers the last has no window; 0 is none of them.
    local_theta: base of the rotary frequencies in layers with a window.
  """

  names: Names
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
  tensor_flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
  norm_eps: str = "attention.layer_norm_rms_epsilon"
  keys: tuple[str, ...] = ()
  interleaved: bool = False
  window_period: int = 0
  local_theta: float | None = None


def _with_biases(
  names: Mapping[layout.Path, str],
) -> dict[layout.Path, str]:
  """The names of matrices and norms, and of a bias beside each."""
  biases = {
    (*path[:-1], "bias"): name.removesuffix(".weight") + ".bias"
    for path, name in names.items()
  }
  return {**names, **biases}


_OUTSIDE = {
  ("embed", "embedding"): EMBEDDING,
  ("unembed", "kernel"): UNEMBEDDING,
}
_NORMS_AND_MLP = _with_biases(
  {
    ("final_norm", "scale"): "output_norm.weight",
    ("attention_norm", "scale"): "blk.{layer}.attn_norm.weight",
    ("attention", "output", "kernel"): "blk.{layer}.attn_output.weight",
    ("mlp_norm", "scale"): "blk.{layer}.ffn_norm.weight",
    ("mlp", "gate", "kernel"): "blk.{layer}.ffn_gate.weight",
    ("mlp", "up", "kernel"): "blk.{layer}.ffn_up.weight",
    ("mlp", "down", "kernel"): "blk.{layer}.ffn_down.weight",
  }
)
_SEPARATE = _with_biases(
  {
    ("attention", "query", "kernel"): "blk.{layer}.attn_q.weight",
    ("attention", "key", "kernel"): "blk.{layer}.attn_k.weight",
    ("attention", "value", "kernel"): "blk.{layer}.attn_v.weight",
  }
)
_HEAD_NORMS = {
  ("attention", "query_norm", "scale"): "blk.{layer}.attn_q_norm.weight",
  ("attention", "key_norm", "scale"): "blk.{layer}.attn_k_norm.weight",
}
_POST_NORMS = {
  ("attention_post_norm", "scale"): "blk.{layer}.post_attention_norm.weight",
  ("mlp_post_norm", "scale"): "blk.{layer}.post_ffw_norm.weight",
}
_FUSED = {
  ("attention", part, leaf): parameters.Fused(
    f"blk.{{layer}}.attn_qkv.{stored}", by_head=False
  )
  for part in ("query", "key", "value")
  for leaf, stored in (("kernel", "weight"), ("bias", "bias"))
}
_LLAMA_NAMES = _OUTSIDE | _NORMS_AND_MLP | _SEPARATE


def _gemma_query_scale(fields: Mapping[str, Any]) -> float:
  """The largest model, told by its layers, divides by another head size."""
  size = fields["head_dim"]
  if fields["num_layers"] == 62:
    size = fields["embed_dim"] // fields["num_heads"]
  return size**-0.5


# By the value of `general.architecture`.
ARCHITECTURES: dict[str, Architecture] = {
  # Llama, and Mistral, whose window is stated where there is one.
  "llama": Architecture(
    names=_LLAMA_NAMES,
    tensor_flags={
      "qkv_bias": "blk.0.attn_q.bias",
      "output_bias": "blk.0.attn_output.bias",
      "mlp_bias": "blk.0.ffn_up.bias",
    },
    keys=(WINDOW,),
    interleaved=True,
  ),
  "qwen2": Architecture(
    names=_LLAMA_NAMES, fields={"family": "qwen2", "qkv_bias": True}
  ),
  "qwen3": Architecture(
    names=_LLAMA_NAMES | _HEAD_NORMS,
    fields={"family": "qwen3", "qk_norm": True},
  ),
  # The norms' scales are stored with their 1 added.
  "gemma3": Architecture(
    names=_LLAMA_NAMES | _HEAD_NORMS | _POST_NORMS,
    fields={
      "family": "gemma3_text",
      "qk_norm": True,
      "post_norms": True,
      "activation": "gelu_tanh",
      "embedding_scale": lambda fields: math.sqrt(fields["embed_dim"]),
      "query_scale": _gemma_query_scale,
    },
    keys=(WINDOW, WINDOW_PERIOD, LOCAL_THETA),
    window_period=6,
    local_theta=10000.0,
  ),
  "gptneox": Architecture(
    names=_OUTSIDE | _NORMS_AND_MLP | _FUSED,
    fields={
      "family": "gpt_neox",
      "norm": "layer",
      "qkv_bias": True,
      "output_bias": True,
      "mlp_bias": True,
      "gated_mlp": False,
      "activation": "gelu",
    },
    flags={"parallel_residual": "use_parallel_residual"},
    norm_eps="attention.layer_norm_epsilon",
    keys=(ROTARY_DIM,),
  ),
}
