# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configs: defaults, overrides, and the shipped ones."""

import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized

from specjax.bench import build, configuration, schema
from tests import runs

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"


class ConfigurationTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.path = runs.write_config(
      self.folder / "config.py", self.folder / "tiny.gguf"
    )

  def read(self, *overrides):
    return configuration.read(str(self.path), overrides)

  def test_what_is_left_out_gets_its_default(self):
    config = self.read()
    self.assertEqual(config.batch_size, 1)
    self.assertEqual(config.sampling.top_p, 1.0)
    self.assertEqual(config.methods.ngram_2.verifier.type, "coupled")
    self.assertEqual(config.methods.ngram_2.drafter.max_n, 3)
    self.assertTrue(config.is_locked)

  @parameterized.parameters(
    ("max_new_tokens=7", "max_new_tokens", 7),
    ("sampling.temperature=0.5", "sampling.temperature", 0.5),
    ("sampling.temperature=1", "sampling.temperature", 1.0),
    ("trace=true", "trace", True),
    ("trace=False", "trace", False),
    ("target=12", "target", "12"),
    ("prompts=12", "prompts", "12"),
    ("prompts=Say: a, b = c?", "prompts", "Say: a, b = c?"),
    ("prompts=('a', 'b')", "prompts", ("a", "b")),
    ("prompts=['a']", "prompts", ("a",)),
    ("stop=('x',)", "stop", ("x",)),
    ("methods.ngram_2.drafter.length=5", "methods.ngram_2.drafter.length", 5),
  )
  def test_overrides(self, override, key, expected):
    value = self.read(override)
    for part in key.split("."):
      value = value[part]
    self.assertEqual(value, expected)
    self.assertIs(type(value), type(expected))

  @parameterized.parameters(
    ("runs=1.5", "runs is 1.5: it must be int"),
    ("runs=True", "runs is True: it must be int"),
    ("trace=1", "trace is 1: it must be bool"),
    ("stop=x", "stop is 'x': it must be tuple or list"),
    ("runs={[]:1}", "runs is .*: it must be int"),
    ("runs={{}}", "runs is .*: it must be int"),
    ("runs={1: 2}", "runs is .*: it must be int"),
    ("runs={'a.b': 2}", "runs is .*: it must be int"),
    ("runs={1, 2}", "runs is .*: it must be int"),
    (f"runs={'(' * 10_000}", "runs is .*: it must be int"),
    (f"runs={'-' * 100_000}1", "runs is .*: it must be int"),
    (f"runs={'9' * 5000}", "runs is .*: it must be int"),
    ("target.x=1", "target. has no keys"),
    ("methods.ngram_3.drafter.length=1", "did you mean 'ngram_2'"),
  )
  def test_wrong_overrides(self, override, pattern):
    with self.assertRaisesRegex(ValueError, pattern):
      self.read(override)

  def test_another_type_brings_its_own_keys(self):
    """In whatever order; what both types have is kept if it was chosen."""
    place = "methods.ngram_2"
    config = self.read(
      f"{place}.policy.first=1",
      f"{place}.policy.type=experiments.plugins.halving:Halving.for_drafter",
    )
    self.assertEqual(config.methods.ngram_2.policy.first, 1)
    self.assertNotIn("length", config.methods.ngram_2.policy)
    config = self.read(
      f"{place}.drafter.type=draft_model", f"{place}.drafter.model=some.gguf"
    )
    drafter = config.methods.ngram_2.drafter
    self.assertEqual((drafter.model, drafter.length), ("some.gguf", 2))
    self.assertNotIn("max_n", drafter)
    with self.assertRaisesRegex(ValueError, "drafter.model' is missing"):
      self.read(f"{place}.drafter.type=draft_model")

  def test_a_cascade_from_the_command_line(self):
    """A drafter's type opens the sections of those within it."""
    place = "methods.ngram_2.drafter"
    overrides = [
      f"{place}.second.second.length=3",
      f"{place}.second.second.type=ngram",
      f"{place}.second.type=cascade",
      f"{place}.second.first.type=empty",
      f"{place}.first.length=4",
      f"{place}.first.type=suffix",
      f"{place}.type=cascade",
    ]
    for order in (overrides, overrides[::-1]):
      drafter = self.read(*order).methods.ngram_2.drafter
      self.assertEqual(
        (drafter.first.type, drafter.first.length), ("suffix", 4)
      )
      self.assertEqual(drafter.second.first.type, "empty")
      self.assertEqual(drafter.second.second.length, 3)
      self.assertNotIn("max_n", drafter)
    with self.assertRaisesRegex(ValueError, "drafter.first.type is None: use"):
      self.read(f"{place}.type=cascade")

  def test_a_sweep_may_compare_types(self):
    key = "methods.ngram_2.policy.type"
    other = "experiments.plugins.halving:Halving.for_drafter"
    config = self.read(f"sweep.{key}=('fixed', '{other}')")
    policies = [
      setting.methods.ngram_2.policy
      for _, setting in schema.settings_of(config)
    ]
    kinds = [(policy.type, "first" in policy) for policy in policies]
    self.assertEqual(kinds, [("fixed", False), (other, True)])

  @parameterized.parameters("plain", "plain_reference")
  def test_names_of_the_plain_programs_are_taken(self, name):
    path = self.folder / "taken.py"
    methods = {name: {"drafter": {"type": "empty"}}}
    runs.write_config(path, self.folder, methods=methods)
    with self.assertRaisesRegex(ValueError, f"{name} is always run"):
      configuration.read(str(path))

  def test_the_argument_reaches_the_config(self):
    path = self.folder / "argument.py"
    path.write_text(
      "from ml_collections import ConfigDict\n\n\n"
      "def get_config(arg):\n"
      "  return ConfigDict(\n"
      "    {'target': 't', 'prompts': arg, 'methods': {}}\n"
      "  )\n"
    )
    config = configuration.read(f"{path}:some/file.jsonl")
    self.assertEqual(config.prompts, "some/file.jsonl")
    with self.assertRaisesRegex(ValueError, "prompts is empty"):
      configuration.read(str(path))

  def test_an_error_of_the_file_is_one_line(self):
    path = self.folder / "fails.py"
    path.write_text("def get_config(arg):\n  return 1 / 0\n")
    with self.assertRaisesRegex(ValueError, "ZeroDivisionError: division"):
      configuration.read(str(path))

  def test_plain_values_survive_json(self):
    values = configuration.plain(self.read())
    again = json.loads(json.dumps(values))
    self.assertEmpty(configuration.differences(again, values))
    again["sampling"]["top_k"] = 4
    del again["seed"]
    self.assertEqual(
      configuration.differences(again, values), ["sampling.top_k", "seed"]
    )


