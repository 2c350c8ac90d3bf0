# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""An independent reference for decoding: plain numpy, no cache, no trees.

Plain decoding in specjax is verification with an empty draft, so a fault in
the shared code would pass every comparison between the two. This module shares
nothing with the library but the documented rules: the order of the transforms
(temperature, top-k, top-p, min-p; ties at a threshold are kept), greedy as
"lowest id of the largest logit", and which key serves which position.
"""

import collections.abc

import jax
import numpy as np

SAMPLE_TAG = 0  # The stream that draws a row's tokens, by absolute position.


def log_probs(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
  """Log of the law [V] that one row of logits [V] stands for, in float64.

  `top_k` 0, `top_p` 1 and `min_p` 0 switch a transform off.
  """
  x = np.asarray(logits, np.float64)
  if temperature == 0:
    return np.where(np.arange(x.size) == np.argmax(x), 0.0, -np.inf)
  x = x / temperature
  if top_k:
    x = np.where(x >= np.sort(x)[-min(top_k, x.size)], x, -np.inf)
  if top_p < 1:
    p = np.exp(x - np.logaddexp.reduce(x))
    # A token stays while the tokens more likely than it hold less than top_p.
    mass_above = np.array([p[p > value].sum() for value in p])
    x = np.where(mass_above < top_p, x, -np.inf)
  if min_p:
    x = np.where(x >= x.max() + np.log(min_p), x, -np.inf)
  return x - np.logaddexp.reduce(x)


def row_key(seed: int, index: int = 0, sample: int = 0) -> jax.Array:
  """Key of one row: seed, index of its prompt, index of the sample."""
  key = jax.random.fold_in(jax.random.key(seed), index)
  return jax.random.fold_in(key, sample)


def generate(
  last_logits: collections.abc.Callable,
  prompt: collections.abc.Sequence[int],
  max_new_tokens: int,
  *,
  key: jax.Array,
  eos: collections.abc.Collection[int] = (),
  **settings,
) -> tuple[list[int], list[float]]:
  """New token ids and their log-probabilities, one full forward a token.

  Args:
    last_logits: ids -> logits [V] for the id that follows them.
    prompt: ids, at least one.
    max_new_tokens: number of ids, fewer only if one of `eos` comes first.
    key: the row's key, see `row_key`.
    eos: ids that end the row; the one that did is returned.
    **settings: as for `log_probs`.
  """
  tokens, laws = list(prompt), []
  stream = jax.random.fold_in(key, SAMPLE_TAG)
  while len(laws) < max_new_tokens:
    law = log_probs(last_logits(tokens), **settings)
    position_key = jax.random.fold_in(stream, len(tokens))
    noise = jax.random.gumbel(position_key, law.shape, np.float32)
    tokens.append(int(np.argmax(law + np.asarray(noise))))
    laws.append(float(law[tokens[-1]]))
    if tokens[-1] in eos:
      break
  return tokens[len(prompt) :], laws


def _rms_norm(x, scale, epsilon):
  return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * scale


def _rotate(x, config):
  """Rotary embedding of x [T, heads, H]; halves are (first, second)."""
  half = config.head_dim // 2
  frequency = config.rope_theta ** (-np.arange(half) / half)
  if config.rope_factors is not None:
    frequency = frequency / np.asarray(config.rope_factors)
  angle = np.arange(len(x))[:, None, None] * frequency
  first, second = x[..., :half], x[..., half:]
  cos, sin = np.cos(angle), np.sin(angle)
  return np.concatenate(
    [first * cos - second * sin, second * cos + first * sin], -1
  )


def attention(x, weights, config, seen=None):
  """Attention over x [T, D]; `seen` [T, T] is causal if left out."""

  def heads(name, count):
    return (x @ weights[name]["kernel"]).reshape(len(x), count, -1)

  q = _rotate(heads("query", config.num_heads), config)
  group = config.num_heads // config.num_kv_heads
  k = _rotate(heads("key", config.num_kv_heads), config).repeat(group, axis=1)
  v = heads("value", config.num_kv_heads).repeat(group, axis=1)
  score = np.einsum("tnh,snh->nts", q, k) / np.sqrt(config.head_dim)
  seen = np.tri(len(x), dtype=bool) if seen is None else seen
  score = np.where(seen, score, -np.inf)
  weight = np.exp(score - score.max(-1, keepdims=True))
  weight /= weight.sum(-1, keepdims=True)
  mixed = np.einsum("nts,snh->tnh", weight, v).reshape(len(x), -1)
  return mixed @ weights["output"]["kernel"]


def transformer_logits(params, config, tokens) -> np.ndarray:
  """Logits [T, V] of a Llama-style decoder over all of `tokens` [T]."""
  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  norm = lambda x, part: _rms_norm(x, part["scale"], config.norm_eps)
  x = params["embed"]["embedding"][np.asarray(tokens)]
  for index in range(config.num_layers):
    layer = params[f"layer_{index}"]
    x = x + attention(
      norm(x, layer["attention_norm"]), layer["attention"], config
    )
    y, mlp = norm(x, layer["mlp_norm"]), layer["mlp"]
    gate = y @ mlp["gate"]["kernel"]
    gate = gate / (1 + np.exp(-gate)) * (y @ mlp["up"]["kernel"])
    x = x + gate @ mlp["down"]["kernel"]
  x = norm(x, params["final_norm"])
  if config.tie_embeddings:
    return x @ params["embed"]["embedding"].T
  return x @ params["unembed"]["kernel"]
