# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the files of a Hugging Face folder say about its tokenizer."""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

from specjax.text import untrusted

# Special tokens that chat templates know by name.
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
_TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_GENERATION = "generation_config.json"


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
  """The statements of one folder, not yet checked against its vocabulary.

  Attributes:
    file: the tokenizer.json.
    names: text of each special token that is named.
    end_ids: EOS ids of generation_config.json and config.json, in this order.
    add_bos: whether the config says that texts begin with BOS; None if silent.
    add_eos: the same of EOS at the end.
    chat_template: jinja2 source, or None.
  """

  file: pathlib.Path
  names: Mapping[str, str]
  end_ids: tuple[int, ...]
  add_bos: bool | None
  add_eos: bool | None
  chat_template: str | None


def read(path: str | os.PathLike[str]) -> TokenizerFiles:
  """Reads tokenizer_config.json and its neighbours; all are optional.

  Raises:
    FileNotFoundError: no tokenizer.json.
    ValueError: a file that is no JSON object, or a value of another kind than
      it must have, by name.
  """
  folder = pathlib.Path(path)
  file = folder / _TOKENIZER
  if not file.is_file():
    raise FileNotFoundError(
      f"{folder} has no tokenizer.json: save the model's fast tokenizer there"
    )
  config = _object(folder, _CONFIG)
  stated = _object(folder, "special_tokens_map.json") | config
  names = {name: _text(stated.get(name), name, folder) for name in NAMES}
  end_ids = [
    index
    for name in (_GENERATION, "config.json")
    for index in _end_ids(folder, name)
  ]
  where = f"{folder / _CONFIG}: "
  return TokenizerFiles(
    file=file,
    names={name: text for name, text in names.items() if text is not None},
    end_ids=tuple(end_ids),
    add_bos=untrusted.entry(config, "add_bos_token", bool, where),
    add_eos=untrusted.entry(config, "add_eos_token", bool, where),
    chat_template=_template(folder, config),
  )


def write(vocabulary: str, stated: TokenizerFiles) -> None:
  """Writes the files that `read` reads as `stated`.

  Args:
    vocabulary: content of `stated.file`.
    stated: all the rest.
  """
  folder = stated.file.parent
  config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "add_bos_token": stated.add_bos,
    "add_eos_token": stated.add_eos,
    "chat_template": stated.chat_template,
  }
  stated.file.write_text(vocabulary, encoding="utf-8")
  for name, content in (
    (_CONFIG, config | dict(stated.names)),
    (_GENERATION, {"eos_token_id": list(stated.end_ids)}),
  ):
    known = {key: value for key, value in content.items() if value is not None}
    (folder / name).write_text(json.dumps(known, indent=2) + "\n")


def _object(folder: pathlib.Path, name: str) -> dict[str, Any]:
  """The object in a JSON file; an absent file is an empty one."""
  file = folder / name
  return untrusted.read_object(file) if file.is_file() else {}


def _end_ids(folder: pathlib.Path, name: str) -> list[int]:
  """The EOS ids of one file: none, one or a list."""
  ids = _object(folder, name).get("eos_token_id")
  if ids is None:
    return []
  where = f"{folder / name}: eos_token_id"
  ids = ids if isinstance(ids, list) else [ids]
  return [untrusted.check(index, int, where) for index in ids]


def _text(token: Any, name: str, folder: pathlib.Path) -> str | None:
  """A special token is null, its text or {"content": text, ...}."""
  text = token.get("content") if isinstance(token, dict) else token
  return (
    None if text is None else untrusted.check(text, str, f"{folder}: {name}")
  )


def _template(folder: pathlib.Path, config: Mapping[str, Any]) -> str | None:
  """The template file, else the config's; of several, the one named default."""
  file = folder / "chat_template.jinja"
  if file.is_file():
    return untrusted.read_text(file)
  where = f"{folder / _CONFIG}: "
  template = config.get("chat_template")
  if not isinstance(template, list):
    return untrusted.entry(config, "chat_template", str, where)
  for named in template:
    if isinstance(named, dict) and named.get("name") == "default":
      return untrusted.check(
        named.get("template"), str, f"{where}the default chat_template"
      )
  raise ValueError(
    f"{where}none of {len(template)} chat templates is named default: keep one"
  )
