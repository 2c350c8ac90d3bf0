# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What SmolLM2 says itself, to train its drafters on.

  python -m train.regenerate --config=configs/train/regenerate.py:PATH \
    --workdir=runs/answers/train

PATH is a file of conversations, or datasets:NAME:SPLIT. Half of them are
answered greedily and half at temperature 0.7: at 1 a model of this size loses
its thread, and text that nobody serves teaches nothing.
Only conversations are asked whose field `license` names one of those below;
--config.licenses="()" asks all, those without such a field too.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """Answers to the conversations of `arg`."""
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.conversations = arg
  config.licenses = ("MIT", "Apache-2.0", "CC-BY-4.0")
  config.temperatures = (0.0, 0.7)
  config.turns = 2
  config.max_new_tokens = 128
  config.capacity = 1024
  config.rows = 32
  config.seed = 0
  config.lock()
  return config
