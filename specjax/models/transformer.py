# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One decoder; a model family is a set of values of its config.

Axis letters: B batch, T block width, U visible recent slots, D model width,
V vocabulary.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax import cache as cache_lib
from specjax import sharding
from specjax.models import attention, layers


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """Sizes and switches of a decoder.

  Attributes:
    vocab_size: V, rows of the embedding, padding included.
    embed_dim: D.
    num_layers: blocks.
    num_heads: query heads.
    num_kv_heads: key and value heads; divides num_heads.
    head_dim: stated, not derived: some models have heads wider than
      embed_dim / num_heads.
    mlp_dim: width of the MLP.
    max_position: positions the model was trained for.
    norm_eps: of every norm.
    rope_theta: base of the rotary frequencies.
    rope_factors: divisor of each pair's frequency, rotary_dim / 2 of them
      (llama3 and linear scaling), or None.
    tie_embeddings: the output matrix is the embedding.
    family: row of `families`; names tensors in files, decides no arithmetic.
    norm: "rms", or "layer" (mean removed, bias added).
    norm_offset: added to every stored RMS scale.
    qkv_bias: query, key and value add a bias.
    output_bias: the attention's output adds a bias.
    mlp_bias: the MLP's matrices add biases.
    qk_norm: each query and key head is normalised before it is rotated.
    post_norms: what attention and MLP give is normalised before it is added.
    parallel_residual: attention and MLP read the same input.
    gated_mlp: the MLP's hidden values are gated.
    activation: of the MLP, a key of `layers.ACTIVATIONS`.
    rotary_dim: channels of a head that are rotated, the first ones; None is
      all of them.
    query_scale: factor of the scores; None is head_dim ** -0.5.
    embedding_scale: factor of the embedded tokens.
    windows: of each layer, how many positions a token sees, itself counted
      (None: all); None where no layer has a window.
    rope_local_theta: base of the rotary frequencies, unscaled, in layers that
      have a window; None is the same as elsewhere.
    kv_copies: how often each kv head is held, see `sharding.rules_for`.
    quantization: "int8": matrices are 8-bit integers with one scale an output
      channel. None: numbers as they are.
  """

  vocab_size: int
  embed_dim: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_dim: int
  max_position: int
  norm_eps: float
  rope_theta: float
  rope_factors: tuple[float, ...] | None
  tie_embeddings: bool
  family: str = "llama"
  norm: str = "rms"
  norm_offset: float = 0.0
  qkv_bias: bool = False
  output_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  post_norms: bool = False
  parallel_residual: bool = False
  gated_mlp: bool = True
  activation: str = "silu"
  rotary_dim: int | None = None
  query_scale: float | None = None
  embedding_scale: float = 1.0
  windows: tuple[int | None, ...] | None = None
  rope_local_theta: float | None = None
  kv_copies: int = 1
  quantization: str | None = None

  @property
  def num_held_kv_heads(self) -> int:
    """Key and value heads of a cache."""
    return self.num_kv_heads * self.kv_copies

  @property
  def num_rotated(self) -> int:
    """Channels of a head that are rotated."""
    return self.head_dim if self.rotary_dim is None else self.rotary_dim

  def window(self, layer: int) -> int | None:
    """Positions that a token of this layer sees; None is all."""
    return None if self.windows is None else self.windows[layer]


def make_norm(config: TransformerConfig, name: str | None = None) -> nn.Module:
  """The norm of a family."""
  if config.norm == "layer":
    return layers.LayerNorm(config.norm_eps, name=name)
  return layers.RMSNorm(config.norm_eps, config.norm_offset, name=name)


class Attention(nn.Module):
  """Grouped-query attention that appends its block to one layer of a cache."""

  config: TransformerConfig
  rules: sharding.Rules | None
  layer: int

  @nn.compact
  def __call__(self, x, angles, cache, positions, mask):
    c, rules = self.config, self.rules
    B, T = x.shape[:2]
    int8 = c.quantization == "int8"

    def project(name, heads, axis):
      linear = layers.Linear(heads * c.head_dim, c.qkv_bias, int8, name=name)
      y = linear(x).reshape(B, T, heads, c.head_dim)
      return sharding.constrain(y, rules, "batch", None, axis, None)

    q = project("query", c.num_heads, "heads")
    k = project("key", c.num_held_kv_heads, "kv_heads")
    v = project("value", c.num_held_kv_heads, "kv_heads")
    if c.qk_norm:
      q = make_norm(c, "query_norm")(q)
      k = make_norm(c, "key_norm")(k)
    cache = cache.append(self.layer, layers.rotate(k, angles), v)
    keys, values = cache.layers[self.layer]
    scale = c.head_dim**-0.5 if c.query_scale is None else c.query_scale
    out = attention.attend(
      layers.rotate(q, angles),
      keys,
      values,
      cache.lengths,
      positions,
      mask,
      scale=scale,
      window=c.window(self.layer),
    )
    out = out.reshape(B, T, -1).astype(x.dtype)
    out = sharding.constrain(out, rules, "batch", None, "heads")
    # A draft head's attention may read more than it writes.
    output = layers.Linear(c.embed_dim, c.output_bias, int8, name="output")
    return output(out), cache


