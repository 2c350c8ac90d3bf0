# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One tiny checkpoint a family, as a Hugging Face folder and as a GGUF file.

Both are written here from one set of random tensors, by tables of their own:
names, row orders and keys are those that llama.cpp's converter gives.
"""

from collections.abc import Callable, Mapping
import dataclasses
import pathlib
from typing import Any

import numpy as np

from tests import checkpoint_files

VOCAB, WIDTH, HEADS, KV_HEADS, MLP = 48, 32, 4, 2, 64
CONTEXT = 128

Change = Callable[[np.ndarray], np.ndarray]
# Layer tensors: GGUF name, Hugging Face name, shape by letters, what the
# converter does: V vocabulary, D width, Q query, K kv rows, M mlp, H head.
Row = tuple[str, str, str, str]

_NORMS = (
  ("attn_norm.weight", "input_layernorm.weight", "D", "norm"),
  ("ffn_norm.weight", "post_attention_layernorm.weight", "D", "norm"),
)
_MATRICES = (
  ("attn_q.weight", "self_attn.q_proj.weight", "QD", "query"),
  ("attn_k.weight", "self_attn.k_proj.weight", "KD", "key"),
  ("attn_v.weight", "self_attn.v_proj.weight", "KD", ""),
  ("attn_output.weight", "self_attn.o_proj.weight", "DQ", ""),
  ("ffn_gate.weight", "mlp.gate_proj.weight", "MD", ""),
  ("ffn_up.weight", "mlp.up_proj.weight", "MD", ""),
  ("ffn_down.weight", "mlp.down_proj.weight", "DM", ""),
)
_QKV_BIASES = (
  ("attn_q.bias", "self_attn.q_proj.bias", "Q", "query"),
  ("attn_k.bias", "self_attn.k_proj.bias", "K", "key"),
  ("attn_v.bias", "self_attn.v_proj.bias", "K", ""),
)
_OTHER_BIASES = (
  ("attn_output.bias", "self_attn.o_proj.bias", "D", ""),
  ("ffn_gate.bias", "mlp.gate_proj.bias", "M", ""),
  ("ffn_up.bias", "mlp.up_proj.bias", "M", ""),
  ("ffn_down.bias", "mlp.down_proj.bias", "D", ""),
)
_HEAD_NORMS = (
  ("attn_q_norm.weight", "self_attn.q_norm.weight", "H", "norm"),
  ("attn_k_norm.weight", "self_attn.k_norm.weight", "H", "norm"),
)
_GEMMA_NORMS = (
  ("attn_norm.weight", "input_layernorm.weight", "D", "norm"),
  (
    "post_attention_norm.weight",
    "post_attention_layernorm.weight",
    "D",
    "norm",
  ),
  ("ffn_norm.weight", "pre_feedforward_layernorm.weight", "D", "norm"),
  ("post_ffw_norm.weight", "post_feedforward_layernorm.weight", "D", "norm"),
)
_NEOX = (
  ("attn_norm.weight", "input_layernorm.weight", "D", ""),
  ("attn_norm.bias", "input_layernorm.bias", "D", ""),
  ("attn_qkv.weight", "attention.query_key_value.weight", "PD", "fused"),
  ("attn_qkv.bias", "attention.query_key_value.bias", "P", "fused"),
  ("attn_output.weight", "attention.dense.weight", "DQ", ""),
  ("attn_output.bias", "attention.dense.bias", "D", ""),
  ("ffn_norm.weight", "post_attention_layernorm.weight", "D", ""),
  ("ffn_norm.bias", "post_attention_layernorm.bias", "D", ""),
  ("ffn_up.weight", "mlp.dense_h_to_4h.weight", "MD", ""),
  ("ffn_up.bias", "mlp.dense_h_to_4h.bias", "M", ""),
  ("ffn_down.weight", "mlp.dense_4h_to_h.weight", "DM", ""),
  ("ffn_down.bias", "mlp.dense_4h_to_h.bias", "D", ""),
)
_OUTSIDE = (
  ("token_embd.weight", "model.embed_tokens.weight", "VD", ""),
  ("output_norm.weight", "model.norm.weight", "D", "norm"),
)
_OUTPUT = (("output.weight", "lm_head.weight", "VD", ""),)
_NEOX_OUTSIDE = (
  ("token_embd.weight", "gpt_neox.embed_in.weight", "VD", ""),
  ("output_norm.weight", "gpt_neox.final_layer_norm.weight", "D", ""),
  ("output_norm.bias", "gpt_neox.final_layer_norm.bias", "D", ""),
  ("output.weight", "embed_out.weight", "VD", ""),
)


def _split_pairs(heads: int) -> Change:
  """Row (half, pair) of each head becomes row (pair, half)."""

  def change(tensor: np.ndarray) -> np.ndarray:
    halves = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)

  return change


def _by_part(tensor: np.ndarray) -> np.ndarray:
  """Rows (head, part) become rows (part, head)."""
  heads = tensor.reshape(HEADS, 3, -1, *tensor.shape[1:])
  return heads.swapaxes(0, 1).reshape(tensor.shape)


_PERMUTED = {"query": _split_pairs(HEADS), "key": _split_pairs(KV_HEADS)}


@dataclasses.dataclass(frozen=True)
class Family:
  """A checkpoint of one family.

  Attributes:
    architecture: of the GGUF file.
    keys: of the GGUF file beside sizes, without the architecture's name.
    config: of config.json beside sizes.
    layer: tensors of a layer.
    outside: the other tensors.
    changes: what the converter does with tensors so marked.
    layers: how many.
    head_dim: H.
    prefix: of a layer's tensors in the folder.
  """

  architecture: str
  keys: dict[str, Any]
  config: dict[str, Any]
  layer: tuple[Row, ...]
  outside: tuple[Row, ...]
  changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
  layers: int = 2
  head_dim: int = 8
  prefix: str = "model.layers.{}."


_EPS: dict[str, Any] = {"attention.layer_norm_rms_epsilon": 1e-5}
_LLAMA = Family(
  "llama",
  _EPS | {"rope.freq_base": 5e5, "rope.dimension_count": 8},
  {"model_type": "llama", "rope_theta": 5e5, "tie_word_embeddings": False},
  _NORMS + _MATRICES,
  _OUTSIDE + _OUTPUT,
  _PERMUTED,
)
FAMILIES = {
  "llama": _LLAMA,
  "llama_biases": dataclasses.replace(
    _LLAMA,
    config=_LLAMA.config | {"attention_bias": True, "mlp_bias": True},
    layer=_NORMS + _MATRICES + _QKV_BIASES + _OTHER_BIASES,
  ),
  "llama_linear": dataclasses.replace(
    _LLAMA,
    keys=_LLAMA.keys
    | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    config=_LLAMA.config | {"rope_scaling": {"type": "linear", "factor": 4.0}},
  ),
  "mistral": dataclasses.replace(
    _LLAMA,
    keys=_LLAMA.keys | {"attention.sliding_window": 7},
    config=_LLAMA.config | {"model_type": "mistral", "sliding_window": 7},
  ),
  "qwen2": Family(
    "qwen2",
    _EPS | {"rope.freq_base": 1e6},
    {
      "model_type": "qwen2",
      "rope_theta": 1e6,
      "tie_word_embeddings": True,
      "use_sliding_window": False,
    },
    _NORMS + _MATRICES + _QKV_BIASES,
    _OUTSIDE,
  ),
  "qwen3": Family(
    "qwen3",
    _EPS
    | {
      "rope.freq_base": 1e6,
      "attention.key_length": 16,
      "attention.value_length": 16,
    },
    {
      "model_type": "qwen3",
      "rope_theta": 1e6,
      "tie_word_embeddings": False,
      "attention_bias": False,
    },
    _NORMS + _MATRICES + _HEAD_NORMS,
    _OUTSIDE + _OUTPUT,
    head_dim=16,
  ),
  # Seven layers: the sixth has no window.
  "gemma3": Family(
    "gemma3",
    _EPS
    | {
      "rope.freq_base": 1e6,
      "rope.scaling.type": "linear",
      "rope.scaling.factor": 8.0,
      "attention.key_length": 16,
      "attention.value_length": 16,
      "attention.sliding_window": 5,
    },
    {
      "model_type": "gemma3_text",
      "rope_theta": 1e6,
      "rope_local_base_freq": 1e4,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "query_pre_attn_scalar": 16,
      "sliding_window": 5,
      "sliding_window_pattern": 6,
      "hidden_activation": "gelu_pytorch_tanh",
      "tie_word_embeddings": True,
    },
    _GEMMA_NORMS + _MATRICES + _HEAD_NORMS,
    _OUTSIDE,
    {"norm": lambda scale: scale + 1},
    layers=7,
    head_dim=16,
  ),
  "gptneox": Family(
    "gptneox",
    {
      "attention.layer_norm_epsilon": 1e-5,
      "rope.dimension_count": 2,
      "use_parallel_residual": True,
    },
    {
      "model_type": "gpt_neox",
      "layer_norm_eps": 1e-5,
      "rotary_pct": 0.25,
      "rotary_emb_base": 10000,
      "use_parallel_residual": True,
      "hidden_act": "gelu",
      "tie_word_embeddings": False,
    },
    _NEOX,
    _NEOX_OUTSIDE,
    {"fused": _by_part},
    prefix="gpt_neox.layers.{}.",
  ),
}
FAMILIES["gptneox_serial"] = dataclasses.replace(
  FAMILIES["gptneox"],
  keys=FAMILIES["gptneox"].keys | {"use_parallel_residual": False},
  config=FAMILIES["gptneox"].config | {"use_parallel_residual": False},
)


def _rows(family: Family) -> list[Row]:
  """All tensors, layers' names in full."""
  rows = list(family.outside)
  for layer in range(family.layers):
    prefix = family.prefix.format(layer)
    rows += [
      (f"blk.{layer}.{gguf}", prefix + name, shape, change)
      for gguf, name, shape, change in family.layer
    ]
  return rows


