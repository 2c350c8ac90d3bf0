# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a model's name to a model: where weights come from.

A name is one of
  a folder with config.json and safetensors files, a .gguf file, or a folder
  that `specjax.save` wrote;
  wheel:distribution==version/path/in/wheel#sha256=HEX (see `wheels`);
  hf:owner/name@revision, a repository of the Hugging Face hub;
  a preset, the name of a file in configs/models, which stands for one of the
  two kinds above and fixes the content by its hash.
A folder or file that has a preset's name is written ./name. All of them are
read from a local disk: the checks of what strangers wrote read here and there
in the files before anything else is done with them.
"""

from collections.abc import Sequence
import dataclasses
import difflib
import importlib.util
import os
import pathlib
import re
from typing import Any

from jax.sharding import Mesh

from specjax import tokenizers
from specjax.models import (
  borrowed,
  gguf,
  huggingface,
  huggingface_save,
  int8,
  orbax,
  placement,
  weights,
  wheels,
)
from specjax.models.model import Model

PRESETS = pathlib.Path(__file__).parents[2] / "configs" / "models"

_HUB_NAME = re.compile(
  r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
  r"(?:@(?P<revision>[A-Za-z0-9][\w./-]*))?"
)
# Configuration and tokenizer, of the top folder alone; nothing that runs.
_HUB_FILES = ("*.json", "*.jinja")
_HUB_IGNORED = ("*/*",)
_HUB_TOKEN = re.compile(r"hf_\w+")
_REMOTE_NAME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://.*", re.DOTALL)
_SAVERS = {"orbax": orbax.save, "huggingface": huggingface_save.save}
_PRESET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Source:
  """A model on this machine.

  Attributes:
    kind: "folder" (Hugging Face), "gguf", "orbax" (our own folders) or
      "borrowed" (our own, with the vocabulary of another model).
    path: the folder or file.
    description: what a record of a run says about its origin; with a preset
      or the hub, it fixes the content.
  """

  kind: str
  path: pathlib.Path
  description: str


def resolve(name: str | os.PathLike[str]) -> Source:
  """Finds a model by name, and fetches it if need be.

  Raises:
    FileNotFoundError: a path that does not exist.
    ValueError: a name of no kind, or content that is not what it says.
  """
  name = os.fspath(name)
  if name.startswith("wheel:"):
    return Source("gguf", wheels.fetch(wheels.parse(name)), name)
  if name.startswith("hf:"):
    return _fetch_from_hub(name)
  remote = _REMOTE_NAME.fullmatch(name)
  if remote is not None:  # The rest of the name may hold a password.
    raise ValueError(
      f"models are read from a local disk and not from {remote['scheme']}://: "
      "copy the model here and name the copy"
    )
  preset = _preset_file(name)
  if preset is not None:
    return resolve(_read_preset(preset).source)
  path = pathlib.Path(os.path.expanduser(name))
  if name and path.is_dir():
    return Source(_folder_kind(path), path, str(path))
  if path.is_file():
    return _local_file(path)
  if "/" in name or "\\" in name or path.suffix in (".gguf", ".safetensors"):
    raise FileNotFoundError(f"model {name!r}: there is no such file or folder")
  raise ValueError(f"unknown model {name!r}: {_suggestion(name)}")


def load(
  name: str | os.PathLike[str] | Source,
  dtype: Any = "float32",
  quantization: str = "none",
  mesh: Mesh | None = None,
) -> tuple[Model, tokenizers.Tokenizer]:
  """Loads a model and its tokenizer.

  Args:
    name: a name (see above) or what `resolve` made of it.
    dtype: of the parameters: float32, bfloat16 or float16. Quantised weights
      are dequantised to it.
    quantization: "int8" makes 8-bit matrices of what was read, which is another
      model (see `int8`); "none" leaves the numbers as they are.
    mesh: devices that share the model, see `sharding.make_mesh`; None is one.

  Returns:
    The model, which gives no probability to ids that the tokenizer does not
    know, and the tokenizer.
  """
  weights.parse_dtype(dtype)  # A wrong word must not cost a download.
  kind = int8.parse(quantization)
  source = name if isinstance(name, Source) else resolve(name)
  if source.kind == "orbax":
    return orbax.load(source.path, dtype, kind, mesh)
  if source.kind == "borrowed":
    lender = resolve(borrowed.lender(source.path))
    if lender.kind == "borrowed":
      raise ValueError(
        f"{source.path.name} borrows from {lender.path.name}, which borrows too"
      )
    other, tokenizer = load(lender, dtype, quantization, mesh)
    return borrowed.load(source.path, other, dtype, mesh), tokenizer
  if source.kind == "gguf":
    config, params, metadata = gguf.load(source.path, dtype, kind, mesh)
    tokenizer = tokenizers.from_gguf(metadata)
  else:
    config, params = huggingface.load(source.path, dtype, kind, mesh)
    tokenizer = tokenizers.from_folder(source.path)
  return Model.from_params(
    config, params, tokenizer.num_tokens, mesh
  ), tokenizer


def save(
  model: Model,
  tokenizer: tokenizers.Tokenizer,
  path: str | os.PathLike[str],
  layout: str = "orbax",
) -> None:
  """Saves a model with its tokenizer; `load(path)` reads an equal one back.

  Args:
    model: the model.
    tokenizer: its own.
    path: a folder that does not exist yet.
    layout: "orbax" keeps every model as it is, 8-bit matrices included;
      "huggingface" is what Transformers and the engines beside it read.

  Raises:
    ValueError: the folder exists, the tokenizer is another model's, or the
      layout cannot hold this model; nothing is written then.
  """
  if layout not in _SAVERS:
    raise ValueError(
      f"layout {layout!r} is not one of {', '.join(_SAVERS)}: choose one"
    )
  _SAVERS[layout](model, tokenizer, path)


def fingerprint(model: Model) -> str:
  """sha256 of the model's parameters, on whatever devices they lie.

  See `weights.fingerprint`.
  """
  return weights.fingerprint(placement.stored(model.config, model.params))


def _folder_kind(path: pathlib.Path) -> str:
  if orbax.is_model(path):
    return "orbax"
  return "borrowed" if borrowed.is_model(path) else "folder"


def _local_file(path: pathlib.Path) -> Source:
  if path.suffix == ".gguf":
    return Source("gguf", path, str(path))
  if path.suffix in huggingface.PICKLES:
    raise ValueError(
      f"{path.name} is a pickle, which could run code and is never read: use "
      "safetensors or GGUF"
    )
  if path.suffix == ".safetensors":
    raise ValueError(
      f"{path.name} alone is not a model: name its folder, which has "
      "config.json and the tokenizer"
    )
  raise ValueError(f"{path.name}: a model is a folder or a .gguf file")


def _preset_file(name: str) -> pathlib.Path | None:
  """The preset's file; dots and dashes of a name are underscores there."""
  if not _PRESET_NAME.fullmatch(name):
    return None
  path = PRESETS / (re.sub(r"[.-]", "_", name) + ".py")
  return path if path.is_file() else None


