# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny checkpoint of every family, written without the code under test.

config.json, names and shapes stand here as files of the hub have them, and the
configuration and parameters that must come out stand beside them.
"""

import pathlib
from typing import Any

import numpy as np

from specjax.models import transformer
from tests import checkpoint_files

_COMMON = {
  "vocab_size": 48,
  "hidden_size": 32,
  "intermediate_size": 64,
  "max_position_embeddings": 128,
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
}
_DECODER = _COMMON | {
  "hidden_act": "silu",
  "num_key_value_heads": 2,
  "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0,
  "tie_word_embeddings": False,
}
_NEOX = _COMMON | {
  "architectures": ["GPTNeoXForCausalLM"],
  "model_type": "gpt_neox",
  "hidden_act": "gelu",
  "hidden_size": 64,
  "layer_norm_eps": 1e-5,
  "rotary_emb_base": 10000,
  "rotary_pct": 0.25,
  "tie_word_embeddings": False,
  "use_parallel_residual": True,
}

# Windows are shorter than the texts of the tests.
CONFIGS: dict[str, dict[str, Any]] = {
  "llama": _DECODER
  | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": True,
    "mlp_bias": True,
    "rope_scaling": {"type": "linear", "factor": 4.0},
  },
  "mistral": _DECODER
  | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "head_dim": 16,
    "sliding_window": 7,
  },
  "qwen2": _DECODER
  | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 21,
    "rope_theta": 1000000.0,
    "sliding_window": 6,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
  },
  "qwen2_windows": _DECODER
  | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 1,
    "sliding_window": 6,
    "use_sliding_window": True,
  },
  "qwen3": _DECODER
  | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": True,
    "head_dim": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "tie_word_embeddings": True,
    "use_sliding_window": True,
  },
  "gemma3": _COMMON
  | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 24,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 100.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 1000000.0,
    "sliding_window": 6,
    "sliding_window_pattern": 3,
  },
  "gpt_neox": _NEOX,
  "gpt_neox_sequential": _NEOX
  | {"rotary_pct": 0.5, "use_parallel_residual": False},
}


def _config(**fields: Any) -> transformer.TransformerConfig:
  return checkpoint_files.tiny(
    **{"norm_eps": 1e-6, "tie_embeddings": False, **fields}
  )


_NEOX_FIELDS = dict(
  family="gpt_neox",
  embed_dim=64,
  num_kv_heads=4,
  head_dim=16,
  norm_eps=1e-5,
  norm="layer",
  activation="gelu",
  gated_mlp=False,
  qkv_bias=True,
  output_bias=True,
  mlp_bias=True,
)
EXPECTED: dict[str, transformer.TransformerConfig] = {
  "llama": _config(
    qkv_bias=True, output_bias=True, mlp_bias=True, rope_factors=(4.0,) * 4
  ),
  "mistral": _config(family="mistral", head_dim=16, windows=(7, 7)),
  "qwen2": _config(
    family="qwen2", qkv_bias=True, rope_theta=1e6, tie_embeddings=True
  ),
  "qwen2_windows": _config(family="qwen2", qkv_bias=True, windows=(None, 6)),
  "qwen3": _config(
    family="qwen3",
    head_dim=16,
    qkv_bias=True,
    output_bias=True,
    qk_norm=True,
    windows=(5, None),
    tie_embeddings=True,
  ),
  "gemma3": _config(
    family="gemma3_text",
    num_layers=4,
    num_kv_heads=1,
    head_dim=16,
    activation="gelu_tanh",
    qk_norm=True,
    post_norms=True,
    norm_offset=1.0,
    embedding_scale=32**0.5,
    query_scale=24**-0.5,
    rope_theta=1e6,
    rope_factors=(8.0,) * 8,
    rope_local_theta=100.0,
    windows=(6, 6, None, 6),
    tie_embeddings=True,
  ),
  "gpt_neox": _config(rotary_dim=4, parallel_residual=True, **_NEOX_FIELDS),
  "gpt_neox_sequential": _config(rotary_dim=8, **_NEOX_FIELDS),
}

# Parameter path of each tensor of a layer.
_DECODER_NAMES = {
  "input_layernorm.weight": ("attention_norm", "scale"),
  "self_attn.q_proj.weight": ("attention", "query", "kernel"),
  "self_attn.q_proj.bias": ("attention", "query", "bias"),
  "self_attn.k_proj.weight": ("attention", "key", "kernel"),
  "self_attn.k_proj.bias": ("attention", "key", "bias"),
  "self_attn.v_proj.weight": ("attention", "value", "kernel"),
  "self_attn.v_proj.bias": ("attention", "value", "bias"),
  "self_attn.o_proj.weight": ("attention", "output", "kernel"),
  "self_attn.o_proj.bias": ("attention", "output", "bias"),
  "self_attn.q_norm.weight": ("attention", "query_norm", "scale"),
  "self_attn.k_norm.weight": ("attention", "key_norm", "scale"),
  "post_attention_layernorm.weight": ("mlp_norm", "scale"),
  "mlp.gate_proj.weight": ("mlp", "gate", "kernel"),
  "mlp.gate_proj.bias": ("mlp", "gate", "bias"),
  "mlp.up_proj.weight": ("mlp", "up", "kernel"),
  "mlp.up_proj.bias": ("mlp", "up", "bias"),
  "mlp.down_proj.weight": ("mlp", "down", "kernel"),
  "mlp.down_proj.bias": ("mlp", "down", "bias"),
}
_GEMMA_NAMES = _DECODER_NAMES | {
  "post_attention_layernorm.weight": ("attention_post_norm", "scale"),
  "pre_feedforward_layernorm.weight": ("mlp_norm", "scale"),
  "post_feedforward_layernorm.weight": ("mlp_post_norm", "scale"),
}
_NEOX_NAMES = {
  "input_layernorm.weight": ("attention_norm", "scale"),
  "input_layernorm.bias": ("attention_norm", "bias"),
  "attention.dense.weight": ("attention", "output", "kernel"),
  "attention.dense.bias": ("attention", "output", "bias"),
  "post_attention_layernorm.weight": ("mlp_norm", "scale"),
  "post_attention_layernorm.bias": ("mlp_norm", "bias"),
  "mlp.dense_h_to_4h.weight": ("mlp", "up", "kernel"),
  "mlp.dense_h_to_4h.bias": ("mlp", "up", "bias"),
  "mlp.dense_4h_to_h.weight": ("mlp", "down", "kernel"),
  "mlp.dense_4h_to_h.bias": ("mlp", "down", "bias"),
}
_DECODER_OUTSIDE = {
  "model.embed_tokens.weight": ("embed", "embedding"),
  "model.norm.weight": ("final_norm", "scale"),
  "lm_head.weight": ("unembed", "kernel"),
}
_NEOX_OUTSIDE = {
  "gpt_neox.embed_in.weight": ("embed", "embedding"),
  "gpt_neox.final_layer_norm.weight": ("final_norm", "scale"),
  "gpt_neox.final_layer_norm.bias": ("final_norm", "bias"),
  "embed_out.weight": ("unembed", "kernel"),
}


def _decoder_shapes(raw: dict[str, Any]) -> dict[str, tuple[int, ...]]:
  """Shapes of a layer's tensors, those of all variants."""
  width, mlp = raw["hidden_size"], raw["intermediate_size"]
  head = raw.get("head_dim", width // raw["num_attention_heads"])
  queries = raw["num_attention_heads"] * head
  keys = raw["num_key_value_heads"] * head
  matrices = {
    "self_attn.q_proj": (queries, width),
    "self_attn.k_proj": (keys, width),
    "self_attn.v_proj": (keys, width),
    "self_attn.o_proj": (width, queries),
    "mlp.gate_proj": (mlp, width),
    "mlp.up_proj": (mlp, width),
    "mlp.down_proj": (width, mlp),
  }
  kind = raw["model_type"]
  biased = tuple(
    prefix
    for prefix, there in (
      ("mlp", raw.get("mlp_bias")),
      ("self_attn", raw.get("attention_bias")),
      (("self_attn.q", "self_attn.k", "self_attn.v"), kind == "qwen2"),
    )
    if there
    for prefix in ([prefix] if isinstance(prefix, str) else prefix)
  )
  shapes: dict[str, tuple[int, ...]] = {
    "input_layernorm.weight": (width,),
    "post_attention_layernorm.weight": (width,),
  }
  for name, shape in matrices.items():
    shapes[f"{name}.weight"] = shape
    if name.startswith(biased):
      shapes[f"{name}.bias"] = shape[:1]
  if kind in ("qwen3", "gemma3_text"):
    shapes["self_attn.q_norm.weight"] = (head,)
    shapes["self_attn.k_norm.weight"] = (head,)
  if kind == "gemma3_text":
    shapes["pre_feedforward_layernorm.weight"] = (width,)
    shapes["post_feedforward_layernorm.weight"] = (width,)
  return shapes


def _neox_shapes(raw: dict[str, Any]) -> dict[str, tuple[int, ...]]:
  width, mlp = raw["hidden_size"], raw["intermediate_size"]
  return {
    "input_layernorm.weight": (width,),
    "input_layernorm.bias": (width,),
    "attention.query_key_value.weight": (3 * width, width),
    "attention.query_key_value.bias": (3 * width,),
    "attention.dense.weight": (width, width),
    "attention.dense.bias": (width,),
    "post_attention_layernorm.weight": (width,),
    "post_attention_layernorm.bias": (width,),
    "mlp.dense_h_to_4h.weight": (mlp, width),
    "mlp.dense_h_to_4h.bias": (mlp,),
    "mlp.dense_4h_to_h.weight": (width, mlp),
    "mlp.dense_4h_to_h.bias": (width,),
  }


def random_tensors(raw: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
  """Tensors by name, float32; bfloat16 and float16 hold each value exactly."""
  is_neox = raw["model_type"] == "gpt_neox"
  outside = _NEOX_OUTSIDE if is_neox else _DECODER_OUTSIDE
  layer = _neox_shapes(raw) if is_neox else _decoder_shapes(raw)
  prefix = "gpt_neox.layers" if is_neox else "model.layers"
  tied = raw.get("tie_word_embeddings", True)
  shapes: dict[str, tuple[int, ...]] = {}
  for name, path in outside.items():
    rows = () if path[0] == "final_norm" else (raw["vocab_size"],)
    if path[0] != "unembed" or not tied:
      shapes[name] = (*rows, raw["hidden_size"])
  for index in range(raw["num_hidden_layers"]):
    for name, shape in layer.items():
      shapes[f"{prefix}.{index}.{name}"] = shape
  rng = np.random.default_rng(seed)

  def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    # Large ones make texts that repeat a token, which test little.
    small = ".embed_" in name or name.endswith("norm.bias")
    scale = 1024 if small else 128
    return rng.integers(-127, 128, shape).astype(np.float32) / scale

  return {name: draw(name, shape) for name, shape in shapes.items()}


def expected_params(
  raw: dict[str, Any], tensors: dict[str, np.ndarray]
) -> dict[str, Any]:
  """The parameter tree that must come out of the tensors."""
  kind = raw["model_type"]
  outside = _NEOX_OUTSIDE if kind == "gpt_neox" else _DECODER_OUTSIDE
  inside = {"gpt_neox": _NEOX_NAMES, "gemma3_text": _GEMMA_NAMES}.get(
    kind, _DECODER_NAMES
  )
  params: dict[str, Any] = {}
  for name, tensor in tensors.items():
    if name in outside:
      path = outside[name]
      value = tensor.T if path[-1] == "kernel" else tensor
      params.setdefault(path[0], {})[path[1]] = value
      continue
    _, _, index, rest = name.split(".", 3)
    layer = params.setdefault(f"layer_{index}", {})
    if "query_key_value" in rest:
      _split(layer, rest, tensor, raw["num_attention_heads"])
    else:
      _put(layer, inside[rest], tensor)
  return params


def _put(tree: dict[str, Any], path: tuple[str, ...], tensor: np.ndarray):
  for part in path[:-1]:
    tree = tree.setdefault(part, {})
  tree[path[-1]] = tensor.T


def _split(layer: dict[str, Any], name: str, tensor: np.ndarray, heads: int):
  """Rows of a head: its query, its key, its value."""
  leaf = "kernel" if name.endswith("weight") else "bias"
  parts = tensor.reshape(heads, 3, -1, *tensor.shape[1:])
  for i, part in enumerate(("query", "key", "value")):
    rows = parts[:, i].reshape(-1, *tensor.shape[1:])
    _put(layer, ("attention", part, leaf), rows)


def write(name: str, folder: pathlib.Path, **how: Any) -> pathlib.Path:
  """The folder of a case; `how` as in `checkpoint_files.write_folder`."""
  raw = CONFIGS[name]
  return checkpoint_files.write_folder(folder, raw, random_tensors(raw), **how)