class MLP(nn.Module):
  """An MLP of one hidden layer, gated or not."""

  config: TransformerConfig
  rules: sharding.Rules | None

  @nn.compact
  def __call__(self, x):
    c = self.config
    int8 = c.quantization == "int8"
    act = layers.ACTIVATIONS[c.activation]
    hidden = layers.Linear(c.mlp_dim, c.mlp_bias, int8, name="up")(x)
    if c.gated_mlp:
      gate = layers.Linear(c.mlp_dim, c.mlp_bias, int8, name="gate")(x)
      hidden = act(gate) * hidden
    else:
      hidden = act(hidden)
    hidden = sharding.constrain(hidden, self.rules, "batch", None, "mlp")
    return layers.Linear(x.shape[-1], c.mlp_bias, int8, name="down")(hidden)


class Layer(nn.Module):
  """Attention and MLP, each behind a norm and beside a residual."""

  config: TransformerConfig
  rules: sharding.Rules | None
  layer: int

  @nn.compact
  def __call__(self, x, angles, cache, positions, mask):
    c = self.config
    attention = Attention(c, self.rules, self.layer, name="attention")
    mlp = MLP(c, self.rules, name="mlp")
    y, cache = attention(
      make_norm(c, "attention_norm")(x), angles, cache, positions, mask
    )
    if c.post_norms:
      y = make_norm(c, "attention_post_norm")(y)
    attended = x + y
    y = mlp(make_norm(c, "mlp_norm")(x if c.parallel_residual else attended))
    if c.post_norms:
      y = make_norm(c, "mlp_post_norm")(y)
    out = attended + y
    return sharding.constrain(out, self.rules, "batch", None, None), cache


class Transformer(nn.Module):
  """The decoder network. Applied only through `Model`."""

  config: TransformerConfig
  rules: sharding.Rules | None = None

  def setup(self):
    c = self.config
    int8 = c.quantization == "int8"
    self.embedding = layers.Embedding(
      c.vocab_size, c.embed_dim, int8, name="embed"
    )
    self.blocks = [
      Layer(c, self.rules, i, name=f"layer_{i}") for i in range(c.num_layers)
    ]
    self.final_norm = make_norm(c)
    if not c.tie_embeddings:
      self.output = layers.Linear(c.vocab_size, False, int8, name="unembed")

  def __call__(
    self,
    tokens: jax.Array,
    cache: cache_lib.KVCache,
    positions: jax.Array,
    mask: jax.Array | None,
    feature_layers: tuple[int, ...] = (),
  ):
    """Hidden [B, T, D], features [B, T, F] or None, the cache appended to."""
    c = self.config
    rotations = self._rotations(positions[:, -tokens.shape[1] :])
    x = self.embed(tokens)
    features = []
    for i, block in enumerate(self.blocks):
      angles = rotations[c.window(i) is not None]
      with jax.named_scope(f"layer_{i}"):
        x, cache = block(x, angles, cache, positions, mask)
      if i in feature_layers:
        features.append(x)
    joined = jnp.concatenate(features, axis=-1) if features else None
    return self.final_norm(x), joined, cache

  def _rotations(self, positions):
    """Angles of layers without and with a window."""
    c = self.config
    everywhere = layers.rope_angles(
      positions, c.num_rotated, c.rope_theta, c.rope_factors
    )
    if c.rope_local_theta is None:
      return everywhere, everywhere
    local = layers.rope_angles(
      positions, c.num_rotated, c.rope_local_theta, None
    )
    return everywhere, local

  def embed(self, tokens):
    x = self.embedding(tokens)
    if self.config.embedding_scale != 1.0:
      # Rounded to the embedding's type, as the models were trained.
      x = x * jnp.asarray(self.config.embedding_scale, x.dtype)
    axes = ("batch", *(None,) * (x.ndim - 1))
    return sharding.constrain(x, self.rules, *axes)

  def normalize(self, x):
    return self.final_norm(x)

  def unembed(self, hidden):
    """Logits in float32 whatever the parameters' type, whole on each device."""
    if self.config.tie_embeddings:
      logits = self.embedding.unembed(hidden)
    else:
      logits = self.output(hidden, jnp.float32)
    logits = logits.astype(jnp.float32)
    # Split first: else the compiler may gather the matrix, not the logits.
    for vocab in ("vocab", None):
      axes = ("batch", *(None,) * (logits.ndim - 2), vocab)
      logits = sharding.constrain(logits, self.rules, *axes)
    return logits

  def output_rows(self, ids):
    """Rows of the output matrix: of the embedding where that is tied."""
    if self.config.tie_embeddings:
      return self.embedding(ids)
    return self.output.columns(ids)

  def init_parameters(self, tokens, cache):
    """Touches every parameter once, for `init`."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _, _ = self(tokens, cache, positions, None)
    return self.unembed(hidden)
