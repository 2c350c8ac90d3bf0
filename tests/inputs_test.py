# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run depends on is recorded, whatever its files are called."""

import pathlib
from typing import Any

from absl.testing import absltest, parameterized
from ml_collections import ConfigDict

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, inputs
from specjax.drafters import draft_model, ngram
from specjax.models import sources
from tests import toys


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
    model, other = toys.tiny(1), toys.tiny(2)
    found = {
      name: sources.Source("gguf", pathlib.Path(name), f"from {name}")
      for name in ("one", "two")
    }
    config: Any = ConfigDict(
      {
        "methods": {
          "a": {"drafter": {"model": "one"}},
          "b": {"drafter": {"model": "two"}},
          "n": {"drafter": {}},
        }
      }
    )
    methods = {
      "a": session_lib.Method(draft_model.DraftModel(model, 2)),
      "b": session_lib.Method(draft_model.DraftModel(other, 2)),
      "n": session_lib.Method(ngram.NGram(2)),
    }
    result = inputs.drafts(config, methods, found)
    expected = {
      "a": {
        "description": "from one",
        "fingerprint": sources.fingerprint(model),
      },
      "b": {
        "description": "from two",
        "fingerprint": sources.fingerprint(other),
      },
    }
    self.assertEqual(result, expected)
    header = {
      "versions": {"specjax": "1.2"},
      "target": {"fingerprint": "f"},
      "drafts": result,
    }
    record = inputs.record(header, task())
    self.assertEqual(record["specjax_version"], "1.2")
    self.assertEqual(record["target_weights"], "f")
    self.assertEqual(
      record["draft_weights"],
      {name: draft["fingerprint"] for name, draft in expected.items()},
    )


if __name__ == "__main__":
  absltest.main()
