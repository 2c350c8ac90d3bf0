# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draft heads against slow forwards in numpy, written without their code.

Axis letters: B batch, T tokens, K heads, D model width, V vocabulary.
"""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import types
from specjax.models.heads import chained_heads
from tests import draft_heads, reference, toys

D, V = draft_heads.D, draft_heads.V
# Sums of 96 float32 terms of size 1, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def _double(tree):
  return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def _silu(x):
  return x / (1 + np.exp(-x))


def _linear(x, part):
  y = x @ part["kernel"]
  return y + part["bias"] if "bias" in part else y


def _block(x, part):
  return x + _silu(_linear(x, part["linear"]))


def _norm(x, part, eps=1e-5):
  return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * part["scale"]


def _gelu(x):
  return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _gated(x, part):
  gate = _silu(_linear(x, part["gate"])) * _linear(x, part["up"])
  return _linear(gate, part["down"])


def eagle_given(head, embedded, features):
  """What a head gives for all pairs [T, D] at once, without a cache."""
  p, kind, config = _double(head.params), head.config.kind, head.config.layer
  x = features
  if kind != "eagle":
    embedded = _norm(embedded, p["embedding_norm"])
    features = _norm(features, p["feature_norm"])
  read = np.concatenate([embedded, features], -1)
  if kind != "eagle3":
    x = read = _linear(read, p["fuse"])
  if kind == "mtp":
    read = _norm(read, p["attention_norm"])
  x = x + reference.attention(read, p["attention"], config)
  return x + _gated(_norm(x, p["mlp_norm"]), p["mlp"])


def eagle_logits(head, given, target):
  """Logits [T, V] of what a head gave."""
  p = _double(head.params)
  if head.config.kind != "eagle":
    given = _norm(given, p["final_norm"])
  if "output" in p:
    return given @ p["output"]["kernel"]
  return given @ np.asarray(target.params["unembed"]["kernel"])


class MedusaTest(parameterized.TestCase):
  @parameterized.parameters("medusa", "medusa_shared")
  def test_logits(self, kind):
    target, head = toys.tiny(), draft_heads.head(kind)
    hidden = np.random.default_rng(0).standard_normal((3, D))
    got = head(jnp.asarray(hidden, jnp.float32), target)
    params = _double(head.params)
    shared = np.asarray(target.params["unembed"]["kernel"])
    for k in range(4):
      part = params[f"head_{k}"]
      x = _block(hidden, part["block_0"])
      matrix = part["output"]["kernel"] if kind == "medusa" else shared
      np.testing.assert_allclose(got[:, k], x @ matrix, **TOLERANCE)

  def test_ids_without_a_column_have_no_probability(self):
    head = draft_heads.head("medusa")
    columns = np.full(V, -1)
    columns[[3, 9, 10]] = [1, 0, 2]
    head = head.replace(columns=jnp.asarray(columns))
    x = jnp.arange(2.0 * V).reshape(2, V)
    got = np.asarray(head.on_target(x, toys.tiny()))
    np.testing.assert_array_equal(
      got[:, [3, 9, 10]], x[:, jnp.array([1, 0, 2])]
    )
    self.assertEqual(np.sum(np.isfinite(got)), 6)


class ChainedTest(parameterized.TestCase):
  @parameterized.parameters(*chained_heads.CELLS)
  def test_steps(self, cell):
    """Three steps from one hidden state, all cells by their formulas."""
    target, head = toys.tiny(), draft_heads.head(cell)
    hidden = np.random.default_rng(0).standard_normal((2, D))
    tokens = np.array([[5, 6], [7, 5], [1, 2]])
    embedding = np.asarray(target.params["embed"]["embedding"], np.float64)
    params, outputs = _double(head.params), []
    state = hidden if cell == "mlp" else np.zeros_like(hidden)
    for i, token in enumerate(tokens):
      part = params["head_0" if cell == "recurrent" else f"head_{i}"]
      e = embedding[token]
      if cell == "hydra":
        read = np.concatenate([hidden, *embedding[tokens[: i + 1]]], -1)
        x = hidden + _silu(_linear(read, part["read"]))
      elif cell == "recurrent":
        carried = _linear(state, part["carry"])
        state = _silu(carried + _linear(e, part["read"]))
        x = _linear(np.concatenate([hidden, state], -1), part["mix"])
      else:
        kept = 0.5 ** (0.5 / 4)
        weight = np.sqrt((1 - kept**2) * D / 2) / kept
        y = _linear(state, part["carry"]) + weight * _linear(e, part["read"])
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(
          y.var(-1, keepdims=True) + 1e-6
        )
        x = state = _gelu(y * part["norm"]["scale"] + part["norm"]["bias"])
      x = _block(x, part["block_0"])
      outputs.append(x @ np.asarray(target.params["unembed"]["kernel"]))
    known = head.start(jnp.asarray(hidden, jnp.float32))
    for i, token in enumerate(tokens):
      got, known = head.step(jnp.int32(i), known, jnp.asarray(token), target)
      np.testing.assert_allclose(got, outputs[i], **TOLERANCE)


class EagleTest(parameterized.TestCase):
  @parameterized.parameters("eagle", "eagle3")
  @pytest.mark.fault_case("B68")
  def test_unrolled_steps_equal_a_forward_over_all_pairs(self, kind):
    self.check(kind)

  @pytest.mark.slow
  def test_unrolled_steps_of_mtp(self):
    self.check("mtp")

  def check(self, kind):
    """sgl-project/SpecForge#244: positions and mask of unrolled steps.

    Six pairs with features of the target, read in two blocks, then three whose
    features the head gave itself; each must see all pairs before it.
    """
    target, head = draft_heads.target(), draft_heads.head(kind)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, V, 9)
    embedding = np.asarray(target.params["embed"]["embedding"], np.float64)
    read = rng.standard_normal((6, head.config.feature_dim))
    features = read
    if kind == "eagle3":
      features = _linear(read, _double(head.params["fuse"]))
    for _ in range(3):
      known = len(features)
      given = eagle_given(head, embedding[tokens[:known]], features)
      features = np.concatenate([features, given[-1:]])
    wanted = eagle_logits(
      head, eagle_given(head, embedding[tokens], features), target
    )
    cache, got = head.init_cache(1, 16), []
    run = jax.jit(lambda *pairs: head(*pairs, target))

    def feed(tokens, features, cache):
      tokens = jnp.asarray(tokens)[None]
      given, cache = run(tokens, features, cache)
      got.append(head.logits(given, target)[0])
      count = jnp.full((1,), tokens.shape[1])
      return given[:, -1:], cache.commit(None, count)

    for part in (slice(0, 4), slice(4, 6)):
      x = jnp.asarray(read[None, part], jnp.float32)
      block = types.Block(jnp.zeros(x.shape[:2], int), x, x, jnp.zeros(1, int))
      given, cache = feed(tokens[part], head.features(block), cache)
    for token in tokens[6:]:
      given, cache = feed([token], given, cache)
    np.testing.assert_allclose(np.concatenate(got), wanted, **TOLERANCE)


class BlockParallelTest(absltest.TestCase):
  def test_logits(self):
    """Features of five tokens, in two blocks, then a root and three masks."""
    target, head = draft_heads.target(), draft_heads.head("block_parallel")
    read = np.random.default_rng(0).standard_normal((5, 2 * D))
    p, config = _double(head.params), head.config.layers
    text = _norm(_linear(read, p["fuse"]), p["feature_norm"])
    embedding = np.asarray(target.params["embed"]["embedding"], np.float64)
    x = np.concatenate([embedding[[9]], np.tile(p["masks"], (3, 1))])
    everything = np.ones((9, 9), bool)
    for index in range(config.num_layers):
      layer = p[f"layer_{index}"]
      both = np.concatenate([text, _norm(x, layer["attention_norm"])])
      y = reference.attention(both, layer["attention"], config, everything)
      x = x + y[5:]
      x = x + _gated(_norm(x, layer["mlp_norm"]), layer["mlp"])
    x = _norm(x[1:], p["final_norm"])
    wanted = x @ np.asarray(target.params["unembed"]["kernel"])
    cache = head.init_cache(1, 16)
    for part in (slice(0, 2), slice(2, 5)):
      x = jnp.asarray(read[None, part], jnp.float32)
      count = jnp.full((1,), x.shape[1])
      block = types.Block(jnp.zeros(x.shape[:2], int), x, x, count)
      cache = head.read(block, cache).commit(None, count)
    run = jax.jit(lambda root, cache: head(root, 3, cache, target))
    got, after = run(jnp.array([9]), cache)
    np.testing.assert_allclose(got[0], wanted, **TOLERANCE)
    np.testing.assert_array_equal(after.lengths, [5])


if __name__ == "__main__":
  absltest.main()
