# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny models with known answers, for tests of everything above a model.

Table models give logits that depend on the last token alone:

  cycle(V)      10 at (t + 1) mod V, 0 elsewhere: greedy counts upwards
  skip(V)       the same with t + 2: as a draft of a cycle always wrong
  part(V)       a cycle that skips after tokens divisible by 4: partly right
  row(p)        log p whatever came before: for tests of laws
  constant(x)   the logits x whatever came before

`tiny(seed)` is a real two-layer transformer with random weights, `noisy(...)`
the same with perturbed weights, so that most rounds reject some of its drafts.

Axis letters: V vocabulary.
"""

import collections.abc
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from specjax.models import model as model_lib
from specjax.models import transformer
from specjax.testing import table as table_lib
from tests import reference

TINY_VOCAB = 64
TINY_CONFIG = transformer.TransformerConfig(
  vocab_size=TINY_VOCAB,
  embed_dim=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_dim=64,
  max_position=256,
  norm_eps=1e-5,
  rope_theta=10_000.0,
  rope_factors=None,
  # With tied random weights every token predicts itself, and then any two
  # models agree; untied, greedy text wanders.
  tie_embeddings=False,
)


Table = table_lib.Table


def _jumps(step: np.ndarray) -> Table:
  vocab = len(step)
  table = np.zeros((vocab, vocab), np.float32)
  table[np.arange(vocab), (np.arange(vocab) + step) % vocab] = 10
  return Table(jnp.asarray(table))


def cycle(vocab: int) -> Table:
  return _jumps(np.full(vocab, 1))


def skip(vocab: int) -> Table:
  return _jumps(np.full(vocab, 2))


def part(vocab: int) -> Table:
  return _jumps(np.where(np.arange(vocab) % 4 == 0, 2, 1))


def constant(logits: npt.ArrayLike) -> Table:
  vector = np.asarray(logits, np.float32)
  return Table(jnp.asarray(np.tile(vector, (vector.size, 1))))


def row(law: npt.ArrayLike) -> Table:
  with np.errstate(divide="ignore"):
    return constant(np.log(np.asarray(law, np.float64)))


def config_shapes(config: transformer.TransformerConfig) -> dict:
  """The parameter tree of a transformer with shapes as leaves."""
  c = config
  kernel = lambda rows, columns: {"kernel": (rows, columns)}
  layer = {
    "attention_norm": {"scale": (c.embed_dim,)},
    "attention": {
      "query": kernel(c.embed_dim, c.num_heads * c.head_dim),
      "key": kernel(c.embed_dim, c.num_kv_heads * c.head_dim),
      "value": kernel(c.embed_dim, c.num_kv_heads * c.head_dim),
      "output": kernel(c.num_heads * c.head_dim, c.embed_dim),
    },
    "mlp_norm": {"scale": (c.embed_dim,)},
    "mlp": {
      "gate": kernel(c.embed_dim, c.mlp_dim),
      "up": kernel(c.embed_dim, c.mlp_dim),
      "down": kernel(c.mlp_dim, c.embed_dim),
    },
  }
  shapes: dict = {
    "embed": {"embedding": (c.vocab_size, c.embed_dim)},
    "final_norm": {"scale": (c.embed_dim,)},
  }
  for index in range(c.num_layers):
    shapes[f"layer_{index}"] = layer
  if not c.tie_embeddings:
    shapes["unembed"] = kernel(c.embed_dim, c.vocab_size)
  return shapes


def random_params(config: transformer.TransformerConfig, seed: int) -> dict:
  """Seeded weights whose logits spread over a few units, as trained ones do.

  Matrices keep the variance of what they map, the output matrix doubles it.
  """
  rng = np.random.default_rng(seed)

  def leaf(path, shape):
    noise = rng.standard_normal(shape).astype(np.float32)
    name = path[-1].key
    if name == "scale":
      return jnp.asarray(1 + 0.1 * noise)
    if name == "embedding":
      return jnp.asarray(0.5 * noise)
    gain = 2 if path[0].key == "unembed" else 1
    return jnp.asarray(gain * noise / np.sqrt(np.float32(shape[0])))

  return jax.tree_util.tree_map_with_path(
    leaf, config_shapes(config), is_leaf=lambda x: isinstance(x, tuple)
  )


def tiny(
  seed: int = 0,
  config: transformer.TransformerConfig = TINY_CONFIG,
  num_tokens: int | None = None,
) -> model_lib.Model:
  """A two-layer transformer with random weights."""
  params = random_params(config, seed)
  return model_lib.Model.from_params(config, params, num_tokens)


def noisy(
  model: model_lib.Model, scale: float = 0.12, seed: int = 1
) -> model_lib.Model:
  """The same model, each leaf perturbed by `scale` of its own spread."""
  rng = np.random.default_rng(seed)

  def leaf(x):
    x = np.asarray(x)
    noise = rng.standard_normal(x.shape).astype(x.dtype)
    return jnp.asarray(x + scale * x.std() * noise)

  params = jax.tree.map(leaf, model.params)
  return dataclasses.replace(model, params=params)


def last_logits(model: model_lib.Model) -> collections.abc.Callable:
  """What `reference.generate` asks for: a forward in numpy, without a cache."""

  def logits(tokens):
    full = reference.transformer_logits(model.params, model.config, tokens)[-1]
    known = np.arange(full.size) < model.num_tokens
    return np.where(known, full, -np.inf)

  return logits
