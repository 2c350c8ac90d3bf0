# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of models lead to the right files, or to one line of advice."""

import json
import os
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

  def hub(self, files):
    """A stand-in for the hub: one commit with these files.

    Returns:
      The patch, and the list of (revision, names fetched) it fills.
    """
    folder = self.folder / "snapshots" / COMMIT
    calls = []

    def download(repository, *, revision, allow_patterns, ignore_patterns):
      self.assertEqual(repository, "owner/some.name")
      names = list(
        utils.filter_repo_objects(
          list(files),
          allow_patterns=allow_patterns,
          ignore_patterns=ignore_patterns,
        )
      )
      calls.append((revision, names))
      folder.mkdir(parents=True, exist_ok=True)
      for name in names:
        (folder / name).write_text(files[name])
      return str(folder)

    return mock.patch.object(
      huggingface_hub, "snapshot_download", side_effect=download
    ), calls

  @parameterized.parameters(("@v1.0", "v1.0"), ("", "main"))
  def test_the_hub_is_recorded_by_commit(self, suffix, revision):
    files = dict.fromkeys(
      (
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "model.safetensors",
        "consolidated.safetensors",
        "pytorch_model.bin",
        "modeling.py",
        "onnx/config.json",
        "original/model.safetensors",
      ),
      "",
    )
    files["config.json"] = "{}"
    patch, calls = self.hub(files)
    with patch:
      source = sources.resolve(f"hf:owner/some.name{suffix}")
    self.assertEqual(source.description, f"hf:owner/some.name@{COMMIT}")
    self.assertEqual(source.kind, "folder")
    self.assertEqual(source.path, self.folder / "snapshots" / COMMIT)
    texts = ["config.json", "tokenizer.json", "chat_template.jinja"]
    # The weights come of the commit that the rest was found at.
    self.assertEqual(
      calls, [(revision, texts), (COMMIT, ["model.safetensors"])]
    )

  def test_a_model_on_the_hub_may_borrow_its_vocabulary(self):
    files = {"config.json": '{"specjax_layers": {}}', "model.safetensors": ""}
    patch, _ = self.hub(files)
    with patch:
      self.assertEqual(sources.resolve("hf:owner/some.name").kind, "borrowed")

  def test_only_the_parts_that_the_index_names_are_fetched(self):
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    places = {"a": parts[1], "b": parts[0], "c": parts[1]}
    files = dict.fromkeys(
      [*parts, "consolidated.safetensors", "model-00003.safetensors"], ""
    )
    index = "model.safetensors.index.json"
    files[index] = json.dumps({"weight_map": places})
    patch, calls = self.hub(files)
    with patch:
      sources.resolve("hf:owner/some.name")
    self.assertEqual(calls, [("main", [index]), (COMMIT, parts)])

  def test_an_index_that_leads_elsewhere(self):
    index = json.dumps({"weight_map": {"a": "../other.safetensors"}})
    patch, calls = self.hub({"model.safetensors.index.json": index})
    with patch, self.assertRaisesRegex(ValueError, "names '../other.safe"):
      sources.resolve("hf:owner/some.name")
    self.assertLen(calls, 1)

  @parameterized.parameters("hf_AbCdEf0123456789", "a-token-of-another-kind")
  def test_tokens_of_the_hub_are_not_shown(self, token):
    """Libraries put request headers into their errors."""
    error = OSError(f"401 for Authorization: Bearer {token}")
    with (
      mock.patch.object(
        huggingface_hub, "snapshot_download", side_effect=error
      ),
      mock.patch.object(huggingface_hub, "get_token", return_value=token),
      self.assertRaisesRegex(ValueError, r"401 .*Bearer hf_\*\*\*\)") as raised,
    ):
      sources.resolve("hf:owner/name")
    self.assertNotIn(token, str(raised.exception))
    self.assertTrue(raised.exception.__suppress_context__)

  @parameterized.parameters("gs", "s3", "https", "file")
  def test_models_are_local(self, scheme):
    name = f"{scheme}://user:secret@bucket/model"
    with self.assertRaisesRegex(
      ValueError, f"not from {scheme}://: copy the model here"
    ) as raised:
      sources.resolve(name)
    self.assertNotIn("secret", str(raised.exception))

  def test_spellings_of_a_path(self):
    folder, file = self.write_folder(), self.write_gguf()
    (self.folder / "link").symlink_to(folder)
    (self.folder / "link.gguf").symlink_to(file)
    before = os.getcwd()
    self.addCleanup(os.chdir, before)
    os.chdir(self.folder)
    home = os.path.relpath(self.folder, pathlib.Path.home())
    for spelling, kind in (
      (f"{folder}/", "folder"),
      ("./tiny/", "folder"),
      ("./link", "folder"),
      (f"~/{home}/tiny", "folder"),
      (folder, "folder"),
      ("tiny.gguf", "gguf"),
      ("link.gguf", "gguf"),
      (f"~/{home}/tiny.gguf", "gguf"),
    ):
      with self.subTest(str(spelling)):
        source = sources.resolve(spelling)
        self.assertEqual(source.kind, kind)
        self.assertFalse(str(source.path).startswith("~"))
        wanted = folder if kind == "folder" else file
        self.assertTrue(source.path.samefile(wanted))

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

  @parameterized.product(
    layout=("orbax", "huggingface"), origin=("write_gguf", "write_folder")
  )
  def test_what_is_saved_loads_again(self, layout, origin):
    model, tokenizer = sources.load(str(getattr(self, origin)()))
    saved = self.folder / "saved"
    sources.save(model, tokenizer, saved, layout)
    again, other = sources.load(saved)
    self.assertEqual(again.config, model.config)
    self.assertEqual(sources.fingerprint(again), sources.fingerprint(model))
    self.assertEqual(other.fingerprint(), tokenizer.fingerprint())
    with self.assertRaisesRegex(ValueError, "saved exists"):
      sources.save(model, tokenizer, saved, layout)

  def test_a_layout_that_cannot_hold_a_model_writes_nothing(self):
    name = str(self.write_gguf())
    model, tokenizer = sources.load(name, quantization="int8")
    saved = self.folder / "saved"
    with self.assertRaisesRegex(ValueError, "quantization = 'int8'"):
      sources.save(model, tokenizer, saved, "huggingface")
    with self.assertRaisesRegex(ValueError, "layout 'pickle' is not one of"):
      sources.save(model, tokenizer, saved, "pickle")
    self.assertFalse(saved.exists())
    sources.save(model, tokenizer, saved)
    again, _ = sources.load(saved)
    self.assertEqual(again.config.quantization, "int8")
    self.assertEqual(sources.fingerprint(again), sources.fingerprint(model))

  def test_an_unknown_pre_tokenizer_is_refused_by_name(self):
    path = self.write_gguf(**{"tokenizer.ggml.pre": "klingon"})
    with self.assertRaisesRegex(ValueError, "klingon"):
      sources.load(str(path))


if __name__ == "__main__":
  absltest.main()
