# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What objectives that train heads have in common.

Axis letters: B rows, S slots, D model width, Q columns of an output,
V vocabulary.
"""

from collections.abc import Sequence
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from specjax import types
from specjax.models import model as model_lib
from specjax.models import transformer
from specjax.models.heads import eagle_files
from train import packing, teacher
from train.objectives import objective as objective_lib


def unembed(
  target: model_lib.Model,
  x: jax.Array,
  rows: jax.Array | None,
  draft_vocab: int | None,
) -> jax.Array:
  """Logits [..., Q] of what a network gave.

  Args:
    target: its output matrix is used where the network has none.
    x: [..., D], or logits of an own output matrix.
    rows: [Q, D] of the target's matrix; None is all of it.
    draft_vocab: of the network; None has no output matrix.
  """
  if draft_vocab is not None:
    return x
  if rows is None:
    return target.unembed(x)
  return jnp.einsum(
    "...d,qd->...q", x, rows, preferred_element_type=jnp.float32
  )


def block(batch: packing.Batch, seen: teacher.Teacher) -> types.Block:
  """A whole batch as what a drafter observes: [B, S] tokens and features."""
  B, S = batch.tokens.shape
  count = jnp.full((B,), S)
  return types.Block(batch.tokens, seen.hidden, seen.features, count)


def check_sizes(**sizes: int) -> None:
  """Refuses arguments of an objective that are below 1.

  Raises:
    ValueError: one line that names it.
  """
  for name, size in sizes.items():
    if size < 1:
      raise ValueError(f"{name} is {size}: use 1 or more")


def columns(
  target: model_lib.Model, ids: jax.Array | None, own_output: bool
) -> int | None:
  """Q of an output matrix of a head's own; None if it has none."""
  if not own_output:
    return None
  return target.vocab_size if ids is None else len(ids)


def begin(
  module: dict[str, Any], objective: objective_lib.Objective
) -> dict[str, Any]:
  """Parameters of a module that begins close to the target.

  Residual blocks add nothing, and an output matrix of its own, if it is as wide
  as the target's, holds the target's rows.
  """
  ids = objective.ids
  if ids is None:
    ids = jnp.arange(objective.target.vocab_size)
  rows = objective.target.output_rows(ids).astype(jnp.float32)

  def start(name, random):
    if name == "output" and random["kernel"].shape == rows.T.shape:
      return {"kernel": rows.T}
    is_block = name.startswith("block_")
    return jax.tree.map(jnp.zeros_like, random) if is_block else random

  return {name: start(name, random) for name, random in module.items()}


def layer_config(
  target: model_lib.Model, num_layers: int, mlp_dim: int
) -> transformer.TransformerConfig:
  """Plain decoder layers of the target's sizes, whatever its family is.

  Args:
    target: its width, heads and positions are taken.
    num_layers: of them.
    mlp_dim: width of their MLPs; 0 is the target's.

  Raises:
    ValueError: a size below 1.
  """
  c = target.config
  mlp_dim = mlp_dim or c.mlp_dim
  check_sizes(num_layers=num_layers, mlp_dim=mlp_dim)
  return transformer.TransformerConfig(
    vocab_size=c.vocab_size,
    embed_dim=c.embed_dim,
    num_layers=num_layers,
    num_heads=c.num_heads,
    num_kv_heads=c.num_kv_heads,
    head_dim=c.head_dim,
    mlp_dim=mlp_dim,
    max_position=c.max_position,
    norm_eps=c.norm_eps,
    rope_theta=c.rope_theta,
    rope_factors=c.rope_factors if c.rotary_dim is None else None,
    tie_embeddings=False,
  )


def chosen_layers(
  target: model_lib.Model, chosen: Sequence[int]
) -> tuple[int, ...]:
  """The target's layers that a head reads, from 0.

  Args:
    target: has them.
    chosen: as a config says; empty is a low, a middle and a high one.

  Raises:
    ValueError: it has no such layers, or they do not rise.
  """
  last = target.config.num_layers - 1
  if not chosen:
    usual = eagle_files.usual_layers(target)
    return tuple(sorted({min(max(i, 0), last) for i in usual}))
  rising = all(a < b for a, b in itertools.pairwise(chosen))
  if not rising or chosen[0] < 0 or chosen[-1] > last:
    raise ValueError(
      f"feature_layers is {tuple(chosen)}: they must rise and be 0 to {last}"
    )
  return tuple(chosen)
