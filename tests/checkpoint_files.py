# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny Llama checkpoints as files, written without the code under test.

Names, shapes and GGUF's row order are spelled out here a second time, so that
a mistake in the loaders is not repeated by the files they are tested with.
"""

import dataclasses
import json
import pathlib
import struct
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from specjax.models import transformer

TINY = transformer.TransformerConfig(
  vocab_size=48,
  embed_dim=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_dim=64,
  max_position=128,
  norm_eps=1e-5,
  rope_theta=10000.0,
  rope_factors=None,
  tie_embeddings=True,
)

_LAYER_NAMES = (
  # part, Hugging Face, GGUF
  (("attention_norm", "scale"), "input_layernorm", "attn_norm"),
  (("attention", "query", "kernel"), "self_attn.q_proj", "attn_q"),
  (("attention", "key", "kernel"), "self_attn.k_proj", "attn_k"),
  (("attention", "value", "kernel"), "self_attn.v_proj", "attn_v"),
  (("attention", "output", "kernel"), "self_attn.o_proj", "attn_output"),
  (("mlp_norm", "scale"), "post_attention_layernorm", "ffn_norm"),
  (("mlp", "gate", "kernel"), "mlp.gate_proj", "ffn_gate"),
  (("mlp", "up", "kernel"), "mlp.up_proj", "ffn_up"),
  (("mlp", "down", "kernel"), "mlp.down_proj", "ffn_down"),
)


def tiny(**changes: Any) -> transformer.TransformerConfig:
  return dataclasses.replace(TINY, **changes)


def random_tensors(
  config: transformer.TransformerConfig, seed: int = 0
) -> dict[str, np.ndarray]:
  """Tensors by Hugging Face name, [outputs, inputs], float32.

  Each value is a multiple of 1/64 below 2, so that bfloat16 and float16 hold
  it exactly and formats can be compared without a tolerance.
  """
  rng = np.random.default_rng(seed)
  c = config
  q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
  layer_shapes = (
    (c.embed_dim,),
    (q, c.embed_dim),
    (kv, c.embed_dim),
    (kv, c.embed_dim),
    (c.embed_dim, q),
    (c.embed_dim,),
    (c.mlp_dim, c.embed_dim),
    (c.mlp_dim, c.embed_dim),
    (c.embed_dim, c.mlp_dim),
  )
  shapes: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (c.vocab_size, c.embed_dim)
  }
  for i in range(c.num_layers):
    for (_, name, _), shape in zip(_LAYER_NAMES, layer_shapes):
      shapes[f"model.layers.{i}.{name}.weight"] = shape
  shapes["model.norm.weight"] = (c.embed_dim,)
  if not c.tie_embeddings:
    shapes["lm_head.weight"] = (c.vocab_size, c.embed_dim)
  return {
    name: rng.integers(-127, 128, shape).astype(np.float32) / 64
    for name, shape in shapes.items()
  }


def expected_params(
  config: transformer.TransformerConfig, tensors: dict[str, np.ndarray]
) -> dict[str, Any]:
  """The parameter tree that must come out of the tensors."""
  params = {
    "embed": {"embedding": tensors["model.embed_tokens.weight"]},
    "final_norm": {"scale": tensors["model.norm.weight"]},
  }
  if not config.tie_embeddings:
    params["unembed"] = {"kernel": tensors["lm_head.weight"].T}
  for i in range(config.num_layers):
    layer: dict[str, Any] = {}
    for path, name, _ in _LAYER_NAMES:
      node = layer
      for part in path[:-1]:
        node = node.setdefault(part, {})
      node[path[-1]] = tensors[f"model.layers.{i}.{name}.weight"].T
    params[f"layer_{i}"] = layer
  return params


def gguf_tensors(
  config: transformer.TransformerConfig, tensors: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """The same by GGUF name; query and key rows in that format's order."""
  renamed = {
    "token_embd.weight": tensors["model.embed_tokens.weight"],
    "output_norm.weight": tensors["model.norm.weight"],
  }
  if "lm_head.weight" in tensors:
    renamed["output.weight"] = tensors["lm_head.weight"]
  heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
  for i in range(config.num_layers):
    for _, name, short in _LAYER_NAMES:
      tensor = tensors[f"model.layers.{i}.{name}.weight"]
      if short in heads:
        # Row (half, pair) of a head becomes row (pair, half).
        halves = tensor.reshape(heads[short], 2, -1, tensor.shape[-1])
        tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
      renamed[f"blk.{i}.{short}.weight"] = tensor
  return renamed


def gguf_metadata(config: transformer.TransformerConfig) -> dict[str, Any]:
  return {
    "general.architecture": "llama",
    "llama.block_count": config.num_layers,
    "llama.context_length": config.max_position,
    "llama.embedding_length": config.embed_dim,
    "llama.feed_forward_length": config.mlp_dim,
    "llama.attention.head_count": config.num_heads,
    "llama.attention.head_count_kv": config.num_kv_heads,
    "llama.attention.key_length": config.head_dim,
    "llama.attention.value_length": config.head_dim,
    "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
    "llama.rope.freq_base": config.rope_theta,
    "llama.rope.dimension_count": config.head_dim,
    "llama.vocab_size": config.vocab_size,
  }


