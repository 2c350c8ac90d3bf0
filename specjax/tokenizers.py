# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text to ids and back, for Hugging Face folders and GGUF files.

`Tokenizer` adds to the Rust library what generation needs: one BOS and never
two, the full set of EOS ids, the exact bytes of each id (a token may end in the
middle of a character), text that can be streamed, and the chat template.

The text of a special token in a prompt is read as that token, in raw text and
in messages alike, as the Rust library does. Whoever shows the model text from
strangers must remove such marks first.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from typing import Any

from specjax.text import bpe, chat, tokenizer_files, untrusted, vocabulary
from specjax.text.vocabulary import Detokenizer, Vocabulary

# Control tokens that end a turn even where a GGUF file does not say so.
_TURN_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """A vocabulary with its customs; made by `from_folder` and `from_gguf`.

  Attributes:
    words: the token texts and the encoder.
    bos_id: id of the token that begins a text, if there is one.
    eos_ids: every id that ends an answer, the main one first.
    add_bos: whether texts begin with BOS.
    add_eos: whether texts (not chats) end with the main EOS.
    chat_template: jinja2 source, or None.
    names: texts of the special tokens that templates know by name.
  """

  words: Vocabulary
  bos_id: int | None
  eos_ids: tuple[int, ...]
  add_bos: bool
  add_eos: bool
  chat_template: str | None = dataclasses.field(repr=False)
  names: Mapping[str, str]

  @property
  def num_tokens(self) -> int:
    """Number of known ids, padding of the model's matrices not counted."""
    return len(self.words.tokens)

  @property
  def special_ids(self) -> frozenset[int]:
    """Ids that are marks and no text; `decode` leaves them out."""
    return self.words.special_ids

  def vocabulary(self) -> tuple[str, ...]:
    """Text of each id, as the vocabulary spells it."""
    return self.words.tokens

  @functools.cached_property
  def _fingerprint(self) -> str:
    return hashlib.sha256(json.dumps(self.words.tokens).encode()).hexdigest()

  def fingerprint(self) -> str:
    """SHA-256 of the vocabulary: equal for equal token texts by id."""
    return self._fingerprint

  def encode(self, text: str, *, bos: bool = True) -> list[int]:
    """Ids of a text.

    Args:
      text: any text; special tokens in it are read as such.
      bos: add BOS (and EOS) if this tokenizer does so and the text does not
        begin (end) with it already; False gives the ids of the text alone, for
        text that continues another.
    """
    ids = self.words.encode(text)
    if not bos:
      return ids
    ids = self._with_bos(ids)
    if self.add_eos and ids[-1:] != [self.eos_ids[0]]:
      ids = [*ids, self.eos_ids[0]]
    return ids

  def _with_bos(self, ids: list[int]) -> list[int]:
    if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
      return [self.bos_id, *ids]
    return ids

  def save(self, folder: str | os.PathLike[str]) -> None:
    """Writes files that `from_folder` reads as an equal tokenizer.

    Raises:
      ValueError: there can be none.
    """
    stated = tokenizer_files.TokenizerFiles(
      file=pathlib.Path(folder, "tokenizer.json"),
      names=self.names,
      end_ids=self.eos_ids,
      add_bos=self.add_bos,
      add_eos=self.add_eos,
      chat_template=self.chat_template,
    )
    tokenizer_files.write(self.words.to_json(), stated)
    if from_folder(folder) != self:
      raise ValueError("two tokens have one text: no file can hold both")

  def token_bytes(self, token: int) -> bytes:
    """The exact bytes an id stands for; a special token's are its text."""
    return self.words.token_bytes(token)

  def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
    """Text of ids; bytes that are no UTF-8 become U+FFFD."""
    detokenizer = self.detokenizer(skip_special=skip_special)
    return detokenizer.push(ids) + detokenizer.flush()

  def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
    """Text piece by piece; the pieces together equal `decode` of all ids."""
    return Detokenizer(self.words, skip_special)

  def render(
    self, messages: Sequence[chat.Message], *, answer: bool = True
  ) -> str:
    """Text of one conversation; `answer` ends it where the answer begins."""
    return self.render_all([messages], answer=answer)[0]

  def render_all(
    self,
    conversations: Sequence[Sequence[chat.Message]],
    *,
    answer: bool = True,
  ) -> list[str]:
    """`render` for many at the price of one; see `chat.render`."""
    if self.chat_template is None:
      raise ValueError(
        "the model has no chat template: give prompts as text, not as messages"
      )
    return chat.render(
      self.chat_template,
      conversations,
      self.names,
      add_generation_prompt=answer,
    )

  def encode_chat(
    self, messages: Sequence[chat.Message], *, answer: bool = True
  ) -> list[int]:
    """Ids of one conversation, with one BOS whoever writes it."""
    return self.encode_chats([messages], answer=answer)[0]

  def encode_chats(
    self,
    conversations: Sequence[Sequence[chat.Message]],
    *,
    answer: bool = True,
  ) -> list[list[int]]:
    """`encode_chat` for many at the price of one."""
    texts = self.render_all(conversations, answer=answer)
    return [self._with_bos(self.encode(text, bos=False)) for text in texts]


