# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 heads in the Hugging Face layout, as most engines read them.

config.json is that of a Llama of one layer, with `draft_vocab_size`;
model.safetensors has `midlayer.*` (some tools write `layers.0.*`), `fc`,
`norm`, `lm_head`, and the maps of a reduced vocabulary: d2t holds what is added
to a column's number to get the target's id, t2d which ids have a column.
"""

from collections.abc import Mapping
import itertools
import os
import re
from typing import Any

import jax
import numpy as np

from specjax import types
from specjax.models import (
  huggingface_config,
  json_values,
  layout,
  transformer,
  weights,
)
from specjax.models.heads import eagle_heads, head_files, saved_heads
from specjax.models.heads.head_files import Folder, Path

NAMES: Mapping[Path, str] = {
  ("fuse", "kernel"): "fc.weight",
  ("embedding_norm", "scale"): "midlayer.input_layernorm.weight",
  ("feature_norm", "scale"): "midlayer.hidden_norm.weight",
  ("attention", "query", "kernel"): "midlayer.self_attn.q_proj.weight",
  ("attention", "key", "kernel"): "midlayer.self_attn.k_proj.weight",
  ("attention", "value", "kernel"): "midlayer.self_attn.v_proj.weight",
  ("attention", "output", "kernel"): "midlayer.self_attn.o_proj.weight",
  ("mlp_norm", "scale"): "midlayer.post_attention_layernorm.weight",
  ("mlp", "gate", "kernel"): "midlayer.mlp.gate_proj.weight",
  ("mlp", "up", "kernel"): "midlayer.mlp.up_proj.weight",
  ("mlp", "down", "kernel"): "midlayer.mlp.down_proj.weight",
  ("final_norm", "scale"): "norm.weight",
  ("output", "kernel"): "lm_head.weight",
  ("embed", "embedding"): "embed_tokens.weight",
}
_EMBEDDING = NAMES["embed", "embedding"]
_MAPS = TO_TARGET, HAS_COLUMN = "d2t", "t2d"
LAYERS = "eagle_aux_hidden_state_layer_ids"
ARCHITECTURE = "LlamaForCausalLMEagle3"


def load(
  name: str | os.PathLike[str],
  target: types.Model,
  feature_layers: tuple[int, ...] = (),
) -> eagle_heads.EagleHead:
  """Reads an EAGLE-3 head, or any head of `eagle_heads` in our own layout.

  Args:
    name: a local folder or hf:owner/name@revision.
    target: the model that it was trained for.
    feature_layers: the target's layers that the head reads, from 0; () is what
      its config.json says, else the second, the one before the middle and the
      fourth from the end. Our own layout always says.

  Raises:
    FileNotFoundError: there is no such folder, or a file is missing.
    ValueError: no such head, of another target, of other layers, without the
      map of its reduced vocabulary, or damaged.
  """
  folder = head_files.open_folder(name)
  if saved_heads.is_own(folder):
    head = saved_heads.load(folder, target, eagle_heads.EagleHead)
    own = head.config.feature_layers
    if feature_layers and feature_layers != own:
      raise ValueError(
        f"feature_layers is {feature_layers} but {folder.name} was trained for "
        f"{own}: leave it out"
      )
    check_layers(own, target, folder)
    return head
  layer = _read_layer(folder)
  tensors, maps = _tensors(folder)
  read = feature_layers or _stated_layers(folder) or usual_layers(target)
  check_layers(read, target, folder)
  width = head_files.embedding_of(target).shape[-1]
  config = eagle_heads.EagleConfig(
    "eagle3",
    layer,
    feature_dim=len(read) * width,
    feature_layers=read,
    draft_vocab=json_values.read(
      folder.raw, "draft_vocab_size", int, layer.vocab_size, least=1
    ),
    own_embedding=_EMBEDDING in tensors,
  )
  if not config.own_embedding:
    head_files.check_width(layer.embed_dim, target, folder)
  columns = _columns(config, maps, target, folder)
  names = dict(NAMES)
  if not config.own_embedding:
    del names["embed", "embedding"]
  kind = eagle_heads.EagleHead
  head = head_files.read_head(kind, config, tensors, names, folder, target)
  return head.replace(columns=columns).beside(target)


def is_published(raw: Mapping[str, Any]) -> bool:
  """Whether a config.json is that of an EAGLE-3 head in this layout."""
  architectures = raw.get("architectures")
  return "draft_vocab_size" in raw or (
    isinstance(architectures, list) and ARCHITECTURE in architectures
  )


def _read_layer(folder: Folder) -> transformer.TransformerConfig:
  if not is_published(folder.raw):
    raise ValueError(
      f"{folder.name}: config.json is not that of an EAGLE-3 head, which has "
      "draft_vocab_size: name another folder"
    )
  layer = huggingface_config.read_config(folder.raw)
  if layer.num_layers != 1:
    raise ValueError(
      f"{folder.name}: num_hidden_layers is {layer.num_layers}, an EAGLE-3 "
      "head has 1"
    )
  layout.check_config(layer, folder.name)
  return layer


def _tensors(folder):
  """Parameters, and maps as numbers, by name."""
  tensors = {
    re.sub(r"^layers\.0\.", "midlayer.", name): stored
    for name, stored in folder.tensors(integers=_MAPS).items()
  }
  maps = {
    name: head_files.read_integers(
      tensors.pop(name), f"{folder.name}: tensor {name}"
    )
    for name in _MAPS
    if name in tensors
  }
  return tensors, maps


def _columns(config, maps, target, folder) -> jax.Array | None:
  size, ids = config.draft_vocab, None
  if TO_TARGET in maps:
    offsets = maps[TO_TARGET]
    ids = np.arange(len(offsets)) + offsets
  columns = head_files.columns(target, size, ids, folder)
  if ids is not None and HAS_COLUMN in maps:
    has_column = np.flatnonzero(maps[HAS_COLUMN])
    if not np.array_equal(has_column, np.sort(ids)):
      raise ValueError(
        f"{folder.name}: d2t and t2d name other tokens: fetch the file again"
      )
  return columns


def _stated_layers(folder: Folder) -> tuple[int, ...]:
  """The layers that config.json names; outputs of blocks counted from 0.

  An entry at the top counts what layers read: 1 is the output of layer 0.
  """
  inner = folder.raw.get("eagle_config")
  stated = inner.get(LAYERS) if isinstance(inner, dict) else None
  first = 0
  if stated is None:
    stated, first = folder.raw.get(LAYERS) or [], 1
  layers = tuple(stated) if isinstance(stated, list) else stated
  if not json_values.is_of(layers, tuple[int, ...]):
    raise ValueError(
      f"{folder.name}: {LAYERS} = {weights.one_line(stated)} is no list of "
      "layers"
    )
  return tuple(i - first for i in layers)


def usual_layers(target: types.Model) -> tuple[int, ...]:
  """A low, a middle and a high layer, as most heads are trained."""
  number = num_layers(target)
  return tuple(sorted({1, number // 2 - 1, number - 4}))


def num_layers(target: types.Model) -> int:
  """Layers of a target's cache, one for each of its own."""
  rows = head_files.fewest_rows(target)
  return len(jax.eval_shape(lambda: target.init_cache(rows, 1, 1)).layers)


def check_layers(
  read: tuple[int, ...], target: types.Model, folder: Folder
) -> None:
  """Refuses layers that a target does not have, or in another order."""
  number = num_layers(target)
  rising = all(a < b for a, b in itertools.pairwise(read))
  if not rising or any(not 0 <= i < number for i in read):
    raise ValueError(
      f"{folder.name} reads the target's layers {read}, which must rise and be "
      f"0 to {number - 1}: say which with feature_layers"
    )
