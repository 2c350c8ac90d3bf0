# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""AdamW with a warm-up, a falling learning rate and clipped gradients."""

import dataclasses

import jax
import optax

SCHEDULES = ("cosine", "linear", "constant")


@dataclasses.dataclass(frozen=True)
class Settings:
  """Of the optimiser.

  Attributes:
    learning_rate: the largest, after the warm-up.
    schedule: one of SCHEDULES, from there on.
    end: last learning rate relative to the largest.
    warmup: share of all steps; from 0, linear.
    beta1, beta2: decay of the moments.
    weight_decay: of matrices; vectors, norms' scales among them, have none.
    clip: largest norm of a gradient; 0 does not clip.
  """

  learning_rate: float
  schedule: str = "cosine"
  end: float = 0.0
  warmup: float = 0.03
  beta1: float = 0.9
  beta2: float = 0.95
  weight_decay: float = 0.0
  clip: float = 1.0

  def __post_init__(self):
    if self.schedule not in SCHEDULES:
      raise ValueError(
        f"optimizer.schedule is {self.schedule!r}: choose one of "
        f"{', '.join(SCHEDULES)}"
      )
    if not self.learning_rate > 0:
      raise ValueError(
        f"optimizer.learning_rate is {self.learning_rate}: use more than 0"
      )
    for name in ("end", "warmup"):
      value = getattr(self, name)
      if not 0 <= value <= 1:
        raise ValueError(f"optimizer.{name} is {value}: use 0 to 1")
    for name in ("beta1", "beta2"):
      value = getattr(self, name)
      # With 1 a moment stays 0, and 0 / 0 is what the first step adds.
      if not 0 <= value < 1:
        raise ValueError(f"optimizer.{name} is {value}: use 0 to below 1")
    for name in ("weight_decay", "clip"):
      if getattr(self, name) < 0:
        raise ValueError(
          f"optimizer.{name} is {getattr(self, name)}: use 0 or more"
        )


def schedule(settings: Settings, steps: int) -> optax.Schedule:
  """Learning rate of each step."""
  s = settings
  warm = round(s.warmup * steps)
  left = max(steps - warm, 1)
  peak, end = s.learning_rate, s.end * s.learning_rate
  decay = {
    "cosine": optax.cosine_decay_schedule(peak, left, s.end),
    "linear": optax.linear_schedule(peak, end, left),
    "constant": optax.constant_schedule(peak),
  }[s.schedule]
  if not warm:
    return decay
  # The first step learns too: warm-up ends at step `warm`, not begins with 0.
  rise = optax.linear_schedule(peak / (warm + 1), peak, warm)
  return optax.join_schedules([rise, decay], [warm])


def make(settings: Settings, steps: int) -> optax.GradientTransformation:
  """The whole update rule of a run of so many steps."""
  clip = [optax.clip_by_global_norm(settings.clip)] if settings.clip else []
  return optax.chain(
    *clip,
    optax.adamw(
      schedule(settings, steps),
      b1=settings.beta1,
      b2=settings.beta2,
      weight_decay=settings.weight_decay,
      mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
    ),
  )
