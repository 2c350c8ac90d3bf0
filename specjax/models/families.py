# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model families, one row each: what config.json and tensor names mean.

`FAMILIES` is the table. A row says what each field of a `TransformerConfig` is
(an entry of config.json, a constant, or a function of other fields), how the
family writes windows and rotary positions, and where its tensors lie. Loading
and saving read the same rows; neither knows a family by name. A new family of
the one decoder is a new row.
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

from specjax.models import tensor_names
from specjax.models.parameters import Fused, Path


@dataclasses.dataclass(frozen=True)
class Key:
  """An entry of config.json.

  Attributes:
    name: of the entry.
    kind: int, float, bool or str.
    default: what an absent entry means, as Transformers has it; a function is
      called with the fields read so far; None: there must be one.
    read: the field's value of the entry's, None for one that is not computed.
    write: the other way round.
    least: smallest number allowed.
  """

  name: str
  kind: type = int
  default: Any = None
  read: Callable[[Any], Any] = lambda value: value
  write: Callable[[Any], Any] = lambda value: value
  least: int | None = None


@dataclasses.dataclass(frozen=True)
class Windows:
  """How a family says which layers have a sliding window.

  Attributes:
    size: default of `sliding_window`; None: no layer of the family has one.
    switch: entry that must be true for windows to count, or None.
    setting: entry that `slides` reads.
    slides: whether a layer has a window, of the setting and the layer's index,
      where `layer_types` does not say so.
    listed: whether the family has `layer_types`.
  """

  size: int | None = None
  switch: str | None = None
  setting: Key | None = None
  slides: Callable[[int, int], bool] = lambda setting, layer: False
  listed: bool = False


@dataclasses.dataclass(frozen=True)
class Rope:
  """Defaults of a family's rotary positions.

  Attributes:
    theta: base of the frequencies.
    local_theta: the same in layers with a window; None: one base for all.
    fraction: of a head's channels that is rotated; None: all of them, and a
      file that says otherwise is refused.
  """

  theta: float = 10000.0
  local_theta: float | None = None
  fraction: float | None = None


@dataclasses.dataclass(frozen=True)
class Family:
  """A row of the table.

  Attributes:
    name: of the family, and of its `model_type` unless `section` is set.
    architecture: the class of Transformers.
    fields: source of each field of the configuration.
    tensors: names in safetensors files, see `parameters.stored_names`.
    windows: of the layers.
    rope: the rotary positions.
    spellings: older names of entries of config.json, each with today's.
    section: entry of config.json that holds the text model's configuration.
    renamed: beginnings of tensor names, each with what it stands for; the first
      that fits counts.
    ignored: patterns of tensors that are no parameters of the text model.
  """

  name: str
  architecture: str
  fields: Mapping[str, Any]
  tensors: Mapping[Path, str | Fused]
  windows: Windows = Windows()
  rope: Rope = Rope()
  spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  section: str | None = None
  renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # Old checkpoints store the frequencies, which follow from the configuration.
  ignored: tuple[str, ...] = ("*.rotary_emb.inv_freq",)

  def key(self, field: str) -> Key | None:
    """The entry of config.json that states a field, if one does."""
    source = self.fields.get(field)
    return source if isinstance(source, Key) else None


# config.json's names of `layers.ACTIVATIONS`; the first of each is written.
_ACTIVATIONS = {
  "silu": "silu",
  "gelu": "gelu",
  "gelu_pytorch_tanh": "gelu_tanh",
  "gelu_new": "gelu_tanh",
}


def _activation(name: str, default: str) -> Key:
  def write(value: str) -> str:
    return next(key for key, found in _ACTIVATIONS.items() if found == value)

  return Key(name, str, default, read=_ACTIVATIONS.get, write=write)


_SIZES = {
  "vocab_size": Key("vocab_size"),
  "embed_dim": Key("hidden_size"),
  "num_layers": Key("num_hidden_layers"),
  "num_heads": Key("num_attention_heads"),
  "mlp_dim": Key("intermediate_size"),
  "max_position": Key("max_position_embeddings"),
  "tie_embeddings": Key("tie_word_embeddings", bool, False),
}


def _even_heads(fields: Mapping[str, Any]) -> int:
  return fields["embed_dim"] // max(fields["num_heads"], 1)


# Stated head sizes need not be hidden_size / num_attention_heads.
_DECODER = _SIZES | {
  "num_kv_heads": Key(
    "num_key_value_heads", default=lambda fields: fields["num_heads"]
  ),
  "head_dim": Key("head_dim", default=_even_heads),
  "norm_eps": Key("rms_norm_eps", float, 1e-6),
  "activation": _activation("hidden_act", "silu"),
}
_ATTENTION_BIAS = Key("attention_bias", bool, False)
_MLP_BIAS = Key("mlp_bias", bool, False)

