# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the compiled decoding loop does and does not do with memory.

The target has heads much wider than a block, and a long cache: attention may
turn one key block around, and in a smaller model that would look like a cache.
"""

import dataclasses
import math
import re
from typing import Any

from absl.testing import absltest, parameterized
import jax
from jax.extend import core as jax_core
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import decode
from specjax.drafters import (
  cascade,
  draft_model,
  early_exit,
  empty,
  ngram,
  suffix,
  tree_draft_model,
)
from specjax.models import attention
from specjax.models import model as model_lib
from specjax.policies import policy
from specjax.trees import plans
from specjax.verifiers import coupled, rejection
from tests import toys

BATCH, CAPACITY, LENGTH = 3, 2048, 4
CONFIG = dataclasses.replace(
  toys.TINY_CONFIG,
  vocab_size=512,
  embed_dim=256,
  num_layers=4,
  head_dim=64,
  mlp_dim=768,
  max_position=4096,
)
# Instructions that hand a buffer on; every other one makes a new one.
FREE = ("parameter", "get-tuple-element", "tuple", "bitcast", "while")
HOST = ("infeed", "outfeed", "send", "recv", "send-done", "recv-done")


def abstract_model(config=CONFIG):
  """A model of shapes: nothing here is ever run."""
  return jax.eval_shape(lambda: model_lib.Model.init(config, jax.random.key(0)))


def drafted(name):
  if name == "ngram":
    return ngram.NGram(LENGTH)
  if name == "cascade":  # A store, and layers that share the target's cache.
    exits = jax.eval_shape(
      lambda target: early_exit.early_exit(target, 2, LENGTH), abstract_model()
    )
    return cascade.Cascade(suffix.suffix(LENGTH, store=64), exits)
  model = abstract_model(dataclasses.replace(CONFIG, num_layers=2))
  if name == "tree":
    plan = plans.Dynamic(depth=LENGTH, width=3, branch=3, nodes=7)
    return tree_draft_model.TreeDraftModel(model, plan)
  return draft_model.DraftModel(model, LENGTH)


def settings(batch=BATCH, limit=64):
  """Sampling, policy, stop."""
  return (
    sampling_lib.per_row(sampling_lib.Sampling(temperature=0.7), batch),
    policy.Fixed(LENGTH),
    types.Stop(
      jnp.full((1,), -1, jnp.int32),
      jnp.full((batch,), limit, jnp.int32),
      jnp.full((0, 1), -1, jnp.int32),
    ),
  )


def keys(batch=BATCH, seed=0):
  return streams.row_keys(seed, jnp.arange(batch), jnp.zeros((batch,), int))


def compiled(drafter, verifier) -> Any:
  """The program of `advance`, and the state it takes, as shapes."""
  target = abstract_model()
  sampling, rule, stop = settings()
  prompt = jnp.zeros((BATCH, 16), jnp.int32)
  state = jax.eval_shape(
    lambda target, drafter: decode.start(
      target,
      drafter,
      prompt,
      jnp.full((BATCH,), 16, jnp.int32),
      keys(),
      sampling,
      rule,
      stop,
      capacity=CAPACITY,
    ),
    target,
    drafter,
  )
  lowered = decode.advance.lower(
    target, drafter, verifier, state, sampling, rule, stop, jnp.int32(8)
  )
  return lowered.compile(), state, target


def instructions(text):
  """(dims, operation) of each array made outside of fused computations."""
  found, is_fused = [], False
  for line in text.splitlines():
    if line.endswith("{") and not line.startswith(" "):
      is_fused = line.lstrip("%").startswith(("fused_", "wrapped_"))
    match = re.search(r" = \w+\[([\d,]*)\]\S* ([\w-]+)\(", line)
    if match and not is_fused:
      dims = tuple(int(d) for d in match[1].split(",") if d)
      found.append((dims, match[2]))
  return found


def matrices(tree):
  return {x.shape for x in jax.tree.leaves(tree) if len(x.shape) > 1}


def size(tree):
  return sum(
    math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree)
  )


class LoopTest(parameterized.TestCase):
  def assert_lean(self, program, state, params):
    made = instructions(program.as_text())
    self.assertNotEmpty(made)
    # The order of dimensions does not matter: a turned copy is a copy.
    for shapes, allowed in (
      # A block is written into the cache in place, by a scatter.
      (matrices(state.cache.layers), {"fusion", "scatter"}),
      (matrices(params), set()),
    ):
      wanted = {tuple(sorted(shape)) for shape in shapes}
      copies = [
        (dims, operation)
        for dims, operation in made
        if tuple(sorted(dims)) in wanted
        and operation not in allowed.union(FREE)
      ]
      self.assertEmpty(copies)
    memory = program.memory_analysis()
    cache = size(state.cache.layers)
    self.assertLess(memory.temp_size_in_bytes, 0.3 * cache)
    # Donated: the caches that go in are those that come out.
    self.assertGreaterEqual(memory.alias_size_in_bytes, cache)

  def test_no_copies_and_no_host(self):
    self.check("draft_model", rejection.Rejection())

  @parameterized.parameters("ngram", "draft_model", "cascade", "tree")
  @pytest.mark.slow
  def test_no_drafter_makes_copies(self, name):
    self.check(name, coupled.Coupled())

  def check(self, name, verifier):
    drafter = drafted(name)
    program, state, target = compiled(drafter, verifier)
    self.assert_lean(program, state, (target, drafter))
    drafter_cache = size(state.drafter)
    aliased = program.memory_analysis().alias_size_in_bytes
    self.assertGreaterEqual(aliased, size(state.cache.layers) + drafter_cache)
    text = program.as_text()
    operations = {operation for _, operation in instructions(text)}
    self.assertEmpty(operations.intersection(HOST))
    self.assertNotIn("callback", text)
    calls = {*re.findall(r'custom_call_target="([^"]*)"', text)}
    self.assertContainsSubset(calls, {"TopK"})  # of a tree's siblings, on CPU

  def test_the_ruler_sees_a_kept_cache(self):
    program, state, target = compiled(KeepsTheCache(LENGTH), coupled.Coupled())
    with self.assertRaises(AssertionError):
      self.assert_lean(program, state, target)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class KeepsTheCache:
  """Writes into the target's cache and keeps that for itself."""

  length: int

  @property
  def num_nodes(self):
    return self.length

  @property
  def max_depth(self):
    return self.length

  def init(self, batch, capacity):
    return abstract_zeros(abstract_model(), batch, capacity)

  def observe(self, state, block, view):
    return state

  def propose(self, state: Any, context: types.Context):
    draft, _, cache = ngram.NGram(self.length).propose(None, context)
    block = jnp.ones((BATCH, 1, *cache.layers[0][0].shape[2:]))
    return draft, cache.append(0, block + state.lengths[0], block), cache


