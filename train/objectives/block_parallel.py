# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A block-parallel head: a block of masks behind every slot of a text.

One pass reads the features of the text; blocks then attend to those up to their
slot, and to themselves, never to each other (arXiv 2602.06036). A few dozen
blocks run side by side and the next ones take their place, so that what a block
may see stays about as long as the text.

  slot t          block of t
  f_0 ... f_t     x_{t+1}  m        m          positions t + 1, t + 2, t + 3
                           x_{t+2}  x_{t+3}    drawn

A head drafts the length that it was trained for: masks see each other.

Axis letters: B rows, S slots, R blocks that run together, K masks, T = K + 1
slots of a block, D width of the head, Q columns.
"""

import functools
import os
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import tokenizers
from specjax.drafters import block_parallel as block_drafter
from specjax.models import model as model_lib
from specjax.models.heads import block_heads, saved_heads
from specjax.trees import branching
from train import packing, teacher
from train.objectives import heads, objective

_TOGETHER = 64


def block_parallel(
  target: model_lib.Model,
  ids: jax.Array | None = None,
  num_masks: int = 4,
  num_layers: int = 1,
  mlp_dim: int = 0,
  feature_layers: tuple = (),
  own_output: bool = False,
) -> "BlockParallel":
  """A block-parallel head to train.

  Args:
    target: frozen.
    ids: [Q] tokens that can be drafted; None is all.
    num_masks: K.
    num_layers: decoder layers of the head.
    mlp_dim: width of their MLPs; 0 is the target's.
    feature_layers: the target's layers that it reads, from 0; () is a low, a
      middle and a high one.
    own_output: it has an output matrix of its own, which begins as the
      target's; else it ends in the target's.

  Raises:
    ValueError: a size below 1; the target has no such layers.
  """
  heads.check_sizes(num_masks=num_masks)
  layers = heads.chosen_layers(target, feature_layers)
  config = block_heads.BlockConfig(
    heads.layer_config(target, num_layers, mlp_dim),
    num_masks,
    target.config.embed_dim * len(layers),
    layers,
    heads.columns(target, ids, own_output),
  )
  return BlockParallel(target, ids, config)


class BlockParallel(struct.PyTreeNode):
  """See the module and `objective.Objective`."""

  target: model_lib.Model
  ids: jax.Array | None
  config: block_heads.BlockConfig = struct.field(pytree_node=False)

  teacher_forced = False

  @property
  def depth(self) -> int:
    return self.config.num_masks

  @property
  def feature_layers(self) -> tuple[int, ...]:
    return self.config.feature_layers

  def init(self, key: jax.Array) -> Any:
    params = block_heads.BlockHead.init(self.config, key).params
    return heads.begin(params, self)

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[jax.Array, objective.Extra]:
    """What the masks of every slot's block gave, [B, S, K, D]."""
    head = self._head(params)
    B, S = batch.tokens.shape
    block = heads.block(batch, seen)
    R = min(_TOGETHER, S)
    cache = head.read(
      block, head.init_cache(B, S + R * (self.depth + 1)), batch.positions
    )
    cache = cache.commit(None, block.count)
    # Numbers past the last slot fill up the last blocks; they are cut off.
    slots = jnp.minimum(jnp.arange(-(-S // R) * R), S - 1).reshape(-1, R)
    run = functools.partial(self._together, head, batch, cache)
    given = jax.lax.map(jax.checkpoint(run), slots)  # [groups, B, R, K, D]
    given = jnp.moveaxis(given, 0, 1)
    return given.reshape(B, -1, *given.shape[3:])[:, :S], {}

  def logits(
    self, params: Any, known: jax.Array, rows: jax.Array | None
  ) -> jax.Array:
    x = self._head(params).apply("output", known)
    return heads.unembed(self.target, x, rows, self.config.draft_vocab)

  def drafter(self, params: Any, length: int) -> block_drafter.BlockParallel:
    plan = branching.chain(length)
    return block_drafter.BlockParallel(self._head(params), self.target, plan)

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    del tokenizer  # A head speaks its target's tokens.
    saved_heads.save(self._head(params), path, self.target)

  def _head(self, params):
    head = block_heads.BlockHead(params, None, self.config)
    return head.drafting(self.ids, self.target)

  def _together(self, head, batch, cache, slots):
    """[B, R, K, D] of the blocks of slots [R]."""
    B, R, T = len(batch.tokens), len(slots), self.depth + 1
    positions = jnp.asarray(batch.positions)
    roots = teacher.later(batch.tokens, 1)[:, slots]
    places = positions[:, slots, None] + 1 + jnp.arange(T)[None, None]
    read = jnp.repeat(teacher.mask(batch)[:, slots], T, axis=1)
    block = jnp.repeat(jnp.arange(R), T)
    own = block[None, :, None] == block[None, None]
    own = jnp.broadcast_to(own, (B, R * T, R * T))
    return head.blocks(
      roots,
      self.depth,
      cache,
      self.target,
      jnp.concatenate([positions, places.reshape(B, -1)], axis=1),
      jnp.concatenate([read, own], axis=2),
    )[0]
