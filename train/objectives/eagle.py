# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Heads that attend to the text, trained on what they will see when they run.

When it decodes, a head reads real features up to the root and its own output
from there on. So it is run K times over a text: at step k slot t reads token
t + 1 + k beside what it gave itself at step k - 1, and attends to the real
pairs up to t and to its own steps, not to those of other slots (training-time
test, arXiv 2503.01840; one step is EAGLE-1, arXiv 2401.15077).

  slot t       step 0           step 1           step 2
  reads        x_{t+1}, f_t     x_{t+2}, g0_t    x_{t+3}, g1_t
  position     t                t + 1            t + 2
  attends to   pairs 0..t       pairs 0..t, g0   pairs 0..t, g0, g1
  draws        x_{t+2}          x_{t+3}          x_{t+4}

Axis letters: B rows, S slots, K steps, D width of the head, Q columns.
"""

import os
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import tokenizers
from specjax.drafters import eagle as eagle_drafter
from specjax.models import model as model_lib
from specjax.models.heads import eagle_heads, saved_heads
from specjax.trees import branching
from train import packing, teacher
from train.objectives import heads, objective


def eagle(
  target: model_lib.Model,
  ids: jax.Array | None = None,
  kind: str = "eagle3",
  depth: int = 3,
  feature_layers: tuple = (),
  mlp_dim: int = 0,
  own_output: bool = True,
) -> "Eagle":
  """A head to train.

  Args:
    target: frozen; the head has its width.
    ids: [Q] tokens that can be drafted; None is all.
    kind: "eagle", "eagle3" or "mtp".
    depth: K.
    feature_layers: the target's layers that an EAGLE-3 head reads, from 0; ()
      is a low, a middle and a high one. Other kinds read the last hidden state.
    mlp_dim: width of the MLP; 0 is the target's.
    own_output: it has an output matrix of its own, which begins as the
      target's; else it ends in the target's.

  Raises:
    ValueError: a size below 1; no such kind, or the target has no such layers.
  """
  if feature_layers and kind != "eagle3":
    raise ValueError(
      f"feature_layers is {tuple(feature_layers)} but {kind!r} reads the last "
      "hidden state: leave them out, or use kind = 'eagle3'"
    )
  heads.check_sizes(depth=depth)
  layers = ()
  if kind == "eagle3":
    layers = heads.chosen_layers(target, feature_layers)
  config = eagle_heads.EagleConfig(
    kind,
    heads.layer_config(target, 1, mlp_dim),
    target.config.embed_dim * max(len(layers), 1),
    layers,
    heads.columns(target, ids, own_output),
  )
  return Eagle(target, ids, config, depth)


class Eagle(struct.PyTreeNode):
  """See the module and `objective.Objective`.

  Attributes:
    target: frozen; embeds tokens.
    ids: [Q] tokens that can be drafted; None is all.
    config: of the head.
    depth: K.
  """

  target: model_lib.Model
  ids: jax.Array | None
  config: eagle_heads.EagleConfig = struct.field(pytree_node=False)
  depth: int = struct.field(pytree_node=False)

  teacher_forced = False

  @property
  def feature_layers(self) -> tuple[int, ...]:
    return self.config.feature_layers

  def init(self, key: jax.Array) -> Any:
    params = eagle_heads.EagleHead.init(self.config, key).params
    return heads.begin(params, self)

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[jax.Array, objective.Extra]:
    """What the head gave at every step, [B, S, K, D]."""
    head = self._head(params)
    B, S = batch.tokens.shape
    real = x = head.features(heads.block(batch, seen))
    cache = head.init_cache(B, self.depth * S)
    causal, own = teacher.mask(batch), jnp.eye(S, dtype=bool)[None]
    own = jnp.broadcast_to(own, causal.shape)
    positions, masks, given = [], [], []
    for k in range(self.depth):
      positions.append(batch.positions + k)
      masks.append(own if k else causal)
      x, cache = head(
        teacher.later(batch.tokens, 1 + k),
        x,
        cache,
        self.target,
        jnp.concatenate(positions, axis=1),
        jnp.concatenate(masks, axis=2),
      )
      cache = cache.replace(lengths=cache.lengths + S)
      given.append(x)
    given = jnp.stack(given, axis=2)
    return given, {"feature": self._regression(given, real, batch)}

  def logits(
    self, params: Any, known: jax.Array, rows: jax.Array | None
  ) -> jax.Array:
    x = self._head(params).apply("output", known)
    return heads.unembed(self.target, x, rows, self.config.draft_vocab)

  def drafter(self, params: Any, length: int) -> eagle_drafter.Eagle:
    plan = branching.chain(length)
    return eagle_drafter.Eagle(self._head(params), self.target, plan)

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    del tokenizer  # A head speaks its target's tokens.
    saved_heads.save(self._head(params), path, self.target)

  def _head(self, params):
    head = eagle_heads.EagleHead(params, None, self.config)
    return head.drafting(self.ids, self.target)

  def _regression(self, given, real, batch):
    """[K] smooth L1 distances to the features that the steps stand in for."""
    counts = teacher.counted(batch, self.depth)
    real = jax.lax.stop_gradient(real)
    wanted = [teacher.later(real, 1 + k) for k in range(self.depth)]
    distance = jnp.abs(given - jnp.stack(wanted, axis=2))
    smooth = jnp.where(distance < 1, 0.5 * distance**2, distance - 0.5)
    each = jnp.mean(smooth, axis=-1)
    return jnp.sum(jnp.where(counts, each, 0), axis=(0, 1))
