# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings that name tokens: bias, allowed tokens, bad words.

Each is given once for all rows, or in a list with one entry a row, in which
None is a row without any.

Axis letters: B batch, N token ids, Q bad words, L tokens of the longest,
V vocabulary.
"""

from collections.abc import Collection, Mapping
import operator
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

NO_ID = -1  # fills rows up

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


def bias(
  added: Any, allowed: Any, batch: int, vocab: int | None
) -> TokenBias | None:
  """Bias and allowed tokens as one; None when no row has any.

  Args:
    added: {id: what is added to its logit}, or one a row; a TokenBias is
      returned as it is.
    allowed: ids, all others being forbidden, or ids a row.
    batch: B.
    vocab: ids that exist; None compares with none.

  Raises:
    ValueError: one line that names the value and the fix.
  """
  if isinstance(added, TokenBias):
    return added
  rows = added if _is_list(added) else [added] * batch
  _check_rows("bias", rows, batch)
  values = [_values(row, vocab) for row in rows]
  only = _allowed(allowed, batch, vocab)
  if not any(values) and not any(only):
    return None
  # An allowed token keeps its bias; of the others it would say nothing.
  values = [
    {token: row.get(token, 0.0) for token in ids} if ids else row
    for row, ids in zip(values, only)
  ]
  width = _power_of_two(max(map(len, values)))
  ids = np.full((batch, width), NO_ID, np.int32)
  numbers = np.zeros((batch, width), np.float32)
  for at, row in enumerate(values):
    ids[at, : len(row)] = list(row)
    numbers[at, : len(row)] = list(row.values())
  rest = np.array([-np.inf if ids else 0.0 for ids in only], np.float32)
  return TokenBias(*map(jnp.asarray, (ids, numbers, rest)))


def bad_words(words: Any, batch: int, vocab: int | None) -> Array | None:
  """[B, Q, L], right-aligned, NO_ID in front; None when no row has any.

  Args:
    words: sequences of ids, or such a list a row; an array [B, Q, L] is
      returned as it is.
    batch: B.
    vocab: ids that exist; None compares with none.

  Raises:
    ValueError: one line that names the value and the fix.
  """
  if words is None or getattr(words, "ndim", 0) == 3:
    return words
  _check_list("bad_words", words, "sequences of token ids, as [[5, 6]]")
  each = any(
    row is None or (_is_list(row) and any(map(_is_list, row))) for row in words
  )
  rows = words if each else [words] * batch
  _check_rows("bad_words", rows, batch)
  spelt = [[_word(word, vocab) for word in _row(row)] for row in rows]
  longest = max((len(word) for row in spelt for word in row), default=0)
  if not longest:
    return None
  most = max(map(len, spelt))
  padded = np.full(
    (batch, _power_of_two(most), _power_of_two(longest)), NO_ID, np.int32
  )
  for table, row in zip(padded, spelt):
    for line, word in zip(table, row):
      line[-len(word) :] = word
  return jnp.asarray(padded)


def _allowed(allowed: Any, batch: int, vocab: int | None) -> list[list[int]]:
  """Ids of each row; none where all may follow."""
  if allowed is None:
    return [[]] * batch
  _check_list("allowed", allowed, "token ids, as [5, 6]")
  each = any(row is None or _is_list(row) for row in allowed)
  rows = allowed if each else [allowed] * batch
  _check_rows("allowed", rows, batch)
  for row in rows:
    _check_list("allowed", _row(row), "token ids, as [5, 6]")
  return [[_id("allowed", token, vocab) for token in _row(row)] for row in rows]


def _values(row: Any, vocab: int | None) -> dict[int, float]:
  """{id: what is added} of one row."""
  row = {} if row is None else row
  if not isinstance(row, Mapping):
    raise ValueError(
      f"sampling.bias is {row!r:.40}: give {{token id: what is added}}, or one "
      "a row"
    )
  values = {}
  for token, value in row.items():
    given = np.asarray(value)
    if given.ndim or given.dtype.kind not in "iuf":
      raise ValueError(
        f"sampling.bias of token {token!r:.40} is {value!r:.40}: it must be a "
        "number"
      )
    with np.errstate(over="ignore"):
      number = float(np.float32(given))
    if np.isnan(number) or number == np.inf:
      raise ValueError(
        f"sampling.bias of token {token} is {value:g}: it must be finite, or "
        "-inf to forbid the token"
      )
    values[_id("bias", token, vocab)] = number
  return values


def _word(word: Any, vocab: int | None) -> list[int]:
  """One bad word."""
  _check_list("bad_words", word, "sequences of token ids, as [[5, 6]]")
  if not len(word):
    raise ValueError("sampling.bad_words has an empty one: give it a token id")
  return [_id("bad_words", token, vocab) for token in word]


def _id(name: str, token: Any, vocab: int | None) -> int:
  try:
    known = operator.index(token)
  except TypeError:
    known = None
  if known is None or isinstance(token, bool):
    raise ValueError(
      f"sampling.{name} has {token!r:.40}: token ids are whole numbers"
    )
  if known < 0 or (vocab is not None and known >= vocab):
    limit = "0 or more" if vocab is None else f"0 to {vocab - 1}"
    raise ValueError(
      f"sampling.{name} has token {known}: the model's ids are {limit}"
    )
  return known


def _is_list(value: Any) -> bool:
  """Whether it holds others by place or as a set: no text, no number."""
  return (
    isinstance(value, Collection)
    and not isinstance(value, str | bytes | Mapping)
    and getattr(value, "ndim", 1) > 0
  )


def _row(row: Any) -> Any:
  return () if row is None else row


def _check_list(name: str, value: Any, what: str) -> None:
  if not _is_list(value):
    raise ValueError(
      f"sampling.{name} has {value!r:.40}: give {what}, or a list of such with "
      "one a row"
    )


def _check_rows(name: str, rows: Any, batch: int) -> None:
  if len(rows) != batch:
    raise ValueError(
      f"sampling.{name} has {len(rows)} entries for {batch} rows: give one, "
      "or one each"
    )


def _power_of_two(n: int) -> int:
  """At least n, so that few programs serve all lists."""
  return 1 << max(n - 1, 0).bit_length()
