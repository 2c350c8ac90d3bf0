# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The `sampling` section of a config, its texts read as tokens.

  bias        pairs of a token and what is added to its logit
  allowed     tokens; all others are forbidden
  bad_words   texts, or tuples of ids, that never come about
  min_tokens  no EOS before so many
  choices     texts, one of which the answer is
  regex       what the whole answer matches

A token is an id, or a text that is one token. A bad word is one sequence of
tokens, so "cat" and " cat" are two, and another split of a text stays possible.
"""

from typing import Any

from ml_collections import ConfigDict

from specjax import sampling as sampling_lib
from specjax import tokenizers
from specjax.sampling import automata

_OF_TOKENS = (
  "bias",
  "allowed",
  "bad_words",
  "min_tokens",
  "choices",
  "regex",
)


def sampling(
  config: ConfigDict, tokenizer: tokenizers.Tokenizer | None = None
) -> sampling_lib.Sampling:
  """The settings of a complete `sampling` section.

  Args:
    config: the section.
    tokenizer: the target's; None leaves out all that needs one.

  Raises:
    ValueError: one line that names the key and its value.
  """
  numbers = {k: v for k, v in config.items() if k not in _OF_TOKENS}
  if config.choices and config.regex:
    raise ValueError(
      "sampling has choices and a regex: leave one out, or write the choices "
      "into the regex, as (yes|no)"
    )
  if tokenizer is None:
    return sampling_lib.Sampling(**numbers)
  bias: dict[int, float] = {}
  for token, value in _pairs(config.bias):
    found = _token("bias", token, tokenizer)
    if found in bias:
      raise ValueError(
        f"sampling.bias names token {found} twice, at last as {token!r:.40}: "
        "give one number"
      )
    bias[found] = _number(value)
  constraint = None
  try:
    if config.choices:
      constraint = automata.choices(config.choices, tokenizer)
    elif config.regex:
      constraint = automata.regex(config.regex, tokenizer)
  except ValueError as error:
    raise ValueError(f"sampling.{error}") from None
  return sampling_lib.Sampling(
    **numbers,
    bias=bias,
    allowed=[_token("allowed", t, tokenizer) for t in config.allowed],
    bad_words=[_word(word, tokenizer) for word in config.bad_words],
    min_tokens=config.min_tokens,
    constraint=constraint,
  )


def _pairs(bias: Any):
  for pair in bias:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
      raise ValueError(
        f"sampling.bias holds {pair!r:.40}: write pairs, as ((' yes', 2.0),)"
      )
    yield pair


def _number(value: Any) -> float:
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise ValueError(f"sampling.bias adds {value!r:.40}: it must be a number")
  return float(value)


def _token(key: str, token: Any, tokenizer: tokenizers.Tokenizer) -> int:
  """An id, or the one of a text."""
  if _is_id(token):
    return token
  ids = tokenizer.encode(token, bos=False) if isinstance(token, str) else []
  if len(ids) != 1:
    raise ValueError(
      f"sampling.{key} has {token!r:.40}, which is {len(ids)} tokens {ids}: "
      "give an id or the text of one token"
    )
  return ids[0]


def _word(word: Any, tokenizer: tokenizers.Tokenizer) -> list[int]:
  """Ids of a bad word."""
  if isinstance(word, str):
    return tokenizer.encode(word, bos=False)
  if not isinstance(word, tuple | list) or not all(map(_is_id, word)):
    raise ValueError(
      f"sampling.bad_words has {word!r:.40}: give texts, or tuples of ids"
    )
  return list(word)


def _is_id(token: Any) -> bool:
  return isinstance(token, int) and not isinstance(token, bool)
