# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Acceptance in the decoding loop itself, on a few prompts.

Held-out texts are judged at every slot; a decoding loop drafts from where its
last round ended, after tokens of its own. Both should say nearly the same.
"""

from collections.abc import Sequence

import numpy as np

from specjax import api, tokenizers, types
from specjax import sampling as sampling_lib
from specjax.verifiers import rejection


def measures(
  target: types.Model,
  tokenizer: tokenizers.Tokenizer,
  drafter: types.Drafter,
  prompts: Sequence[Sequence[int]],
  sampling: sampling_lib.Sampling,
  max_new_tokens: int,
  seed: int = 0,
  batch_size: int = 16,
) -> dict[str, float | None]:
  """Decodes under `rejection`, the rule of the other measures.

  Args:
    target: decodes.
    tokenizer: its own.
    drafter: drafts.
    prompts: token ids.
    sampling: of serving.
    max_new_tokens: of an answer.
    seed: of the answers.
    batch_size: answers at a time.

  Returns:
    alpha, the share of tested tokens that were kept, and tau, tokens a round;
    None where no round was made.
  """
  answers = api.generate(
    target,
    tokenizer,
    prompts,
    drafter=drafter,
    verifier=rejection.Rejection(),
    sampling=sampling,
    max_new_tokens=max_new_tokens,
    seed=seed,
    batch_size=min(batch_size, len(prompts)),
  )
  emitted, kept, refused = (
    np.concatenate([getattr(answer, name) for answer in answers])
    for name in ("emitted", "accepted", "rejected")
  )
  rounds, tests = np.sum(emitted > 0), np.sum(kept) + np.sum(refused)
  return {
    "alpha": float(np.sum(kept) / tests) if tests else None,
    "tau": float(np.sum(emitted) / rounds) if rounds else None,
  }
