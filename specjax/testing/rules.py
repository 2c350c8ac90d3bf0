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

from specjax import exact, types
from specjax import streams as streams_lib
from specjax.testing import cases, recording
from specjax.trees import tree

# Draft lengths by round, and tokens to look at; small cases come first.
ROUNDS = (((1,), 1), ((1,), 2), ((2,), 3), ((1, 2, 0), 3))
# Parents of a tree's nodes, its depth by round, and tokens to look at.
TREES = (((0, 0), (1,), 2), ((0, 0, 1, 1, 2), (2, 1), 3))
# A right rule is off by roundings of float64, under 1e-12; no bias is so small
# that it passes, and a rule that rounds to float32 somewhere still does.
TOLERANCE = 1e-6


def check_exact(
  verifier: types.Verifier,
  *,
  vocab: int = 3,
  rounds: Sequence[tuple[Sequence[int], int]] = ROUNDS,
  trees: Sequence[tuple[Sequence[int], Sequence[int], int]] = TREES,
  kinds: Sequence[str] = tuple(cases.KINDS),
  tolerance: float = TOLERANCE,
) -> dict[str, float]:
  """Checks a rule's output law by enumeration, on its own code.

  Targets are random, greedy or have holes; drafts are drawn from a random law,
  from the target's, from one without overlap, or are the best tokens of a law.
  They report the law they were drawn from, or none. Before that, since it costs
  less, the streams it reads, its counters and the independence of rows are
  checked.

  Args:
    verifier: the rule; hashable, its settings static.
    vocab: V, 2 or more; the cost grows with a power of it.
    rounds: pairs of draft lengths by round, repeated as needed, and tokens to
      look at. Two tokens or more span rounds.
    trees: the same for trees, each with the slots of its nodes' parents; left
      out for a rule of chains.
    kinds: of `cases.KINDS`, those that the rule is made for.
    tolerance: total variation that is allowed.

  Returns:
    Total variation between decoding and plain sampling by case.

  Raises:
    ValueError: the rule does not call itself lossless, or a kind is unknown.
    AssertionError: it is not; the smallest case that shows it.
  """
  name = type(verifier).__name__
  if not verifier.lossless:
    raise ValueError(f"{name}.lossless is False: it claims nothing to check")
  for kind in kinds:
    if kind not in cases.KINDS:
      raise ValueError(
        f"kinds holds {kind!r}: use {', '.join(map(repr, cases.KINDS))}"
      )
  trees = () if verifier.chain_only else trees
  shapes = {f"draft length {max(x)}": range(max(x)) for x, _ in rounds}
  shapes |= {f"parents {tuple(parents)}": parents for parents, *_ in trees}
  for shape, parents in shapes.items():
    for label in _faults(verifier, parents, vocab):
      raise AssertionError(f"{name}: {shape}: {label}")
  found = {}
  for case in _cases(vocab, rounds, trees, kinds):
    label, target, drafts, lengths, tokens, parents = case
    try:
      law = exact.law(verifier, target, drafts, lengths, tokens, parents)
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
  return found


def _cases(vocab, rounds, trees, kinds):
  """Label, target, drafts, lengths, tokens and parents of every case."""
  for (lengths, tokens), (case, target, drafts) in itertools.product(
    rounds, cases.cases(vocab)
  ):
    if drafts.reported is not None or "as given" in kinds:
      label = f"{case}, draft lengths {tuple(lengths)}, {tokens} tokens"
      yield label, target, drafts, lengths, tokens, None
  for parents, lengths, tokens in trees:
    for case, target, drafts in cases.tree_cases(vocab, kinds):
      label = (
        f"{case}, parents {tuple(parents)}, depths {tuple(lengths)}, "
        f"{tokens} tokens"
      )
      yield label, target, drafts, lengths, tokens, parents


def _faults(
  verifier: types.Verifier,
  parents: Sequence[int],
  vocab: int,
  rows: int = 64,
) -> Iterator[str]:
  """What the law of a single row does not show."""
  drawn: list[recording.Read] = []
  keys = streams_lib.row_keys(0, jnp.arange(rows), jnp.zeros((rows,), int))
  source = streams_lib.Streams(keys, jnp.zeros((rows,), jnp.int32))
  watched = recording.Recorder(source.keys, source.round, note=drawn.append)
  example = (jnp.arange(5, 5 + rows), *_example(parents, vocab, rows))

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
  deepest = np.minimum(draft.max_depth, draft.count)
  leaf, token = _last(kept, kept.path), _last(kept, kept.tokens)
  if np.any(
    (kept.accepted < 0) | (kept.accepted > deepest) | (leaf > draft.count)
  ):
    yield "Acceptance.accepted is more than was drafted"
    return
  expected = tree.accept(draft, jnp.asarray(leaf), jnp.asarray(token))
  for field in ("path", "tokens", "count", "accepted", "rejected"):
    got, wanted = getattr(kept, field), np.asarray(getattr(expected, field))
    valid = np.ones(rows, bool)
    if np.ndim(got) == 2:
      valid = np.arange(got.shape[1])[None] < kept.count[:, None]
    if got.shape != wanted.shape or np.any((got != wanted) & valid):
      yield f"Acceptance.{field} is not what tree.accept gives"


def _last(kept, values):
  """[B] of values [B, P] on the kept path, the last one."""
  at = np.clip(kept.accepted, 0, values.shape[1] - 1)[:, None]
  return np.take_along_axis(values, at, axis=1)[:, 0]


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


def _example(parents, vocab, rows):
  """Random laws [B, T + 1, V] and honest drafts of all counts."""
  rng = np.random.default_rng(0)
  nodes = len(parents)
  law = lambda width: jax.nn.log_softmax(
    jnp.asarray(rng.normal(size=(rows, width, vocab)), jnp.float32)
  )
  log_p, log_q = law(nodes + 1), law(nodes)
  # Siblings are drawn independently, from the law of the first.
  log_q = log_q[:, [list(parents).index(parent) for parent in parents]]
  noise = jnp.asarray(rng.gumbel(size=log_q.shape), jnp.float32)
  tokens = jnp.argmax(log_q + noise, axis=-1).astype(jnp.int32)
  count = jnp.asarray(np.arange(rows) % (nodes + 1), jnp.int32)
  chain = tree.chain(tokens, count, log_q)
  depth = [0]
  for parent in parents:
    depth.append(depth[parent] + 1)
  slots = jnp.broadcast_to(jnp.asarray(parents, jnp.int32), tokens.shape)
  return log_p, chain.replace(parents=slots, max_depth=max(depth))
