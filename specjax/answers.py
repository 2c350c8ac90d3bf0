# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is asked and what is answered: methods, settings, generations."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from specjax import sampling as sampling_lib
from specjax import tokenizers, types
from specjax.drafters import empty
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled


@dataclasses.dataclass(frozen=True)
class Method:
  """How tokens are drafted and verified; the default is plain decoding.

  Attributes:
    drafter: proposes tokens.
    verifier: decides what is kept.
    policy: how many tokens to draft; None drafts as many as the drafter can.
    lossless: refuse a verifier that changes the law of the text.

  Raises:
    ValueError: a lossy verifier where a lossless one is asked for, or more
      widths than are compiled.
  """

  drafter: types.Drafter = dataclasses.field(default_factory=empty.Empty)
  verifier: types.Verifier = dataclasses.field(default_factory=coupled.Coupled)
  policy: types.Policy | None = None
  lossless: bool = True

  def __post_init__(self):
    if self.lossless:
      check_lossless(type(self.verifier).__name__, self.verifier)
    policy_lib.check_widths(self.active_policy.widths)

  @property
  def block(self) -> int:
    """Slots of its widest round."""
    return self.drafter.num_nodes + 1

  @property
  def active_policy(self) -> types.Policy:
    if self.policy is None:
      return policy_lib.Fixed(self.drafter.max_depth)
    return self.policy


def check_lossless(name: str, verifier: types.Verifier) -> None:
  """Refuses a rule that changes the law of the text."""
  if not verifier.lossless:
    raise ValueError(
      f"{name} changes the law of the text: set lossless = False to allow it, "
      "or use a lossless rule such as coupled"
    )


@dataclasses.dataclass(frozen=True)
class Settings:
  """What an answer may look like; the same for every method of a comparison.

  Attributes:
    sampling: numbers, or one a prompt.
    max_new_tokens: tokens of an answer, EOS included.
    stop: strings that end an answer, or one; they must lie wholly in it, and
      the answer ends with the token that completes one.
    stop_tokens: token sequences that end an answer.
    ignore_eos: go on after EOS.
    seed: of all randomness; or one a prompt, whose answer then does not depend
      on its place among the prompts.
  """

  sampling: sampling_lib.Sampling = dataclasses.field(
    default_factory=sampling_lib.Sampling
  )
  max_new_tokens: int = 128
  stop: str | tuple[str, ...] = ()
  stop_tokens: tuple[tuple[int, ...], ...] = ()
  ignore_eos: bool = False
  seed: int | tuple[int, ...] = 0

  def __post_init__(self):
    if isinstance(self.stop, str):
      object.__setattr__(self, "stop", (self.stop,))
    if "" in self.stop:
      raise ValueError("a stop string is empty: give it some text")


@dataclasses.dataclass(frozen=True)
class Generation:
  """One answer and how it came about. Text, ids and counts end at one place.

  Attributes:
    text: of the answer.
    tokens: ids, EOS included.
    log_probs: the model's own, before temperature and filters.
    reason: "eos", "stop", "length", "error", or "running" so far.
    prompt_tokens: read before it.
    emitted, drafted, accepted, rejected: by round.
    prefill_seconds, decode_seconds: wall time of the batch it ran in.
  """

  text: str
  tokens: np.ndarray
  log_probs: np.ndarray
  reason: str
  prompt_tokens: int
  emitted: np.ndarray
  drafted: np.ndarray
  accepted: np.ndarray
  rejected: np.ndarray
  prefill_seconds: float
  decode_seconds: float


def random_streams(
  settings: Settings,
  indices: Sequence[int] | None,
  samples: Sequence[int] | None,
  count: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Seeds, prompt indices, sample indices [count], which choose streams.

  Args:
    settings: have the seed.
    indices: None numbers the prompts, or is 0 where each has a seed.
    samples: None is 0, the first answer to each prompt.
    count: of answers.

  Raises:
    ValueError: there is not one seed, nor one an answer.
  """
  seed = np.asarray(settings.seed)
  if seed.ndim and len(seed) != count:
    raise ValueError(
      f"there are {len(seed)} seeds for {count} prompts: give one, or one each"
    )
  if indices is None:
    indices = [0] * count if seed.ndim else range(count)
  if samples is None:
    samples = [0] * count
  return (
    np.broadcast_to(seed, (count,)),
    np.asarray(indices),
    np.asarray(samples),
  )


def arrays(
  sampling: sampling_lib.Sampling,
  count: int,
  model: types.Model,
  tokenizer: tokenizers.Tokenizer,
) -> sampling_lib.Sampling:
  """Settings of `count` answers as arrays, token ids compared with the model's.

  Raises:
    ValueError: see `sampling.per_row`.
  """
  return sampling_lib.per_row(
    sampling, count, vocab=model.num_tokens, eos=tokenizer.eos_ids
  )


def check_samples(samples: int, sampling: sampling_lib.Sampling) -> None:
  """Refuses several answers that are bound to be one.

  Args:
    samples: answers a prompt.
    sampling: as `sampling.per_row` gives it.

  Raises:
    ValueError: less than one, or several without a temperature.
  """
  if samples < 1:
    raise ValueError(f"samples is {samples}: use 1 or more")
  if samples > 1 and sampling.is_greedy:
    raise ValueError(
      f"samples is {samples} but the temperature is 0, so all answers to a "
      "prompt would be the same: set a temperature, or samples to 1"
    )