class ShippedTest(parameterized.TestCase):
  def test_quickstart(self):
    config = configuration.read(str(CONFIGS / "quickstart.py"))
    prompts = build.prompts(config)
    self.assertLen(prompts, 6)
    self.assertLen({prompt.group for prompt in prompts}, 6)
    self.assertEqual(config.max_new_tokens, 64)
    self.assertCountEqual(
      config.methods, ("lookup", "eagle3_gain", "both_gain")
    )

  @parameterized.parameters(True, False)
  def test_spec_bench_small_takes_its_ids_from_the_file(self, prefixed):
    """Ids and groups, or as the public file has it: numbers, categories."""
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    source = pathlib.Path(folder.name) / "spec_bench.jsonl"
    groups = json.loads(
      (CONFIGS / "bench" / "spec_bench_small_ids.json").read_text()
    )["groups"]
    with open(source, "w") as file:
      for number in range(81, 561):
        name = f"spec_bench/{number}"
        group = next((g for g in groups if name in groups[g]), "other")
        line: dict = {"turns": [f"number {number}", "next"]}
        line |= (
          {"id": name, "group": group}
          if prefixed
          else {"question_id": number, "category": f"of {number}"}
        )
        file.write(json.dumps(line) + "\n")
    config = configuration.read(
      f"{CONFIGS / 'bench' / 'spec_bench_small.py'}:{source}"
    )
    prompts = build.prompts(config)
    self.assertLen(prompts, 48)
    counts = [sum(p.group == group for p in prompts) for group in groups]
    self.assertEqual(counts, [8] * 6)
    # The index is the line of the file: streams do not depend on the choice.
    number = int(prompts[0].id.removeprefix("spec_bench/"))
    self.assertEqual(prompts[0].index, number - 81)
    self.assertEqual(prompts[0].id.startswith("spec_bench/"), prefixed)
    expected = "mt_bench" if prefixed else f"of {number}"
    self.assertEqual(prompts[0].category, expected)
    # The comparison of trained drafters is about the same prompts.
    trained = configuration.read(f"{CONFIGS / 'bench' / 'trained.py'}:{source}")
    self.assertEqual(build.prompts(trained), prompts)
    build.check(trained)


if __name__ == "__main__":
  absltest.main()
