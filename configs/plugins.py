# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of one's own beside the project's: see docs/plugins.md.

  python -m specjax.run --config=configs/plugins.py --workdir=runs/plugins

Start it at the root of the checkout, where `experiments.plugins` is found. Two
CPU cores need a few minutes. Greedy, so all methods say what plain decoding
does, and every answer is matched.
"""

from ml_collections import ConfigDict

_PLUGINS = "experiments.plugins"
_BIGRAM = {"type": f"{_PLUGINS}.bigram:Bigram.for_target", "length": 4}


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; it takes no argument."""
  del arg
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.prompts = (
    "Repeat three times, separated by commas: apple, pear, plum.",
    "Write the numbers from one to twenty as words.",
    "Why do leaves change their colour in autumn?",
  )
  config.max_new_tokens = 64
  config.methods = ConfigDict(
    {
      "ngram": {"drafter": {"type": "ngram", "length": 4, "max_n": 1}},
      "bigram": {"drafter": _BIGRAM},
      "all_three": {
        "drafter": _BIGRAM,
        "verifier": {"type": f"{_PLUGINS}.matching:Matching"},
        "policy": {
          "type": f"{_PLUGINS}.halving:Halving.for_drafter",
          "first": 2,
        },
      },
    }
  )
  return config.lock()
