# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a user asks of the sampler, and the arrays that it becomes.

Axis letters: B batch, Q bad words, L tokens of the longest, E EOS ids.
"""

from collections.abc import Sequence
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax.sampling import constraints, token_lists

# An array [B] in decoding; a number, or one a row, for `per_row`; None is off.
Setting = Any


class Sampling(struct.PyTreeNode):
  """Settings of each row; None where no row uses one.

  Attributes:
    temperature: 0 takes the most likely token, the lowest id on ties. None
      means that every row is greedy, and then no noise is drawn at all.
    top_k: keep the k most likely; 0 keeps all.
    top_p: keep the smallest set of at least this mass; 1 keeps all.
    min_p: keep what has at least this fraction of the largest probability.
    repetition: divides (multiplies) positive (negative) logits of seen tokens;
      1 is off.
    presence: is taken from logits of seen tokens; 0 is off.
    frequency: the same, times how often they were seen.
    bias: {token id: what is added to its logit}, -inf forbids it.
    allowed: token ids; all others are forbidden. Name EOS, or answers run to
      their limit.
    bad_words: token sequences that never come about: their last token is
      forbidden where the others stand before it, in the prompt or the answer.
    min_tokens: no EOS before so many tokens of an answer.
    constraint: a `constraints.Constraint` on the answer, such as
      `automata.choices` and `automata.regex` make.

  Rows may differ: a list with one entry a row stands for any of them, with None
  or nothing where a row is free. `per_row` makes arrays of it all.
  """

  temperature: Setting = None  # [B] float32
  top_k: Setting = None  # [B] int32
  top_p: Setting = None  # [B] float32
  min_p: Setting = None  # [B] float32
  repetition: Setting = None  # [B] float32
  presence: Setting = None  # [B] float32
  frequency: Setting = None  # [B] float32
  bias: Any = None  # a TokenBias, `allowed` in it
  allowed: Any = None  # None
  bad_words: Any = None  # [B, Q, L] int32, right-aligned
  min_tokens: Setting = None  # [B] int32
  eos: Any = None  # [B, E] int32 with min_tokens
  constraint: Any = None  # a constraints.Track

  @property
  def is_greedy(self) -> bool:
    return self.temperature is None

  @property
  def penalises(self) -> bool:
    return any(
      x is not None for x in (self.repetition, self.presence, self.frequency)
    )

  @property
  def forbids(self) -> bool:
    """Some token may be impossible whatever its logit."""
    return any(
      x is not None
      for x in (self.bias, self.bad_words, self.min_tokens, self.constraint)
    )

  def take(self, rows: Any) -> "Sampling":
    """The settings of some rows, an index array, on the host."""
    numbers = jax.tree.map(
      lambda x: np.asarray(x)[rows], self.replace(constraint=None)
    )
    if self.constraint is None:
      return numbers
    return numbers.replace(constraint=self.constraint.take(rows))


_is_count = lambda x: (x >= 0) & (x == np.floor(x)) & (x < 2**31)

# Per setting: its type, the value that switches it off, what it may be.
_NUMBERS = {
  "temperature": (np.float32, 0.0, lambda x: x >= 0, "finite, 0 or more"),
  "top_k": (np.int32, 0, _is_count, "0 (off) or more, whole, below 2^31"),
  "top_p": (np.float32, 1.0, lambda x: (x > 0) & (x <= 1), "in (0, 1]"),
  "min_p": (np.float32, 0.0, lambda x: (x >= 0) & (x <= 1), "in [0, 1]"),
  "repetition": (np.float32, 1.0, lambda x: x > 0, "above 0"),
  "presence": (np.float32, 0.0, np.isfinite, "finite"),
  "frequency": (np.float32, 0.0, np.isfinite, "finite"),
  "min_tokens": (np.int32, 0, _is_count, "0 (off) or more, whole, below 2^31"),
}


def per_row(
  sampling: Sampling,
  batch: int,
  *,
  vocab: int | None = None,
  eos: Sequence[int] = (),
) -> Sampling:
  """Settings as a user gives them, as arrays [B, ...] or None if unused.

  What it returns may be given to it again.

  Args:
    sampling: numbers and lists, or one a row.
    batch: B.
    vocab: ids that exist, which token ids are compared with; None does not.
    eos: ids that `min_tokens` holds back.

  Raises:
    ValueError: a value of another kind or out of range, not one a row, or
      `min_tokens` without `eos`.
  """
  if not isinstance(sampling, Sampling):
    raise ValueError(f"sampling is {sampling!r:.60}: give a specjax.Sampling")
  numbers = {name: _number(sampling, name, batch) for name in _NUMBERS}
  held_back = sampling.eos
  if numbers["min_tokens"] is not None and held_back is None:
    if len(eos) == 0:
      raise ValueError(
        f"sampling.min_tokens is {sampling.min_tokens!r:.40} but there is no "
        "EOS id to hold back: name one, or leave min_tokens out"
      )
    ids = jnp.asarray([*eos], jnp.int32)
    held_back = jnp.broadcast_to(ids, (batch, ids.size))
  return Sampling(
    **numbers,
    eos=held_back,
    bias=token_lists.bias(sampling.bias, sampling.allowed, batch, vocab),
    bad_words=token_lists.bad_words(sampling.bad_words, batch, vocab),
    constraint=constraints.track(sampling.constraint, batch, vocab),
  )


def _number(sampling, name, batch):
  """One setting [B], None when no row uses it."""
  dtype, off, allowed, words = _NUMBERS[name]
  given = _array(name, getattr(sampling, name), off)
  if given.ndim > 1 or (given.ndim and given.shape[0] != batch):
    raise ValueError(
      f"sampling.{name} has shape {given.shape}: give one number, or one for "
      f"each of {batch} rows"
    )
  # What is checked is what the sampler will see.
  with np.errstate(over="ignore"):
    value = given.astype(np.float64 if dtype is np.int32 else dtype)
  right = np.isfinite(value) & allowed(value)
  if not np.all(right):
    wrong = given.ravel()[~right.ravel()][0]
    raise ValueError(f"sampling.{name} is {wrong:g}: it must be {words}")
  if np.all(value == off):
    return None
  return jnp.broadcast_to(jnp.asarray(value, dtype), (batch,))


def _array(name, value, off):
  """Numbers as float64; None, alone or of a row, is what switches it off."""
  if isinstance(value, list | tuple):
    value = [off if row is None else row for row in value]
  try:
    array = np.asarray(off if value is None else value)
  except ValueError:  # lists of several lengths
    array = np.asarray("")
  if array.dtype.kind not in "iuf" and array.dtype != jnp.bfloat16:
    raise ValueError(
      f"sampling.{name} is {value!r:.60}: give a number, or one for each row"
    )
  return array.astype(np.float64)
