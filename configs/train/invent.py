# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions that SmolLM2 makes up, to train its drafters on its answers.

  python -m train.invent --config=configs/train/invent.py:4000 \
    --workdir=runs/questions

Below temperature 1 a model of this size stays with what it was tuned on, at 1
it asks for more things and loses its thread more often; both, in turn.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The argument is how many questions are tried.

  Half of them come as they will, the others ask for work on a text or for a
  short answer, which drafters meet as often.
  """
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.systems = (
    "",
    "Summarize the text that the user gives you in a few sentences.",
    "",
    "Answer the user's question in a sentence or two.",
    "",
    "Answer the user's question from the text that comes with it.",
    "",
    "Rewrite the text that the user gives you as you are asked.",
    "",
    "Translate the text that the user gives you into English.",
  )
  config.temperatures = (0.8, 1.0)
  config.limit = int(arg or 4000)
  config.max_new_tokens = 160
  config.capacity = 224
  config.rows = 64
  config.seed = 0
  return config.lock()
