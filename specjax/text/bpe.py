# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From the raw vocabulary of a GGUF file to a working BPE encoder.

GGUF stores token texts, merges or scores, and the *name* of the rule that cuts
text into words before merging (`pretokenizers`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specjax.text import pretokenizers, untrusted, vocabulary

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def adds_bos(metadata: Mapping[str, Any]) -> bool:
  """Whether texts begin with BOS where a file does not say (llama.cpp's)."""
  if metadata.get("tokenizer.ggml.model") == "llama":
    return True
  pre = untrusted.entry(metadata, "tokenizer.ggml.pre", str)
  return pretokenizers.find(pre).adds_bos


def _field(
  metadata: Mapping[str, Any],
  name: str,
  kind: type | tuple[type, ...],
  size: int = -1,
) -> list:
  """The list `tokenizer.ggml.<name>` of `size` entries of one kind."""
  values = metadata.get(f"tokenizer.ggml.{name}")
  if values is None:
    raise ValueError(f"GGUF file has no tokenizer.ggml.{name}")
  values = values.tolist() if hasattr(values, "tolist") else values
  if not isinstance(values, list | tuple):
    raise ValueError(f"tokenizer.ggml.{name} is {values!r:.60}, not a list")
  if size not in (-1, len(values)):
    raise ValueError(
      f"tokenizer.ggml.{name} has {len(values)} entries for {size} tokens"
    )
  for index, value in enumerate(values):
    if isinstance(value, bool) or not isinstance(value, kind):
      what = "text" if kind is str else "a number"
      raise ValueError(
        f"tokenizer.ggml.{name}[{index}] is {value!r:.60}, not {what}"
      )
  return list(values)


def _tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
  """Token texts and types by id, without the unused ids at the end.

  Those pad the embedding to a round size; no text ever gives them.
  """
  tokens = _field(metadata, "tokens", str)
  if metadata.get("tokenizer.ggml.token_type") is None:
    return tokens, [NORMAL] * len(tokens)
  types = _field(metadata, "token_type", int, len(tokens))
  size = len(tokens)
  while size and types[size - 1] == UNUSED:
    size -= 1
  return tokens[:size], types[:size]


def from_gguf(metadata: Mapping[str, Any]) -> vocabulary.Vocabulary:
  """The vocabulary that a GGUF file describes.

  Args:
    metadata: the file's key-value pairs as Python values or numpy arrays; those
      under "tokenizer.ggml." are read.

  Raises:
    ValueError: an unknown kind or pre-tokenizer, by name; fields that are
      missing, of another kind or do not fit together.
  """
  kind = metadata.get("tokenizer.ggml.model")
  tokens, types = _tokens(metadata)
  prefix_space = False
  if kind == "gpt2":
    merges = _field(metadata, "merges", str)
    pre = untrusted.entry(metadata, "tokenizer.ggml.pre", str)
    encoder = _byte_level_encoder(tokens, types, merges, pre)
  elif kind == "llama":
    _check_no_rewriting(metadata)
    size = len(metadata["tokenizer.ggml.tokens"])
    scores = _field(metadata, "scores", (int, float), size)
    tokens = [
      token.replace(" ", vocabulary.SPACE) if kind == USER_DEFINED else token
      for token, kind in zip(tokens, types)
    ]
    stated = untrusted.entry(metadata, "tokenizer.ggml.add_space_prefix", bool)
    prefix_space = True if stated is None else stated
    encoder = _sentencepiece_encoder(tokens, types, scores, prefix_space)
  else:
    raise ValueError(
      f"unknown tokenizer {kind!r:.60} (tokenizer.ggml.model): known are gpt2,"
      " llama"
    )
  special = {i for i, t in enumerate(types) if t in (CONTROL, UNKNOWN)}
  user_defined = {i for i, t in enumerate(types) if t == USER_DEFINED}
  return vocabulary.Vocabulary(
    encoder=encoder,
    tokens=tuple(tokens),
    byte_level=kind == "gpt2",
    added_ids=frozenset(special | user_defined),
    special_ids=frozenset(special),
    prefix_space=prefix_space,
  )


def _check_no_rewriting(metadata: Mapping[str, Any]) -> None:
  """Refuses vocabularies whose texts are changed before they are cut."""
  for name in ("remove_extra_whitespaces", "precompiled_charsmap"):
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value:
      raise ValueError(
        f"tokenizer.ggml.{name} = {value!r:.60} is not supported"
      )


def _byte_level_encoder(
  tokens: Sequence[str],
  types: Sequence[int],
  merges: Sequence[str],
  pre: str | None,
) -> Any:
  """A `tokenizers.Tokenizer` for tokenizer.ggml.model "gpt2".

  Bytes that the vocabulary lacks are dropped, as the Rust library does.

  Args:
    tokens: texts by id, written in `vocabulary.byte_alphabet`.
    types: token types by id.
    merges: pairs "left right", best first.
    pre: the name in tokenizer.ggml.pre.
  """
  import tokenizers
  from tokenizers import models

  rule = pretokenizers.find(pre)
  pairs = []
  for index, merge in enumerate(merges):
    # A part may begin with a space only in vocabularies of other kinds.
    left, _, right = merge.partition(" ")
    if not left or not right:
      raise ValueError(f"tokenizer.ggml.merges[{index}] is {merge!r:.60}")
    pairs.append((left, right))
  ids = {token: index for index, token in enumerate(tokens)}
  try:
    model = models.BPE(
      vocab=ids,
      merges=pairs,
      ignore_merges=rule.whole_words,
    )
  except Exception as error:  # The Rust library raises bare exceptions.
    raise ValueError(f"tokenizer.ggml.merges do not fit: {error}") from None
  encoder = tokenizers.Tokenizer(model)
  pretokenizers.apply(rule, encoder)
  _add_tokens(encoder, tokens, types)
  return encoder


def _sentencepiece_encoder(
  tokens: Sequence[str],
  types: Sequence[int],
  scores: Sequence[float],
  prefix_space: bool,
) -> Any:
  """A `tokenizers.Tokenizer` for tokenizer.ggml.model "llama".

  SentencePiece BPE joins the neighbours whose union scores best; the scores
  give every way to split a token into two tokens one rank. Characters without a
  token become byte tokens. User-defined tokens, such as Gemma's runs of spaces
  and line breaks, are cut out of the text as it is, before its spaces become
  visible. With `prefix_space` every stretch of text, at the start and after
  such a token, gets a space in front.
  """
  import tokenizers
  from tokenizers import models, normalizers

  tokens = [
    token.replace(vocabulary.SPACE, " ") if kind == USER_DEFINED else token
    for token, kind in zip(tokens, types)
  ]
  ids = {token: index for index, token in enumerate(tokens)}
  unknown = [t for t, kind in zip(tokens, types) if kind == UNKNOWN]
  try:
    model = models.BPE(
      vocab=ids,
      merges=_merges_from_scores(tokens, types, scores),
      unk_token=unknown[0] if unknown else None,
      fuse_unk=True,
      byte_fallback=True,
    )
  except Exception as error:  # The Rust library raises bare exceptions.
    raise ValueError(f"tokenizer.ggml.tokens do not fit: {error}") from None
  encoder = tokenizers.Tokenizer(model)
  steps: list[normalizers.Normalizer] = []
  if prefix_space:
    steps.append(normalizers.Prepend(vocabulary.SPACE))
  steps.append(normalizers.Replace(" ", vocabulary.SPACE))
  encoder.normalizer = normalizers.Sequence(steps)
  _add_tokens(encoder, tokens, types)
  return encoder


def _merges_from_scores(
  tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
  """Every split of a normal token into two normal tokens, best first."""
  ids = {
    token: index for index, token in enumerate(tokens) if types[index] == NORMAL
  }
  ranked = []
  for token, index in ids.items():
    for cut in range(1, len(token)):
      left, right = token[:cut], token[cut:]
      if left in ids and right in ids:
        ranked.append((-scores[index], index, ids[left], left, right))
  ranked.sort()
  return [(left, right) for _, _, _, left, right in ranked]


def _add_tokens(
  encoder: Any, tokens: Sequence[str], types: Sequence[int]
) -> None:
  """Makes control and user-defined tokens whole words of any text."""
  import tokenizers

  for kinds, special in (((CONTROL, UNKNOWN), True), ((USER_DEFINED,), False)):
    added = [
      tokenizers.AddedToken(token, normalized=False, special=special)
      for token, kind in zip(tokens, types)
      if kind in kinds and token
    ]
    add = encoder.add_special_tokens if special else encoder.add_tokens
    add(added)
