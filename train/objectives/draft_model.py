# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model of its own, taught the target's laws (arXiv 2310.08461).

It reads the text like the target does, so one pass teaches it every slot; what
it drafts at depth k from slot t is what it says at slot t + k.

Axis letters: B rows, S slots, n slots, D model width, Q columns.
"""

from collections.abc import Callable
import dataclasses
import os
from typing import Any

from flax import struct
import jax

from specjax import tokenizers
from specjax.drafters import draft_model as draft_model_drafter
from specjax.models import model as model_lib
from specjax.models import sources
from train import packing, teacher
from train.objectives import heads, objective

SHARED = ("embed", "unembed")  # what a new model has of its target


def draft_model(
  target: model_lib.Model,
  load: Callable[[str], model_lib.Model],
  model: str = "",
  num_layers: int = 1,
  mlp_dim: int = 0,
) -> "DraftModel":
  """A draft model to train.

  Args:
    target: frozen.
    load: reads a model by its name.
    model: what to begin with, of the target's vocabulary. "" is a new one:
      layers of its own between the target's embedding and output matrix, which
      stay as they are.
    num_layers: of a new one.
    mlp_dim: width of its MLPs; 0 is the target's.

  Raises:
    ValueError: a model of another vocabulary; no such number of layers; a
      width below 1; a target of rounded weights, whose embedding a new model
      cannot share.
  """
  if model:
    found = load(model)
    if found.vocab_size != target.vocab_size:
      raise ValueError(
        f"model {model!r} has {found.vocab_size} tokens, the target "
        f"{target.vocab_size}: a draft model must have the target's"
      )
    return DraftModel(target, found)
  config = target.truncate(num_layers).config
  if config.quantization is not None:
    raise ValueError(
      f"a new draft model cannot share an embedding of {config.quantization}: "
      "use quantization = 'none'"
    )
  config = dataclasses.replace(config, mlp_dim=mlp_dim or config.mlp_dim)
  heads.check_sizes(mlp_dim=config.mlp_dim)
  shared = {key: target.params[key] for key in SHARED if key in target.params}
  new = target.replace(params=shared, config=config, feature_layers=())
  return DraftModel(target, new, tuple(shared))


class DraftModel(struct.PyTreeNode):
  """See the module and `objective.Objective`.

  Attributes:
    target: frozen.
    model: the draft, with the parameters it begins with; one that has none but
      the shared ones begins at random.
    shared: names of its parameters that are the target's, and stay.
  """

  target: model_lib.Model
  model: model_lib.Model
  shared: tuple[str, ...] = struct.field(pytree_node=False, default=())

  ids = None
  feature_layers = ()
  teacher_forced = True
  depth = 1

  def init(self, key: jax.Array) -> Any:
    params = self.model.params
    if set(params) == set(self.shared):
      params = model_lib.Model.init(self.model.config, key).params
    return {name: x for name, x in params.items() if name not in self.shared}

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[jax.Array, objective.Extra]:
    """Its hidden states, each at the slot before: the one that draws there."""
    del seen
    B, S = batch.tokens.shape
    model = self._model(params)
    output = model(
      batch.tokens,
      model.init_cache(B, S, S),
      batch.positions,
      teacher.mask(batch),
    )
    return teacher.later(output.hidden, 1), {}

  def logits(
    self, params: Any, known: jax.Array, rows: jax.Array | None
  ) -> jax.Array:
    del rows
    return self._model(params).unembed(known)[:, None]

  def drafter(self, params: Any, length: int) -> draft_model_drafter.DraftModel:
    return draft_model_drafter.DraftModel(self._model(params), length)

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    model = self._model(params)
    sources.save(model, tokenizer, path, layout="huggingface")

  def _model(self, params):
    shared = {name: self.model.params[name] for name in self.shared}
    return self.model.replace(params={**shared, **params})
