# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A comparison of two methods on three short prompts, without a folder."""

from typing import Any

from specjax import data
from specjax import session as session_lib
from specjax.bench import build, measure
from specjax.drafters import ngram
from specjax.policies import policy
from tests import toys

PROMPTS = ((5, 6, 7, 5, 6), (3,), (9, 9))


class Words:
  """As much of a tokenizer as a session asks for."""

  eos_ids = (63,)
  chat_template = None

  def decode(self, ids):
    return " ".join(map(str, ids))


def bench(batch_size=1, runs=2, ids=PROMPTS, **settings: Any):
  words: Any = Words()
  prompts = [data.Prompt(f"p{i}", i, "x") for i in range(len(ids))]
  return measure.Bench(
    target=toys.tiny(),
    tokenizer=words,
    task=build.Task(
      tuple(prompts),
      ids,
      session_lib.Settings(max_new_tokens=6, **settings),
    ),
    methods={
      name: session_lib.Method(
        ngram.NGram(length), policy=policy.Fixed(length, widths=())
      )
      for name, length in (("a", 2), ("b", 3))
    },
    batch_size=batch_size,
    capacity=128,
    runs=runs,
  )
