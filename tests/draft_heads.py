# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draft heads for tests: random ones, and some that are right by construction.

Axis letters: D model width, V vocabulary.
"""

import dataclasses
import functools
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import types
from specjax.drafters import block_parallel, chained, eagle, medusa
from specjax.models.heads import block_heads, chained_heads, eagle_heads
from specjax.models.heads import head as heads_lib
from specjax.trees import branching, plans
from tests import toys

D, V = toys.TINY_CONFIG.embed_dim, toys.TINY_VOCAB
ONE_LAYER = dataclasses.replace(toys.TINY_CONFIG, num_layers=1)
FEATURE_LAYERS = (0, 1)
CHAIN = branching.chain(4)
KINDS = (
  "medusa",
  "medusa_shared",
  *chained_heads.CELLS,
  *eagle_heads.KINDS,
  "block_parallel",
)


def randomly(head: heads_lib.Head, seed: int = 0, scale: float = 1.0) -> Any:
  """The head with spread parameters; zeros and ones would hide what they do."""
  rng = np.random.default_rng(seed)

  def leaf(path, x):
    noise = scale * rng.standard_normal(x.shape)
    if path[-1].key == "scale":
      return jnp.asarray(1 + 0.1 * noise, x.dtype)
    fan = x.shape[0] if path[-1].key == "kernel" else 16
    return jnp.asarray(noise / np.sqrt(fan), x.dtype)

  return head.replace(params=jax.tree.map_with_path(leaf, head.params))


def blank(network: type[heads_lib.Head], config: Any) -> Any:
  """A head with shapes in place of parameters; nothing is compiled."""
  return jax.eval_shape(lambda: network.init(config, jax.random.key(0)))


@functools.cache
def head(kind: str, draft_vocab: int | None = None) -> Any:
  """A random head of a kind for `toys.tiny` models."""
  if kind.startswith("medusa"):
    own = None if kind == "medusa_shared" else V
    config = heads_lib.MedusaConfig(4, 1, D, own)
    return randomly(blank(heads_lib.MedusaHeads, config))
  if kind in chained_heads.CELLS:
    config = chained_heads.ChainedConfig(kind, 4, 1, D, draft_vocab)
    return randomly(blank(chained_heads.ChainedHeads, config))
  if kind in eagle_heads.KINDS:
    layers = FEATURE_LAYERS if kind == "eagle3" else ()
    if kind == "eagle3":
      draft_vocab = draft_vocab or V
    config = eagle_heads.EagleConfig(
      kind, ONE_LAYER, D * max(len(layers), 1), layers, draft_vocab
    )
    return randomly(blank(eagle_heads.EagleHead, config))
  layers = toys.TINY_CONFIG
  config = block_heads.BlockConfig(layers, 4, 2 * D, FEATURE_LAYERS)
  return randomly(blank(block_heads.BlockHead, config))


def drafter(kind: str, target: types.Model, plan: plans.Plan = CHAIN) -> Any:
  """A drafter with a random head."""
  if kind.startswith("medusa"):
    return medusa.Medusa(head(kind), target, plan)
  if kind in chained_heads.CELLS:
    return chained.Chained(head(kind), target, plan)
  if kind in eagle_heads.KINDS:
    return eagle.Eagle(head(kind), target, plan)
  return block_parallel.BlockParallel(head(kind), target, plan)


def target(seed: int = 0) -> Any:
  """A tiny target that gives the features that all kinds read."""
  return toys.tiny(seed).replace(feature_layers=FEATURE_LAYERS)


class OneHot(struct.PyTreeNode):
  """A `types.Model` that shows its last token as a one-hot vector.

  Logits for the next token are table[last token]; embeddings, hidden states
  and features are one-hot, so that heads can be written down by hand.
  """

  table: jax.Array  # [V, V] float32
  max_position: int = struct.field(pytree_node=False, default=4096)
  feature_layers: tuple[int, ...] = struct.field(
    pytree_node=False, default=(0,)
  )

  @property
  def vocab_size(self) -> int:
    return self.table.shape[-1]

  @property
  def num_tokens(self) -> int:
    return self.vocab_size

  def __call__(
    self, tokens, cache, positions=None, mask=None, features=None
  ) -> types.Output:
    output = toys.Table(self.table)(tokens, cache, positions, mask, features)
    hidden = self.embed(tokens)
    return output.replace(hidden=hidden, features=hidden)

  def init_cache(self, batch: int, capacity: int, block: int):
    return toys.Table(self.table).init_cache(batch, capacity, block)

  def embed(self, tokens: jax.Array) -> jax.Array:
    return jax.nn.one_hot(tokens, self.vocab_size)

  def unembed(self, hidden: jax.Array) -> jax.Array:
    return jnp.einsum("...v,vw->...w", hidden, self.table)

  def truncate(self, layers: int) -> "OneHot":
    del layers
    return self
