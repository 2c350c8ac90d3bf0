# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files on a disk and in an object store: whole, in order, never twice."""

import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import jax

from specjax.bench import storage
from tests import stores

LINES = [f'{{"n": {i}}}'.encode() for i in range(storage.PART_LINES * 2 + 5)]


class LocateTest(parameterized.TestCase):
  @parameterized.parameters("runs/a", "/tmp/a", "gs://bucket/a", "s3://b/a/c")
  def test_what_the_user_wrote_comes_back(self, text):
    self.assertEqual(str(storage.locate(text)), text)

  def test_home_is_expanded(self):
    with mock.patch.dict("os.environ", HOME="/home/me"):
      self.assertEqual(str(storage.locate("~/a")), "/home/me/a")

  @parameterized.parameters(
    ("ftp://host/a", "ftp://host/a .* use gs://, s3://, az:// or a folder"),
    ("gs:///", "names no bucket: write gs://BUCKET/FOLDER"),
    ("s3://", "names no bucket: write s3://BUCKET/FOLDER"),
  )
  def test_what_leads_nowhere(self, text, pattern):
    with self.assertRaisesRegex(ValueError, pattern):
      storage.locate(text)


class DiskTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = storage.locate(folder.name) / "x.jsonl"

  def test_reading_changes_nothing_and_appending_drops_half_a_line(self):
    self.path.write_bytes(b"one\ntw")
    lines = storage.lines(self.path)
    self.assertEqual(lines.read(), [b"one"])
    self.assertEqual(self.path.read_bytes(), b"one\ntw")
    lines.append([b"two"])
    lines.append([b"three", b"four"])
    self.assertEqual(self.path.read_bytes(), b"one\ntwo\nthree\nfour\n")

  def test_a_carriage_return_ends_no_line(self):
    storage.lines(self.path).append([b"a\rb", b"c"])
    self.assertEqual(storage.lines(self.path).read(), [b"a\rb", b"c"])

  def test_other_processes_write_nothing(self):
    with mock.patch.object(jax, "process_index", return_value=1):
      storage.make_folder(self.path.parent / "folder")
      storage.write(self.path, b"x")
      storage.lines(self.path).append([b"x"])
    self.assertEmpty(list(pathlib.Path(self.path.parent).iterdir()))
    storage.write(self.path, b"x")
    with mock.patch.object(jax, "process_index", return_value=1):
      storage.remove(self.path)
      self.assertEqual(storage.read(self.path), b"x")


class StoreTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.store = self.enter_context(stores.serve())
    self.path = storage.locate("gs://bucket/deep/run") / "x.jsonl"

  def names(self):
    return sorted(
      name.removeprefix("bucket/deep/run/") for name in self.store.objects
    )

  def test_a_file_is_one_object(self):
    self.assertIsNone(storage.read(self.path))
    storage.write(self.path, "ü".encode())
    storage.write(self.path, "ö".encode())
    self.assertEqual(storage.read(self.path), "ö".encode())
    self.assertEqual(self.names(), ["x.jsonl"])
    storage.remove(self.path)
    storage.remove(self.path)
    self.assertEmpty(self.store.objects)

  def test_an_append_writes_one_part_again(self):
    lines = storage.lines(self.path)
    self.assertEqual(lines.read(), [])
    self.assertFalse(lines.exists())
    for line in LINES:
      lines.append([line])
      written = self.store.objects[self.store.writes[-1]]
      self.assertLessEqual(written.count(b"\n"), storage.PART_LINES)
      self.assertEndsWith(written.decode(), line.decode() + "\n")
    self.assertEqual(
      self.names(),
      ["x-00000000.jsonl", "x-00000064.jsonl", "x-00000128.jsonl"],
    )
    self.assertLen(self.store.writes, len(LINES))

  @parameterized.parameters(1, 7, 64, 100)
  def test_lines_come_back_in_order_however_often_it_is_opened(self, count):
    for at in range(0, len(LINES), count):
      lines = storage.lines(self.path)
      self.assertEqual(lines.read(), LINES[:at])
      lines.append(LINES[at : at + count])
    self.assertEqual(storage.lines(self.path).read(), LINES)

  def test_joining_leaves_one_file_to_go_on_with(self):
    lines = storage.lines(self.path)
    lines.append(LINES[:70])
    lines.join()
    self.assertEqual(self.names(), ["x.jsonl"])
    lines.append(LINES[70:])
    self.assertEqual(storage.lines(self.path).read(), LINES)
    lines.join()
    lines.join()
    content = storage.read(self.path) or b""
    self.assertEqual(content.splitlines(), LINES)
    self.assertEqual(self.names(), ["x.jsonl"])

  @parameterized.parameters(0, 1, 2)
  def test_a_kill_while_joining_repeats_no_line(self, removed):
    lines = storage.lines(self.path)
    for line in LINES:
      lines.append([line])
    count = len(self.store.objects) - removed + 1
    with (
      mock.patch.object(self.store, "_rm", self._rm_until(count)),
      self.assertRaises(KeyboardInterrupt),
    ):
      lines.join()
    again = storage.lines(self.path)
    self.assertEqual(again.read(), LINES)
    again.append([b"last"])
    again.join()
    self.assertEqual(storage.lines(self.path).read(), [*LINES, b"last"])
    self.assertEqual(self.names(), ["x.jsonl"])

  def _rm_until(self, count):
    def remove(path):
      if len(self.store.objects) <= count:
        raise KeyboardInterrupt
      del self.store.objects[path]

    return remove

  def test_a_missing_part_is_named(self):
    lines = storage.lines(self.path)
    for line in LINES:
      lines.append([line])
    del self.store.objects["bucket/deep/run/x-00000064.jsonl"]
    with self.assertRaisesRegex(ValueError, "x-00000128.* end at 64: a part"):
      storage.lines(self.path).read()

  def test_removing_leaves_other_objects(self):
    lines = storage.lines(self.path)
    lines.append(LINES[:70])
    lines.join()
    lines.append(LINES[70:])
    for name in ("x-notes.jsonl", "x-1.txt", "y-00000000.jsonl"):
      storage.write(self.path.with_name(name), b"mine")
    lines.remove()
    self.assertEqual(
      self.names(), ["x-1.txt", "x-notes.jsonl", "y-00000000.jsonl"]
    )

  def test_other_processes_write_nothing(self):
    with mock.patch.object(jax, "process_index", return_value=1):
      storage.make_folder(self.path.parent)
      storage.write(self.path, b"x")
      storage.lines(self.path).append([b"x"])
    self.assertEmpty(self.store.objects)

  def test_a_folder_is_never_asked_for(self):
    """Clients create the bucket of a misspelt name when asked for a folder."""
    storage.make_folder(self.path.parent)
    self.assertEmpty(self.store.objects)

  def test_checking_leaves_nothing(self):
    storage.check_writable(self.path.parent)
    self.assertLen(self.store.writes, 1)
    self.assertEmpty(self.store.objects)

  def test_a_bucket_that_is_not_there(self):
    with self.assertRaisesRegex(
      OSError, "gs://other/a .*404.*: check the bucket's name and your rights"
    ):
      storage.check_writable(storage.locate("gs://other/a"))

  def test_no_right_to_write(self):
    self.store.read_only = True
    with self.assertRaisesRegex(OSError, "gs://bucket/a .*403.*your rights"):
      storage.check_writable(storage.locate("gs://bucket/a"))


class ClientTest(absltest.TestCase):
  def test_a_missing_client_is_named(self):
    self.enter_context(stores.without_client())
    with self.assertRaisesRegex(
      ValueError, "^gs://bucket/a needs .* gcsfs: pip install gcsfs$"
    ):
      storage.check_writable(storage.locate("gs://bucket/a"))


if __name__ == "__main__":
  absltest.main()
