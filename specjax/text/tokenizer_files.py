# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the files of a Hugging Face folder say about its tokenizer."""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

# Special tokens that chat templates know by name.
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


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
    ValueError: a file that is no JSON object, by name.
  """
  folder = pathlib.Path(path)
  file = folder / "tokenizer.json"
  if not file.is_file():
    raise FileNotFoundError(
      f"{folder} has no tokenizer.json: save the model's fast tokenizer there"
    )
  config = _object(folder / "tokenizer_config.json")
  stated = _object(folder / "special_tokens_map.json") | config
  names = {name: _text(stated.get(name)) for name in NAMES}
  end_ids = []
  for name in ("generation_config.json", "config.json"):
    ids = _object(folder / name).get("eos_token_id")
    end_ids += ids if isinstance(ids, list) else [ids]
  return TokenizerFiles(
    file=file,
    names={name: text for name, text in names.items() if text is not None},
    end_ids=tuple(i for i in end_ids if i is not None),
    add_bos=config.get("add_bos_token"),
    add_eos=config.get("add_eos_token"),
    chat_template=_template(folder, config),
  )


def _object(file: pathlib.Path) -> dict[str, Any]:
  """The object in a JSON file; an absent file is an empty one."""
  if not file.is_file():
    return {}
  try:
    value = json.loads(file.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{file} is not JSON: {error}") from None
  if not isinstance(value, dict):
    raise ValueError(f"{file} does not hold a JSON object")
  return value


def _text(token: Any) -> str | None:
  """A special token is its text or {"content": text, ...}."""
  text = token.get("content") if isinstance(token, dict) else token
  return text if isinstance(text, str) else None


def _template(folder: pathlib.Path, config: Mapping[str, Any]) -> str | None:
  """The template file, else the config's; of several, the one named default."""
  file = folder / "chat_template.jinja"
  if file.is_file():
    return file.read_text(encoding="utf-8")
  template = config.get("chat_template")
  if isinstance(template, list):
    template = {t.get("name"): t.get("template") for t in template}.get(
      "default"
    )
  return template
