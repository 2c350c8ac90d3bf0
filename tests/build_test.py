# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From configs to prompts, methods and capacities, on tiny models."""

import dataclasses
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import pytest

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, inputs, loading
from specjax.drafters import draft_model, empty, ngram
from specjax.models import sources
from specjax.verifiers import coupled, rejection
from tests import runs, toys

METHODS = {
  "d": {
    "drafter": {"type": "draft_model", "length": 3},
    "verifier": {"type": "rejection"},
    "policy": {"type": "fixed", "length": 2},
  },
  "n10": {"drafter": {"type": "ngram", "length": 10, "tie": "earliest"}},
  "n2": {"drafter": {"type": "ngram", "length": 2, "min_n": 2}},
  "e": {"drafter": {"type": "empty"}},
}


class BuildTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.model = runs.write_model(self.folder / "tiny.gguf")

  def config(self, *overrides, **changes) -> Any:
    path = runs.write_config(self.folder / "config.py", self.model, **changes)
    return runs.read_config(path, *overrides)

  def test_methods(self):
    methods: Any = {
      name: {part: dict(keys) for part, keys in method.items()}
      for name, method in METHODS.items()
    }
    methods["d"]["drafter"]["model"] = str(self.model)
    config = self.config(methods=methods)
    loaded = loading.load(config)
    target = loaded.target.model
    built = build.methods(config, target, loaded.draft_models)
    # Natural order, since a config keeps none.
    self.assertEqual(list(built), ["d", "e", "n2", "n10"])
    drafter: Any = built["d"].drafter
    self.assertIsInstance(drafter, draft_model.DraftModel)
    self.assertEqual(drafter.length, 3)
    self.assertIs(drafter.model, target)  # The same file is not loaded twice.
    self.assertIsInstance(built["d"].verifier, rejection.Rejection)
    policy: Any = built["d"].policy
    self.assertEqual(policy.length, 2)
    self.assertEqual(built["n10"].drafter, ngram.NGram(10, tie="earliest"))
    self.assertEqual(built["n2"].drafter, ngram.NGram(2, min_n=2))
    self.assertEqual(built["e"].drafter, empty.Empty())
    self.assertIsInstance(built["e"].verifier, coupled.Coupled)

  def test_drafters_within_drafters(self):
    """Each section has its own keys, defaults and model, however deep."""
    other = runs.write_model(self.folder / "draft.gguf")
    second = {"type": "draft_model", "length": 3, "model": str(other)}
    inner = {
      "type": "cascade",
      "first": {"type": "suffix", "length": 4, "store": 8},
      "second": second,
    }
    drafter = {
      "type": "cascade",
      "first": {"type": "ngram", "length": 2},
      "second": inner,
      "least": 2,
    }
    where = "methods.c.drafter"
    config = self.config(
      f"{where}.second.second.length=5",
      f"{where}.second.second.quantization=int8",
      f"{where}.first.min_n=2",
      f"{where}.second.first.type=ngram",
      methods={"c": {"drafter": drafter}},
    )
    loaded = loading.load(config)
    key = str(other), "int8"
    self.assertEqual(list(loaded.drafts), [key])
    self.assertEqual(
      inputs.drafts(config, loaded)["c.second.second"]["quantization"], "int8"
    )
    built = build.methods(config, loaded.target.model, loaded.draft_models)
    made: Any = built["c"].drafter
    self.assertEqual((made.first, made.least), (ngram.NGram(2, min_n=2), 2))
    self.assertEqual(made.second.first, ngram.NGram(4))
    self.assertIs(made.second.second.model, loaded.drafts[key].model)
    self.assertEqual(made.second.second.length, 5)

  @parameterized.parameters(
    ({"type": "ngram", "lenght": 2}, "second.lenght'.*'length'"),
    ({"type": "ngrams"}, "drafter.second.type is 'ngrams'.*'ngram'"),
    ({"type": "ngram"}, "drafter.second.length' is missing"),
    ({"length": 2}, "drafter.second.type is None"),
    ("ngram", "drafter.second is 'ngram': give a section with"),
    (
      {"type": "draft_model", "length": 2, "model": "x", "quantization": "i8"},
      "drafter.second.quantization is 'i8'",
    ),
  )
  def test_mistakes_within_drafters_are_named(self, second, message):
    first = {"type": "ngram", "length": 2}
    drafter = {"type": "cascade", "first": first, "second": second}
    with self.assertRaisesRegex(ValueError, f"methods.c.{message}|{message}"):
      self.config(methods={"c": {"drafter": drafter}})

  def test_drafters_within_drafters_are_checked_before_a_load(self):
    first = {"type": "ngram", "length": 2, "min_n": 4}
    second = {"type": "empty"}
    drafter = {"type": "cascade", "first": first, "second": second}
    config = self.config(methods={"c": {"drafter": drafter}})
    with self.assertRaisesRegex(ValueError, "methods.c.drafter.first 'ngram'"):
      build.check(config)

  def test_the_vocabulary_is_compared_before_weights_are_read(self):
    other = runs.write_model(
      self.folder / "other.gguf",
      ("<s>", "</s>", "x", *runs.WORDS[3:-1], "cd"),
      merges=("c d",),
    )
    draft = {"type": "draft_model", "length": 2, "model": str(other)}
    drafter = {"type": "cascade", "first": {"type": "empty"}, "second": draft}
    config = self.config(methods={"m": {"drafter": drafter}})
    _, tokenizer = sources.load(config.target)
    with (
      absltest.mock.patch.object(sources, "load", side_effect=AssertionError),
      self.assertRaisesRegex(
        ValueError, "methods.m.drafter.second.model.*differ at 2 ids"
      ),
    ):
      build.check_drafts(config, tokenizer)

  @pytest.mark.fault_case("B44")
  def test_another_vocabulary_is_allowed_where_it_is_meant(self):
    """sgl-project/sglang#23838: no tokenizer is taken for another."""
    words = ("<s>", "</s>", *runs.WORDS[:1:-1])
    other = runs.write_model(self.folder / "foreign.gguf", words)
    drafter = {"type": "cross_vocabulary", "length": 2, "model": str(other)}
    config = self.config(methods={"m": {"drafter": drafter}})
    loaded = loading.load(config)
    method = build.methods(config, loaded.target.model, loaded.draft_models)
    made: Any = method["m"].drafter
    expected = [words.index(word) for word in runs.WORDS]
    self.assertEqual(made.model.outputs[: len(expected)].tolist(), expected)

  def test_names_of_inline_prompts(self):
    prompts = build.prompts(self.config())
    self.assertEqual([p.group for p in prompts], ["copy", "copy", "other"])
    self.assertEqual([p.index for p in prompts], [0, 1, 2])

  @parameterized.parameters(
    ("prompts=Hello", True),
    ("prompts=('a',)", False),
    ("prompts=FILE", False),
    ("prompts=What is in a.jsonl?", True),
    ("prompts=datasets:x", False),
  )
  def test_is_inline(self, override, expected):
    override = override.replace("FILE", str(self.model))
    self.assertEqual(build.is_inline(self.config(override)), expected)

  def test_a_file_that_is_missing_is_no_text(self):
    with self.assertRaisesRegex(FileNotFoundError, "none.jsonl"):
      build.is_inline(self.config("prompts=none.jsonl"))

  def test_one_method_of_a_config(self):
    config = self.config(methods=METHODS | {"d": METHODS["e"]})
    self.assertEqual(build.names(config), ["d", "e", "n2", "n10"])
    chosen = build.only(config, "n10")
    self.assertEqual(list(chosen.methods), ["n10"])
    self.assertEqual(chosen.methods.n10, config.methods.n10)
    self.assertEmpty(build.only(config, "plain").methods)
    self.assertLen(config.methods, 4)
    self.assertTrue(chosen.is_locked)

  def test_categories_of_a_file_name_its_groups(self):
    path = self.folder / "prompts.jsonl"
    path.write_text('{"prompt": "a", "category": "own"}\n{"prompt": "b"}\n')
    config = self.config(
      f"prompts={path}", "prompt_ids=('1', '0')", "categories=('x', 'y')"
    )
    first, second = build.prompts(config)
    self.assertEqual((first.category, first.group), ("x", "x"))
    self.assertEqual((second.category, second.group), ("own", "y"))

  def test_categories_do_not_stand_in_the_way_of_another_file(self):
    path = self.folder / "other.jsonl"
    path.write_text('{"prompt": "a", "category": "own"}\n{"prompt": "b"}\n')
    groups = [p.group for p in build.prompts(self.config(f"prompts={path}"))]
    self.assertEqual(groups, ["own", "all"])

  def test_settings(self):
    config = self.config(
      "sampling.temperature=0.5", "sampling.top_k=3", "seed=7", "stop=('a',)"
    )
    settings = build.settings(config)
    self.assertEqual(settings.sampling.temperature, 0.5)
    self.assertEqual(settings.sampling.top_k, 3)
    self.assertEqual((settings.seed, settings.stop), (7, ("a",)))

  def test_raw_text_is_no_chat_without_a_template(self):
    _, tokenizer = sources.load(str(self.model))
    config = self.config()
    task = build.task(config, tokenizer, build.prompts(config))
    self.assertEqual(task.ids[0], tuple(tokenizer.encode("abcabcab")))

  def test_texts_and_chats_are_encoded_in_their_order(self):
    """A template that quotes a user message between c and d."""
    template = "{% for m in messages %}c{{ m.content }}d{% endfor %}"
    _, plain = sources.load(str(self.model))
    tokenizer = dataclasses.replace(plain, chat_template=template)
    messages = ({"role": "user", "content": "ee"},)
    prompts = [
      data.Prompt("0", 0, "aa"),
      data.Prompt("1", 1, messages),
      data.Prompt("2", 2, "bb"),
    ]
    task = build.task(self.config(), tokenizer, prompts)
    texts = [plain.decode(ids) for ids in task.ids]
    self.assertEqual(texts, ["caad", "ceed", "cbbd"])

  def test_one_capacity_serves_all_methods(self):
    task = self.task(length=60, new_tokens=60)
    target = toys.tiny()
    for length in (2, 6, 7, 8):
      # 120 tokens and a block; 128 slots hold a block of 8.
      method = session_lib.Method(ngram.NGram(length))
      methods = {"plain": session_lib.Method(), "n": method}
      expected = 128 if length < 8 else 256
      self.assertEqual(build.capacity(target, task, methods), expected)

  def test_a_prompt_beyond_the_model_is_named(self):
    task = self.task(length=250, new_tokens=10)
    with self.assertRaisesRegex(ValueError, "'long' has 250 .* room for 246"):
      build.capacity(toys.tiny(), task, {"plain": session_lib.Method()})

  def test_a_draft_beyond_the_capacity_is_named(self):
    task = self.task(length=10, new_tokens=10)
    method = session_lib.Method(ngram.NGram(128))
    with self.assertRaisesRegex(ValueError, "methods.n drafts 128 .* most 127"):
      build.capacity(toys.tiny(), task, {"n": method})

  def task(self, length, new_tokens):
    prompts = (data.Prompt("short", 0, "x"), data.Prompt("long", 1, "x"))
    settings = session_lib.Settings(max_new_tokens=new_tokens)
    return build.Task(prompts, ((1,), (1,) * length), settings)


if __name__ == "__main__":
  absltest.main()