def write_gguf(
  path: pathlib.Path,
  metadata: dict[str, Any],
  tensors: dict[str, np.ndarray],
  kind: str = "F32",
) -> pathlib.Path:
  """Writes with the `gguf` library; matrices in `kind`, vectors in F32.

  An array of uint8 is taken for bytes of `kind` already.
  """
  writer = gguf.GGUFWriter(path, metadata["general.architecture"])
  kind_id = gguf.GGMLQuantizationType[kind]
  for key, value in metadata.items():
    if key != "general.architecture":
      _add_value(writer, key, value)
  for name, tensor in tensors.items():
    if tensor.dtype == np.uint8:
      writer.add_tensor(name, tensor, raw_dtype=kind_id)
    elif tensor.ndim == 1 or kind == "F32":
      writer.add_tensor(name, tensor)
    else:
      writer.add_tensor(
        name, gguf.quants.quantize(tensor, kind_id), raw_dtype=kind_id
      )
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
  if isinstance(value, bool):
    writer.add_bool(key, value)
  elif isinstance(value, int):
    writer.add_uint32(key, value)
  elif isinstance(value, float):
    writer.add_float32(key, value)
  elif isinstance(value, str):
    writer.add_string(key, value)
  else:
    writer.add_array(key, value)


def folder_config(config: transformer.TransformerConfig) -> dict[str, Any]:
  return {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": config.vocab_size,
    "hidden_size": config.embed_dim,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.num_kv_heads,
    "head_dim": config.head_dim,
    "intermediate_size": config.mlp_dim,
    "max_position_embeddings": config.max_position,
    "rms_norm_eps": config.norm_eps,
    "rope_theta": config.rope_theta,
    "tie_word_embeddings": config.tie_embeddings,
  }


_STORED = {
  "F32": np.float32,
  "F16": np.float16,
  "BF16": ml_dtypes.bfloat16,
}


def write_safetensors(
  path: pathlib.Path, tensors: dict[str, np.ndarray], kind: str = "F32"
) -> pathlib.Path:
  header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
  data = b""
  for name, tensor in tensors.items():
    raw = tensor.astype(_STORED[kind]).tobytes()
    header[name] = {
      "dtype": kind,
      "shape": list(tensor.shape),
      "data_offsets": [len(data), len(data) + len(raw)],
    }
    data += raw
  write_raw_safetensors(path, header, data)
  return path


def write_raw_safetensors(
  path: pathlib.Path, header: dict[str, Any] | str, data: bytes
) -> None:
  text = header if isinstance(header, str) else json.dumps(header)
  raw = text.encode()
  path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def write_folder(
  folder: pathlib.Path,
  config: dict[str, Any],
  tensors: dict[str, np.ndarray],
  kind: str = "F32",
  files: int = 1,
) -> pathlib.Path:
  """A Hugging Face folder; with several files, tensors are dealt in turn."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config))
  if files == 1:
    write_safetensors(folder / "model.safetensors", tensors, kind)
    return folder
  places = {}
  for i in range(files):
    name = f"model-{i + 1:05}-of-{files:05}.safetensors"
    share = dict(list(tensors.items())[i::files])
    write_safetensors(folder / name, share, kind)
    places.update(dict.fromkeys(share, name))
  index = {"metadata": {}, "weight_map": places}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index))
  return folder


_WORDS = ("<s>", "</s>", "a", "b", "c", "ab", "abc")
# GGUF keys of a tokenizer with seven tokens.
TOKENIZER = {
  "tokenizer.ggml.model": "gpt2",
  "tokenizer.ggml.pre": "smollm",
  "tokenizer.ggml.tokens": list(_WORDS),
  "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1],
  "tokenizer.ggml.merges": ["a b", "ab c"],
  "tokenizer.ggml.bos_token_id": 0,
  "tokenizer.ggml.eos_token_id": 1,
}


def write_tokenizer(folder: pathlib.Path) -> None:
  """The tokenizer of `TOKENIZER` as the files of a folder."""
  import tokenizers as tokenizers_lib

  model = tokenizers_lib.models.BPE(
    vocab={word: i for i, word in enumerate(_WORDS)},
    merges=[("a", "b"), ("ab", "c")],
  )
  tokenizer = tokenizers_lib.Tokenizer(model)
  tokenizer.pre_tokenizer = tokenizers_lib.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers_lib.decoders.ByteLevel()
  tokenizer.add_special_tokens(list(_WORDS[:2]))
  tokenizer.save(str(folder / "tokenizer.json"))
  names = {"bos_token": "<s>", "eos_token": "</s>"}
  (folder / "tokenizer_config.json").write_text(json.dumps(names))
