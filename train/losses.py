# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses between a target's law and a draft's, by name.

A draft may know Q of the target's V tokens. Then two laws of the target matter:
its true probabilities at the Q columns, which sum to less than 1, decide what
is accepted; renormalised over the columns they are the best law that the draft
could have, which divergences measure the distance to.

  forward_kl         KL(p^ || q), p^ renormalised
  reverse_kl         KL(q || p^)
  jsd                generalised Jensen-Shannon divergence (arXiv 2306.13649)
  tv                 1 - alpha, the total variation; alpha = sum_x min(p, q) is
                     what `rejection` accepts (arXiv 2211.17192)
  log_alpha          -log alpha
  log_alpha_coupled  -log alpha_G, what `coupled` accepts (arXiv 2408.07978):
                     alpha_G = sum_x 1 / sum_y max(p_y / p_x, q_y / q_x)
  lk                 from forward_kl to tv as alpha rises, position by position
  cross_entropy      -log q of the text's token

All are float32, of shape [n]. Where they say nothing (no mass of p at the
columns, a token of the text that no column has) they are constant, 1 for tv and
0 for the others, and never NaN.

Axis letters: n outputs of a draft, Q columns.
"""

from collections.abc import Callable, Mapping
import functools
import inspect
import math
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp


class Laws(struct.PyTreeNode):
  """What a loss compares.

  Attributes:
    log_p: the target's true log-probabilities at the columns; -inf is none.
    log_q: the draft's, normalised over the columns.
    column: of the token that the text has there; -1 if no column has it.
  """

  log_p: jax.Array  # [n, Q]
  log_q: jax.Array  # [n, Q]
  column: jax.Array  # [n] int32


Loss = Callable[[Laws], jax.Array]
_NONE = -1e30  # the logarithm of what is 0, in sums that need numbers
_TINY = 1e-30  # whose inverse, in gradients, is a number still


def forward_kl(laws: Laws) -> jax.Array:
  """KL(p^ || q)."""
  p, log_p = _renormalised(laws)
  return jnp.sum(_times(p, log_p - laws.log_q), axis=-1)


def reverse_kl(laws: Laws) -> jax.Array:
  """KL(q || p^); infinite where p^ misses a token, as at temperature 0."""
  _, log_p = _renormalised(laws)
  q = jnp.exp(laws.log_q)
  return jnp.where(
    _has_mass(laws), jnp.sum(_times(q, laws.log_q - log_p), axis=-1), 0
  )


def jsd(laws: Laws, beta: float = 0.5) -> jax.Array:
  """beta KL(p^ || m) + (1 - beta) KL(q || m), m = beta p^ + (1 - beta) q."""
  p, log_p = _renormalised(laws)
  q = jnp.exp(laws.log_q)
  mean = beta * p + (1 - beta) * q
  log_mean = jnp.log(jnp.where(mean > 0, mean, 1))
  both = beta * _times(p, log_p - log_mean)
  both = both + (1 - beta) * _times(q, laws.log_q - log_mean)
  return jnp.where(_has_mass(laws), jnp.sum(both, axis=-1), 0)


def acceptance(laws: Laws) -> jax.Array:
  """alpha = sum_x min(p, q), what `rejection` accepts."""
  return jnp.exp(_log_acceptance(laws))


def tv(laws: Laws) -> jax.Array:
  """1 - alpha: half the summed distance, p's tokens without a column too."""
  return 1 - acceptance(laws)


def log_alpha(laws: Laws) -> jax.Array:
  """-log alpha."""
  some = jnp.any(jnp.minimum(laws.log_p, laws.log_q) > -jnp.inf, axis=-1)
  return jnp.where(some, -_log_acceptance(laws), 0)


def acceptance_coupled(laws: Laws) -> jax.Array:
  """alpha_G, what `coupled` accepts when the draft is drawn with its noise.

  With tokens in order of p / q a term's sum splits into what p decides, the
  tokens after it, and what q decides. Tokens without a column have q = 0.
  """
  return jnp.exp(_log_acceptance_coupled(laws))


def log_alpha_coupled(laws: Laws) -> jax.Array:
  """-log alpha_G."""
  some = jnp.any(jnp.minimum(laws.log_p, laws.log_q) > -jnp.inf, axis=-1)
  return jnp.where(some, -_log_acceptance_coupled(laws), 0)


def lk(laws: Laws, eta: float = 3.0) -> jax.Array:
  """w KL + (1 - w)(1 - alpha) with w = exp(-eta alpha) of each position.

  Divergence leads while little is accepted, acceptance itself later on.
  """
  alpha = acceptance(laws)
  weight = jax.lax.stop_gradient(jnp.exp(-eta * alpha))
  return weight * forward_kl(laws) + (1 - weight) * (1 - alpha)


