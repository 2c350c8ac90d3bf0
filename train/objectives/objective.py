# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What can be trained: one protocol between the trainer and a kind of draft.

An objective arranges calls of a network of `specjax.models`; the network itself
is the one that the decoding loop uses, so what is trained is what is run.

Axis letters: B rows, S slots, n slots of any shape, K outputs a slot, Q columns
of an output, V vocabulary.
"""

from collections.abc import Mapping
import os
from typing import Any, Protocol

import jax

from specjax import tokenizers, types
from specjax.models import model as model_lib
from train import packing, teacher

# Further losses that an objective works out itself, by name: [K] float32 sums
# over the outputs that count (`teacher.counted`), one for each depth.
Extra = Mapping[str, jax.Array]


class Objective(Protocol):
  """A draft to train for a frozen target; see `teacher` for the alignment.

  A pytree, such as a `flax.struct.PyTreeNode`: the target's arrays are leaves,
  settings are static.
  """

  @property
  def target(self) -> model_lib.Model: ...
  @property
  def depth(self) -> int: ...  # K: outputs of a slot, trained together
  @property
  def feature_layers(self) -> tuple[int, ...]: ...  # of the target, () for most
  @property
  def ids(self) -> jax.Array | None: ...  # [Q] tokens of columns; None is all
  @property
  def teacher_forced(self) -> bool:
    """A slot's one output has read the text itself (K = 1).

    Such a draft's depth k from slot t is what slot t + k gives.
    """

  def replace(self, *, target: model_lib.Model) -> "Objective":
    """The same for a target that gives the `feature_layers`."""

  def init(self, key: jax.Array) -> Any:
    """Parameters to train: nested dicts of arrays."""

  def read(
    self, params: Any, batch: packing.Batch, seen: teacher.Teacher
  ) -> tuple[Any, Extra]:
    """What is known at each slot, a pytree of [B, S, ...], for `logits`.

    All that goes over the text is done here, such as attention.
    """

  def logits(
    self, params: Any, known: Any, rows: jax.Array | None
  ) -> jax.Array:
    """[n, K, Q] float32 of slots [n]: the work of the vocabulary's size.

    `rows` [Q, D] are those of the target's output matrix that `ids` name.
    """

  def drafter(self, params: Any, length: int) -> types.Drafter:
    """The drafter that decodes with these parameters."""

  def save(
    self,
    params: Any,
    path: str | os.PathLike[str],
    tokenizer: tokenizers.Tokenizer,
  ) -> None:
    """A folder that `specjax` loads by its path."""
