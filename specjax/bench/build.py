# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a config to what the engine takes: prompts, methods, settings."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import re
from typing import Any

from ml_collections import ConfigDict
import numpy as np

from specjax import answers, api, data, tokenizers, types
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.bench import parts, sampling_section
from specjax.models import gguf_header, sources


@dataclasses.dataclass(frozen=True)
class Task:
  """Prompts as token ids, and what their answers may look like.

  A prompt with several samples stands here once for each.
  """

  prompts: tuple[data.Prompt, ...]
  ids: tuple[tuple[int, ...], ...]
  settings: session_lib.Settings


def prompts(config: ConfigDict) -> list[data.Prompt]:
  """The prompts that a config names, checked.

  Raises:
    ValueError, FileNotFoundError: see `data.load_prompts`.
  """
  loaded = data.load_prompts(config.prompts, config.prompt_ids or None)
  # Categories belong to what the config lists, not to a file or text that
  # took its place.
  listed = config.prompt_ids if isinstance(config.prompts, str) else loaded
  if not config.categories or not listed or isinstance(listed, str):
    return loaded
  if len(config.categories) != len(loaded):
    raise ValueError(
      f"categories has {len(config.categories)} names for {len(loaded)} "
      "prompts: give one each, or ()"
    )
  return [
    dataclasses.replace(prompt, category=prompt.category or name, group=name)
    for prompt, name in zip(loaded, config.categories)
  ]


def is_inline(config: ConfigDict) -> bool:
  """Whether `prompts` is one text to answer, not a list or a file.

  Raises:
    FileNotFoundError: the name of a file that does not exist.
  """
  return isinstance(config.prompts, str) and data.is_text(config.prompts)


def task(
  config: ConfigDict,
  tokenizer: tokenizers.Tokenizer,
  loaded: Sequence[data.Prompt],
) -> Task:
  """The prompts as ids; a text becomes a message where there is a template."""
  ids = api.encode(tokenizer, [prompt.content for prompt in loaded])
  rows = [
    (dataclasses.replace(prompt, sample=sample), tuple(row))
    for prompt, row in zip(loaded, ids)
    for sample in range(config.samples)
  ]
  return Task(*zip(*rows), settings=settings(config, tokenizer))


def settings(
  config: ConfigDict, tokenizer: tokenizers.Tokenizer | None = None
) -> session_lib.Settings:
  """Raises ValueError for a sampling setting out of range.

  Without a tokenizer, settings that name tokens are left out.
  """
  sampling = sampling_section.sampling(config.sampling, tokenizer)
  known: dict[str, Any] = {}
  if tokenizer is not None:
    known = {"vocab": tokenizer.num_tokens, "eos": tokenizer.eos_ids}
  row = sampling_lib.per_row(sampling, 1, **known)
  answers.check_samples(config.samples, row)
  return session_lib.Settings(
    sampling=sampling,
    max_new_tokens=config.max_new_tokens,
    stop=tuple(config.stop),
    seed=config.seed,
  )


def check_drafts(
  config: ConfigDict, tokenizer: tokenizers.Tokenizer
) -> dict[str, sources.Source]:
  """Finds the draft models and compares vocabularies, reading no weights.

  Raises:
    ValueError: a draft whose ids mean other tokens.
  """
  found = {}
  for where, section in drafters(config):
    model = section.get("model")
    if model is None:
      continue
    if model not in found:
      found[model] = sources.resolve(model)
    if "draft_tokenizer" in parts.needs(where, "drafter", section.type):
      continue
    why = tokenizers.mismatch(tokenizer, _read_tokenizer(found[model]))
    if why is not None:
      raise ValueError(
        f"{where}.model {model!r} has another vocabulary than the target "
        f"({why}): choose another, or drafter.type 'cross_vocabulary'"
      )
  return found


def drafters(config: ConfigDict) -> Iterator[tuple[str, ConfigDict]]:
  """Dotted key and section of every drafter, those within others too."""
  for name in names(config):
    section = config.methods[name].drafter
    yield from parts.sections(f"methods.{name}.drafter", section)


def draft_key(drafter: ConfigDict) -> tuple[str, str] | None:
  """Name and quantization of a drafter's model; None if it has none."""
  if "model" not in drafter:
    return None
  return str(drafter.model), str(drafter.get("quantization", "none"))


