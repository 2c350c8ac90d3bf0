# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses equal slow references, and say what the rules accept."""

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
from jax.test_util import check_grads
import numpy as np

from specjax import streams
from specjax.bench import agreement
from specjax.trees import tree
from specjax.verifiers import coupled, rejection
from train import losses

N, Q = 6, 7


def normal(seed, scale=2.0, missing=0.0):
  """Laws [N, Q] of random logits; the true one misses a part of its mass."""
  rng = np.random.default_rng(seed)
  log_p, log_q = (
    x - np.log(np.exp(x).sum(-1, keepdims=True))
    for x in rng.normal(scale=scale, size=(2, N, Q))
  )
  column = rng.integers(-1, Q, N)
  return losses.Laws(
    jnp.asarray(log_p + np.log1p(-missing), jnp.float32),
    jnp.asarray(log_q, jnp.float32),
    jnp.asarray(column, jnp.int32),
  )


def reference(name, log_p, log_q, column, beta=0.5, eta=3.0):
  """One output's loss in float64, in plain sums over tokens."""
  p, q = np.exp(log_p), np.exp(log_q)
  hat = p / p.sum()
  overlap = sum(min(a, b) for a, b in zip(p, q))
  kl = sum(a * np.log(a / b) for a, b in zip(hat, q) if a > 0)
  if name == "forward_kl":
    return kl
  if name == "reverse_kl":
    return sum(b * np.log(b / a) for a, b in zip(hat, q))
  if name == "jsd":
    mean = beta * hat + (1 - beta) * q
    first = sum(a * np.log(a / m) for a, m in zip(hat, mean) if a > 0)
    second = sum(b * np.log(b / m) for b, m in zip(q, mean))
    return beta * first + (1 - beta) * second
  if name == "tv":
    return 1 - overlap
  if name == "log_alpha":
    return -np.log(overlap)
  if name == "lk":
    weight = np.exp(-eta * overlap)
    return weight * kl + (1 - weight) * (1 - overlap)
  if name == "cross_entropy":
    return -log_q[column] if column >= 0 else 0.0
  # A token without a column for what p has left.
  p, q = [*p, max(1 - p.sum(), 0)], [*q, 0.0]
  total = 0.0
  for i in range(len(p)):
    if p[i] > 0 and q[i] > 0:
      total += 1 / sum(max(p[j] / p[i], q[j] / q[i]) for j in range(len(p)))
  return -np.log(total)


