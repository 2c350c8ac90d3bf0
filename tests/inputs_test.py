# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run depends on is recorded, whatever its files are called."""

import pathlib
from typing import Any

from absl.testing import absltest, parameterized
from ml_collections import ConfigDict

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, inputs, loading
from specjax.drafters import draft_model, early_exit, ngram, suffix
from specjax.models import int8, sources
from tests import draft_heads, toys


def task(ids=((1, 2), (3,)), **changes: Any):
  prompts = [data.Prompt(f"p{i}", i, "x", **changes) for i in range(len(ids))]
  return build.Task(tuple(prompts), ids, session_lib.Settings())


class InputsTest(parameterized.TestCase):
  @parameterized.parameters(
    (task(((1, 2), (4,))),),
    (task(((1,), (2, 3))),),
    (task(((1, 2),)),),
    (task(group="other"),),
  )
  def test_other_prompts_have_another_fingerprint(self, other):
    self.assertEqual(inputs.fingerprint(task()), inputs.fingerprint(task()))
    self.assertNotEqual(inputs.fingerprint(task()), inputs.fingerprint(other))

  def test_drafts_are_named_by_their_weights(self):
    kind = {"type": "draft_model"}
    config: Any = ConfigDict(
      {
        "methods": {
          "a": {"drafter": {**kind, "model": "one"}},
          "b": {"drafter": {**kind, "model": "two"}},
          "c": {"drafter": {**kind, "model": "two", "quantization": "int8"}},
          "n": {"drafter": {"type": "empty"}},
        }
      }
    )
    small = int8.model(toys.tiny(2))
    drafts = {
      (name, quantization): loading.Weights(
        model, sources.Source("gguf", pathlib.Path(name), f"from {name}")
      )
      for name, quantization, model in (
        ("one", "none", toys.tiny(1)),
        ("two", "none", toys.tiny(2)),
        ("two", "int8", small),
      )
    }
    unused: Any = None
    loaded = loading.Loaded((), unused, unused, drafts)
    result = inputs.drafts(config, loaded)
    expected = {
      name: {
        "description": f"from {source}",
        "fingerprint": sources.fingerprint(toys.tiny(seed)),
      }
      for name, source, seed in (("a", "one", 1), ("b", "two", 2))
    }
    expected["c"] = {
      "description": "from two",
      "fingerprint": sources.fingerprint(small),
      "quantization": "int8",
    }
    self.assertEqual(result, expected)
    header = {
      "versions": {"specjax": "1.2"},
      "target": {"fingerprint": "f"},
      "drafts": result,
    }
    record = inputs.record(header, task(), {"m": "h"})
    self.assertEqual(record["specjax_version"], "1.2")
    self.assertEqual(record["target_weights"], "f")
    self.assertEqual(record["drafter_arrays"], {"m": "h"})
    self.assertEqual(
      record["draft_weights"],
      {name: draft["fingerprint"] for name, draft in expected.items()},
    )

  def test_arrays_of_drafters_are_hashed_beside_the_models(self):
    """Heads and stores, by what is in them; models have their own names."""
    target, draft = draft_heads.target(), toys.tiny(1)
    source = sources.Source("gguf", pathlib.Path("x"), "from x")
    unused: Any = None
    loaded = loading.Loaded(
      (),
      loading.Weights(target, source),
      unused,
      {("x", "none"): loading.Weights(draft, source)},
    )
    heads: Any = draft_heads.drafter("medusa", target)
    other = draft_heads.randomly(heads.heads, seed=1)
    store = suffix.suffix(2, store=8)
    drafters = {
      "heads": heads,
      "same_heads": draft_heads.drafter("medusa", target),
      "other_heads": heads.replace(heads=other),
      "cold": store,
      "warm": store.remember([[1, 2]]),
      "model": draft_model.DraftModel(draft, 2),
      "exit": early_exit.early_exit(target, 1, 2),
      "none": ngram.NGram(2),
    }
    methods = {
      name: session_lib.Method(drafter) for name, drafter in drafters.items()
    }
    found = inputs.drafter_arrays(methods, loaded)
    self.assertEqual(found["heads"], found.pop("same_heads"))
    self.assertCountEqual(found, ["heads", "other_heads", "cold", "warm"])
    self.assertLen({*found.values()}, 4)


if __name__ == "__main__":
  absltest.main()
