# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a config only names: the content of its prompts and models.

A run goes on in a folder only where these are what they were; a file of the
same name may hold something else by then.
"""

from collections.abc import Mapping
import hashlib
import json
from typing import Any

import jax
from ml_collections import ConfigDict

from specjax import session as session_lib
from specjax.bench import build, loading
from specjax.models import weights


def drafts(
  config: ConfigDict, loaded: loading.Loaded
) -> dict[str, dict[str, str]]:
  """Description and weight fingerprint of each method's draft models.

  By the method's name; by `name.second` and so on for drafters within others.
  """
  result = {}
  for where, section in build.drafters(config):
    key = build.draft_key(section)
    if key is not None:
      name = where.removeprefix("methods.").replace(".drafter", "", 1)
      draft = loaded.drafts[key]
      result[name] = {
        "description": draft.source.description,
        "fingerprint": draft.fingerprint,
      }
      if draft.quantization != "none":
        result[name]["quantization"] = draft.quantization
  return result


def record(
  header: Mapping[str, Any],
  task: build.Task,
  arrays: Mapping[str, str],
) -> dict[str, Any]:
  """What must not change between the parts of a run.

  Args:
    header: of the summary: versions, target and drafts.
    task: the prompts as ids.
    arrays: see `drafter_arrays`.
  """
  return {
    "specjax_version": header["versions"]["specjax"],
    "prompts": fingerprint(task),
    "target_weights": header["target"]["fingerprint"],
    "draft_weights": {
      name: draft["fingerprint"] for name, draft in header["drafts"].items()
    },
    "drafter_arrays": dict(arrays),
  }


def drafter_arrays(
  methods: Mapping[str, session_lib.Method], loaded: loading.Loaded
) -> dict[str, str]:
  """sha256 of what drafters hold besides the loaded models, by method.

  Heads, stores that are warm, recorded answers: whatever a drafter was made
  from, its arrays decide what it drafts.
  """
  models = [loaded.target.model, *loaded.draft_models.values()]
  known = {id(leaf) for leaf in jax.tree.leaves(models)}
  result = {}
  for name, method in methods.items():
    leaves = jax.tree.leaves_with_path(method.drafter)
    own = {
      jax.tree_util.keystr(path): leaf
      for path, leaf in leaves
      if id(leaf) not in known
    }
    if own:
      result[name] = weights.fingerprint(own)
  return result


def fingerprint(task: build.Task) -> str:
  """sha256 over id, stream, group and token ids of every prompt."""
  rows = [
    (prompt.id, prompt.index, prompt.group, list(ids))
    for prompt, ids in zip(task.prompts, task.ids, strict=True)
  ]
  return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
