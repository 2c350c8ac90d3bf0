# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of a workdir, on a disk or in an object store.

A store (gs://, s3://, az://) has no append, no rename and no folders; what it
has is that an object appears whole once its write ends. So a file that is
replaced is one write there, and lines that are appended go to parts of at most
PART_LINES lines: an append writes the last part again, which bounds its cost,
and `Lines.join` makes one file of the parts at the end.

Of several processes only the first one writes; all of them read.
"""

from collections.abc import Generator, Sequence
import contextlib
import os
from typing import Protocol
import uuid

from etils import epath
import jax

PART_LINES = 64
# What each kind of store is reached with, installed by those who use it.
_PACKAGES = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs"}


class Lines(Protocol):
  """The lines of one file, which grows at its end."""

  def exists(self) -> bool:
    """Whether there is anything of it."""
    ...

  def read(self) -> list[bytes]:
    """Whole lines without their ends; what a kill left of one is dropped."""
    ...

  def append(self, lines: Sequence[bytes]) -> None:
    """Adds lines after those of `read`; they are stored when this returns."""
    ...

  def join(self) -> None:
    """Makes one file of it."""
    ...

  def remove(self) -> None:
    """Removes all of it."""
    ...


def locate(path: str | os.PathLike[str]) -> epath.Path:
  """A folder on a disk or in a store, from what the user wrote.

  Raises:
    ValueError: a scheme that is not known, or no bucket.
  """
  text = os.fspath(path)
  scheme, is_url, rest = text.partition("://")
  if not is_url:
    return epath.Path(text).expanduser()
  if scheme not in _PACKAGES:
    known = ", ".join(f"{name}://" for name in _PACKAGES)
    raise ValueError(f"{text} is on no known store: use {known} or a folder")
  if not rest.strip("/"):
    raise ValueError(f"{text} names no bucket: write {scheme}://BUCKET/FOLDER")
  return epath.Path(text)


def check_writable(path: epath.Path) -> None:
  """Whether files can be written below `path`; leaves nothing behind.

  Raises:
    ValueError, OSError: it is a file, not to be written, or out of reach.
  """
  if _scheme(path):
    # Only writing shows whether one may write: rights differ by operation.
    probe = path / f".probe-{uuid.uuid4().hex}"
    with _reaching(path):
      probe.write_bytes(b"")
      probe.unlink(missing_ok=True)
    return
  if path.exists() and not path.is_dir():
    raise ValueError(f"workdir {path} is a file: name a folder")
  parents = (path, *path.absolute().parents)
  parent = next(folder for folder in parents if folder.exists())
  if not parent.is_dir():
    raise ValueError(f"workdir {path}: {parent} is a file: name a folder")
  if not os.access(parent, os.W_OK | os.X_OK):
    raise ValueError(f"workdir {path} cannot be written: choose another folder")


def make_folder(path: epath.Path) -> None:
  """Creates a folder; in a store it comes with its first object.

  To ask a store for one would create the bucket of a misspelt name.
  """
  if not _scheme(path) and _writes():
    path.mkdir(parents=True, exist_ok=True)


def read(path: epath.Path) -> bytes | None:
  """The content of a file, None where there is no such file."""
  with _reaching(path):
    try:
      return path.read_bytes()
    except FileNotFoundError:
      return None


def write(path: epath.Path, content: bytes) -> None:
  """Replaces a file; a kill leaves the old one or the new one."""
  if not _writes():
    return
  if _scheme(path):
    with _reaching(path):
      path.write_bytes(content)
    return
  part = path.with_name(f".{path.name}.part")
  try:
    with open(part, "wb") as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(part, path)
  finally:
    part.unlink(missing_ok=True)


def remove(path: epath.Path) -> None:
  """Removes a file if there is one."""
  if _writes():
    with _reaching(path):
      path.unlink(missing_ok=True)


def lines(path: epath.Path) -> Lines:
  return _Parts(path) if _scheme(path) else _File(path)


class _File:
  """Lines on a disk."""

  def __init__(self, path: epath.Path):
    self._path = path
    self._end = 0  # Of the last whole line, in bytes.

  def exists(self) -> bool:
    return self._path.exists()

  def read(self) -> list[bytes]:
    found = _ended(read(self._path))
    self._end = len(_joined(found))
    return found

  def append(self, lines: Sequence[bytes]) -> None:
    if not _writes():
      return
    with open(self._path, "ab") as file:
      file.truncate(self._end)
      file.write(_joined(lines))
      file.flush()
      os.fsync(file.fileno())
      self._end = file.tell()

  def join(self) -> None:
    """It is one file already."""

  def remove(self) -> None:
    remove(self._path)


class _Parts:
  """Lines in a store: one object, then parts named by their first line."""

  def __init__(self, path: epath.Path):
    self._path = path
    self._first = 0  # Number of the first line of `_last`.
    self._last: list[bytes] = []

  def exists(self) -> bool:
    return read(self._path) is not None or bool(self._parts())

  def read(self) -> list[bytes]:
    found = _ended(read(self._path))
    for first, part in self._parts():
      if first < len(found):
        continue  # A kill came between joining the parts and removing them.
      if first > len(found):
        raise ValueError(
          f"{part} begins at line {first}, but the lines before end at "
          f"{len(found)}: a part is missing, add --overwrite to start anew"
        )
      found += _ended(read(part))
    self._first, self._last = len(found), []
    return found

  def append(self, lines: Sequence[bytes]) -> None:
    self._last += lines
    name = f"{self._path.stem}-{self._first:08d}{self._path.suffix}"
    write(self._path.with_name(name), _joined(self._last))
    if len(self._last) >= PART_LINES:
      self._first, self._last = self._first + len(self._last), []

  def join(self) -> None:
    if parts := self._parts():
      write(self._path, _joined(self.read()))
      for _, part in parts:
        remove(part)

  def remove(self) -> None:
    remove(self._path)
    for _, part in self._parts():
      remove(part)

  def _parts(self) -> list[tuple[int, epath.Path]]:
    """(number of the first line, object) of each part, in order."""
    with _reaching(self._path):
      try:
        names = [path.name for path in self._path.parent.iterdir()]
      except FileNotFoundError:
        return []
    start, end = f"{self._path.stem}-", self._path.suffix
    numbers = {
      name: name.removeprefix(start).removesuffix(end)
      for name in names
      if name.startswith(start) and name.endswith(end)
    }
    return sorted(
      (int(number), self._path.with_name(name))
      for name, number in numbers.items()
      if number.isdecimal()
    )


def _scheme(path: epath.Path) -> str | None:
  """Of a store, None for a disk."""
  scheme, is_url, _ = os.fspath(path).partition("://")
  return scheme if is_url else None


def _writes() -> bool:
  return jax.process_index() == 0


def _ended(content: bytes | None) -> list[bytes]:
  """The lines that were ended, without their ends."""
  return (content or b"").split(b"\n")[:-1]


def _joined(lines: Sequence[bytes]) -> bytes:
  return b"".join(line + b"\n" for line in lines)


@contextlib.contextmanager
def _reaching(path: epath.Path) -> Generator[None]:
  """Says in one line why a store cannot be reached.

  Each client has errors of its own; on a disk they are OSErrors already.
  """
  scheme = _scheme(path)
  try:
    yield
  except ImportError as error:
    package = _PACKAGES.get(scheme or "")
    if package is None:
      raise
    raise ValueError(
      f"{path} needs the package {package}: pip install {package}"
    ) from error
  except Exception as error:
    if scheme is None:
      raise
    raise OSError(
      f"{path} is out of reach ({type(error).__name__}: {error}): check the "
      "bucket's name and your rights to it"
    ) from error
