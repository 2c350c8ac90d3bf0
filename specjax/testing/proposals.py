# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""`check_drafter`: does a drafter keep the contract of `types.Drafter`?

Axis letters: B batch, T nodes, V vocabulary.
"""

from collections.abc import Callable, Sequence
import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import streams as streams_lib
from specjax import types
from specjax.drafters import empty
from specjax.testing import scripted, table, trials
from specjax.testing.trials import require
from specjax.verifiers import coupled

_SCRIPTED = scripted.Scripted()
# Standard deviations, and draws expected at least of a token that is counted.
LARGEST_Z, FEWEST = 5.5, 10


def check_drafter(
  drafter: types.Drafter,
  model: types.Model | None = None,
  *,
  prompts: Sequence[Sequence[int]] = trials.PROMPTS,
  new_tokens: int = 24,
  learns_from_rejected: bool = False,
  samples: int = 4096,
) -> dict[str, Any]:
  """Checks everything that the decoding loop and exact rules rely on.

  shapes     num_nodes, max_depth, and the shapes of draft and state, which
             stay what they were; breadth-first parents; tokens and count in
             range; laws that sum to 1
  cache      the target's committed slots and lengths come back as they were
  streams    noise comes from the context's own stream, no number twice
  plain      under the coupled rule the text is that of plain decoding, and
             rows of other lengths do not disturb it
  rows       a row alone, its prompt read in other chunks, drafts the same
  rounds     after rounds that kept none, one and all of its nodes, it drafts
             what it would on reading that text as a prompt
  eager      the same drafts without jit
  traces     an equal drafter runs the same compiled program on other prompts
  honesty    log_q is the law that the tokens were drawn from

  Args:
    drafter: a pytree; its settings static, its parameters leaves.
    model: the target it is made for; None is a table of 12 random laws.
    prompts: ids of different numbers.
    new_tokens: tokens of an answer.
    learns_from_rejected: it keeps something of rounds that the text does not
      show, so `rounds` is left out.
    samples: rows of the sampled test of honesty. With 4096, a token that comes
      0.05 too often or seldom is found out.

  Returns:
    What was found by check, in the order above.

  Raises:
    AssertionError: the first check that fails, and why.
  """
  model = table.random() if model is None else model
  trial = trials.Trial(model, drafter, prompts, new_tokens)
  checks: dict[str, Callable[[trials.Trial], Any]] = {
    "shapes": _shapes,
    "cache": _cache,
    "streams": _streams,
    "plain": _plain,
    "rows": _rows,
    "rounds": _rounds,
    "eager": _eager,
    "traces": _traces,
    "honesty": lambda trial: _honesty(trial, samples),
  }
  if learns_from_rejected:
    del checks["rounds"]
  found = {}
  for name, check in checks.items():
    try:
      found[name] = check(trial)
    except AssertionError as error:
      kind = type(drafter).__name__
      raise AssertionError(f"{kind}: {name}: {error}") from error
  return found


def _shapes(trial):
  """Nodes looked at."""
  nodes, depth = trial.drafter.num_nodes, trial.drafter.max_depth
  require(0 <= depth <= nodes, f"max_depth is {depth}, num_nodes {nodes}")
  _check_types(trial)
  looked_at = 0
  for round_ in trial.walk():
    _check_draft(trial, jax.device_get(round_.draft))
    looked_at += int(np.sum(round_.draft.count))
  return looked_at


def _check_types(trial):
  """What a compiled loop cannot do without, found without running anything."""
  state, settings = trial.start(_SCRIPTED)
  draft, after = jax.eval_shape(
    trials.propose, trial.target, trial.drafter, _SCRIPTED, state, settings
  )
  shape = len(trial.prompts), trial.drafter.num_nodes
  for name in ("tokens", "parents", "count"):
    leaf = getattr(draft, name)
    wanted = shape[:1] if name == "count" else shape
    require(
      leaf.shape == wanted and jnp.issubdtype(leaf.dtype, jnp.integer),
      f"Draft.{name} is {leaf.dtype} {leaf.shape}, not integers {wanted}",
    )
  wanted = (*shape, trial.target.vocab_size)
  require(
    draft.log_q is None or draft.log_q.shape == wanted,
    f"Draft.log_q has another shape than {wanted}",
  )
  require(
    draft.max_depth == trial.drafter.max_depth,
    f"Draft.max_depth is {draft.max_depth}, the drafter's "
    f"{trial.drafter.max_depth}",
  )
  kind = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  same = kind((state.drafter, state.cache))
  back = kind((after.drafter, after.cache))
  require(same == back, "propose returns a state of other shapes or types")


def _check_draft(trial, draft):
  nodes, known = trial.drafter.num_nodes, trial.target.num_tokens
  valid, slots = trials.valid(draft), np.arange(nodes)[None]
  require(
    np.all((draft.count >= 0) & (draft.count <= nodes)),
    f"Draft.count is {draft.count.tolist()}, not within 0 to {nodes}",
  )
  in_range = (draft.tokens >= 0) & (draft.tokens < known)
  require(np.all(in_range | ~valid), f"a token is none of the {known} known")
  if draft.is_chain:
    ordered = draft.parents == slots
  else:
    ordered = (draft.parents >= 0) & (draft.parents <= slots)
    ordered[:, 1:] &= draft.parents[:, 1:] >= draft.parents[:, :-1]
  require(
    np.all(ordered | ~valid),
    "Draft.parents are no slots in breadth-first order",
  )
  if draft.log_q is not None:
    mass = np.exp(draft.log_q, dtype=np.float64).sum(axis=-1)
    # A softmax in float32 over a large vocabulary is as far from 1 as that.
    is_law = np.abs(mass - 1) < 1e-3
    require(np.all(is_law | ~valid), "Draft.log_q is no law: its sum is not 1")


def _cache(trial):
  """Committed slots compared."""
  compared = 0
  for round_ in trial.walk():
    before, after = round_.before.cache, round_.after.cache
    require(
      np.array_equal(before.lengths, after.lengths),
      "propose changed the lengths of the target's cache",
    )
    for old, new in zip(*map(jax.tree.leaves, (before.layers, after.layers))):
      for row, length in enumerate(np.asarray(before.lengths)):
        require(
          np.array_equal(old[row, :length], new[row, :length]),
          "propose wrote over committed slots of the target's cache",
        )
    compared += int(before.lengths.sum())
  return compared


def _streams(trial):
  """Vectors and numbers that were read."""
  jax.effects_barrier()
  trial.read.clear()
  for round_ in trial.walk():
    jax.block_until_ready(round_.draft)
  jax.effects_barrier()
  read = trial.read
  foreign = {entry.tag for entry in read} - {streams_lib.DRAFT}
  require(not foreign, "it reads another stream than that of context.noise")
  require(len({*read}) == len(read), "it reads the noise of one place twice")
  return len(read)


def _plain(trial):
  """Share of the drafted depth that was kept."""
  limits = [trial.new_tokens, 1, max(trial.new_tokens // 2, 1)]
  limits = [limits[row % 3] for row in range(len(trial.prompts))]
  state = trial.answer(coupled.Coupled(), limits=limits)
  plain = empty.Empty(1)  # Two rows at least, whose arithmetic is that of more.
  expected = trial.answer(coupled.Coupled(), drafter=plain, limits=limits)
  for row, (got, wanted) in enumerate(
    zip(trials.texts(state), trials.texts(expected))
  ):
    require(got == wanted, f"row {row} is {got}, by plain decoding {wanted}")
  accepted, drafted = state.stats.accepted.sum(), state.stats.drafted.sum()
  return float(accepted / max(drafted, 1))


def _rows(trial):
  """Rows compared."""
  together = list(trial.walk())
  for row in range(0, len(trial.prompts), 2):
    alone = trial.walk(prompts=[trial.prompts[row]], indices=[row], chunk=4)
    for number, (one, all_) in enumerate(zip(alone, together)):
      got, wanted = trials.drafts(one.draft)[0], trials.drafts(all_.draft)[row]
      require(
        got == wanted,
        f"in round {number} row {row} drafts (token, parent) {wanted}, "
        f"but alone, its prompt read in chunks of 4, {got}",
      )
  return len(trial.prompts[::2])


def _rounds(trial):
  """Tokens of text behind the drafts that were compared."""
  *_, last = trial.walk(temperature=0.0)
  texts = trials.texts(last.before)
  anew = next(trial.walk(1, prompts=texts, temperature=0.0))
  for row, (got, wanted) in enumerate(
    zip(trials.drafts(last.draft), trials.drafts(anew.draft))
  ):
    require(
      got == wanted,
      f"row {row} drafts (token, parent) {got} after {trials.ROUNDS - 1} "
      f"rounds, but {wanted} when it reads the same text as a prompt",
    )
  return sum(map(len, texts))


def _eager(trial):
  """Nodes compared."""
  *_, last = trial.walk(3)
  parts = trial.target, trial.drafter, _SCRIPTED
  with jax.disable_jit():
    draft, _ = trials.propose(*parts, last.before, last.settings)
  got, wanted = trials.drafts(draft), trials.drafts(last.draft)
  require(got == wanted, f"it drafts {got} without jit, {wanted} with it")
  return sum(map(len, got))


def _traces(trial):
  """Programs that the walks so far took."""
  reverse = [prompt[::-1] for prompt in trial.prompts[::-1]]
  next(trial.walk(1))
  before = len(trial.traced)
  for _ in trial.walk(2, drafter=copy.deepcopy(trial.drafter), prompts=reverse):
    pass
  require(
    len(trial.traced) == before,
    "an equal drafter compiles another program: its static fields must be "
    "compared by value, and what changes must be arrays",
  )
  return before


def _honesty(trial, samples):
  """Largest deviation of a token's count, in standard deviations.

  Given the laws that were reported, the count of a token at a node over many
  rows has the sum of its probabilities as mean.
  """
  prompts = [trial.prompts[row % len(trial.prompts)] for row in range(samples)]
  largest = 0.0
  for round_ in trial.walk(2, watch=False, prompts=prompts):
    draft = jax.device_get(round_.draft)
    if draft.log_q is None:
      return None
    valid = trials.valid(draft)[..., None]
    law = np.exp(draft.log_q, dtype=np.float64) * valid
    ids = np.arange(law.shape[-1])
    drawn = (draft.tokens[..., None] == ids) & valid
    require(
      not np.any(drawn & (law == 0)), "a token was drawn that log_q excludes"
    )
    mean, spread = law.sum(0), np.sqrt((law * (1 - law)).sum(0))
    often = (mean >= FEWEST) & (spread > 0)
    z = np.abs(drawn.sum(0) - mean)[often] / spread[often]
    largest = max(largest, z.max(initial=0))
  # Under 1e-5 for a hundred tokens of an honest draft.
  require(
    largest < LARGEST_Z,
    f"a token was drawn {largest:.1f} standard deviations off what log_q says",
  )
  return float(largest)
