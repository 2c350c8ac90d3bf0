# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a user asks of the sampler, and the arrays that it becomes.

Axis letters: B batch, N token ids, Q bad words, L tokens of the longest, E EOS
ids, V vocabulary.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax.sampling import constraints

NO_ID = -1  # fills rows up

# An array [B] in decoding; a number, or one a row, for `per_row`; None is off.
Setting = Any
Array = jax.Array | np.ndarray


class TokenBias(struct.PyTreeNode):
  """A number for each token: a few of them, and one for the rest."""

  ids: Array  # [B, N] int32
  values: Array  # [B, N] float32
  rest: Array  # [B] float32

  def dense(self, vocab: int) -> jax.Array:
    """[B, V]."""
    at = jnp.where(self.ids == NO_ID, vocab, self.ids)
    rest = jnp.broadcast_to(self.rest[:, None], (len(at), vocab))
    put = jax.vmap(lambda row, i, value: row.at[i].set(value, mode="drop"))
    return put(rest, at, self.values)


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


# Per setting: its type, the value that switches it off, what it may be.
_NUMBERS = {
  "temperature": (jnp.float32, 0.0, lambda x: x >= 0, "0 or more"),
  "top_k": (jnp.int32, 0, lambda x: x >= 0, "0 (off) or more"),
  "top_p": (jnp.float32, 1.0, lambda x: (x > 0) & (x <= 1), "in (0, 1]"),
  "min_p": (jnp.float32, 0.0, lambda x: (x >= 0) & (x <= 1), "in [0, 1]"),
  "repetition": (jnp.float32, 1.0, lambda x: x > 0, "above 0"),
  "presence": (jnp.float32, 0.0, np.isfinite, "finite"),
  "frequency": (jnp.float32, 0.0, np.isfinite, "finite"),
  "min_tokens": (jnp.int32, 0, lambda x: x >= 0, "0 (off) or more"),
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
    ValueError: a value out of range, or not one a row.
  """
  numbers = {name: _number(sampling, name, batch) for name in _NUMBERS}
  held_back = sampling.eos
  if numbers["min_tokens"] is not None and held_back is None:
    ids = jnp.asarray([*eos] or [NO_ID], jnp.int32)
    held_back = jnp.broadcast_to(ids, (batch, ids.size))
  constraint = sampling.constraint
  if isinstance(constraint, list | tuple) and not any(constraint):
    constraint = None
  return Sampling(
    **numbers,
    eos=held_back,
    bias=_bias(sampling, batch, vocab),
    bad_words=_bad_words(sampling.bad_words, batch, vocab),
    constraint=None
    if constraint is None
    else constraints.track(constraint, batch),
  )


def _number(sampling, name, batch):
  """One setting [B], None when no row uses it."""
  dtype, off, allowed, words = _NUMBERS[name]
  value = getattr(sampling, name)
  value = np.asarray(off if value is None else value, np.float64)
  if value.ndim > 1 or (value.ndim and value.shape[0] != batch):
    raise ValueError(
      f"sampling.{name} has shape {value.shape}: give one number, or one for "
      f"each of {batch} rows"
    )
  right = np.isfinite(value) & allowed(value)
  if not np.all(right):
    wrong = value.ravel()[~right.ravel()][0]
    raise ValueError(f"sampling.{name} is {wrong:g}: it must be {words}")
  used = np.any(value != off)
  return jnp.broadcast_to(jnp.asarray(value, dtype), (batch,)) if used else None


def _bias(sampling, batch, vocab):
  """Bias and allowed tokens as one TokenBias; None when no row has any."""
  if isinstance(sampling.bias, TokenBias):
    return sampling.bias
  biases = sampling.bias
  if biases is None or isinstance(biases, Mapping):
    biases = [biases] * batch
  allowed = _rows("allowed", sampling.allowed, 1, batch)
  _check_rows("bias", biases, batch)
  if not any(biases) and not any(allowed):
    return None
  rows = [_values(*row) for row in zip(biases, allowed)]
  for row in rows:
    _check_ids("bias or sampling.allowed", row, vocab)
  width = _power_of_two(max(len(row) for row in rows))
  ids = np.full((batch, width), NO_ID, np.int32)
  values = np.zeros((batch, width), np.float32)
  for at, row in enumerate(rows):
    ids[at, : len(row)] = list(row)
    values[at, : len(row)] = list(row.values())
  rest = [-np.inf if only else 0.0 for only in allowed]
  return TokenBias(
    jnp.asarray(ids), jnp.asarray(values), jnp.asarray(rest, jnp.float32)
  )


def _values(bias, only):
  """{id: what is added} of one row."""
  bias = {int(token): float(value) for token, value in (bias or {}).items()}
  for token, value in bias.items():
    if np.isnan(value) or value == np.inf:
      raise ValueError(
        f"sampling.bias of token {token} is {value:g}: it must be finite, or "
        "-inf to forbid the token"
      )
  return {int(t): bias.get(int(t), 0.0) for t in only} if only else bias


def _bad_words(words, batch, vocab):
  """[B, Q, L], right-aligned; NO_ID in front, and throughout where none is."""
  if words is None or isinstance(words, Array):
    return words
  rows = _rows("bad_words", words, 2, batch)
  longest = max((len(word) for row in rows for word in row), default=0)
  if any(len(word) == 0 for row in rows for word in row):
    raise ValueError("sampling.bad_words has an empty one: give it a token id")
  if not longest:
    return None
  most = max(len(row) for row in rows)
  padded = np.full(
    (batch, _power_of_two(most), _power_of_two(longest)), NO_ID, np.int32
  )
  for table, row in zip(padded, rows):
    for line, word in zip(table, row):
      _check_ids("bad_words", word, vocab)
      line[-len(word) :] = word
  return jnp.asarray(padded)


def _rows(name, value, depth, batch):
  """A nested sequence for all rows, or one a row, as one a row."""
  value = () if value is None else value
  if _depth(value) <= depth:
    return [value] * batch
  _check_rows(name, value, batch)
  return [() if row is None else row for row in value]


def _depth(value):
  """How deep sequences are nested; 0 is a number."""
  if not isinstance(value, Collection):
    return 0
  return 1 + max((_depth(item) for item in value), default=0)


def _check_rows(name, value, batch):
  if len(value) != batch:
    raise ValueError(
      f"sampling.{name} has {len(value)} entries for {batch} rows: give one, "
      "or one each"
    )


def _check_ids(name, ids, vocab):
  for token in ids:
    if token < 0 or (vocab is not None and token >= vocab):
      limit = "" if vocab is None else f" to {vocab - 1}"
      raise ValueError(
        f"sampling.{name} has token {token}: the model's ids are 0{limit}"
      )


def _power_of_two(n):
  """At least n, so that few programs serve all lists."""
  return 1 << max(n - 1, 0).bit_length()