_QWEN_WINDOWS = Windows(
  size=4096,
  switch="use_sliding_window",
  setting=Key("max_window_layers", int, 28, least=0),
  slides=lambda first, layer: layer >= first,
  listed=True,
)

_LLAMA = Family(
  name="llama",
  architecture="LlamaForCausalLM",
  fields=_DECODER
  | {
    "qkv_bias": _ATTENTION_BIAS,
    "output_bias": _ATTENTION_BIAS,
    "mlp_bias": _MLP_BIAS,
  },
  tensors=tensor_names.LLAMA,
)
_MISTRAL = Family(
  name="mistral",
  architecture="MistralForCausalLM",
  fields=_DECODER,
  tensors=tensor_names.LLAMA,
  windows=Windows(size=4096, slides=lambda setting, layer: True),
)
_QWEN2 = Family(
  name="qwen2",
  architecture="Qwen2ForCausalLM",
  fields=_DECODER | {"qkv_bias": True},
  tensors=tensor_names.LLAMA,
  windows=_QWEN_WINDOWS,
)
_QWEN3 = Family(
  name="qwen3",
  architecture="Qwen3ForCausalLM",
  fields=_DECODER
  | {
    "head_dim": Key("head_dim", default=128),
    "qkv_bias": _ATTENTION_BIAS,
    "output_bias": _ATTENTION_BIAS,
    "qk_norm": True,
  },
  tensors=tensor_names.LLAMA,
  windows=_QWEN_WINDOWS,
)
_GEMMA3_TEXT = Family(
  name="gemma3_text",
  architecture="Gemma3ForCausalLM",
  fields=_DECODER
  | {
    # The larger models' files leave these out.
    "vocab_size": Key("vocab_size", default=262_208),
    "num_heads": Key("num_attention_heads", default=8),
    "num_kv_heads": Key("num_key_value_heads", default=4),
    "head_dim": Key("head_dim", default=256),
    "max_position": Key("max_position_embeddings", default=131_072),
    "tie_embeddings": Key("tie_word_embeddings", bool, True),
    "activation": _activation("hidden_activation", "gelu_pytorch_tanh"),
    "qkv_bias": _ATTENTION_BIAS,
    "output_bias": _ATTENTION_BIAS,
    "qk_norm": True,
    "post_norms": True,
    "norm_offset": 1.0,
    "embedding_scale": lambda fields: math.sqrt(fields["embed_dim"]),
    "query_scale": Key(
      "query_pre_attn_scalar",
      default=256,
      read=lambda value: value**-0.5,
      write=lambda scale: round(scale**-2),
      least=1,
    ),
  },
  tensors=tensor_names.GEMMA,
  windows=Windows(
    size=4096,
    setting=Key("sliding_window_pattern", int, 6, least=1),
    slides=lambda every, layer: (layer + 1) % every != 0,
    listed=True,
  ),
  rope=Rope(theta=1_000_000.0, local_theta=10_000.0),
)
_GPT_NEOX = Family(
  name="gpt_neox",
  architecture="GPTNeoXForCausalLM",
  fields=_SIZES
  | {
    "num_kv_heads": lambda fields: fields["num_heads"],
    "head_dim": _even_heads,
    "norm_eps": Key("layer_norm_eps", float, 1e-5),
    "norm": "layer",
    "activation": _activation("hidden_act", "gelu"),
    "gated_mlp": False,
    "qkv_bias": Key("attention_bias", bool, True),
    "output_bias": Key("attention_bias", bool, True),
    "mlp_bias": True,
    "parallel_residual": Key("use_parallel_residual", bool, True),
  },
  tensors=tensor_names.NEOX,
  rope=Rope(fraction=0.25),
  spellings={
    "rotary_emb_base": "rope_theta",
    "rotary_pct": "partial_rotary_factor",
  },
  renamed={"lm_head.": "embed_out."},
  ignored=("*.inv_freq", "*.attention.bias", "*.attention.masked_bias"),
)

# By the `model_type` of config.json.
FAMILIES: dict[str, Family] = {
  "llama": _LLAMA,
  "mistral": _MISTRAL,
  "qwen2": _QWEN2,
  "qwen3": _QWEN3,
  "gemma3_text": _GEMMA3_TEXT,
  # The text model inside the one that reads images too.
  "gemma3": dataclasses.replace(
    _GEMMA3_TEXT,
    section="text_config",
    renamed={
      "language_model.": "",
      "model.language_model.": "model.",
    },
    ignored=("*vision_tower.*", "*multi_modal_projector.*"),
  ),
  "gpt_neox": _GPT_NEOX,
}
