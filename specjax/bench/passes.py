# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The target's passes over recorded drafts, and nothing else.

What a round would cost if drafting, sampling and deciding were free.

Axis letters: R rounds, B batch, T nodes.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from specjax import types
from specjax.trees import tree


@functools.partial(
  jax.jit, donate_argnames=("cache",), static_argnames=("shape",)
)
def run(
  target: types.Model,
  cache: types.KVCache,
  drafts: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
  acceptance: types.Acceptance,
  rounds: jax.Array | int,
  shape: tuple[int, tuple[int, ...]],
) -> tuple[types.KVCache, jax.Array]:
  """The passes of recorded rounds, each as wide as it was; compiled.

  Args:
    target: the model.
    cache: of the prompts; donated.
    drafts: root [R, B], tokens and parents [R, B, T], count [R, B].
    acceptance: of [R, B, ...]; what each round kept.
    rounds: how many of the R to run.
    shape: deepest node, and the policy's narrower widths.

  Returns:
    The cache and a number that need all passes.
  """
  max_depth, widths = shape
  root, tokens, parents, count = drafts

  def body(carry):
    index, *carry = carry
    draft = types.Draft(
      tokens[index], parents[index], None, count[index], max_depth
    )
    kept = jax.tree.map(lambda x: x[index], acceptance)
    needed, below = jnp.max(draft.count), -1
    for nodes in tree.widths(draft, widths):
      run = functools.partial(
        _pass, target, root[index], tree.narrow(draft, nodes), kept
      )
      is_width = (needed > below) & (needed <= nodes)
      _, *carry = jax.lax.while_loop(
        lambda carry: carry[0],
        lambda c, run=run: run(*c[1:]),
        (is_width, *carry),
      )
      below = nodes
    return index + 1, *carry

  carry = (jnp.int32(0), cache, jnp.float32(-jnp.inf))
  end: Any = jax.lax.while_loop(lambda carry: carry[0] < rounds, body, carry)
  return end[1], end[2]


def _pass(target, root, draft, kept, cache, largest):
  """One pass of the target; the maximum needs all its logits."""
  block = jnp.concatenate([root[:, None], draft.tokens], axis=1)
  if draft.is_chain:
    output, path = target(block, cache), None
  else:
    depth, ancestors = tree.layout(draft)
    positions = cache.lengths[:, None] + depth
    output = target(block, cache, positions, ancestors)
    path = kept.path
  cache = output.cache.commit(path, kept.count)
  return jnp.bool_(False), cache, jnp.maximum(largest, jnp.max(output.logits))
