# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary: token texts, their exact bytes, the encoder, and back to text.

Two spellings are known. Byte-level BPE (GPT-2, Llama 3, SmolLM2) writes every
byte as one character of a fixed alphabet. SentencePiece BPE with byte fallback
(Llama 2) writes text with a visible space and has tokens such as <0x0A>.
"""

import codecs
from collections.abc import Generator, Iterable, Mapping
import contextlib
import dataclasses
import functools
import json
from typing import Any

SPACE = "\u2581"  # SentencePiece's visible space.
# Sixteen times the largest vocabulary in use (2**18 tokens). A short file can
# state any id of 32 bits, and the tokens are a list up to the largest.
_MAX_IDS = 1 << 22


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Token texts by id and the rules that make ids of text.

  Attributes:
    encoder: a `tokenizers.Tokenizer` of the Rust library. Not compared when
      two vocabularies are.
    tokens: the text of each id, as the vocabulary spells it ("" for a hole).
    byte_level: spelled in the byte-level alphabet, else SentencePiece's way.
    added_ids: ids spelled as plain text: special and user-defined tokens.
    special_ids: those of them that are marks and no text.
    prefix_space: encoding puts a space in front, so decoding takes one away.
  """

  encoder: Any = dataclasses.field(repr=False, compare=False)
  tokens: tuple[str, ...] = dataclasses.field(repr=False)
  byte_level: bool
  added_ids: frozenset[int] = dataclasses.field(repr=False)
  special_ids: frozenset[int] = dataclasses.field(repr=False)
  prefix_space: bool

  def encode(self, text: str, *, special: bool = False) -> list[int]:
    """Ids of a text; `special` lets the encoder add its own marks.

    Raises:
      ValueError: no Unicode text, or an encoder that fails on it.
    """
    try:
      text.encode()
    except (AttributeError, UnicodeEncodeError):
      raise ValueError(f"prompt is not valid Unicode: {text!r:.80}") from None
    with _in_one_line(f"cannot encode {text!r:.80}"):
      return self.encoder.encode(text, add_special_tokens=special).ids

  def to_json(self) -> str:
    """A tokenizer.json that `from_json` reads as this vocabulary."""
    import tokenizers

    encoder = tokenizers.Tokenizer.from_str(self.encoder.to_str())
    if encoder.decoder is None:
      encoder.decoder = _decoder(self.byte_level, self.prefix_space)
    return encoder.to_str()

  def token_bytes(self, token: int) -> bytes:
    """The exact bytes that an id stands for."""
    if not 0 <= token < len(self.tokens):
      raise ValueError(
        f"id {token} is not one of the {len(self.tokens)} known tokens"
      )
    text = self.tokens[token]
    plain = self.added_ids if self.byte_level else self.special_ids
    if token in plain:
      return _utf8(text)
    # SentencePiece writes spaces visibly in user-defined tokens as well.
    return _byte_level(text) if self.byte_level else _sentencepiece(text)


class Detokenizer:
  """Turns ids into text as soon as the text is whole.

  A character spread over several tokens is held back until its last byte is
  there. One for each answer.
  """

  def __init__(self, words: Vocabulary, skip_special: bool = True):
    self._words = words
    self._skipped = words.special_ids if skip_special else frozenset()
    self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
    self._strip = words.prefix_space

  def push(self, ids: Iterable[int]) -> str:
    """The text that these ids complete, possibly empty."""
    data = b"".join(
      self._words.token_bytes(token)
      for token in map(int, ids)
      if token not in self._skipped
    )
    return self._without_prefix(self._decoder.decode(data))

  def flush(self) -> str:
    """What is left: U+FFFD for a character that never was finished."""
    return self._without_prefix(self._decoder.decode(b"", final=True))

  def _without_prefix(self, text: str) -> str:
    if text and self._strip:
      self._strip = False
      return text.removeprefix(" ")
    return text


@functools.cache
def byte_alphabet() -> Mapping[str, int]:
  """The byte of each character of the byte-level alphabet.

  Printable Latin-1 characters stand for themselves; the other 68 bytes take the
  code points from 256 on, in order (so a space is U+0120).
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  rest = [byte for byte in range(256) if byte not in printable]
  alphabet = {chr(byte): byte for byte in printable}
  alphabet.update({chr(256 + n): byte for n, byte in enumerate(rest)})
  return alphabet


def _utf8(text: str) -> bytes:
  return text.encode("utf-8", "surrogatepass")


def _byte_level(text: str) -> bytes:
  try:
    return bytes(map(byte_alphabet().__getitem__, text))
  except KeyError:  # not of the alphabet: the text itself
    return _utf8(text)


def _sentencepiece(text: str) -> bytes:
  if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
    digits = text[3:5]
    if all(digit in "0123456789ABCDEFabcdef" for digit in digits):
      return bytes.fromhex(digits)
  return _utf8(text.replace(SPACE, " "))


@contextlib.contextmanager
def _in_one_line(problem: str) -> Generator[None]:
  """Turns what the Rust library raises into a ValueError of one line."""
  try:
    yield
  except BaseException as error:
    # It raises bare exceptions. Its panics are no Exceptions even, and of a
    # class that can only be told by its name.
    panics = type(error).__name__ == "PanicException"
    if not (panics or isinstance(error, Exception)):
      raise
    raise ValueError(f"{problem}: {' '.join(str(error).split())}") from None


def _decoder(byte_level: bool, prefix_space: bool) -> Any:
  """The library's way from tokens to text; `from_json` learns from it."""
  from tokenizers import decoders

  if byte_level:
    return decoders.ByteLevel()
  steps: list[decoders.Decoder] = [
    decoders.Replace(SPACE, " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
  ]
  steps += [decoders.Strip(" ", 1, 0)] if prefix_space else []
  return decoders.Sequence(steps)


def from_json(text: str) -> Vocabulary:
  """The vocabulary of a tokenizer.json.

  Raises:
    ValueError: no tokenizer.json, or a kind that has no exact bytes.
  """
  import tokenizers

  with _in_one_line("not a tokenizer"):
    stated = json.loads(text)
    encoder = tokenizers.Tokenizer.from_str(text)
  # Settings of a training run; here they would cut prompts short.
  encoder.no_truncation()
  encoder.no_padding()
  decoder = json.dumps(stated.get("decoder"))
  byte_level = '"ByteLevel"' in decoder
  if not byte_level and '"ByteFallback"' not in decoder:
    raise ValueError(
      f"decoder {decoder:.80} is neither byte-level nor with byte fallback"
    )
  ids = encoder.get_vocab(with_added_tokens=True)
  largest = max(ids.values(), default=-1)
  if largest >= _MAX_IDS:
    raise ValueError(f"token id {largest}: ids must be below {_MAX_IDS}")
  tokens = [""] * (largest + 1)
  for token, index in ids.items():
    tokens[index] = token
  added = encoder.get_added_tokens_decoder()
  special = frozenset(i for i, token in added.items() if token.special)
  if not byte_level:
    # One spelling of user-defined tokens, wherever a vocabulary comes from.
    for index in added.keys() - special:
      tokens[index] = tokens[index].replace(" ", SPACE)
  return Vocabulary(
    encoder=encoder,
    tokens=tuple(tokens),
    byte_level=byte_level,
    added_ids=frozenset(added),
    special_ids=special,
    prefix_space='"Strip"' in decoder,
  )
