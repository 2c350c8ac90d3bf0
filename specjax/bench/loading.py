# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The models that a config names, loaded once for all configs that share them.

A sweep hands what one setting has loaded on to the next.
"""

from collections.abc import Mapping
import dataclasses
import functools

from ml_collections import ConfigDict

from specjax import tokenizers
from specjax.bench import backend, build
from specjax.models import model as model_lib
from specjax.models import sources


@dataclasses.dataclass(frozen=True)
class Weights:
  """A loaded model and where it came from."""

  model: model_lib.Model
  source: sources.Source

  @property
  def quantization(self) -> str:
    """Of the parameters: "none" or "int8", whoever asked for it."""
    return self.model.config.quantization or "none"

  @functools.cached_property
  def fingerprint(self) -> str:
    """Of the parameters as they are computed with; takes a pass over them."""
    return sources.fingerprint(self.model)


@dataclasses.dataclass(frozen=True)
class Loaded:
  """Target, tokenizer and draft models.

  Attributes:
    key: what decided how they were loaded (see `load`).
    target: answers.
    tokenizer: its own.
    drafts: by name and quantization, see `build.draft_key`.
  """

  key: tuple[str, ...]
  target: Weights
  tokenizer: tokenizers.Tokenizer
  drafts: Mapping[tuple[str, str], Weights]

  @property
  def draft_models(self) -> dict[tuple[str, str], model_lib.Model]:
    return {key: draft.model for key, draft in self.drafts.items()}


def load(config: ConfigDict, loaded: Loaded | None = None) -> Loaded:
  """Loads the models that a config names.

  Args:
    config: checked.
    loaded: models of another config. Kept where target, dtype, quantization
      and mesh are the same, and only draft models that it lacks are loaded;
      let go first where they are not, or both targets are in memory.

  Raises:
    ValueError, OSError: a model that cannot be, in one line.
  """
  key = _key(config)
  if loaded is None or loaded.key != key:
    backend.set_up()
    model, tokenizer, source = backend.load(config)
    loaded = Loaded(key, Weights(model, source), tokenizer, {})
  found = build.check_drafts(config, loaded.tokenizer)
  named = (build.draft_key(section) for _, section in build.drafters(config))
  wanted = dict.fromkeys(key for key in named if key is not None)
  drafts = {key: loaded.drafts[key] for key in wanted if key in loaded.drafts}
  loaded = dataclasses.replace(loaded, drafts=drafts)
  for key in wanted:
    if key not in drafts:
      drafts[key] = _draft(config, key, found[key[0]], loaded.target)
  return dataclasses.replace(loaded, drafts=drafts)


def fits(config: ConfigDict, loaded: Loaded) -> bool:
  """Whether `load` would keep the target."""
  return loaded.key == _key(config)


def _key(config: ConfigDict) -> tuple[str, ...]:
  names = ("target", "dtype", "quantization", "mesh")
  return tuple(str(config.get(name)) for name in names)


def _draft(config, key, source, target) -> Weights:
  if key == (config.target, config.quantization):
    return target  # A model that drafts for itself is held once.
  model, _ = sources.load(source, config.dtype, key[1], backend.mesh(config))
  return Weights(model, source)
