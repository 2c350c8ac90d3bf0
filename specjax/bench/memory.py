# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a method needs: what it holds, and what its program plans."""

from typing import Any

import jax

from specjax import session as session_lib
from specjax.decoding import decode


def measure(session: session_lib.Session) -> dict[str, int | None]:
  """Bytes of one method, from the arrays and the compiled program themselves.

  Args:
    session: of the method; it stays as it was.

  Returns:
    On a mesh, the first three are of all devices together, each part counted
    once.
    weights: the target's parameters.
    draft_weights: what the drafter holds beside them: 0 without a model, and
      where the target drafts for itself; heads that end in the target's output
      matrix count without it.
    cache: what grows with the text: the target's cache and the drafter's state.
    peak: of one device while the decoding loop of this method runs, as XLA
      plans it: arguments (weights, caches, the text), results that do not take
      an argument's place, and temporaries. Neither the reading of prompts nor
      other methods are in it. None where the backend does not say.
  """
  held = {id(leaf) for leaf in jax.tree.leaves(session.model)}
  drafter = jax.tree.leaves(session.method.drafter)
  return {
    "weights": _bytes(session.model),
    "draft_weights": _bytes([leaf for leaf in drafter if id(leaf) not in held]),
    "cache": _bytes((session.state.cache, session.state.drafter)),
    "peak": _planned(session),
  }


def process_peak() -> int | None:
  """The most bytes so far, of whatever was run: not of one method.

  The first device's where it keeps count, else the process's resident memory,
  which holds the compiler's too.
  """
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    return int(stats["peak_bytes_in_use"])
  try:
    import resource
  except ImportError:  # Not a POSIX system.
    return None
  import sys

  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == "darwin" else peak * 1024


def _planned(session: session_lib.Session) -> int | None:
  method = session.method
  program = decode.advance.lower(
    session.model,
    method.drafter,
    method.verifier,
    session.state,
    session.sampling,
    session.policy,
    session.stop,
    1,
  )
  # The program of `Session.rounds`, which jit keeps: nothing compiles anew.
  found: Any = program.compile().memory_analysis()
  if found is None:
    return None
  own_results = found.output_size_in_bytes - found.alias_size_in_bytes
  return int(
    found.argument_size_in_bytes + own_results + found.temp_size_in_bytes
  )


def _bytes(tree: Any) -> int:
  """Of all leaves; Python's numbers count as the arrays that jit makes."""
  leaves = map(jax.numpy.asarray, jax.tree.leaves(tree))
  return int(sum(x.size * x.dtype.itemsize for x in leaves))
