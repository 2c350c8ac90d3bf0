# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes EAGLE-3 heads in the layout that `eagle_files` reads.

Engines number the target's layers in two ways. SGLang and trainers count what
layers give, from 0, in eagle_config; vLLM counts what layers read, one more, at
the top of config.json. Both entries are written: with one of them alone, an
engine of the other kind would feed the head from layers beside those.

Axis letters: D width of the head, F features width, Q tokens that can be
drafted, V vocabulary.
"""

from collections.abc import Mapping
import dataclasses
import os
from typing import Any

import numpy as np

from specjax.models import huggingface_config
from specjax.models import model as model_lib
from specjax.models.heads import eagle_files, eagle_heads, exported_heads


def save(
  head: eagle_heads.EagleHead,
  target: model_lib.Model,
  path: str | os.PathLike[str],
  max_length: int | None = None,
) -> None:
  """Writes a new folder.

  Args:
    head: of kind eagle3. One that ends in the target's output matrix gets a
      copy of the rows that it reads.
    target: the model that it was trained for.
    path: of the folder.
    max_length: positions that it is to be served with; None is what it has.

  Raises:
    ValueError: the folder exists, a head of another kind, or a decoder layer
      that the layout cannot state.
  """
  if head.config.kind != "eagle3" or not head.config.feature_layers:
    raise ValueError(
      f"a head of kind {head.config.kind!r} that reads the target's layers "
      f"{head.config.feature_layers}: the layout is of kind 'eagle3', of layers"
    )
  ids = exported_heads.tokens(head, target)
  tensors = exported_heads.parameters(head, eagle_files.NAMES)
  name = eagle_files.NAMES["output", "kernel"]
  tensors[name] = exported_heads.rows(head, target, tensors.get(name))
  raw = _config(head, target, len(tensors[name]), max_length)
  if ids is not None:
    tensors[eagle_files.TO_TARGET] = ids - np.arange(len(ids))
    has_column = np.isin(np.arange(raw["vocab_size"]), ids)
    tensors[eagle_files.HAS_COLUMN] = has_column
  contract = _contract(raw, head.config.own_embedding, ids is not None)
  exported_heads.write(path, raw, tensors, contract)


def _config(
  head: eagle_heads.EagleHead,
  target: model_lib.Model,
  size: int,
  max_length: int | None,
) -> dict[str, Any]:
  """A config.json that is complete: engines guess what they do not find."""
  c = head.config
  embedded = c.layer.vocab_size if c.own_embedding else target.vocab_size
  layer = dataclasses.replace(
    c.layer,
    vocab_size=embedded,
    max_position=max_length or c.layer.max_position,
    tie_embeddings=False,
  )
  read = list(c.feature_layers)
  return huggingface_config.write_config(layer) | {
    "architectures": [eagle_files.ARCHITECTURE],
    "draft_vocab_size": size,
    "target_hidden_size": c.feature_dim // len(read),
    "eagle_config": {
      eagle_files.LAYERS: read,
      "use_aux_hidden_state": True,
    },
    eagle_files.LAYERS: [i + 1 for i in read],
    "torch_dtype": head.dtype.name,
  }


def _contract(
  raw: Mapping[str, Any], has_embedding: bool, is_mapped: bool
) -> exported_heads.Contract:
  """Tensors that the layout has for a config.json, as an engine builds them."""
  width, hidden = raw["hidden_size"], raw["intermediate_size"]
  queries = raw["num_attention_heads"] * raw["head_dim"]
  keys = raw["num_key_value_heads"] * raw["head_dim"]
  read = raw["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
  shapes = {
    "fc.weight": (width, len(read) * raw["target_hidden_size"]),
    "midlayer.input_layernorm.weight": (width,),
    "midlayer.hidden_norm.weight": (width,),
    # The attention reads token and feature side by side.
    "midlayer.self_attn.q_proj.weight": (queries, 2 * width),
    "midlayer.self_attn.k_proj.weight": (keys, 2 * width),
    "midlayer.self_attn.v_proj.weight": (keys, 2 * width),
    "midlayer.self_attn.o_proj.weight": (width, queries),
    "midlayer.post_attention_layernorm.weight": (width,),
    "midlayer.mlp.gate_proj.weight": (hidden, width),
    "midlayer.mlp.up_proj.weight": (hidden, width),
    "midlayer.mlp.down_proj.weight": (width, hidden),
    "norm.weight": (width,),
    "lm_head.weight": (raw["draft_vocab_size"], width),
  }
  if has_embedding:
    shapes["embed_tokens.weight"] = (raw["vocab_size"], width)
  kind = exported_heads.kind(raw["torch_dtype"])
  found = {name: (kind, shape) for name, shape in shapes.items()}
  if is_mapped:
    found["d2t"] = (exported_heads.INTEGERS, (raw["draft_vocab_size"],))
    found["t2d"] = (exported_heads.SWITCHES, (raw["vocab_size"],))
  return found
