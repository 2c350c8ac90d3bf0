# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of the tensors in safetensors files, by parameter path.

Which of them a model has follows from its configuration
(`parameters.parameter_shapes`); see `parameters.stored_names` for the form.
"""

from specjax.models.parameters import Fused, Path

_LAYER = "model.layers.{layer}."
LLAMA: dict[Path, str | Fused] = {
  ("embed", "embedding"): "model.embed_tokens.weight",
  ("final_norm", "scale"): "model.norm.weight",
  ("unembed", "kernel"): "lm_head.weight",
  ("attention_norm", "scale"): _LAYER + "input_layernorm.weight",
  ("attention", "query", "kernel"): _LAYER + "self_attn.q_proj.weight",
  ("attention", "query", "bias"): _LAYER + "self_attn.q_proj.bias",
  ("attention", "key", "kernel"): _LAYER + "self_attn.k_proj.weight",
  ("attention", "key", "bias"): _LAYER + "self_attn.k_proj.bias",
  ("attention", "value", "kernel"): _LAYER + "self_attn.v_proj.weight",
  ("attention", "value", "bias"): _LAYER + "self_attn.v_proj.bias",
  ("attention", "query_norm", "scale"): _LAYER + "self_attn.q_norm.weight",
  ("attention", "key_norm", "scale"): _LAYER + "self_attn.k_norm.weight",
  ("attention", "output", "kernel"): _LAYER + "self_attn.o_proj.weight",
  ("attention", "output", "bias"): _LAYER + "self_attn.o_proj.bias",
  ("mlp_norm", "scale"): _LAYER + "post_attention_layernorm.weight",
  ("mlp", "gate", "kernel"): _LAYER + "mlp.gate_proj.weight",
  ("mlp", "gate", "bias"): _LAYER + "mlp.gate_proj.bias",
  ("mlp", "up", "kernel"): _LAYER + "mlp.up_proj.weight",
  ("mlp", "up", "bias"): _LAYER + "mlp.up_proj.bias",
  ("mlp", "down", "kernel"): _LAYER + "mlp.down_proj.weight",
  ("mlp", "down", "bias"): _LAYER + "mlp.down_proj.bias",
}
GEMMA = LLAMA | {
  ("attention_post_norm", "scale"): _LAYER + "post_attention_layernorm.weight",
  ("mlp_norm", "scale"): _LAYER + "pre_feedforward_layernorm.weight",
  ("mlp_post_norm", "scale"): _LAYER + "post_feedforward_layernorm.weight",
}

_NEOX = "gpt_neox.layers.{layer}."
_NEOX_WEIGHT = Fused(_NEOX + "attention.query_key_value.weight", by_head=True)
_NEOX_BIAS = Fused(_NEOX + "attention.query_key_value.bias", by_head=True)
NEOX: dict[Path, str | Fused] = {
  ("embed", "embedding"): "gpt_neox.embed_in.weight",
  ("final_norm", "scale"): "gpt_neox.final_layer_norm.weight",
  ("final_norm", "bias"): "gpt_neox.final_layer_norm.bias",
  ("unembed", "kernel"): "embed_out.weight",
  ("attention_norm", "scale"): _NEOX + "input_layernorm.weight",
  ("attention_norm", "bias"): _NEOX + "input_layernorm.bias",
  ("attention", "query", "kernel"): _NEOX_WEIGHT,
  ("attention", "query", "bias"): _NEOX_BIAS,
  ("attention", "key", "kernel"): _NEOX_WEIGHT,
  ("attention", "key", "bias"): _NEOX_BIAS,
  ("attention", "value", "kernel"): _NEOX_WEIGHT,
  ("attention", "value", "bias"): _NEOX_BIAS,
  ("attention", "output", "kernel"): _NEOX + "attention.dense.weight",
  ("attention", "output", "bias"): _NEOX + "attention.dense.bias",
  ("mlp_norm", "scale"): _NEOX + "post_attention_layernorm.weight",
  ("mlp_norm", "bias"): _NEOX + "post_attention_layernorm.bias",
  ("mlp", "up", "kernel"): _NEOX + "mlp.dense_h_to_4h.weight",
  ("mlp", "up", "bias"): _NEOX + "mlp.dense_h_to_4h.bias",
  ("mlp", "down", "kernel"): _NEOX + "mlp.dense_4h_to_h.weight",
  ("mlp", "down", "bias"): _NEOX + "mlp.dense_4h_to_h.bias",
}