def check(config: ConfigDict) -> None:
  """Refuses what needs no model to be found wrong: sampling and parts.

  Raises:
    ValueError: one line that names the key.
  """
  settings(config)
  every = [(where, "drafter", section) for where, section in drafters(config)]
  for name in names(config):
    for part in ("verifier", "policy"):
      every.append((f"methods.{name}.{part}", part, config.methods[name][part]))
  for where, part, section in every:
    if parts.needs(where, part, section.type):
      continue
    made = parts.build(where, part, section, {})
    if part == "verifier" and config.lossless:
      answers.check_lossless(f"{where} {section.type!r}", made)


def methods(
  config: ConfigDict, target: Any, models: Mapping[tuple[str, str], Any]
) -> dict[str, session_lib.Method]:
  """Drafter, verifier and policy of each method.

  Args:
    config: checked.
    target: the loaded model.
    models: loaded draft models by their `draft_key`.

  Raises:
    ValueError: a part cannot be made, or does not keep its protocol.
  """
  return {name: _method(name, config, target, models) for name in names(config)}


def names(config: ConfigDict) -> list[str]:
  """Names of the methods, ngram_4 before ngram_10.

  A ConfigDict forgets the order of its file.
  """
  return sorted(config.methods, key=_natural)


def only(config: ConfigDict, name: str) -> ConfigDict:
  """The config with one of its methods; with none if it has no such."""
  left = config.copy_and_resolve_references().unlock()
  for other in set(config.methods) - {name}:
    del left.methods[other]
  return left.lock()


def capacity(
  target: types.Model,
  task: Task,
  compared: Mapping[str, session_lib.Method],
) -> int:
  """One number of token slots for all methods, so that shapes agree.

  Raises:
    ValueError: a prompt beyond the model's positions, or a draft longer than
      all of the text.
  """
  ids, settings = task.ids, task.settings
  shown = len(max(ids, key=len))
  room = target.max_position - settings.max_new_tokens
  if shown > room:
    longest = task.prompts[int(np.argmax([len(row) for row in ids]))].id
    raise ValueError(
      f"prompt {longest!r} has {shown} tokens, and with max_new_tokens "
      f"{settings.max_new_tokens} the model has room for {max(room, 0)}: "
      "shorten the prompt or lower max_new_tokens"
    )
  size = session_lib.bucket(target, session_lib.Method(), settings, ids)
  widest = max(compared, key=lambda name: compared[name].block)
  if compared[widest].block > size:
    raise ValueError(
      f"methods.{widest} drafts {compared[widest].block - 1} tokens, more than "
      f"the capacity of {size} slots takes: use at most {size - 1}"
    )
  return session_lib.bucket(target, compared[widest], settings, ids)


def _read_tokenizer(source: sources.Source) -> tokenizers.Tokenizer:
  if source.kind == "gguf":
    return tokenizers.from_gguf(gguf_header.read(source.path).metadata)
  return tokenizers.from_folder(source.path)


def _tokenizers(where, drafter, target) -> dict[str, tokenizers.Tokenizer]:
  """Those that a drafter's section asks for."""
  asked = parts.needs(where, "drafter", drafter.type)
  models = {"tokenizer": target, "draft_tokenizer": drafter.get("model")}
  return {
    key: _read_tokenizer(sources.resolve(model))
    for key, model in models.items()
    if key in asked
  }


def _method(name, config, target, models) -> session_lib.Method:
  sections = config.methods[name]
  given = {
    "target": target,
    "batch_size": config.batch_size,
    "drafter": _drafter(
      f"methods.{name}.drafter", sections.drafter, config, target, models
    ),
  }
  rest = {
    part: parts.build(f"methods.{name}.{part}", part, sections[part], given)
    for part in ("verifier", "policy")
  }
  return session_lib.Method(given["drafter"], **rest, lossless=config.lossless)


def _drafter(where, section, config, target, models) -> types.Drafter:
  """The drafter of a section, made of those within it."""
  given: dict[str, Any] = {
    name: None
    if section[name].type is None
    else _drafter(f"{where}.{name}", section[name], config, target, models)
    for name in parts.nested(where, section.type)
  }
  given |= {"target": target, "model": models.get(draft_key(section))}
  given |= _tokenizers(where, section, config.target)
  return parts.build(where, "drafter", section, given)


def _natural(name: str) -> list[str | int]:
  return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]