def random_tensors(family: Family, seed: int = 0) -> dict[str, np.ndarray]:
  """Tensors by Hugging Face name; multiples of 1/64 below 1."""
  rng = np.random.default_rng(seed)
  sizes = dict(V=VOCAB, D=WIDTH, M=MLP, H=family.head_dim)
  sizes |= dict(Q=HEADS * family.head_dim, K=KV_HEADS * family.head_dim)
  sizes |= dict(P=3 * HEADS * family.head_dim)
  return {
    name: rng.integers(-63, 64, [sizes[letter] for letter in shape]).astype(
      np.float32
    )
    / 64
    for _, name, shape, _ in _rows(family)
  }


def write_gguf(
  path: pathlib.Path, family: Family, kind: str = "F32", **changes: Any
) -> pathlib.Path:
  """The GGUF file; changes to keys with __ for a dot, None removes one."""
  name = family.architecture
  keys = {
    "block_count": family.layers,
    "context_length": CONTEXT,
    "embedding_length": WIDTH,
    "feed_forward_length": MLP,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
  }
  if name == "gptneox":
    del keys["attention.head_count_kv"]
  keys |= family.keys
  keys |= {key.replace("__", "."): value for key, value in changes.items()}
  metadata = {
    f"{name}.{key}": value for key, value in keys.items() if value is not None
  }
  tensors = random_tensors(family)
  unchanged = lambda tensor: tensor
  return checkpoint_files.write_gguf(
    path,
    {"general.architecture": name} | metadata,
    {
      gguf: family.changes.get(change, unchanged)(tensors[hf])
      for gguf, hf, _, change in _rows(family)
    },
    kind,
  )


def write_folder(folder: pathlib.Path, family: Family) -> pathlib.Path:
  """The Hugging Face folder of the same weights."""
  config = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": family.layers,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": family.head_dim,
    "intermediate_size": MLP,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
  }
  if family.architecture == "gptneox":
    for key in ("num_key_value_heads", "head_dim", "rms_norm_eps"):
      del config[key]
  if family.architecture == "gemma3":
    del config["hidden_act"]
  if family.config["model_type"] == "qwen2":
    del config["head_dim"]
  return checkpoint_files.write_folder(
    folder, config | family.config, random_tensors(family)
  )
