# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""`check_drafter`: does a drafter keep the contract of `types.Drafter`?

Axis letters: B batch, T nodes, V vocabulary.
"""

from collections.abc import Callable, Sequence
import copy
from typing import Any

import jax
import numpy as np

from specjax import streams as streams_lib
from specjax import types
from specjax.drafters import empty
from specjax.testing import scripted, shapes, table, trials
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
  rows       a row among copies of itself, its prompt read in other chunks,
             drafts the same
  rounds     after rounds that kept none, one and all of its nodes, it drafts
             what it would on reading that text as a prompt
  idle       a row that is done keeps its state: woken up later, it drafts what
             it would have at once
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
    "shapes": shapes.check,
    "cache": _cache,
    "streams": _streams,
    "plain": _plain,
    "rows": _rows,
    "rounds": _rounds,
    "idle": _idle,
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
  together, rows = list(trial.walk()), len(trial.prompts)
  for row in range(0, rows, 2):
    # As many rows as before run the programs that there are.
    prompts, indices = [trial.prompts[row]] * rows, [row] * rows
    alone = trial.walk(prompts=prompts, indices=indices, chunk=4)
    for number, (one, all_) in enumerate(zip(alone, together)):
      got, wanted = trials.drafts(one.draft)[0], trials.drafts(all_.draft)[row]
      require(
        got == wanted,
        f"in round {number} row {row} drafts (token, parent) {wanted}, but "
        f"among copies of itself, its prompt read in chunks of 4, {got}",
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


def _idle(trial):
  """Rounds that rows slept."""
  rows = len(trial.prompts)
  # Every second row ends in the first round, and sleeps in those that follow.
  limits = [1 if row % 2 == 0 else trial.limit for row in range(rows)]
  walk = [*trial.walk(limits=limits)]
  soon, late = trial.woken(walk[1]), trial.woken(walk[-1])
  for row in range(0, rows, 2):
    got, wanted = trials.drafts(late)[row], trials.drafts(soon)[row]
    require(
      got == wanted,
      f"row {row}, which is done, drafts (token, parent) {got} when it is "
      f"woken up after {len(walk) - 1} rounds, but {wanted} after one",
    )
  return len(walk) - 2


def _eager(trial):
  """Nodes compared."""
  *_, last = trial.walk(3)
  parts = trial.target, trial.drafter, _SCRIPTED
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
  if next(trial.walk(1)).draft.log_q is None:
    return None
  prompts = [trial.prompts[row % len(trial.prompts)] for row in range(samples)]
  largest = 0.0
  for round_ in trial.walk(2, watch=False, prompts=prompts):
    draft = jax.device_get(round_.draft)
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
