# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""An object store in memory, reached through the client of gs:// paths.

It can do what a store can and no more: an object appears whole when its write
ends, and there is no append, no rename and no folder. What fsspec and epath do
between a path and the client is the real thing.
"""

import contextlib
import io
import sys
from typing import Any
from unittest import mock

from etils.epath import backend
import fsspec

BUCKET = "bucket"


class Store(fsspec.AbstractFileSystem):
  """One bucket, `gs://bucket`; all others do not exist."""

  protocol = ("gcs", "gs")
  cachable = False

  def __init__(self, *args, **options):
    super().__init__(*args, **options)
    self.objects: dict[str, bytes] = {}
    self.writes: list[str] = []
    self.read_only = False

  def ls(self, path, detail=True, **kwargs):
    del kwargs
    path = str(self._strip_protocol(path)).rstrip("/")
    self._check(path)
    found = {}
    for name, content in self.objects.items():
      if name == path or name.startswith(f"{path}/"):
        rest = name.removeprefix(path).lstrip("/").split("/")
        child = f"{path}/{rest[0]}" if rest[0] else path
        kind = "file" if child == name else "directory"
        found[child] = {"name": child, "size": len(content), "type": kind}
    if not found and path != BUCKET:
      raise FileNotFoundError(path)
    return list(found.values()) if detail else list(found)

  def _open(
    self,
    path,
    mode="rb",
    block_size=None,
    autocommit=True,
    cache_options=None,
    **kwargs,
  ) -> Any:
    del block_size, autocommit, cache_options, kwargs
    self._check(path)
    if mode == "rb":
      if path not in self.objects:
        raise FileNotFoundError(path)
      return io.BytesIO(self.objects[path])
    if mode != "wb":
      raise NotImplementedError(f"a store has no mode {mode}")
    if self.read_only:
      raise PermissionError(f"403: no right to write {path}")
    return _Upload(self, path)

  def _rm(self, path):
    if self.objects.pop(path, None) is None:
      raise FileNotFoundError(path)

  def mkdir(self, path, create_parents=True, **kwargs):
    raise AssertionError(f"would create a bucket for {path}")

  def makedirs(self, path, exist_ok=False):
    self.mkdir(path)

  def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
    raise AssertionError(f"a store cannot rename {path1}")

  def _check(self, path):
    if path.split("/")[0] != BUCKET:
      raise FileNotFoundError(f"404: no bucket of {path}")


class _Upload(io.BytesIO):
  def __init__(self, store: Store, path: str):
    super().__init__()
    self._store, self._path = store, path

  def close(self):
    if not self.closed:
      self._store.objects[self._path] = self.getvalue()
      self._store.writes.append(self._path)
    super().close()


@contextlib.contextmanager
def serve():
  """gs:// leads to the store that this yields."""
  store = Store()
  with mock.patch.object(
    backend.fsspec_backend, "_get_filesystem", return_value=store
  ):
    yield store


def without_client():
  """gs:// as it is where its client is not installed."""
  return mock.patch.dict(sys.modules, gcsfs=None)
