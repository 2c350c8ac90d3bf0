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

from ml_collections import ConfigDict

from specjax.bench import build, loading


def drafts(
  config: ConfigDict, loaded: loading.Loaded
) -> dict[str, dict[str, str]]:
  """Description and weight fingerprint of each method's draft model."""
  result = {}
  for name in build.names(config):
    key = build.draft_key(config.methods[name].drafter)
    if key is not None:
      draft = loaded.drafts[key]
      result[name] = {
        "description": draft.source.description,
        "fingerprint": draft.fingerprint,
      }
      if draft.quantization != "none":
        result[name]["quantization"] = draft.quantization
  return result


def record(header: Mapping[str, Any], task: build.Task) -> dict[str, Any]:
  """What must not change between the parts of a run.

  Args:
    header: of the summary: versions, target and drafts.
    task: the prompts as ids.
  """
  return {
    "specjax_version": header["versions"]["specjax"],
    "prompts": fingerprint(task),
    "target_weights": header["target"]["fingerprint"],
    "draft_weights": {
      name: draft["fingerprint"] for name, draft in header["drafts"].items()
    },
  }


def fingerprint(task: build.Task) -> str:
  """sha256 over id, stream, group and token ids of every prompt."""
  rows = [
    (prompt.id, prompt.index, prompt.group, list(ids))
    for prompt, ids in zip(task.prompts, task.ids, strict=True)
  ]
  return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