def cross_entropy(laws: Laws) -> jax.Array:
  """-log q of the text's token."""
  known = laws.column >= 0
  at = jnp.where(known, laws.column, 0)[:, None]
  log_q = jnp.take_along_axis(laws.log_q, at, axis=-1)[:, 0]
  return jnp.where(known, -log_q, 0)


NAMES: Mapping[str, Callable[..., jax.Array]] = {
  function.__name__: function
  for function in (
    forward_kl,
    reverse_kl,
    jsd,
    tv,
    log_alpha,
    log_alpha_coupled,
    lk,
    cross_entropy,
  )
}


def weighted(spec: Mapping[str, Any]) -> Loss:
  """The weighted sum of losses.

  Args:
    spec: name -> weight, or -> {"weight": w, and arguments of the loss}.

  Raises:
    ValueError: no such loss or argument, a value that is no number of 0 or
      more, or no weight above 0.
  """
  terms = [_term(name, value) for name, value in spec.items()]
  # What weighs nothing is not computed: 0 times infinity is no number.
  terms = [(weight, function) for weight, function in terms if weight]
  if not terms:
    raise ValueError(
      f"losses is {dict(spec)}: give at least one loss a weight above 0"
    )

  def loss(laws: Laws) -> jax.Array:
    values = [weight * function(laws) for weight, function in terms]
    return functools.reduce(jnp.add, values)

  return loss


def weight(value: Any) -> float:
  """The weight that a value of a `weighted` spec stands for."""
  return value.get("weight", 1.0) if isinstance(value, Mapping) else value


def _term(name: str, value: Any) -> tuple[float, Loss]:
  if name not in NAMES:
    raise ValueError(f"unknown loss {name!r}: choose from {', '.join(NAMES)}")
  arguments = dict(value) if isinstance(value, Mapping) else {"weight": value}
  known = set(inspect.signature(NAMES[name]).parameters) - {"laws"}
  for key, number in arguments.items():
    if key not in {"weight", *known}:
      raise ValueError(
        f"losses.{name} has no argument {key!r}: it takes "
        f"{', '.join(sorted(known)) or 'a weight alone'}"
      )
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number < math.inf:
      raise ValueError(
        f"losses.{name} has {key} {number!r}: use a number of 0 or more"
      )
  weight = arguments.pop("weight", 1.0)
  return float(weight), functools.partial(NAMES[name], **arguments)


def _has_mass(laws):
  return jnp.any(laws.log_p > -jnp.inf, axis=-1)


def _renormalised(laws):
  """p^ and its logarithm, both finite: 0 and 0 where there is no mass."""
  positive = laws.log_p > -jnp.inf
  safe = jnp.where(positive, laws.log_p, _NONE)
  log_p = jnp.where(positive, jax.nn.log_softmax(safe, axis=-1), -jnp.inf)
  return jnp.exp(log_p), log_p


def _times(weight, x):
  """weight * x, 0 where the weight is 0 whatever x is; so is its gradient."""
  some = weight > 0
  return jnp.where(some, weight * jnp.where(some, x, 0), 0)


def _log_acceptance(laws):
  """log alpha; a large negative number where nothing is accepted."""
  both = jnp.minimum(laws.log_p, laws.log_q)
  return jax.nn.logsumexp(jnp.where(both > -jnp.inf, both, _NONE), axis=-1)


def _log_acceptance_coupled(laws):
  """log alpha_G, in logarithms throughout.

  Quotients of small probabilities have gradients that overflow: at temperature
  0 nearly all terms are 0 over what a sure draft leaves, which can be 1e-30.
  """
  is_term = jnp.minimum(laws.log_p, laws.log_q) > -jnp.inf
  beyond = jnp.where(laws.log_p > -jnp.inf, jnp.inf, -jnp.inf)
  ratio = jnp.where(is_term, laws.log_p - laws.log_q, beyond)
  order = jnp.argsort(jax.lax.stop_gradient(ratio), axis=-1)
  is_term, log_p, log_q = (
    jnp.take_along_axis(x, order, axis=-1)
    for x in (is_term, laws.log_p, laws.log_q)
  )
  log_p, log_q = (jnp.maximum(x, _NONE) for x in (log_p, log_q))
  # What is left of p holds what has no column.
  after = jnp.maximum(1 - jnp.cumsum(jnp.exp(log_p), axis=-1), 0)
  log_after = jnp.log(jnp.where(after > 0, after, 1))
  log_after = jnp.where(after > 0, log_after, _NONE)
  # Of probabilities: a running sum of logarithms takes longer than the sort.
  # What is so small that it is cut off here has a p that is smaller still.
  log_upto = jnp.log(jnp.maximum(jnp.cumsum(jnp.exp(log_q), axis=-1), _TINY))
  log_total = jnp.logaddexp(log_after + log_q, log_upto + log_p)
  terms = jnp.where(is_term, log_p + log_q - log_total, _NONE)
  return jax.nn.logsumexp(terms, axis=-1)