def abstract_zeros(model, batch, capacity):
  shape = jax.eval_shape(lambda m: m.init_cache(batch, capacity, 1), model)
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)


def trace_counts():
  functions: Any = (decode.start, decode.advance)
  return [f._cache_size() for f in functions]


class TraceTest(absltest.TestCase):
  def test_one_program_for_all_prompts_seeds_and_lengths(self):
    target = toys.tiny(0)
    drafter = ngram.NGram(LENGTH)

    def run(seed, lengths, limit, draft_length):
      rng = np.random.default_rng(seed)
      sampling, _, stop = settings(batch=2, limit=limit)
      prompt = jnp.asarray(rng.integers(0, 64, (2, 16)), jnp.int32)
      state = decode.decode(
        target,
        drafter,
        coupled.Coupled(),
        prompt,
        jnp.asarray(lengths, jnp.int32),
        keys(2, seed),
        sampling,
        # An upper bound in the type, the wanted length in the state.
        policy.Fixed(draft_length, widths=()),
        stop,
        capacity=64,
      )
      return np.asarray(state.lengths)

    run(0, [16, 3], 8, LENGTH)
    traces = trace_counts()
    ends = run(1, [1, 12], 20, LENGTH)
    np.testing.assert_array_equal(ends, [21, 32])
    run(2, [5, 5], 1, LENGTH)
    self.assertEqual(traces, trace_counts())


