# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The same weights as a Transformers model, so that only the engines differ."""

from typing import Any

import numpy as np

from specjax.models import model as model_lib
from specjax.models import transformer

# Our path below a layer -> Transformers' name below model.layers.N.
_LAYER_NAMES = {
  ("attention_norm", "scale"): "input_layernorm.weight",
  ("attention", "query", "kernel"): "self_attn.q_proj.weight",
  ("attention", "key", "kernel"): "self_attn.k_proj.weight",
  ("attention", "value", "kernel"): "self_attn.v_proj.weight",
  ("attention", "output", "kernel"): "self_attn.o_proj.weight",
  ("mlp_norm", "scale"): "post_attention_layernorm.weight",
  ("mlp", "gate", "kernel"): "mlp.gate_proj.weight",
  ("mlp", "up", "kernel"): "mlp.up_proj.weight",
  ("mlp", "down", "kernel"): "mlp.down_proj.weight",
}


def _torch_config(config: transformer.TransformerConfig):
  import transformers

  if config.rope_factors is not None:
    raise ValueError("scaled rotary frequencies are not part of this baseline")
  return transformers.LlamaConfig(
    vocab_size=config.vocab_size,
    hidden_size=config.embed_dim,
    intermediate_size=config.mlp_dim,
    num_hidden_layers=config.num_layers,
    num_attention_heads=config.num_heads,
    num_key_value_heads=config.num_kv_heads,
    head_dim=config.head_dim,
    max_position_embeddings=config.max_position,
    rms_norm_eps=config.norm_eps,
    rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
    tie_word_embeddings=config.tie_embeddings,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=0,
  )


def _tensor(array):
  """A float32 torch tensor; matrices turn from [in, out] to [out, in]."""
  import torch

  array = np.asarray(array, np.float32)
  return torch.from_numpy(np.array(array.T if array.ndim == 2 else array))


def _state(params: Any, config: transformer.TransformerConfig) -> dict:
  embedding = _tensor(params["embed"]["embedding"]).T.contiguous()
  unembed = params.get("unembed")
  state = {
    "model.embed_tokens.weight": embedding,
    "model.norm.weight": _tensor(params["final_norm"]["scale"]),
    "lm_head.weight": _tensor(unembed["kernel"]) if unembed else embedding,
  }
  for index in range(config.num_layers):
    for path, name in _LAYER_NAMES.items():
      leaf = params[f"layer_{index}"]
      for key in path:
        leaf = leaf[key]
      state[f"model.layers.{index}.{name}"] = _tensor(leaf)
  return state


def from_specjax(model: model_lib.Model):
  """A float32 `transformers.LlamaForCausalLM` with the weights of `model`."""
  import transformers

  network = transformers.LlamaForCausalLM(_torch_config(model.config))
  network.load_state_dict(_state(model.params, model.config))
  return network.eval()
