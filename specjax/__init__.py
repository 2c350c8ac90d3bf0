# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""specjax: exact, measurable speculative decoding in JAX."""

from specjax.api import generate
from specjax.drafters.draft_model import DraftModel
from specjax.drafters.empty import Empty
from specjax.drafters.ngram import NGram
from specjax.models.model import Model
from specjax.models.sources import load, save
from specjax.policy import Fixed
from specjax.sampling import Sampling
from specjax.session import Generation, Method, Session, Settings
from specjax.verifiers.coupled import Coupled
from specjax.verifiers.rejection import Rejection

__all__ = [
  "Coupled",
  "DraftModel",
  "Empty",
  "Fixed",
  "Generation",
  "Method",
  "Model",
  "NGram",
  "Rejection",
  "Sampling",
  "Session",
  "Settings",
  "generate",
  "load",
  "save",
]
