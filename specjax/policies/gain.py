# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies that draft only where it pays, row by row, and come back.

Both weigh tokens against seconds. The seconds of a round are measured before
the run (`cost`) and are leaves: newer ones can be put in between two chunks of
rounds, in the same program. What a row keeps is learnt from its own rounds.

Axis letters: B batch, T draft length (max_depth).
"""

import math
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import types
from specjax.policies import policy

# How much a try must seem to bring, for a row that knows nothing.
HOPE = 1.05
# How often a drafter is believed to have something when it is asked.
SHARE = 0.5


def expected_tokens(rates: jax.Array) -> jax.Array:
  """Tokens of a round by draft length: [..., T] to [..., T + 1].

  Args:
    rates: chance that the i-th drafted token is kept, given those before it.
  """
  kept = jnp.cumsum(jnp.cumprod(rates, axis=-1), axis=-1)
  return 1 + jnp.pad(kept, [(0, 0)] * (kept.ndim - 1) + [(1, 0)])


class Evidence(struct.PyTreeNode):
  """What a row has seen of drafted tokens, by position; it fades."""

  kept: jax.Array  # [B, T] float32
  tested: jax.Array  # [B, T] float32
  asked: jax.Array  # [B] float32 rounds in which a draft was wanted
  drafted: jax.Array  # [B] float32 those of them in which there was one


class ExpectedGain(struct.PyTreeNode):
  """The draft length with most expected tokens a second; 0 turns it off.

  The chance to be kept is estimated by position, from faded counts and a prior
  belief; so is the chance that the drafter, once asked, has something: a copy
  to make, or a first token that it is sure of. While a row drafts nothing its
  evidence fades too, and the belief returns: so it tries again by itself, the
  later the more it was disappointed. For that the belief about the first token
  is never so low that a try would not seem to pay (`HOPE` above break-even).

  Attributes:
    seconds: [T + 1] of a round that drafts 0, 1, ... tokens.
    idle: seconds of a round whose drafter was asked and had nothing; None is
      what a round without drafts takes.
    first: believed chance that the first drafted token is kept.
    later: the same of every further one, given those before it.
    weight: tested tokens, and rounds, that the belief counts for.
    memory: share of the evidence that a round leaves, below 1.
    least: probability of the drafter's likeliest token below which it drafts no
      further, see `policy.Confidence`; 0 never stops.
    widths: rounds of so few nodes run in a program of their own.
  """

  seconds: jax.Array
  idle: float | jax.Array | None = None
  first: float | jax.Array = 0.35
  later: float | jax.Array = 0.7
  weight: float | jax.Array = 4.0
  memory: float | jax.Array = 0.98
  least: float | jax.Array = 0.0
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=(0, 3))

  def __post_init__(self):
    for name in ("first", "later", "memory", "least"):
      policy.check_number(name, getattr(self, name), 0, 1)
    policy.check_number("weight", self.weight, 0.01, math.inf)

  def init(self, batch: int) -> Evidence:
    nothing = jnp.zeros((batch, self.seconds.shape[0] - 1), jnp.float32)
    rounds = jnp.zeros((batch,), jnp.float32)
    return Evidence(nothing, nothing, rounds, rounds)

  def draft_length(self, state: Evidence) -> jax.Array:
    """The first of equally good lengths, so 0 when nothing is gained."""
    share = self.share(state)
    more = expected_tokens(self.rates(state)) - 1
    gain = (1 + share[:, None] * more) / self._spent(share)
    return jnp.argmax(gain, axis=-1).astype(jnp.int32)

  def keep_drafting(self, state: Evidence, law: jax.Array) -> jax.Array:
    del state
    return jnp.max(law, axis=-1) >= jnp.log(self.least)

  def rates(self, state: Evidence) -> jax.Array:
    """[B, T] the estimated chances to be kept."""
    belief = self._belief(state.kept.shape[-1])[None]
    return (belief * self.weight + state.kept) / (self.weight + state.tested)

  def share(self, state: Evidence) -> jax.Array:
    """[B] the estimated chance that a drafter that is asked has something."""
    believed = SHARE * self.weight + state.drafted
    return believed / (self.weight + state.asked)

  def _spent(self, share: jax.Array) -> jax.Array:
    """[B, T + 1] expected seconds of rounds of each length."""
    plain, drafted = self.seconds[None, :1], self.seconds[None, 1:]
    idle = plain if self.idle is None else jnp.reshape(self.idle, (1, 1))
    share = share[:, None]
    asked = (1 - share) * idle + share * drafted
    plain = jnp.broadcast_to(plain, share.shape)
    return jnp.concatenate([plain, asked], axis=-1)

  def _belief(self, length: int) -> jax.Array:
    """[T] the chances before anything was seen."""
    later = jnp.full((length,), self.later, jnp.float32)
    # Tokens beyond the target's own if the first draft were sure to be kept.
    more = expected_tokens(later.at[:1].set(1.0))[1:] - 1
    cost = self._spent(jnp.full((1,), SHARE))[0, 1:] / self.seconds[0]
    pays = jnp.min((HOPE * cost - 1) / (SHARE * more), initial=1.0)
    return later.at[:1].set(jnp.maximum(self.first, pays))

  def update(
    self,
    state: Evidence,
    acceptance: types.Acceptance,
    draft_length: jax.Array,
  ) -> Evidence:
    """Tokens behind a rejection, or cut off by a stop, were not tested."""
    position = jnp.arange(state.kept.shape[-1])[None]
    tested = acceptance.accepted + acceptance.rejected
    seen = Evidence(
      kept=position < acceptance.accepted[:, None],
      tested=position < tested[:, None],
      asked=draft_length > 0,
      drafted=tested > 0,
    )
    seen = jax.tree.map(lambda old, new: self.memory * old + new, state, seen)
    return _where_run(acceptance, seen, state)


class Pause(struct.PyTreeNode):
  """Of a policy that can pause."""

  policy: Any  # state of the one that is paused
  tokens: jax.Array  # [B] float32 a drafting round brought lately
  left: jax.Array  # [B] int32 rounds of the pause to come
  next: jax.Array  # [B] int32 rounds of the next pause


class Pausing(struct.PyTreeNode):
  """Stops another policy's drafts where they do not pay, and tries again.

  A row whose drafting rounds bring fewer tokens than they cost goes without
  drafts for some rounds. Then it tries: one round that does not pay is enough
  to pause again, twice as long; once drafts pay again it is as before.

  Attributes:
    policy: decides while drafts are on.
    least: tokens that a drafting round must bring to pay, the target's own
      included: its seconds / those of a round without draft, or some more.
    pause: rounds of the first pause.
    longest: rounds of the longest.
    memory: share of the running mean that a drafting round leaves, below 1.
  """

  policy: types.Policy
  least: float | jax.Array
  pause: int | jax.Array = 4
  longest: int | jax.Array = 64
  memory: float | jax.Array = 0.9

  def __post_init__(self):
    policy.check_number("memory", self.memory, 0, 1)
    policy.check_number("pause", self.pause, 1, math.inf)
    policy.check_number("longest", self.longest, 1, math.inf)

  @property
  def widths(self) -> tuple[int, ...]:
    return self.policy.widths

  def init(self, batch: int) -> Pause:
    return Pause(
      policy=self.policy.init(batch),
      # Good for a few rounds in vain before the first pause.
      tokens=jnp.full((batch,), 2 * self.least - 1, jnp.float32),
      left=jnp.zeros((batch,), jnp.int32),
      next=jnp.full((batch,), self.pause, jnp.int32),
    )

  def draft_length(self, state: Pause) -> jax.Array:
    return jnp.where(state.left > 0, 0, self.policy.draft_length(state.policy))

  def keep_drafting(self, state: Pause, law: jax.Array) -> jax.Array:
    return self.policy.keep_drafting(state.policy, law)

  def update(
    self, state: Pause, acceptance: types.Acceptance, draft_length: jax.Array
  ) -> Pause:
    """Rounds that found nothing to draft cost nothing and say nothing."""
    tested = acceptance.rejected | (acceptance.accepted > 0)
    brought = acceptance.accepted + 1
    mean = self.memory * state.tokens + (1 - self.memory) * brought
    mean = jnp.where(tested, mean, state.tokens)
    stops = tested & (mean < self.least)
    pays = tested & (brought >= self.least)
    longer = jnp.minimum(2 * state.next, self.longest)
    result = Pause(
      policy=self.policy.update(state.policy, acceptance, draft_length),
      # It comes back on the edge: what the try brings decides.
      tokens=jnp.where(stops, self.least, mean),
      left=jnp.where(stops, state.next, jnp.maximum(state.left - 1, 0)),
      next=jnp.where(stops, longer, jnp.where(pays, self.pause, state.next)),
    )
    return _where_run(acceptance, result, state)


def _where_run(acceptance: types.Acceptance, new: Any, old: Any) -> Any:
  """`new` in rows that ran a round; those that are done keep what they have.

  Otherwise a row that waits for its neighbours would forget meanwhile.
  """
  ran = acceptance.count > 0

  def choose(new, old):
    return jnp.where(ran.reshape(-1, *[1] * (new.ndim - 1)), new, old)

  return jax.tree.map(choose, new, old)
