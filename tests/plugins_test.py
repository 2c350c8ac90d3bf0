# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of one's own: found by name, checked, built, and run end to end."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp

from experiments.plugins import bigram, halving, matching
from specjax import run
from specjax.bench import build, loading, parts
from specjax.drafters import ngram
from specjax.policies import policy
from specjax.trees import tree
from tests import runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = """
from typing import Any
from flax import struct
import jax
from specjax import types
from specjax.drafters import empty, ngram

LENGTH = 3


class Own(ngram.NGram):
  pass


class Wrapped(struct.PyTreeNode):
  model: Any
  scale: float = struct.field(pytree_node=False, default=0.5)
  name: str | None = struct.field(pytree_node=False, default=None)
  num_nodes = max_depth = 1
  init = observe = propose = None


class NoState(empty.Empty):
  init = property()


class Plain:
  num_nodes = max_depth = 0
  init = observe = propose = None


class Keyed(struct.PyTreeNode):
  key: Any = struct.field(default_factory=lambda: jax.random.key(0))
  num_nodes = max_depth = 1
  init = observe = propose = None


def either(
  first: types.Drafter | None = None, second: types.Drafter | None = None
):
  return first or second


def missing():
  raise FileNotFoundError("/nope does not exist")


def failing(length: int):
  raise RuntimeError(f"no {length}\\nat all")
"""


