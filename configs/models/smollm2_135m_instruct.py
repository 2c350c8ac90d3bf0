# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct in bfloat16, from the Hugging Face hub.

A Llama with 30 layers, width 576, 9 query and 3 key/value heads and a
vocabulary of 49,152; Apache-2.0; 269 MB.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The preset; it takes no argument."""
  del arg
  return ConfigDict(
    {
      "name": "smollm2-135m-instruct",
      "source": (
        "hf:HuggingFaceTB/SmolLM2-135M-Instruct"
        "@12fd25f77366fa6b3b4b768ec3050bf629380bac"
      ),
    }
  )