def equations(jaxpr):
  """All equations, those of inner programs included."""
  for equation in jaxpr.eqns:
    yield equation
    for value in equation.params.values():
      for inner in value if isinstance(value, tuple | list) else (value,):
        if isinstance(inner, jax_core.ClosedJaxpr):
          yield from equations(inner.jaxpr)
        elif isinstance(inner, jax_core.Jaxpr):
          yield from equations(inner)


class AttentionCostTest(parameterized.TestCase):
  """Cost follows what is used of the cache, and a neighbour changes nothing."""

  B, T, N, K, H = 2, 3, 4, 2, 8

  def inputs(self, capacity, lengths, seed=0):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    longest = 512
    q = normal(self.B, self.T, self.N, self.H)
    k, v = (normal(self.B, longest, self.K, self.H) for _ in range(2))
    pad = ((0, 0), (0, max(0, capacity - longest)), (0, 0), (0, 0))
    k, v = (jnp.pad(x, pad)[:, :capacity] for x in (k, v))
    lengths = jnp.asarray(lengths, jnp.int32)
    positions = lengths[:, None] + jnp.arange(self.T)[None]
    return q, k, v, lengths, positions

  def attend(self, *arguments, window=None):
    scale = self.H**-0.5
    return attention.attend(*arguments, mask=None, scale=scale, window=window)

  def test_the_cache_is_read_in_key_blocks_alone(self):
    capacity = 4096
    arguments = self.inputs(capacity, [100, 7])
    jaxpr = jax.make_jaxpr(self.attend)(*arguments).jaxpr
    containers = ("while", "jit", "pjit", "closed_call", "custom_vjp_call")
    slices = 0
    for equation in equations(jaxpr):
      shapes = [getattr(x.aval, "shape", ()) for x in equation.invars]
      if not any(capacity in shape for shape in shapes):
        continue
      if equation.primitive.name == "dynamic_slice":
        self.assertEqual(equation.outvars[0].aval.shape[1], attention.KEY_BLOCK)
        slices += 1
      else:
        self.assertIn(equation.primitive.name, containers)
    self.assertEqual(slices, 2)

  def test_blocks_past_the_longest_row_are_not_read(self):
    """A NaN value would spoil a row even with weight 0, were it read."""
    q, k, v, *rest = self.inputs(512, [100, 7])
    clean = self.attend(q, k, v, *rest)
    used = -(-(100 + self.T) // attention.KEY_BLOCK) * attention.KEY_BLOCK
    poisoned = v.at[:, used:].set(jnp.nan)
    out = jax.jit(self.attend)(q, k, poisoned, *rest)
    np.testing.assert_allclose(out, clean, atol=1e-6)
    # One slot earlier belongs to a block that is read.
    poisoned = v.at[:, used - 1].set(jnp.nan)
    out = jax.jit(self.attend)(q, k, poisoned, *rest)
    self.assertTrue(np.isnan(out).any())

  @parameterized.parameters(64, 511, 512, 4096)
  def test_capacity_changes_nothing(self, capacity):
    attend = jax.jit(self.attend)
    lengths = [40, 7]
    expected = attend(*self.inputs(512, lengths))
    out = attend(*self.inputs(capacity, lengths))
    np.testing.assert_array_equal(out, expected)

  @parameterized.parameters(0, 60, 61, 300)
  def test_neighbours_length_changes_nothing(self, neighbour):
    attend = jax.jit(self.attend)
    expected = attend(*self.inputs(512, [100, 7]))
    out = attend(*self.inputs(512, [100, neighbour]))
    np.testing.assert_array_equal(out[0], expected[0])

  def test_neighbours_length_changes_no_logit(self):
    """The same through the whole loop, bit for bit, at the width of plain."""
    target = toys.tiny(0)
    sampling, rule, stop = settings(batch=2, limit=6)
    results = []
    for other in (1, 90):
      prompt = np.random.default_rng(1).integers(0, 64, (2, 96))
      state = decode.decode(
        target,
        empty.Empty(1),
        coupled.Coupled(),
        jnp.asarray(prompt, jnp.int32),
        jnp.asarray([20, other], jnp.int32),
        keys(2),
        sampling,
        rule,
        stop,
        capacity=128,
      )
      results.append((state.tokens[0, 20:26], state.log_probs[0, 20:26]))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


if __name__ == "__main__":
  absltest.main()
