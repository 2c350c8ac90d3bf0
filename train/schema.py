# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config of training may say: keys, defaults, types and ranges."""

from collections.abc import Mapping
import math
from typing import Any

from ml_collections import ConfigDict

from specjax.bench import plugins, schema, sections
from train import losses, optimizer

_TOP: sections.Keys = {
  "target": (..., (str,)),
  "quantization": ("none", (str,)),
  "dtype": ("float32", (str,)),
  "mesh": ({}, (ConfigDict,)),
  "objective": (..., (ConfigDict,)),
  "losses": ({"forward_kl": 1.0}, (ConfigDict,)),
  "extra": ({}, (ConfigDict,)),
  "decay": (0.8, sections.NUMBER),
  "sampling": ({"temperature": 1.0}, (ConfigDict,)),
  "data": (..., (ConfigDict,)),
  "optimizer": (..., (ConfigDict,)),
  "steps": (0, (int,)),
  "epochs": (0, sections.NUMBER),
  "batch_size": (8, (int,)),
  "accumulation": (1, (int,)),
  "evaluation": ({}, (ConfigDict,)),
  "save_every": (500, (int,)),
  "keep": (2, (int,)),
  "init_from": ("", (str,)),
  "tensorboard": (True, (bool,)),
  "seed": (0, (int,)),
}
_SAMPLING: sections.Keys = {
  "temperature": (1.0, sections.NUMBER),
  "top_k": (0, (int,)),
  "top_p": (1.0, sections.NUMBER),
  "min_p": (0.0, sections.NUMBER),
}
_DATA: sections.Keys = {
  "train": (..., (str, *sections.TEXTS)),
  "validation": (..., (str, *sections.TEXTS)),
  "licenses": ((), sections.TEXTS),
  "width": (512, (int,)),
  "draft_vocab": (0, (int,)),
  "limit": (0, (int,)),
  "workers": (0, (int,)),
  "features": ("", (str,)),
}
_OPTIMIZER: sections.Keys = {
  "learning_rate": (..., sections.NUMBER),
  "schedule": ("cosine", (str,)),
  "end": (0.0, sections.NUMBER),
  "warmup": (0.03, sections.NUMBER),
  "beta1": (0.9, sections.NUMBER),
  "beta2": (0.95, sections.NUMBER),
  "weight_decay": (0.0, sections.NUMBER),
  "clip": (1.0, sections.NUMBER),
}
_EVALUATION: sections.Keys = {
  "every": (500, (int,)),
  "depth": (3, (int,)),
  "rows": (16, (int,)),
  "limit": (0, (int,)),
  "select": ("serving", (str,)),
  "prompts": ((), (str, *sections.TEXTS)),
  "max_new_tokens": (64, (int,)),
}
SELECTIONS = ("serving", "temperature_0", "temperature_1")
OBJECTIVES = {
  "medusa": "train.objectives.medusa:medusa",
  "chained": "train.objectives.chained:chained",
  "eagle": "train.objectives.eagle:eagle",
  "block_parallel": "train.objectives.block_parallel:block_parallel",
  "draft_model": "train.objectives.draft_model:draft_model",
  "early_exit": "train.objectives.early_exit:early_exit",
}
# Keys that may change when a run goes on: the steps it makes do not follow from
# them, apart from the rounding of another mesh.
FREE = (
  "data.workers",
  "keep",
  "mesh.data",
  "mesh.model",
  "save_every",
  "tensorboard",
)
# Arguments of an objective that the run has; `load` reads a model by its name.
PROVIDED = ("target", "ids", "load")


def complete(given: Any) -> ConfigDict:
  """A config with every key, unlocked.

  Raises:
    ValueError: an unknown key, a missing one, or a wrong type.
  """
  config = sections.complete("", given, _TOP)
  for name, keys in (
    ("mesh", schema.MESH),
    ("sampling", _SAMPLING),
    ("data", _DATA),
    ("optimizer", _OPTIMIZER),
    ("evaluation", _EVALUATION),
  ):
    config[name] = sections.complete(name, config[name], keys)
  # All by name, so that an override can weigh what the file does not.
  config.losses = {**dict.fromkeys(losses.NAMES, 0.0), **config.losses}
  kind = config.objective.get("type")
  named = plugins.arguments(plugins.find("objective", kind, OBJECTIVES))
  keys = {"type": (..., (str,)), **plugins.keys(named, PROVIDED)}
  config.objective = sections.complete("objective", config.objective, keys)
  return config


def check(config: ConfigDict) -> None:
  """Refuses values out of range.

  Raises:
    ValueError: one line that names the key, its value and the fix.
  """
  sections.check_least(
    config,
    {
      "decay": 0,
      "steps": 0,
      "epochs": 0,
      "batch_size": 1,
      "accumulation": 1,
      "save_every": 1,
      "keep": 1,
      "seed": 0,
    },
  )
  sections.check_least(config.mesh, {"data": 1, "model": 1}, "mesh.")
  _check_steps(config)
  sections.check_least(
    config.data,
    {"width": 3, "draft_vocab": 0, "limit": 0, "workers": 0},
    "data.",
  )
  sections.check_least(
    config.evaluation,
    {"every": 1, "depth": 1, "rows": 1, "limit": 0, "max_new_tokens": 1},
    "evaluation.",
  )
  if config.evaluation.select not in SELECTIONS:
    raise ValueError(
      f"evaluation.select is {config.evaluation.select!r}: choose one of "
      f"{', '.join(SELECTIONS)}"
    )
  losses.weighted(config.losses.to_dict())
  _check_finite(config)
  _check_extra(config.extra)
  optimizer.Settings(**config.optimizer)


def _check_steps(config: ConfigDict) -> None:
  if bool(config.steps) == bool(config.epochs):
    raise ValueError(
      f"steps is {config.steps} and epochs is {config.epochs}: give one of them"
    )
  if config.batch_size % (config.accumulation * config.mesh.data):
    raise ValueError(
      f"batch_size {config.batch_size} does not divide by accumulation "
      f"{config.accumulation} times mesh.data {config.mesh.data}: use a "
      "multiple"
    )


def _check_finite(config: ConfigDict) -> None:
  """Refuses KL(q || p) where p leaves out tokens: nothing would be learnt."""
  served = config.sampling
  leaves_out = [
    f"sampling.{name} = {served[name]}"
    for name, is_set in (
      ("temperature", served.temperature == 0),
      ("top_k", served.top_k > 0),
      ("top_p", served.top_p < 1),
      ("min_p", served.min_p > 0),
    )
    if is_set
  ]
  if losses.weight(config.losses.to_dict()["reverse_kl"]) and leaves_out:
    raise ValueError(
      f"losses.reverse_kl is infinite with {leaves_out[0]}, which leaves out "
      "tokens: use jsd"
    )


def _check_extra(extra: Mapping[str, Any]) -> None:
  for name, weight in extra.items():
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight < math.inf:
      raise ValueError(f"extra.{name} is {weight!r}: use a number of 0 or more")
