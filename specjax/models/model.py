# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Model: parameters and a static network as one pytree.

Axis letters: B batch, T block width, U visible recent slots, F features width,
D model width, V vocabulary.
"""

import dataclasses
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from specjax import cache as cache_lib
from specjax import sharding, types
from specjax.models import placement, transformer


class Model(struct.PyTreeNode):
  """A decoder that satisfies `types.Model`.

  Attributes:
    params: nested dict of arrays.
    config: sizes; static, so equal configs share a trace.
    num_tokens: ids the tokenizer knows. Rows of the embedding past it are
      padding, and their logits are -inf.
    feature_layers: layers whose outputs are joined in Output.features.
    rules: which mesh axes hold its arrays; None is one device.
  """

  params: Any
  config: transformer.TransformerConfig = struct.field(pytree_node=False)
  num_tokens: int = struct.field(pytree_node=False)
  feature_layers: tuple[int, ...] = struct.field(pytree_node=False, default=())
  rules: sharding.Rules | None = struct.field(pytree_node=False, default=None)

  @classmethod
  def from_params(
    cls,
    config: transformer.TransformerConfig,
    params: Any,
    num_tokens: int | None = None,
    mesh: Mesh | None = None,
  ) -> "Model":
    """A model of given parameters.

    Args:
      config: sizes and switches.
      params: by path; on a mesh as `placement.Plan.put` places them.
      num_tokens: ids the tokenizer knows; None is all rows of the embedding.
      mesh: the devices, see `sharding.make_mesh`.

    Raises:
      ValueError: the tokenizer knows more ids than the embedding has rows.
    """
    if num_tokens is not None and num_tokens > config.vocab_size:
      raise ValueError(
        f"the tokenizer has {num_tokens} ids but the model's embedding only "
        f"{config.vocab_size} rows: use the tokenizer that belongs to it"
      )
    if num_tokens is None:
      num_tokens = config.vocab_size
    plan = placement.plan(config, mesh)
    return cls(params, plan.config, num_tokens, rules=plan.rules)

  @classmethod
  def init(
    cls, config: transformer.TransformerConfig, key: jax.Array, dtype="float32"
  ) -> "Model":
    """A model of random parameters."""
    network = transformer.Transformer(config)
    cache = _init_cache(config, 1, 1, jnp.dtype(dtype))
    tokens = jnp.zeros((1, 1), jnp.int32)
    variables = network.init(
      key, tokens, cache, method=transformer.Transformer.init_parameters
    )
    params = jax.tree.map(lambda x: x.astype(dtype), variables["params"])
    return cls.from_params(config, params)

  def on_mesh(self, mesh: Mesh | None) -> "Model":
    """The model with its parameters moved to the devices of a mesh."""
    stored = jax.device_get(placement.stored(self.config, self.params))
    config = dataclasses.replace(self.config, kv_copies=1)
    plan = placement.plan(config, mesh)
    params = jax.tree.map_with_path(
      lambda keys, leaf: plan.put(tuple(key.key for key in keys), leaf), stored
    )
    return self.replace(params=params, config=plan.config, rules=plan.rules)

  @property
  def vocab_size(self) -> int:
    return self.config.vocab_size

  @property
  def max_position(self) -> int:
    return self.config.max_position

  @property
  def dtype(self):
    """Of activations and caches."""
    return self.params["final_norm"]["scale"].dtype

  def __call__(
    self,
    tokens: jax.Array,
    cache: cache_lib.KVCache,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
    features: jax.Array | None = None,
  ) -> types.Output:
    """See `types.Model`; a plain decoder takes no `features`."""
    if features is not None:
      raise ValueError("this model reads tokens only: pass features=None")
    width = tokens.shape[1]
    if positions is None:
      positions = cache.lengths[:, None] + jnp.arange(width)[None]
    # Slots that are not valid may lie past the model's last position.
    positions = jnp.minimum(positions, self.max_position - 1)
    hidden, features, cache = self._apply(
      "__call__", tokens, cache, positions, mask, self.feature_layers
    )
    return types.Output(self.unembed(hidden), hidden, features, cache)

  def init_cache(
    self, batch: int, capacity: int, block: int
  ) -> cache_lib.KVCache:
    """An empty cache; see `types.Model`."""
    del block  # Full-length caches hold any block that the capacity holds.
    cache = _init_cache(self.config, batch, capacity, self.dtype)
    slots = lambda x: sharding.constrain(
      x, self.rules, "batch", None, "kv_heads", None
    )
    return cache.replace(
      layers=jax.tree.map(slots, cache.layers),
      lengths=sharding.constrain(cache.lengths, self.rules, "batch"),
    )

  def embed(self, tokens: jax.Array) -> jax.Array:
    return self._apply("embed", tokens)

  def unembed(self, hidden: jax.Array) -> jax.Array:
    logits = self._apply("unembed", hidden)
    if self.num_tokens == self.vocab_size:
      return logits
    known = jnp.arange(self.vocab_size) < self.num_tokens
    return jnp.where(known, logits, -jnp.inf)

  def final_norm(self, x: jax.Array) -> jax.Array:
    """[..., D] what `unembed` takes, of what any layer gave [..., D]."""
    return self._apply("normalize", x)

  def output_rows(self, ids: jax.Array) -> jax.Array:
    """[Q, D] rows of the output matrix: for logits of tokens [Q] alone."""
    return self._apply("output_rows", ids)

  def truncate(self, layers: int) -> "Model":
    """The model of the first `layers` layers; arrays are shared, not copied."""
    if not 0 < layers <= self.config.num_layers:
      raise ValueError(
        f"cannot keep {layers} of {self.config.num_layers} layers: "
        "choose a number from 1 to that"
      )
    dropped = {f"layer_{i}" for i in range(layers, self.config.num_layers)}
    params = {k: v for k, v in self.params.items() if k not in dropped}
    windows = self.config.windows
    config = dataclasses.replace(
      self.config,
      num_layers=layers,
      windows=None if windows is None else windows[:layers],
    )
    kept = tuple(i for i in self.feature_layers if i < layers)
    return self.replace(params=params, config=config, feature_layers=kept)

  def _apply(self, method: str, *args) -> Any:
    network = transformer.Transformer(self.config, self.rules)
    # Accelerators round float32 operands by default, by the shape of a product:
    # then a block's width would decide between close tokens.
    with jax.default_matmul_precision("highest"):
      return network.apply(
        {"params": self.params},
        *args,
        method=getattr(transformer.Transformer, method),
      )


def _init_cache(config, batch, capacity, dtype):
  return cache_lib.init(
    batch,
    capacity,
    config.num_layers,
    config.num_held_kv_heads,
    config.head_dim,
    dtype,
  )