def mismatch(
  first: Tokenizer, second: Tokenizer, *, allow_special: bool = False
) -> str | None:
  """Why ids of one tokenizer mean something else in the other, or None.

  Only the known ids count: models may pad their matrices to different sizes.

  Args:
    first: the target's tokenizer.
    second: the drafter's tokenizer.
    allow_special: accept ids that are special tokens in both and differ only in
      their text.
  """
  pairs = list(zip(first.vocabulary(), second.vocabulary()))
  differing = [i for i, (a, b) in enumerate(pairs) if a != b]
  special = first.special_ids & second.special_ids
  ordinary = [i for i in differing if i not in special]
  if ordinary or (differing and not allow_special):
    shown = ", ".join(
      f"{i} ({pairs[i][0]!r:.40} and {pairs[i][1]!r:.40})"
      for i in (ordinary or differing)[:3]
    )
    kind = "tokens" if ordinary else "special tokens"
    return f"{kind} differ at {len(ordinary or differing)} ids: {shown}"
  if first.num_tokens != second.num_tokens:
    return f"{first.num_tokens} and {second.num_tokens} known tokens"
  return None


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
  """The tokenizer of a GGUF file.

  Args:
    metadata: the file's key-value pairs as Python values or numpy arrays; those
      under "tokenizer." are read.

  Raises:
    ValueError: an unknown kind of tokenizer or pre-tokenizer, by name; fields
      that are missing, of another kind or do not fit together.
  """
  words = bpe.from_gguf(metadata)

  def find(name: str) -> int | None:
    return untrusted.entry(metadata, f"tokenizer.ggml.{name}_token_id", int)

  def adds(name: str, default: bool) -> bool:
    key = f"tokenizer.ggml.add_{name}_token"
    stated = untrusted.entry(metadata, key, bool)
    return default if stated is None else stated

  bos_id = find("bos")
  ends = [find(name) for name in ("eos", "eot", "eom")]
  ends += [
    i for i in sorted(words.special_ids) if words.tokens[i] in _TURN_ENDS
  ]
  ids = (bos_id, ends[0], find("unknown"), find("padding"))
  return _assemble(
    words,
    ids=dict(zip(tokenizer_files.NAMES, ids)),
    ends=ends,
    add_bos=adds("bos", bpe.adds_bos(metadata) and bos_id is not None),
    add_eos=adds("eos", False),
    chat_template=untrusted.entry(metadata, "tokenizer.chat_template", str),
  )


def from_folder(path: str | os.PathLike[str]) -> Tokenizer:
  """The tokenizer of a Hugging Face model folder.

  Reads tokenizer.json, and where they are there tokenizer_config.json,
  special_tokens_map.json, chat_template.jinja, and the EOS ids of
  generation_config.json and config.json.

  Raises:
    FileNotFoundError: no tokenizer.json.
    ValueError: a file that cannot be read, by name.
  """
  files = tokenizer_files.read(path)
  text = untrusted.read_text(files.file)
  try:
    words = vocabulary.from_json(text)
  except ValueError as error:
    raise ValueError(f"{files.file}: {error}") from None
  find = words.encoder.token_to_id
  ids = {name: find(text) for name, text in files.names.items()}
  # A file's own post-processor decides where the config is silent.
  try:
    plain = words.encode("a")
    whole = words.encode("a", special=True)
  except ValueError as error:
    raise ValueError(f"{files.file}: {error}") from None
  add_bos, add_eos = files.add_bos, files.add_eos
  return _assemble(
    words,
    ids=ids,
    ends=[ids.get("eos_token"), *files.end_ids],
    add_bos=whole[:1] != plain[:1] if add_bos is None else add_bos,
    add_eos=whole[-1:] != plain[-1:] if add_eos is None else add_eos,
    chat_template=files.chat_template,
  )


def _assemble(
  words: Vocabulary,
  *,
  ids: Mapping[str, int | None],
  ends: Sequence[int | None],
  add_bos: bool,
  add_eos: bool,
  chat_template: str | None,
) -> Tokenizer:
  known = {name: i for name, i in ids.items() if i is not None}
  eos_ids = tuple(dict.fromkeys(i for i in ends if i is not None))
  for index in [*known.values(), *eos_ids]:
    if not 0 <= index < len(words.tokens):
      raise ValueError(
        f"special token id {index} is not one of {len(words.tokens)} tokens"
      )
  for wanted, name, there in (
    (add_bos, "BOS", "bos_token" in known),
    (add_eos, "EOS", bool(eos_ids)),
  ):
    if wanted and not there:
      raise ValueError(f"the tokenizer adds {name} but names no {name} token")
  return Tokenizer(
    words=words,
    bos_id=known.get("bos_token"),
    eos_ids=eos_ids,
    add_bos=add_bos,
    add_eos=add_eos,
    chat_template=chat_template or None,
    names={name: words.tokens[index] for name, index in known.items()},
  )
