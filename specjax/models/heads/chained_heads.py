# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chained heads: each guess knows the tokens that were drafted before it.

They start from the hidden state that predicted the root, the newest committed
token, and read the root and one drafted token after the other. What happens to
a token is the choice of a cell:

  hydra      head i is an MLP over the hidden state and the tokens so far, all
             of them (arXiv 2402.05109)
  recurrent  s = silu(U s + W e), read beside the hidden state; one cell for all
             steps (arXiv 2403.09919)
  mlp        s = gelu(norm(U_i s + a W_i e)), the hidden state as the first s
             (arXiv 2404.19124)

Cells that attend to the text are in `eagle_heads`.

Axis letters: B batch, K heads, D model width.
"""

import dataclasses
import functools
import math

from flax import struct
import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import types
from specjax.models import layers
from specjax.models.heads import head as heads_lib

CELLS = ("hydra", "recurrent", "mlp")


@dataclasses.dataclass(frozen=True)
class ChainedConfig:
  """Sizes of chained heads.

  Attributes:
    cell: one of CELLS.
    num_heads: K, tokens in a row that the heads can draft.
    num_layers: residual blocks before the output matrix.
    embed_dim: D, the target's.
    draft_vocab: columns of an own output matrix for each head (one for all
      steps of a recurrent cell); None ends in the target's.
  """

  cell: str
  num_heads: int
  num_layers: int
  embed_dim: int
  draft_vocab: int | None = None

  def __post_init__(self):
    if self.cell not in CELLS:
      raise ValueError(
        f"cell {self.cell!r} is unknown: choose one of {', '.join(CELLS)}"
      )

  def network(self) -> nn.Module:
    return _Chained(self)


class ChainedHeads(heads_lib.Head):
  """Heads of one cell; see the module."""

  config: ChainedConfig = struct.field(pytree_node=False)

  def start(self, hidden: jax.Array) -> jax.Array:
    """What is known before the root is read, [..., X], from hidden [..., D]."""
    c = self.config
    # A hydra keeps all tokens, other cells keep a state.
    kept = c.num_heads if c.cell == "hydra" else 1
    first = hidden if c.cell == "mlp" else jnp.zeros_like(hidden)
    return jnp.concatenate([hidden, *[first] * kept], axis=-1)

  def read(
    self, i: int, known: jax.Array, embedded: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Reads a token, without the work that its vocabulary takes.

    Args:
      i: which token of the chain is drafted, from 0.
      known: [..., X] of `start` or of the token before.
      embedded: [..., D] the root for token 0.

    Returns:
      What `on_target` makes logits of, and what is known then.
    """
    return self.apply("__call__", self._network(i), known, embedded)

  def step(
    self, i: jax.Array, known: jax.Array, token: jax.Array, target: types.Model
  ) -> tuple[jax.Array, jax.Array]:
    """As `read`, for an `i` of run time; logits [..., V] of the next token."""
    embedded = target.embed(token).astype(self.dtype)
    networks = range(self._network(self.config.num_heads) + 1)
    x, known = jax.lax.switch(
      jnp.minimum(i, networks[-1]),
      [functools.partial(self.read, k) for k in networks],
      known,
      embedded,
    )
    return self.on_target(x, target), known

  def _network(self, i):
    """A recurrent cell is one network; others have one a step."""
    last = 0 if self.config.cell == "recurrent" else self.config.num_heads - 1
    return min(i, last)


class _Chained(nn.Module):
  config: ChainedConfig

  def setup(self):
    c = self.config
    cell = {"hydra": _Hydra, "recurrent": _Recurrent, "mlp": _MLP}[c.cell]
    number = 1 if c.cell == "recurrent" else c.num_heads
    self.heads = [cell(c, k, name=f"head_{k}") for k in range(number)]

  def __call__(self, k, known, embedded):
    return self.heads[k](known, embedded)

  def init_parameters(self):
    c = self.config
    hidden = jnp.zeros((1, c.embed_dim))
    known = ChainedHeads(None, None, c).start(hidden)
    for head in self.heads:
      _, known = head(known, hidden)


class _Hydra(nn.Module):
  config: ChainedConfig
  head: int

  @nn.compact
  def __call__(self, known, embedded):
    """`known` holds the hidden state, then the tokens read, then zeros."""
    c, D = self.config, self.config.embed_dim
    read, last = (self.head + 1) * D, (self.head + 2) * D
    known = known.at[..., read:last].set(embedded)
    x = layers.Linear(D, bias=True, name="read")(known[..., :last])
    return _finish(c, known[..., :D] + nn.silu(x)), known


class _Recurrent(nn.Module):
  config: ChainedConfig
  head: int

  @nn.compact
  def __call__(self, known, embedded):
    c, D = self.config, self.config.embed_dim
    hidden, state = known[..., :D], known[..., D:]
    carried = layers.Linear(D, bias=True, name="carry")(state)
    state = nn.silu(carried + layers.Linear(D, name="read")(embedded))
    known = jnp.concatenate([hidden, state], axis=-1)
    return _finish(c, layers.Linear(D, bias=True, name="mix")(known)), known


class _MLP(nn.Module):
  config: ChainedConfig
  head: int

  @nn.compact
  def __call__(self, known, embedded):
    c, D = self.config, self.config.embed_dim
    hidden, state = known[..., :D], known[..., D:]
    # The state keeps half of its variance over K steps, tokens bring the rest.
    kept = 0.5 ** (0.5 / c.num_heads)
    weight = math.sqrt((1 - kept**2) * D / 2) / kept
    state = layers.Linear(D, name="carry")(state)
    state = state + weight * layers.Linear(D, name="read")(embedded)
    state = nn.gelu(layers.LayerNorm(1e-6, name="norm")(state))
    return _finish(c, state), jnp.concatenate([hidden, state], axis=-1)


def _finish(config, x):
  for i in range(config.num_layers):
    x = heads_lib.ResBlock(name=f"block_{i}")(x)
  return heads_lib.output(config.draft_vocab)(x)
