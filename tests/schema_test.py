# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keys of a config: ranges, sweeps, and those of parts."""

import pathlib
import tempfile

from absl.testing import absltest, parameterized

from specjax.bench import configuration, schema
from tests import runs

LENGTH = "methods.ngram_2.drafter.length"


class Folder(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  def read(self, *overrides, **changes):
    path = self.folder / "config.py"
    runs.write_config(path, self.folder / "tiny.gguf", **changes)
    return configuration.read(str(path), overrides)


class KeysTest(Folder):
  def test_defaults(self):
    config = self.read()
    self.assertEqual((config.samples, config.quantization), (1, "none"))
    self.assertEqual(config.mesh.to_dict(), {"data": 1, "model": 1})
    self.assertEmpty(config.sweep)

  @parameterized.parameters(
    ("samples=4", "samples", 4),
    ("quantization=int8", "quantization", "int8"),
    ("mesh.model=1", "mesh", {"data": 1, "model": 1}),
  )
  def test_values(self, override, key, expected):
    value = self.read(override)[key]
    self.assertEqual(getattr(value, "to_dict", lambda: value)(), expected)

  @parameterized.parameters(
    ("samples=0", "samples is 0: use 1 or more"),
    ("quantization=int4", "quantization is 'int4': did you mean 'int8'"),
    ("mesh.model=0", "mesh.model is 0: use 1 or more"),
    ("mesh.modell=2", "did you mean 'model'"),
    ("seed=-1", "seed is -1: use 0"),
    ("methods.ngram_2.policy.length=3", "drafts 2 tokens at most"),
    ("methods.ngram_2.drafter.type=ngrm", "did you mean 'ngram'"),
    ("methods.ngram_2.drafter.min_m=1", "did you mean 'min_n'"),
    ("methods.ngram_2.drafter.tie=1.5", None),
    ("methods.ngram_2.drafter.max_n=True", "max_n is True: it must be int"),
  )
  def test_mistakes(self, override, pattern):
    if pattern is None:
      self.assertEqual(self.read(override).methods.ngram_2.drafter.tie, "1.5")
      return
    with self.assertRaisesRegex(ValueError, pattern):
      self.read(override)

  def test_quantization_of_a_draft_model(self):
    drafter = {"type": "draft_model", "model": "x.gguf", "length": 2}
    methods = {"m": {"drafter": drafter}}
    config = self.read(methods=methods)
    self.assertEqual(config.methods.m.drafter.quantization, "none")
    with self.assertRaisesRegex(ValueError, "m.drafter.quantization is 'i8'"):
      self.read("methods.m.drafter.quantization=i8", methods=methods)


class SweepTest(Folder):
  def test_without_a_sweep(self):
    config = self.read()
    ((changes, only),) = schema.settings_of(config)
    self.assertEmpty(changes)
    self.assertEqual(only, config)

  def test_all_combinations_the_last_key_fastest(self):
    config = self.read(
      sweep={LENGTH: [2, 4], "sampling.temperature": [0.0, 0.7, 1]}
    )
    settings = schema.settings_of(config)
    self.assertEqual(
      [tuple(changes.values()) for changes, _ in settings],
      [(2, 0.0), (2, 0.7), (2, 1), (4, 0.0), (4, 0.7), (4, 1)],
    )
    for changes, setting in settings:
      self.assertEqual(list(changes), [LENGTH, "sampling.temperature"])
      self.assertEqual(setting.methods.ngram_2.drafter.length, changes[LENGTH])
      self.assertEqual(
        setting.sampling.temperature, changes["sampling.temperature"]
      )
      self.assertEmpty(setting.sweep)
      self.assertTrue(setting.is_locked)
    # The config itself is as it was.
    self.assertEqual(config.methods.ngram_2.drafter.length, 2)

  def test_nested_keys_are_dotted_keys(self):
    nested = {"methods": {"ngram_2": {"drafter": {"length": [2, 4]}}}}
    dotted = self.read(sweep={LENGTH: [2, 4]})
    self.assertEqual(self.read(sweep=nested).sweep, dotted.sweep)
    self.assertEqual(configuration.plain(dotted)["sweep"], {LENGTH: [2, 4]})

  def test_keys_from_the_command_line(self):
    config = self.read(f"sweep.{LENGTH}=1,3", sweep={"seed": [1, 2]})
    self.assertEqual(config.sweep[LENGTH], (1, 3))
    self.assertLen(schema.settings_of(config), 4)
    config = self.read("sweep.seed=(3,)", sweep={"seed": [1, 2]})
    self.assertEqual(config.sweep.to_dict(), {"seed": (3,)})

  @parameterized.parameters(
    ({"max_new_token": [1]}, "sweep: unknown .* did you mean 'max_new_tokens'"),
    ({"methods.ngram_3.drafter.length": [1]}, "did you mean 'ngram_2'"),
    ({"sampling": [1]}, "sweep: config key 'sampling' has keys of its own"),
    ({"target.x": [1]}, "target. has no keys"),
    ({"sweep.seed": [1]}, "unknown config key 'sweep.seed'"),
    ({"seed": 3}, "sweep.seed is 3: give a tuple"),
    ({"seed": []}, r"sweep.seed is \[\]: give a tuple"),
    ({"seed": [1, 1]}, "sweep.seed holds 1 twice"),
    ({"seed": [1, -1]}, "sweep: with seed=-1: seed is -1: use 0"),
    ({LENGTH: [1, 1.5]}, "drafter.length=1.5: .* must be int"),
  )
  def test_mistakes(self, sweep, pattern):
    with self.assertRaisesRegex(ValueError, pattern):
      self.read(sweep=sweep)


if __name__ == "__main__":
  absltest.main()
