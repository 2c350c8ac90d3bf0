# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""`check_exact`: is a verification rule that calls itself lossless lossless?

Axis letters: B rows, T drafted tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import exact, tree, types
from specjax import streams as streams_lib
from specjax.testing import laws, recording

# Draft lengths by round, and tokens to look at; small cases come first.
ROUNDS = (((1,), 1), ((1,), 2), ((2,), 3), ((1, 2, 0), 3))
# A right rule is off by roundings of float64, under 1e-12; no bias is so small
# that it passes, and a rule that rounds to float32 somewhere still does.
TOLERANCE = 1e-6


def check_exact(
  verifier: types.Verifier,
  *,
  vocab: int = 3,
  rounds: Sequence[tuple[Sequence[int], int]] = ROUNDS,
  tolerance: float = TOLERANCE,
) -> dict[str, float]:
  """Checks a rule's output law on chains by enumeration, on its own code.

  Targets are random, greedy or have holes; drafts are drawn from a random law,
  from the target's, from one without overlap, or are the best tokens of a law.
  They report the law they were drawn from, or none. Then the streams it reads,
  its counters and the independence of rows are checked.

  Args:
    verifier: the rule; hashable, its settings static.
    vocab: V, 2 or more; the cost grows with a power of it.
    rounds: pairs of draft lengths by round, repeated as needed, and tokens to
      look at. Two tokens or more span rounds.
    tolerance: total variation that is allowed.

  Returns:
    Total variation between decoding and plain sampling by case.

  Raises:
    ValueError: the rule does not call itself lossless.
    AssertionError: it is not; the smallest case that shows it.
  """
  name = type(verifier).__name__
  if not verifier.lossless:
    raise ValueError(f"{name}.lossless is False: it claims nothing to check")
  found = {}
  for (lengths, tokens), (case, target, drafts) in itertools.product(
    rounds, laws.cases(vocab)
  ):
    label = f"{case}, draft lengths {tuple(lengths)}, {tokens} tokens"
    try:
      law = exact.law(verifier, target, drafts, lengths, tokens)
    except (ValueError, TypeError) as error:
      raise AssertionError(f"{name}: {label}: {error}") from error
    off = exact.total_variation(law, exact.joint(target, tokens))
    # Not `off > tolerance`: NaN is no proof.
    if not off <= tolerance:
      raise AssertionError(
        f"{name}: total variation {off:.3g} from the target's law: {label}, "
        f"{vocab} words"
      )
    found[label] = off
  for length in sorted({max(lengths) for lengths, _ in rounds}):
    for label in _faults(verifier, length, vocab):
      raise AssertionError(f"{name}: draft length {length}: {label}")
  return found


def _faults(
  verifier: types.Verifier, length: int, vocab: int, rows: int = 64
) -> Iterator[str]:
  """What the law of a single row does not show."""
  drawn: list[recording.Read] = []
  keys = streams_lib.row_keys(0, jnp.arange(rows), jnp.zeros((rows,), int))
  source = streams_lib.Streams(keys, jnp.zeros((rows,), jnp.int32))
  watched = recording.Recorder(source.keys, source.round, note=drawn.append)
  example = (jnp.arange(5, 5 + rows), *_example(length, vocab, rows))

  @jax.jit
  def verify(source, lengths, log_p, draft):
    uniforms = verifier.draw(source, lengths, draft)
    return verifier.verify(log_p, draft, uniforms)

  kept = jax.device_get(verify(watched, *example))
  jax.effects_barrier()
  yield from _wrong_streams(drawn, verifier.noise(source, vocab).shared)
  yield from _wrong_counters(kept, example[-1])
  for row in range(8):
    one = lambda tree, row=row: jax.tree.map(lambda x: x[row : row + 1], tree)
    alone = jax.device_get(verify(*one((source, *example))))
    if not jax.tree.all(jax.tree.map(np.array_equal, alone, one(kept))):
      yield "a row alone keeps other tokens than the same row in a batch"


def _wrong_counters(kept, draft) -> Iterator[str]:
  rows = len(kept.count)
  if np.any((kept.accepted < 0) | (kept.accepted > draft.count)):
    yield "Acceptance.accepted is more than was drafted"
  expected = tree.accept(draft, kept.accepted, _emitted(kept))
  for field in ("path", "tokens", "count", "accepted", "rejected"):
    got, wanted = getattr(kept, field), np.asarray(getattr(expected, field))
    valid = np.ones(rows, bool)
    if np.ndim(got) == 2:
      valid = np.arange(got.shape[1])[None] < kept.count[:, None]
    if got.shape != wanted.shape or np.any((got != wanted) & valid):
      yield f"Acceptance.{field} is not what tree.accept gives"


def _emitted(kept):
  at = jnp.asarray(kept.accepted)[:, None]
  return jnp.take_along_axis(jnp.asarray(kept.tokens), at, axis=1)[:, 0]


def _wrong_streams(drawn, shared) -> Iterator[str]:
  tags = {read.tag for read in drawn}
  if streams_lib.DRAFT in tags:
    yield "it reads the DRAFT stream, which drew the tokens that it tests"
  is_race = streams_lib.SAMPLE in tags
  if is_race and not shared:
    yield "it reads the SAMPLE stream, but `noise` gives drafters another one"
  if shared and tags & {streams_lib.ACCEPT, streams_lib.RESIDUAL}:
    yield "`noise` gives drafters the target's own, but it tests with uniforms"
  if len({*drawn}) < len(drawn):
    yield "it reads one number of a stream twice"


def _example(length, vocab, rows):
  """Random laws [B, T + 1, V] and honest drafts of all counts."""
  rng = np.random.default_rng(0)
  law = lambda width: jax.nn.log_softmax(
    jnp.asarray(rng.normal(size=(rows, width, vocab)), jnp.float32)
  )
  log_p, log_q = law(length + 1), law(length)
  noise = jnp.asarray(rng.gumbel(size=log_q.shape), jnp.float32)
  tokens = jnp.argmax(log_q + noise, axis=-1).astype(jnp.int32)
  count = jnp.asarray(np.arange(rows) % (length + 1), jnp.int32)
  return log_p, tree.chain(tokens, count, log_q)
