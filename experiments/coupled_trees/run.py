# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""How often one of k siblings is kept: coupled, or drawn and tested.

  python -m experiments.coupled_trees.run

Axis letters: B rows, K siblings, V vocabulary.
"""

from absl import app
import jax
import jax.numpy as jnp
import numpy as np

from specjax import streams as streams_lib
from specjax import types
from specjax.verifiers import coupled, multi_candidate

VOCAB, MODELS, ROWS = 200, 5, 10_000
SPREAD = 2.0  # of the target's logits at temperature 1
ERRORS = (0.5, 1.0, 2.0)  # of the draft's logits
RULES = (multi_candidate.MultiCandidate(), coupled.Coupled())


def laws(seed: int, error: float, temperature: float) -> np.ndarray:
  """Log-probabilities [2, V] of a target and of its draft."""
  rng = np.random.default_rng(seed)
  target = SPREAD * rng.normal(size=VOCAB)
  draft = target + error * rng.normal(size=VOCAB)
  x = np.stack([target, draft]) / temperature
  return x - np.logaddexp.reduce(x, axis=1, keepdims=True)


def propose(log_q: jax.Array, noise: jax.Array, width: int) -> types.Draft:
  """The best `width` of log q + noise [B, V]: draws without replacement."""
  rows = noise.shape[0]
  _, tokens = jax.lax.top_k(log_q[None] + noise, width)
  taken = jnp.cumsum(jax.nn.one_hot(tokens, VOCAB), axis=1)
  earlier = jnp.pad(taken[:, :-1], ((0, 0), (1, 0), (0, 0)))
  left = jnp.where(earlier > 0, -jnp.inf, log_q[None, None])
  return types.Draft(
    tokens,
    jnp.zeros_like(tokens),
    jax.nn.log_softmax(left),
    jnp.full((rows,), width),
    max_depth=1,
  )


@jax.jit(static_argnums=(2, 3))
def trial(p: jax.Array, q: jax.Array, rule: types.Verifier, width: int):
  """Kept or not [B], and the tokens [B, K], with production streams."""
  rows = jnp.arange(ROWS)
  lengths = jnp.full((ROWS,), 5)
  streams = streams_lib.Streams(
    streams_lib.row_keys(0, rows, rows * 0), rows * 0
  )
  draft = propose(q, rule.noise(streams, VOCAB)(lengths, rows * 0), width)
  log_p = jnp.broadcast_to(p, (ROWS, width + 1, VOCAB))
  kept = rule.verify(log_p, draft, rule.draw(streams, lengths, draft))
  return kept.accepted, draft.tokens


def bound(p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> float:
  """What no rule can pass: min over H of p(H) + P(a draw lies outside H).

  It is enough to look at the first tokens in ascending order of p / q.
  """
  order = np.argsort(p - q)
  rank = np.argsort(order)
  inside = np.bincount(rank[tokens].max(axis=1), minlength=VOCAB).cumsum()
  mass = np.exp(p[order]).cumsum()
  return float(np.min(mass + 1 - inside / len(tokens), initial=1))


def cell(error: float, temperature: float, width: int) -> list[float]:
  """Means over models: recursive rejection, coupled, the bound."""
  found = []
  for seed in range(MODELS):
    p, q = laws(seed, error, temperature)
    arrays = jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32)
    (drawn, tokens), (raced, _) = (
      jax.device_get(trial(*arrays, rule, width)) for rule in RULES
    )
    found.append([drawn.mean(), raced.mean(), bound(p, q, tokens)])
  return np.mean(found, axis=0).tolist()


def main(argv):
  del argv
  print("| temperature | siblings |", *(f"error {e} |" for e in ERRORS))
  print("| --- " * (2 + len(ERRORS)) + "|")
  wins = 0
  for temperature in (1.0, 0.6):
    for width in (1, 2, 4, 8):
      cells = [cell(error, temperature, width) for error in ERRORS]
      wins += sum(c[1] > c[0] for c in cells) if width > 1 else 0
      texts = (" / ".join(f"{x:.3f}" for x in c) for c in cells)
      print(f"| {temperature} | {width} |", *(f"{text} |" for text in texts))
  print(f"coupled keeps more in {wins} of 18 cells with two siblings or more")


if __name__ == "__main__":
  app.run(main)