class Folder(parameterized.TestCase):
  """A folder on the path with a module of parts, and a tiny model."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    (cls.folder / "own_parts.py").write_text(MODULE)
    (cls.folder / "broken_parts.py").write_text("import json\njson.nothing\n")
    cls.enterClassContext(
      absltest.mock.patch.object(sys, "path", [str(cls.folder), *sys.path])
    )

  def config(self, drafter, *overrides, **method) -> Any:
    methods = {"m": {"drafter": drafter, **method}}
    path = self.folder / "config.py"
    runs.write_config(path, self.model, methods=methods)
    return runs.read_config(path, *overrides)

  def built(self, config):
    loaded = loading.load(config)
    models = {key: draft.model for key, draft in loaded.drafts.items()}
    return build.methods(config, loaded.target.model, models)["m"], loaded


class NamesTest(Folder):
  @parameterized.parameters(
    *((part, name) for part, names in parts.NAMES.items() for name in names)
  )
  def test_short_names_are_abbreviations(self, part, name):
    """One path for all parts: the long name has the same keys."""
    long = parts.NAMES[part][name]
    self.assertEqual(parts.keys("x", part, name), parts.keys("x", part, long))

  def test_keys_are_the_arguments(self):
    keys = parts.keys("x", "drafter", "own_parts:Wrapped")
    self.assertEqual(
      keys,
      {
        "type": (..., (str,)),
        "model": (..., (str,)),
        "quantization": ("none", (str,)),
        "scale": (0.5, (int, float)),
        "name": (None, (str, type(None))),
      },
    )

  @parameterized.parameters(
    ("ngrm", {}, "drafter.type is 'ngrm': did you mean 'ngram'"),
    ("ngrm", {}, r"'ngram'\? \(or name package.module:Class\)$"),
    ("own_parts", {}, "or name package.module:Class"),
    ("own_parts:Owm", {}, "own_parts has no 'Owm', did you mean 'Own'"),
    ("own_parts:LENGTH", {}, "no class or function"),
    ("none_such.parts:Own", {}, "No module named 'none_such'; start in the"),
    ("broken_parts:Own", {}, "has no attribute 'nothing'"),
    ("own_parts:Own", {"lenght": 2}, "m.drafter.lenght.: did you mean 'length"),
    ("own_parts:Own", {}, "'methods.m.drafter.length' is missing"),
    ("own_parts:Own", {"length": "x"}, "drafter.length is 'x': it must be int"),
    ("own_parts:Own", {"length": 2, "target": 1}, "unknown config key"),
  )
  def test_mistakes_of_a_config(self, kind, keys, pattern):
    with self.assertRaisesRegex(ValueError, pattern) as caught:
      self.config({"type": kind, **keys})
    self.assertNotIn("\n", str(caught.exception))

  @parameterized.parameters(
    ("own_parts:failing", {"length": 2}, "RuntimeError: no 2 at all"),
    ("own_parts:missing", {}, "'own_parts:missing': /nope does not exist"),
    ("own_parts:Keyed", {}, "Keyed holds a random key: take"),
    ("own_parts:NoState", {}, "NoState has no init: see specjax.types.Drafter"),
    ("own_parts:Plain", {}, "Plain is no pytree of arrays: derive"),
    ("own_parts:Own", {"length": 2, "max_n": 0}, "1 <= min_n <= max_n"),
    (
      "empty",
      {"nodes": 1, "policy": {"type": "own_parts:Own", "length": 1}},
      "Own has no widths, draft_length, keep_drafting, update",
    ),
  )
  def test_mistakes_of_a_part_cost_no_load(self, kind, keys, pattern):
    rest = {"policy": keys.pop("policy")} if "policy" in keys else {}
    config = self.config({"type": kind, **keys}, **rest)
    with self.assertRaisesRegex(ValueError, pattern) as caught:
      build.check(config)
    self.assertNotIn("\n", str(caught.exception))


class BuildTest(Folder):
  def test_arguments_from_the_run(self):
    section = {"type": "own_parts:Wrapped", "model": str(self.model)}
    config = self.config(section, "methods.m.drafter.name=x")
    method, loaded = self.built(config)
    drafter: Any = method.drafter
    self.assertIs(drafter.model, loaded.target.model)
    self.assertEqual((drafter.scale, drafter.name), (0.5, "x"))

  def test_the_examples(self):
    config = self.config(
      {
        "type": "experiments.plugins.bigram:Bigram.for_target",
        "length": 3,
      },
      verifier={"type": "experiments.plugins.matching:Matching"},
      policy={"type": "experiments.plugins.halving:Halving.for_drafter"},
    )
    method, loaded = self.built(config)
    vocab = loaded.target.model.vocab_size
    self.assertEqual(method.drafter, bigram.Bigram(vocab, 3))
    self.assertEqual(method.verifier, matching.Matching())
    self.assertEqual(method.policy, halving.Halving(3, 2))

  def test_drafters_that_may_be_left_out(self):
    config = self.config(
      {"type": "own_parts:either"},
      "methods.m.drafter.second.length=2",
      "methods.m.drafter.second.type=ngram",
    )
    self.assertIsNone(config.methods.m.drafter.first.type)
    method, _ = self.built(config)
    self.assertEqual(method.drafter, ngram.NGram(2))

  def test_policies_of_drafters_that_state_no_length(self):
    drafter = {"type": "empty", "nodes": 2}
    method, _ = self.built(self.config(drafter))
    self.assertEqual(method.policy, policy.Fixed(2))
    config = self.config(drafter, policy={"type": "fixed", "length": 3})
    with self.assertRaisesRegex(ValueError, "length is 3 .* drafts 2 tokens"):
      self.built(config)


class HalvingTest(absltest.TestCase):
  def test_lengths_follow_what_was_kept(self):
    rule = halving.Halving(most=4, first=3)
    state = rule.init(4)
    draft = tree.chain(jnp.zeros((4, 4), int), jnp.array([3, 3, 0, 2]))
    kept = tree.accept(draft, jnp.array([3, 1, 0, 2]), jnp.zeros(4, int))
    # All kept, rejected, nothing drafted, all of a draft shorter than wanted.
    state = rule.update(state, kept, rule.draft_length(state))
    self.assertEqual(state.tolist(), [4, 1, 3, 3])
    state = rule.update(state, kept, rule.draft_length(state))
    self.assertEqual(state.tolist(), [4, 1, 3, 3])


class CommandTest(Folder):
  """The shipped config, on a tiny model."""

  def call(self, *overrides):
    out, err = io.StringIO(), io.StringIO()
    argv = [f"--config={ROOT / 'configs' / 'plugins.py'}", *overrides]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      status = run.main([str(word) for word in argv])
    return status, err.getvalue()

  def test_every_answer_is_matched(self):
    workdir = self.folder / "run"
    status, err = self.call(
      f"--workdir={workdir}",
      f"--config.target={self.model}",
      "--config.prompts=('abcabcab','dd','efgef')",
      "--config.max_new_tokens=16",
      "--config.runs=1",
      "--config.replays=0",
    )
    self.assertEqual((status, err), (0, ""))
    summary = json.loads((workdir / "summary.json").read_text())
    for name in ("ngram", "bigram", "all_three"):
      measures = summary["methods"][name]
      self.assertEqual(measures["matched"]["equal"], 3, name)
      self.assertGreater(measures["accepted_per_draft"], 0)
    used = json.loads((workdir / "config.json").read_text())
    self.assertEqual(
      used["methods"]["all_three"]["verifier"]["type"],
      "experiments.plugins.matching:Matching",
    )

  def test_a_part_that_fails_is_one_line_and_status_2(self):
    status, err = self.call(
      f"--workdir={self.folder / 'none'}",
      "--config.methods.bigram.drafter.type=own_parts:failing",
    )
    self.assertEqual(status, 2)
    self.assertRegex(err, "^error: methods.bigram.drafter .*RuntimeError: no 4")
    self.assertEqual(err.count("\n"), 1)
    self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
  absltest.main()
