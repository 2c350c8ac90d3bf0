# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of the decoding loop on tiny models, for tests.

All runs share a few shapes (capacity, prompt width, batch of 3 or 1), because
each new shape is a compilation. Rounds have one width, the drafter's, unless a
policy is given: each further one is a pass more to compile.

Axis letters: B batch, S token slots.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import streams, types
from specjax.decoding import decode, stopping
from specjax.policies import policy as policy_lib
from specjax.verifiers import coupled

CAPACITY = 96
PROMPT_WIDTH = 16
# Ragged, and with repetitions for drafters that look things up.
PROMPTS = ((7, 8, 9, 7, 8), (3,), (5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5))


class Scheduled(struct.PyTreeNode):
  """A policy that reads the draft lengths from a table, over and over."""

  table: jax.Array  # [8, B]
  rounds: jax.Array  # rows of the table in use
  widths: tuple[int, ...] = struct.field(pytree_node=False, default=())

  @classmethod
  def of(cls, rows: Sequence[Sequence[int]], **options) -> "Scheduled":
    """Tables of up to 8 rounds share a trace."""
    table = np.zeros((8, len(rows[0])), np.int32)
    table[: len(rows)] = rows
    return cls(jnp.asarray(table), jnp.int32(len(rows)), **options)

  def init(self, batch: int) -> jax.Array:
    return jnp.zeros((batch,), jnp.int32)

  def draft_length(self, state: jax.Array) -> jax.Array:
    return self.table[state % self.rounds, jnp.arange(state.shape[0])]

  def keep_drafting(self, state: jax.Array, law: jax.Array) -> jax.Array:
    del law
    return jnp.ones(state.shape, bool)

  def update(self, state, acceptance, draft_length) -> jax.Array:
    del acceptance, draft_length
    return state + 1


def pad(prompts: Sequence[Sequence[int]]) -> tuple[jax.Array, jax.Array]:
  """Prompts as tokens [B, N] and counts [B]."""
  width = max(PROMPT_WIDTH, *(len(prompt) for prompt in prompts))
  tokens = np.zeros((len(prompts), width), np.int32)
  for row, prompt in zip(tokens, prompts):
    row[: len(prompt)] = prompt
  counts = [len(prompt) for prompt in prompts]
  return jnp.asarray(tokens), jnp.asarray(counts, jnp.int32)


def settings(
  temperature: Sequence[float],
  top_k: Sequence[int] | None = None,
  top_p: Sequence[float] | None = None,
  min_p: Sequence[float] | None = None,
) -> sampling_lib.Sampling:
  """Settings a row, all of them arrays, so that values share a trace."""
  rows = len(temperature)
  return sampling_lib.Sampling(
    temperature=jnp.asarray(temperature, jnp.float32),
    top_k=jnp.asarray(top_k or [0] * rows, jnp.int32),
    top_p=jnp.asarray(top_p or [1] * rows, jnp.float32),
    min_p=jnp.asarray(min_p or [0] * rows, jnp.float32),
  )


def keys(seed: int, indices: Sequence[int]) -> jax.Array:
  samples = jnp.zeros(len(indices), int)
  return streams.row_keys(seed, jnp.asarray(indices), samples)


def start(
  target: types.Model,
  drafter: types.Drafter,
  prompts: Sequence[Sequence[int]] = PROMPTS,
  *,
  sampling: sampling_lib.Sampling | None = None,
  policy: types.Policy | None = None,
  new: int | Sequence[int] = 40,
  seed: int = 0,
  indices: Sequence[int] | None = None,
  eos: Sequence[int] = (),
  sequences: Sequence[Sequence[int]] = (),
  capacity: int = CAPACITY,
) -> tuple[types.DecodeState, tuple]:
  """A state that has read its prompts, and (sampling, policy, stop)."""
  rows = len(prompts)
  tokens, counts = pad(prompts)
  limit = [new] * rows if isinstance(new, int) else new
  stop = stopping.make_stop(eos, limit, sequences)
  sampling = sampling or sampling_lib.Sampling()
  policy = policy or policy_lib.Fixed(drafter.max_depth, widths=())
  decode.check(target, drafter, coupled.Coupled(), counts, stop, capacity)
  state = decode.start(
    target,
    drafter,
    tokens,
    counts,
    keys(seed, range(rows) if indices is None else indices),
    sampling,
    policy,
    stop,
    capacity=capacity,
  )
  return state, (sampling, policy, stop)


def run(
  target: types.Model,
  drafter: types.Drafter,
  prompts: Sequence[Sequence[int]] = PROMPTS,
  *,
  verifier: types.Verifier | None = None,
  rounds: int = CAPACITY,
  length: int | None = None,
  **options,
) -> types.DecodeState:
  """The final state on the host; `length` is the draft length."""
  if length is not None:
    options["policy"] = policy_lib.Fixed(length, widths=())
  state, rest = start(target, drafter, prompts, **options)
  verifier = verifier or coupled.Coupled()
  while not np.all(state.done):
    state = decode.advance(target, drafter, verifier, state, *rest, rounds)
  return fetch(state)


def compiled() -> tuple[int, int]:
  """How many programs there are to read prompts, and to decode."""
  programs: tuple[Any, Any] = decode.start, decode.advance
  return programs[0]._cache_size(), programs[1]._cache_size()


def fetch(state: types.DecodeState) -> types.DecodeState:
  return jax.device_get(state.replace(keys=None))


def answers(state: types.DecodeState) -> list[list[int]]:
  """What each row has emitted."""
  ends = zip(state.tokens, state.prompt_lengths, state.lengths)
  return [np.asarray(row)[start:end].tolist() for row, start, end in ends]


def counters(state: types.DecodeState, row: int) -> dict[str, list[int]]:
  """The row's statistics by round."""
  stats, rounds = state.stats, int(state.stats.rounds[row])
  return {
    name: np.asarray(getattr(stats, name))[row, :rounds].tolist()
    for name in ("emitted", "drafted", "accepted", "rejected")
  }


def outcomes(state: types.DecodeState) -> set[str]:
  """Which of "none", "some", "all" of a draft was accepted in some round.

  Rounds that a stop cut short say nothing and are left out.
  """
  seen = set()
  for row in range(len(state.lengths)):
    stats = counters(state, row)
    for emitted, drafted, accepted in zip(
      stats["emitted"], stats["drafted"], stats["accepted"]
    ):
      if drafted == 0 or emitted != accepted + 1:
        continue
      some = "some" if accepted else "none"
      seen.add("all" if accepted == drafted else some)
  return seen


def rows_differ(state: types.DecodeState) -> bool:
  """In some round two running rows accepted different numbers of tokens."""
  running = int(state.stats.rounds.min())
  accepted = np.asarray(state.stats.accepted)[:, :running]
  return bool(np.any(accepted != accepted[:1]))


class Letters:
  """A stand-in tokenizer: token i is texts[i]."""

  bos_id = None
  chat_template = None
  special_ids = frozenset()

  def __init__(self, texts: Sequence[str], eos_ids: tuple[int, ...] = ()):
    self.texts, self.eos_ids = tuple(texts), eos_ids

  @property
  def num_tokens(self) -> int:
    return len(self.texts)

  def encode(self, text: str, *, bos: bool = True) -> list[int]:
    del bos
    return [self.texts.index(letter) for letter in text]

  def decode(self, ids: Iterable[int]) -> str:
    return "".join(self.texts[token] for token in ids)

  def token_bytes(self, token: int) -> bytes:
    return self.texts[token].encode()