def _read_preset(path: pathlib.Path) -> Any:
  spec = importlib.util.spec_from_file_location(path.stem, path)
  if spec is None or spec.loader is None:
    raise ValueError(f"preset {path} cannot be imported")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config()


def _suggestion(name: str) -> str:
  if not PRESETS.is_dir():
    return (
      "presets live in the checkout, install with `pip install -e .`; or name "
      "a folder, a .gguf file, wheel:... or hf:owner/name@revision"
    )
  names = [_read_preset(path).name for path in sorted(PRESETS.glob("*.py"))]
  close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
  if close:
    return f"did you mean {close[0]!r}?"
  return (
    "name a folder, a .gguf file, wheel:..., hf:owner/name@revision or a "
    f"preset ({', '.join(names) or f'none found in {PRESETS}'})"
  )


def _fetch_from_hub(name: str) -> Source:
  match = _HUB_NAME.fullmatch(name)
  if match is None:
    raise ValueError(f"{name!r} is not hf:owner/name@revision")
  repository, revision = match["repository"], match["revision"] or "main"
  try:
    folder = _download(repository, revision, _HUB_FILES)
    # A repository may hold its weights several times: only the files that a
    # loader will open are fetched, of the same commit.
    folder = _download(
      repository, folder.name, huggingface.weight_files(folder)
    )
  except Exception as error:  # Whatever an HTTP client may raise.
    # The first line says what is wrong; the rest is advice and addresses.
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise ValueError(
      f"cannot fetch {_without_token(name)!r} from the hub "
      f"({_without_token(reason)}): check name, revision, access and network"
    ) from None
  kind = "borrowed" if borrowed.is_model(folder) else "folder"
  return Source(kind, folder, f"hf:{repository}@{folder.name}")


def _download(
  repository: str, revision: str, files: Sequence[str]
) -> pathlib.Path:
  """The snapshot with these files; its folder is named by its commit."""
  import huggingface_hub

  return pathlib.Path(
    huggingface_hub.snapshot_download(
      repository,
      revision=revision,
      allow_patterns=list(files),
      ignore_patterns=list(_HUB_IGNORED),
    )
  )


def _without_token(text: str) -> str:
  """A text that may go into a log: without tokens of the hub."""
  import huggingface_hub

  own = huggingface_hub.get_token()
  text = text.replace(own, "hf_***") if own else text
  return _HUB_TOKEN.sub("hf_***", text)
