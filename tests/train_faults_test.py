# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Public faults of training drafts: masks that lag behind, padding that counts.

Both hide in a loss that falls all the same. So the gradient is looked at slot
by slot: a probe is added to the logits of every slot, and what the loss says of
it is compared with the two laws themselves.

Axis letters: B rows, S slots, K depths, Q columns, N = B * S.
"""

from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling
from specjax.bench import agreement
from tests import toys
from train import losses, packing, supervision, teacher
from train.objectives import draft_model, eagle, medusa

TARGET = toys.tiny(0)
VOCAB = toys.TINY_VOCAB


class Probed(struct.PyTreeNode):
  """An objective, with [B, S, K, Q] added to its logits as a parameter."""

  inner: Any

  target = property(lambda self: self.inner.target)
  depth = property(lambda self: self.inner.depth)
  ids = None

  def read(self, params, batch, seen):
    known, extra = self.inner.read(params["inner"], batch, seen)
    return (known, params["probe"]), extra

  def logits(self, params, known, rows):
    return self.inner.logits(params["inner"], known[0], rows) + known[1]


def row_of(lengths, width: int, answers) -> packing.Batch:
  """A conversation a row; `answers` are slices of tokens that count."""
  batch = packing.Batch(*np.zeros((5, len(lengths), width), np.int32))
  rng = np.random.default_rng(0)
  for row, (length, answer) in enumerate(zip(lengths, answers)):
    batch.tokens[row, :length] = rng.integers(1, VOCAB, length)
    batch.segments[row, :length] = 1
    batch.positions[row, :length] = np.arange(length)
    batch.loss[row, answer] = 1
  return batch.replace(loss=batch.loss > 0)


def judged(names, **filters) -> supervision.Supervision:
  """A sum of losses at temperature 1, all depths alike, eight slots a chunk."""
  return supervision.Supervision(
    losses.weighted(dict.fromkeys(names, 1.0)),
    sampling.Sampling(temperature=jnp.ones(1), **filters),
    decay=1.0,
    chunk=8,  # Some lanes of the last chunk have no slot that counts.
  )


def objective(kind: str) -> Any:
  if kind == "medusa":
    return medusa.medusa(TARGET, num_heads=3)
  if kind == "draft_model":
    return draft_model.draft_model(TARGET, lambda _: TARGET, mlp_dim=16)
  made = eagle.eagle(TARGET, depth=3)
  layers = TARGET.replace(feature_layers=made.feature_layers)
  return made.replace(target=layers)


class MaskTest(parameterized.TestCase):
  @parameterized.parameters("eagle", "draft_model")
  @pytest.mark.fault_case("B64")
  def test_inputs_targets_and_mask_shift_together(self, kind):
    """sgl-project/SpecForge#885: the mask stayed where the input was.

    token      0  1  2  3  4  5  6  7  -  -
    answer     .  .  .  .  x  x  x  .  .  .
    depth 0 of the slot that reads 3, 4, 5 (slots 2, 3, 4) guesses 4, 5, 6
    """
    made = Probed(objective(kind))
    batch = row_of([8], 10, [slice(4, 7)])
    K = made.depth
    params = {
      "inner": made.inner.init(jax.random.key(0)),
      "probe": jnp.zeros((1, 10, K, VOCAB)),
    }
    rule = judged(("cross_entropy", "forward_kl"))

    @jax.jit
    def look(made, params):
      seen = teacher.read(made.target, batch)
      loss = lambda params: rule.sums(made, params, batch, seen)[0]
      known, _ = made.read(params, batch, seen)
      logits = made.logits(params, teacher.flat(known), None)
      law = jax.nn.softmax(made.target.unembed(seen.hidden[0]))
      return jax.grad(loss)(params)["probe"][0], jax.nn.softmax(logits), law

    got, draft, law = map(np.asarray, look(made, params))
    wanted = np.zeros_like(got)
    for k in range(K):
      for guessed in range(4 + k, 7):
        slot = guessed - 2 - k
        token = np.eye(VOCAB)[batch.tokens[0, guessed]]
        # Of the cross entropy, and of the divergence from the target's law
        # behind the token before.
        wanted[slot, k] = 2 * draft[slot, k] - token - law[guessed - 1]
    # Float32 in programs of other shapes; laws differ by 0.1 and more.
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    at = [np.flatnonzero(np.any(got[:, k], axis=-1)).tolist() for k in range(K)]
    self.assertEqual(at, [[2, 3, 4], [2, 3], [2]][:K])


class PaddingTest(parameterized.TestCase):
  @parameterized.parameters(
    (-np.inf, "forward_kl", VOCAB - 1), (np.nan, "log_alpha_coupled", None)
  )
  @pytest.mark.fault_case("B66")
  def test_padding_is_no_part_of_a_loss_nor_of_a_gradient(
    self, spoilt, name, top_k
  ):
    """Two texts of 3 and 5 tokens; once the target never says its least token.

    huggingface/trl#5594 counted padding, peremartra/optipfair#34 and
    jax-ml/jax#17117 masked NaN after the fact, which spoils gradients, and
    google-deepmind/optax#1786 gives NaN for a probability of 0.
    """
    made = Probed(objective("medusa"))
    filters = {} if top_k is None else {"top_k": jnp.array([top_k])}
    rule = judged((name,), **filters)
    inner = made.inner.init(jax.random.key(0))

    @jax.jit
    def run(made, inner, batch, spoil):
      seen = teacher.read(made.target, batch)
      padding = jnp.asarray(batch.segments == 0)[..., None]
      bad = jnp.where(padding & spoil, spoilt, 0.0)
      seen = seen.replace(hidden=seen.hidden + bad)
      params = {
        "inner": inner,
        "probe": jnp.broadcast_to(bad[..., None], (*bad.shape[:2], 3, VOCAB)),
      }

      def loss(params):
        total, sums = rule.sums(made, params, batch, seen)
        return total / sums.weight

      return *jax.value_and_grad(loss)(params), seen.hidden

    answers = [slice(0, 3), slice(0, 5)]
    narrow = row_of([3, 5], 5, answers)
    wide = row_of([3, 5], 9, answers)
    clean, wanted, hidden = run(made, inner, narrow, False)
    drafts = [
      (row, slot, k)
      for row, length in enumerate((3, 5))
      for slot in range(length)
      for k in range(3)
      if slot + 2 + k < length
    ]
    mean = np.mean(
      [
        self._loss(name, made, inner, hidden[row], slot, k, top_k)
        for row, slot, k in drafts
      ]
    )
    # Seven sums of 64 float32 terms.
    self.assertAlmostEqual(float(clean), mean, delta=1e-5)
    for batch in (narrow, wide):
      value, found, _ = run(made, inner, batch, True)
      self.assertAlmostEqual(float(value), float(clean), delta=1e-6)
      jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        found["inner"],
        wanted["inner"],
      )
      probe = np.asarray(found["probe"])
      np.testing.assert_allclose(probe[:, :5], wanted["probe"], atol=1e-6)
      self.assertEqual(list(zip(*np.any(probe, axis=-1).nonzero())), drafts)

  def _loss(self, name, made, inner, hidden, slot, k, top_k) -> float:
    """Of one draft in float64, over the target's likeliest tokens."""
    logits = made.inner.logits(inner, hidden[slot : slot + 1], None)[0, k]
    law = made.target.unembed(hidden[slot + 1 + k])
    q, p = (np.asarray(jax.nn.softmax(x), np.float64) for x in (logits, law))
    some = np.argsort(-p)[:top_k]
    if name == "log_alpha_coupled":
      return -np.log(agreement.coupled_overlap(p, q))
    p = p[some] / p[some].sum()
    return float(np.sum(p * np.log(p / q[some])))


if __name__ == "__main__":
  absltest.main()
