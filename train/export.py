# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line that writes a trained drafter for other engines.

  python -m train.export --drafter=WORKDIR/drafter --target=NAME \
    --format=eagle3 --out=DIR [--dtype=bfloat16] [--max_length=32768]

  medusa        Medusa heads as FasterDecoding/Medusa has them (TGI)
  medusa-vllm   the same as vLLM has them; a reduced vocabulary is possible
  eagle3        an EAGLE-3 head as Hugging Face folder (SGLang, vLLM)
  huggingface   a draft model of its own (Transformers and most engines)
  specjax       heads of any kind as they are, in another type; of a draft model
                that was trained with its target's embedding, its own layers

Heads that others published are read as well, so one layout becomes another.
What is written has the shapes that its config.json asks for, is read back
before DIR appears, and drafts what the drafter drafts: matrices that a head has
of its target are copied. A mistake is one line and exit status 2.
"""

import argparse
from collections.abc import Sequence
import pathlib
import sys
import tempfile
from typing import Any

import jax

from specjax import tokenizers
from specjax.bench import command_line
from specjax.models import borrowed, families, sources, weights
from specjax.models import model as model_lib
from specjax.models.heads import (
  eagle_export,
  eagle_files,
  head_files,
  medusa_export,
  medusa_files,
  saved_heads,
)
from specjax.reports import report as report_lib
from specjax.text import untrusted

_FLAGS = ("drafter", "target", "format", "out")
_USAGE = "python -m train.export " + " ".join(f"--{x}=..." for x in _FLAGS)
_MEDUSA, _MEDUSA_VLLM = "medusa", "medusa-vllm"
_EAGLE3, _MODEL, _OWN = "eagle3", "huggingface", "specjax"
FORMATS = (_MEDUSA, _MEDUSA_VLLM, _EAGLE3, _MODEL, _OWN)


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Flags.

  Raises:
    ValueError: an unknown or missing flag, or a wrong value.
  """
  parser = command_line.Parser("python -m train.export", _USAGE)
  parser.add_argument("--drafter", help="folder of a drafter")
  parser.add_argument("--target", help="name of the model it was trained for")
  parser.add_argument("--format", choices=FORMATS, help="layout to write")
  parser.add_argument("--out", help="folder to write, a new one")
  parser.add_argument(
    "--dtype", choices=tuple(weights.DTYPES), default="float32"
  )
  parser.add_argument(
    "--max_length", type=int, help="positions that eagle3 is served with"
  )
  flags, overrides = parser.read(argv, needed=_FLAGS)
  if overrides:
    raise ValueError(f"--config.{overrides[0]}: an export has no config")
  if flags.max_length is not None and flags.format != _EAGLE3:
    raise ValueError(
      f"--max_length is of {_EAGLE3}, the format is {flags.format}: leave it "
      "out"
    )
  if flags.max_length is not None and flags.max_length < 1:
    raise ValueError(f"--max_length is {flags.max_length}: use 1 or more")
  return flags


def run(argv: Sequence[str]) -> None:
  """Does what the arguments say.

  Raises:
    ValueError, OSError: a mistake of the user, in one line.
  """
  flags = parse(argv)
  out = pathlib.Path(flags.out).expanduser()
  if out.exists() and not (out.is_dir() and not any(out.iterdir())):
    raise ValueError(f"{out} exists and is not empty: name a new folder")
  folder = _open(flags.drafter)
  check(folder, flags.format)
  target, tokenizer = sources.load(flags.target, flags.dtype)
  out.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    dir=out.parent, prefix=f".{out.name}-"
  ) as scratch:
    made = pathlib.Path(scratch) / out.name
    what = _write(flags, folder, target, tokenizer, made)
    made.rename(out)
  report_lib.say(f"{out}: {what}, {flags.dtype}")


def _open(name: str) -> head_files.Folder:
  """The drafter's folder, which may hold a draft model's layers alone."""
  path = pathlib.Path(name).expanduser()
  if not borrowed.is_model(path):
    return head_files.open_folder(name)
  return head_files.Folder(path, untrusted.read_object(path / "config.json"))