class LossesTest(parameterized.TestCase):
  @parameterized.product(name=tuple(losses.NAMES), missing=(0.0, 0.3))
  def test_equals_a_slow_reference(self, name, missing):
    laws = normal(1, missing=missing)
    got = jax.jit(losses.NAMES[name])(laws)
    rows = [np.asarray(x, np.float64) for x in (laws.log_p, laws.log_q)]
    wanted = [
      reference(name, p, q, column) for p, q, column in zip(*rows, laws.column)
    ]
    # Sums of seven float32 terms of at most about 8.
    np.testing.assert_allclose(got, wanted, atol=3e-6, rtol=3e-6)

  @parameterized.product(name=tuple(losses.NAMES), missing=(0.0, 0.3))
  def test_gradient(self, name, missing):
    """Against central differences; no two ratios p / q are near each other."""
    laws = normal(2, scale=1.0, missing=missing)
    if name == "lk":  # Its weights are not differentiated.
      weight = np.exp(-3.0 * np.asarray(losses.acceptance(laws)))

      def loss(logits):
        new = laws.replace(log_q=jax.nn.log_softmax(logits))
        kl, tv = losses.forward_kl(new), losses.tv(new)
        return jnp.sum(weight * kl + (1 - weight) * tv)

      function = lambda logits: jnp.sum(
        losses.lk(laws.replace(log_q=jax.nn.log_softmax(logits)))
      )
      np.testing.assert_allclose(
        jax.grad(function)(laws.log_q), jax.grad(loss)(laws.log_q), atol=1e-6
      )
      return
    function = lambda logits: jnp.sum(
      losses.NAMES[name](laws.replace(log_q=jax.nn.log_softmax(logits)))
    )
    # Steps of 1e-3 in float32: differences are good to about 1e-3.
    check_grads(
      function, (laws.log_q,), 1, ("rev",), eps=1e-3, atol=5e-3, rtol=5e-3
    )

  @parameterized.product(
    name=sorted({*losses.NAMES} - {"reverse_kl"}), greedy=(False, True)
  )
  def test_gradients_are_numbers_however_sure_a_draft_is(self, name, greedy):
    """Probabilities down to e^-200, and a target that has a single token.

    The gradient by logits of each of these losses is at most a few; that of
    the reverse divergence is not bounded.
    """
    rng = np.random.default_rng(5)
    logits = jnp.asarray(rng.normal(scale=60.0, size=(32, 40)), jnp.float32)
    log_p = jax.nn.log_softmax(rng.normal(scale=60.0, size=(32, 40)))
    if greedy:
      best = jnp.argmax(log_p, axis=-1)[:, None]
      log_p = jnp.where(jnp.arange(40)[None] == best, 0.0, -jnp.inf)
    laws = losses.Laws(log_p, logits, jnp.zeros(32, jnp.int32))
    function = lambda logits: jnp.sum(
      losses.NAMES[name](laws.replace(log_q=jax.nn.log_softmax(logits)))
    )
    gradient = np.asarray(jax.grad(function)(logits))
    self.assertTrue(np.all(np.abs(gradient) < 4))
    # Bounded losses are flat where nothing is accepted.
    if name not in ("jsd", "tv", "lk"):
      self.assertGreater(np.abs(gradient).max(), 0.1)

  @parameterized.parameters(*losses.NAMES)
  def test_is_least_where_the_laws_are_equal(self, name):
    laws = normal(3)
    same = losses.NAMES[name](laws.replace(log_q=laws.log_p))
    other = losses.NAMES[name](laws)
    if name == "cross_entropy":
      return
    np.testing.assert_allclose(same, 0, atol=1e-6)
    self.assertTrue(np.all(np.asarray(other) > 1e-3))

  @parameterized.parameters(*set(losses.NAMES) - {"reverse_kl"})
  def test_greedy_targets_give_numbers(self, name):
    """A one-hot p, and a p with nothing at the columns: never NaN."""
    laws = normal(4)
    hot = jnp.where(jnp.arange(Q) == 2, 0.0, -jnp.inf)
    log_p = jnp.where(jnp.arange(N)[:, None] < 3, hot, -jnp.inf)
    laws = laws.replace(log_p=log_p)
    function = lambda logits: losses.NAMES[name](
      laws.replace(log_q=jax.nn.log_softmax(logits))
    )
    values = function(laws.log_q)
    gradient = jax.grad(lambda x: jnp.sum(function(x)))(laws.log_q)
    self.assertTrue(np.isfinite(values).all())
    self.assertTrue(np.isfinite(gradient).all())
    if name in ("forward_kl", "log_alpha"):
      # Of a one-hot target both are the cross entropy.
      np.testing.assert_allclose(values[:3], -laws.log_q[:3, 2], rtol=1e-5)

  def test_forward_kl_reaches_far_tokens_that_tv_does_not(self):
    """Where q misses p's support the total variation has no gradient left."""
    log_p = jnp.log(jnp.array([[0.98, 0.02]]))
    logits = jnp.array([[-30.0, 0.0]])
    laws = lambda x: losses.Laws(log_p, jax.nn.log_softmax(x), jnp.array([0]))
    size = lambda loss: np.abs(
      jax.grad(lambda x: jnp.sum(loss(laws(x))))(logits)
    ).max()
    self.assertLess(size(losses.tv), 1e-10)
    self.assertGreater(size(losses.forward_kl), 0.5)

  def test_weights_add_up(self):
    laws = normal(5)
    loss = losses.weighted({"tv": 0.5, "lk": {"weight": 2.0, "eta": 10.0}})
    wanted = 0.5 * losses.tv(laws) + 2 * losses.lk(laws, eta=10.0)
    np.testing.assert_allclose(loss(laws), wanted, rtol=1e-6)

  def test_what_weighs_nothing_spoils_nothing(self):
    laws = normal(5)
    p = jax.nn.one_hot(jnp.argmax(laws.log_p, axis=-1), laws.log_p.shape[-1])
    greedy = laws.replace(log_p=jnp.log(p))
    self.assertFalse(np.all(np.isfinite(losses.reverse_kl(greedy))))
    loss = losses.weighted({"tv": 1.0, "reverse_kl": 0.0})
    np.testing.assert_array_equal(loss(greedy), losses.tv(greedy))

  @parameterized.parameters(
    ({"kl": 1.0}, "unknown loss 'kl'"),
    ({"tv": "much"}, "weight 'much'"),
    ({"tv": -1}, "weight -1"),
    ({"tv": 0.0}, "above 0"),
    ({}, "above 0"),
    ({"tv": {"eta": 3}}, "no argument 'eta'"),
  )
  def test_mistakes(self, spec, message):
    with self.assertRaisesRegex(ValueError, message):
      losses.weighted(spec)


