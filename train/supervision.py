# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a batch and what the target says of it to a loss.

total = sum_k w_k sum_t m_tk loss_tk / sum_k w_k sum_t m_tk, with weights
w_k = decay^k of depths and m_tk whether depth k from slot t counts. Numerator
and denominator are kept apart, so that micro-batches and devices add up to what
one batch would give.

Axis letters: n slots of a chunk, N slots of a batch, K depths, D model width,
Q columns, V vocabulary.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from train import losses, packing, slots, teacher
from train.objectives import objective as objective_lib


class Sums(struct.PyTreeNode):
  """What a batch adds up to; ratios are taken when everything is added."""

  loss: jax.Array  # [] weighted
  weight: jax.Array  # []
  accepted: jax.Array  # [K] acceptance of the draft's law, where it counts
  hits: jax.Array  # [K] its likeliest token is the target's
  counted: jax.Array  # [K]


class Supervision(struct.PyTreeNode):
  """How drafts are judged.

  Attributes:
    loss: one of `losses.NAMES` or a sum of them (`losses.weighted`).
    sampling: of serving, one row; the target's laws are those.
    temperature: its temperature; 0 is greedy.
    decay: weight of a depth relative to the one before.
    extra: weights of what an objective adds itself; pairs, to be static.
    chunk: slots whose logits exist at a time.
  """

  loss: losses.Loss = struct.field(pytree_node=False)
  sampling: sampling_lib.Sampling
  temperature: float = struct.field(pytree_node=False, default=1.0)
  decay: float = struct.field(pytree_node=False, default=0.8)
  extra: tuple[tuple[str, float], ...] = struct.field(
    pytree_node=False, default=()
  )
  chunk: int = struct.field(pytree_node=False, default=teacher.CHUNK)

  @property
  def is_filtered(self) -> bool:
    """A law is more than a softmax of logits / temperature."""
    s = self.sampling
    return any(x is not None for x in (s.top_k, s.top_p, s.min_p))

  def sums(
    self,
    objective: objective_lib.Objective,
    params: Any,
    batch: packing.Batch,
    seen: teacher.Teacher,
  ) -> tuple[jax.Array, Sums]:
    """The weighted sum of losses, to be differentiated by `params`, and all.

    Args:
      objective: what is trained, with its target.
      params: its parameters.
      batch: [B, S].
      seen: what the target says of it.

    Returns:
      [] float32, and the sums, which carry no gradient.
    """
    known, extra = objective.read(params, batch, seen)
    counted = teacher.counted(batch, objective.depth)
    frozen = _Frozen(
      objective,
      output_rows(objective),
      _columns(objective),
      *teacher.flat((seen.hidden, seen.log_total, seen.best)),
      *teacher.flat((batch.tokens, counted)),
    )
    any_depth = jnp.any(counted, axis=-1).reshape(-1)
    loss, sums = slots.total(
      self._chunk, params, frozen, teacher.flat(known), any_depth, self.chunk
    )
    for name, weight in self.extra:
      loss = loss + weight * jnp.sum(
        self._depths(objective.depth) * extra[name]
      )
    return loss, sums.replace(loss=jax.lax.stop_gradient(loss))

  def _chunk(self, params, frozen, known, index, valid):
    """Sums of one chunk of slots, see `slots.Sums`."""
    log_q = jax.nn.log_softmax(
      frozen.objective.logits(params, known, frozen.rows) / self._temperature,
      axis=-1,
    )
    K = log_q.shape[1]
    counts = valid[:, None] & jnp.take(
      frozen.counted, index, axis=0, mode="clip"
    )
    # Slots of the laws; where a depth does not count, those of the first, which
    # are numbers: what is left out of a sum must not be NaN either.
    at = index[:, None] + 1 + jnp.where(counts, jnp.arange(K)[None], 0)
    log_p = self.laws(frozen, at)
    token = jnp.take(frozen.tokens, at + 1, mode="clip")
    column = token if frozen.columns is None else frozen.columns[token]
    rows_of = lambda x: x.reshape(-1, x.shape[-1])
    flat = losses.Laws(rows_of(log_p), rows_of(log_q), column.reshape(-1))
    at_counts = lambda x: jnp.where(counts, x.reshape(-1, K), 0)
    loss = at_counts(self.loss(flat))
    weights = self._depths(K)[None]
    best = jnp.take(frozen.best, at, mode="clip")
    guess = sampling_lib.argmax(log_q)
    ids = frozen.objective.ids
    guess = guess if ids is None else jnp.asarray(ids)[guess]
    sums = Sums(
      jnp.zeros(()),
      jnp.sum(weights * counts),
      jnp.sum(at_counts(losses.acceptance(flat)), axis=0),
      jnp.sum(counts & (guess == best), axis=0),
      jnp.sum(counts, axis=0),
    )
    return jnp.sum(weights * loss), sums

  def _depths(self, number):
    """[K] weights of depths."""
    return jnp.asarray(self.decay ** np.arange(number), jnp.float32)

  @property
  def _temperature(self):
    return self.temperature or 1.0

  def laws(self, frozen: Any, at: jax.Array) -> jax.Array:
    """[n, K, Q] the target's log-probabilities at columns, for slots [n, K]."""
    take = lambda x: jnp.take(x, at, axis=0, mode="clip")
    ids, target = frozen.objective.ids, frozen.objective.target
    if not self.temperature:
      best = take(frozen.best)
      column = best if frozen.columns is None else frozen.columns[best]
      size = target.vocab_size if ids is None else len(ids)
      hit = jax.nn.one_hot(column, size, dtype=bool)  # -1 is nowhere
      return jnp.where(hit, 0.0, -jnp.inf)
    hidden = take(frozen.hidden)
    if frozen.rows is not None and not self.is_filtered:
      logits = jnp.einsum(
        "nkd,qd->nkq",
        hidden,
        frozen.rows,
        preferred_element_type=jnp.float32,
      )
      return logits / self.temperature - take(frozen.log_total)[..., None]
    log_p = sampling_lib.log_probs(target.unembed(hidden)[None], self.sampling)
    return log_p[0] if ids is None else log_p[0][..., jnp.asarray(ids)]


class _Frozen(struct.PyTreeNode):
  """What every chunk looks into."""

  objective: objective_lib.Objective
  rows: jax.Array | None  # [Q, D] of the target's output matrix
  columns: jax.Array | None  # [V] int32
  hidden: jax.Array  # [N, D]
  log_total: jax.Array  # [N]
  best: jax.Array  # [N]
  tokens: jax.Array  # [N]
  counted: jax.Array  # [N, K]


def output_rows(objective: objective_lib.Objective) -> jax.Array | None:
  """[Q, D] rows of the target's output matrix; None where all are used."""
  if objective.ids is None:
    return None
  return objective.target.output_rows(jnp.asarray(objective.ids))


def _columns(objective):
  """[V] int32 the column of each token, -1 for those without."""
  if objective.ids is None:
    return None
  columns = jnp.full((objective.target.vocab_size,), -1, jnp.int32)
  ids = jnp.asarray(objective.ids)
  return columns.at[ids].set(jnp.arange(len(ids), dtype=jnp.int32))