def check(folder: head_files.Folder, wanted: str) -> None:
  """Refuses a drafter that a format cannot hold, reading headers alone.

  Raises:
    ValueError: one line that names the formats that fit.
  """
  possible = formats(folder)
  if not possible:
    if (folder.path / "drafter" / "config.json").is_file():
      raise ValueError(
        f"{folder.path} is the folder of a run: name {folder.path / 'drafter'}"
      )
    what = folder.raw.get("kind") or folder.raw.get(saved_heads.KIND)
    raise ValueError(
      f"{folder.name} holds {weights.one_line(what or 'no drafter')}, which no "
      f"format fits: there are {_MEDUSA} and {_MEDUSA_VLLM} for Medusa heads, "
      f"{_EAGLE3} for EAGLE-3 heads, {_MODEL} for draft models and {_OWN} for "
      "what it trained itself"
    )
  if wanted not in possible:
    raise ValueError(
      f"{folder.name} cannot be written as {wanted}: use "
      f"--format={' or '.join(possible)}"
    )
  is_own = saved_heads.is_own(folder)
  if wanted == _MEDUSA and is_own and saved_heads.is_reduced(folder):
    raise ValueError(
      f"{folder.name} drafts some of its target's tokens, and the format "
      f"{wanted} has no map of them: use --format={_MEDUSA_VLLM}"
    )


def formats(folder: head_files.Folder) -> tuple[str, ...]:
  """The formats that fit what a folder holds."""
  raw, own = folder.raw, folder.raw.get(saved_heads.KIND)
  as_it_is = (_OWN,) if own else ()
  if own == "MedusaHeads" or medusa_files.is_published(raw):
    return (_MEDUSA, _MEDUSA_VLLM, *as_it_is)
  is_eagle3 = own == "EagleHead" and raw.get("kind") == "eagle3"
  if is_eagle3 or eagle_files.is_published(raw):
    return (_EAGLE3, *as_it_is)
  # As a text: strangers' files may have a list there.
  is_model = str(raw.get("model_type")) in families.FAMILIES
  if is_model or borrowed.is_model(folder.path):
    return (_MODEL, _OWN)
  return as_it_is


def _write(
  flags: argparse.Namespace,
  folder: head_files.Folder,
  target: model_lib.Model,
  tokenizer: tokenizers.Tokenizer,
  path: pathlib.Path,
) -> str:
  """Writes a folder and reads it back; returns what it is."""
  if _MODEL in formats(folder):
    return _write_model(flags, target, tokenizer, path)
  if flags.format == _OWN:
    saved_heads.copy(flags.drafter, path, flags.dtype)
    return "heads as they are"
  if flags.format == _EAGLE3:
    head = eagle_files.load(flags.drafter, target)
    eagle_export.save(head, target, path, flags.max_length)
    found = eagle_files.load(path, target)
    read = list(head.config.feature_layers)
    what = f"an EAGLE-3 head that reads layers {read}"
    if len(read) != 3 or read[0] != 1:
      what += " (engines agree about three layers, the first of them 1)"
  else:
    head = medusa_files.load(flags.drafter, target)
    if flags.format == _MEDUSA:
      medusa_export.save_original(head, target, path, _base(flags.target))
    else:
      medusa_export.save_vllm(head, target, path)
    found = medusa_files.load(path, target)
    what = f"{head.config.num_heads} Medusa heads"
  drafted = found.num_drafted(target)
  return f"{what}, which draft {drafted} of {target.num_tokens} tokens"


def _write_model(flags, target, tokenizer, path) -> str:
  model, own = sources.load(flags.drafter, flags.dtype)
  why = tokenizers.mismatch(tokenizer, own)
  if why is not None:
    raise ValueError(
      f"{flags.drafter} has another vocabulary than {flags.target} ({why}): "
      "name the target that it was trained for"
    )
  if flags.format == _MODEL:
    sources.save(model, own, path, _MODEL)
  else:
    for name in borrowed.BORROWED:
      mine, theirs = (x.params.get(name) for x in (model, target))
      if not _are_equal(mine, theirs):
        raise ValueError(
          f"{flags.drafter} has an embedding of its own: use --format={_MODEL}"
        )
    borrowed.save(model, flags.target, path, flags.dtype)
  sources.load(path, flags.dtype)
  return f"a draft model, layers {model.config.num_layers}"


def _are_equal(one: Any, other: Any) -> bool:
  """Whether two trees of parameters are the same, None included."""
  leaves = jax.tree.leaves
  same_shape = jax.tree.structure(one) == jax.tree.structure(other)
  return same_shape and all(
    a.shape == b.shape and bool((a == b).all())
    for a, b in zip(leaves(one), leaves(other))
  )


def _base(name: str) -> str:
  """How other engines call a target: hf: is a prefix of ours."""
  if not name.startswith("hf:"):
    return name
  return name.removeprefix("hf:").partition("@")[0]


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and returns the exit status."""
  argv = sys.argv[1:] if argv is None else argv
  return command_line.main(run, argv)


if __name__ == "__main__":
  sys.exit(main())
