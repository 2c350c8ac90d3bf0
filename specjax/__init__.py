# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""specjax: exact, measurable speculative decoding in JAX."""

from specjax.api import generate
from specjax.drafters.draft_model import DraftModel
from specjax.drafters.empty import Empty
from specjax.drafters.ngram import NGram
from specjax.models.model import Model
from specjax.models.sources import load, save
from specjax.policies.gain import ExpectedGain, Pausing
from specjax.policies.policy import Confidence, Entropy, Fixed, Heuristic
from specjax.sampling import Sampling
from specjax.sampling.automata import choices, regex
from specjax.session import Generation, Method, Session, Settings
from specjax.sharding import make_mesh
from specjax.verifiers.coupled import Coupled
from specjax.verifiers.rejection import Rejection

__all__ = [
  "Confidence",
  "Coupled",
  "DraftModel",
  "Empty",
  "Entropy",
  "ExpectedGain",
  "Fixed",
  "Generation",
  "Heuristic",
  "Method",
  "Model",
  "NGram",
  "Pausing",
  "Rejection",
  "Sampling",
  "Session",
  "Settings",
  "choices",
  "generate",
  "load",
  "make_mesh",
  "regex",
  "save",
]