class AcceptanceTest(parameterized.TestCase):
  """What the losses call acceptance is what the rules accept."""

  ROWS = 100_000

  def accepted(self, rule, p, q):
    """Share of drafts of one token that a rule keeps, drawn as it asks for."""

    @jax.jit
    def share(p, q):
      rows = jnp.arange(self.ROWS)
      zeros = jnp.zeros_like(rows)
      own = streams.Streams(streams.row_keys(0, rows, zeros), zeros)
      noise = rule.noise(own, len(p))(zeros[:, None], zeros[:, None])[:, 0]
      token = jnp.argmax(jnp.log(q)[None] + noise, axis=-1).astype(jnp.int32)
      log_q = jnp.broadcast_to(jnp.log(q), (self.ROWS, 1, len(q)))
      draft = tree.chain(token[:, None], jnp.ones_like(rows), log_q)
      log_p = jnp.broadcast_to(jnp.log(p), (self.ROWS, 2, len(p)))
      uniforms = rule.draw(own, zeros, draft)
      return jnp.mean(rule.verify(log_p, draft, uniforms).accepted)

    return float(share(p, q))

  @parameterized.parameters(0, 1)
  def test_under_the_rules(self, seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(5, 0.7), 2)
    laws = losses.Laws(
      jnp.log(p)[None].astype(jnp.float32),
      jnp.log(q)[None].astype(jnp.float32),
      jnp.array([0]),
    )
    # Five standard errors of a share of 100,000 rows.
    error = 5 * 0.5 / np.sqrt(self.ROWS)
    p, q = (jnp.asarray(x, jnp.float32) for x in (p, q))
    self.assertAlmostEqual(
      self.accepted(rejection.Rejection(), p, q),
      float(1 - losses.tv(laws)[0]),
      delta=error,
    )
    self.assertAlmostEqual(
      self.accepted(coupled.Coupled(), p, q),
      float(losses.acceptance_coupled(laws)[0]),
      delta=error,
    )

  def test_the_report_measures_the_same(self):
    """`specjax.run` and the losses name one number."""
    laws = normal(7)
    for row in range(N):
      p, q = (np.exp(np.asarray(x[row])) for x in (laws.log_p, laws.log_q))
      np.testing.assert_allclose(
        losses.acceptance(laws)[row], agreement.overlap(p, q), rtol=1e-5
      )
      np.testing.assert_allclose(
        losses.acceptance_coupled(laws)[row],
        agreement.coupled_overlap(p, q),
        rtol=1e-5,
      )

  def test_a_draft_that_has_no_mass_somewhere(self):
    """By the formula: tokens that p alone has lengthen the sums, no more."""
    p = jnp.log(jnp.array([[0.6, 0.4, 0.0], [0.25, 0.25, 0.5]]))
    q = jnp.log(jnp.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    laws = losses.Laws(p, q, jnp.zeros(2, jnp.int32))
    wanted = [0.6, 2 / (1 + 1 + 2)]
    np.testing.assert_allclose(
      losses.acceptance_coupled(laws), wanted, rtol=1e-6
    )

  def test_bounds(self):
    """(1 - TV) / (1 + TV) <= alpha_G <= 1 - TV (arXiv 2408.07978)."""
    laws = normal(8)
    tv, alpha = losses.tv(laws), losses.acceptance_coupled(laws)
    self.assertTrue(np.all(alpha <= 1 - tv + 1e-6))
    self.assertTrue(np.all(alpha >= (1 - tv) / (1 + tv) - 1e-6))


if __name__ == "__main__":
  absltest.main()
