# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules that say they are not lossless, and what they do instead."""

import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

import specjax
from specjax import exact, testing, types
from specjax.bench import build
from specjax.testing import cases
from specjax.verifiers import lossy, ratio
from tests import benches, runs, toys

# Five words; p is even, sharp, or in between.
EVEN, SHARP = [0.2] * 5, [0.96, 0.01, 0.01, 0.01, 0.01]
BETWEEN = [0.5, 0.2, 0.2, 0.05, 0.05]


def verify(rule, laws, tokens, parents, accept=0.5, residual=0.0):
  """One row whose slots have the laws given; depths are at most 2."""
  draft = types.Draft(
    jnp.asarray([tokens], jnp.int32),
    jnp.asarray([parents], jnp.int32),
    None,
    jnp.array([len(tokens)]),
    max_depth=2,
  )
  numbers = ratio.Uniforms(
    jnp.full((1, len(tokens)), accept), jnp.full((1,), residual)
  )
  log_p = jnp.log(jnp.asarray([laws], jnp.float32))
  kept = jax.device_get(jax.jit(rule.verify)(log_p, draft, numbers))
  return kept.tokens[0, : kept.count[0]].tolist()


class TypicalTest(parameterized.TestCase):
  @parameterized.parameters(
    (EVEN, 3, True),  # exp(-H) is 0.2, so 0.06 is enough
    (SHARP, 0, True),
    (SHARP, 1, False),  # 0.01 is under epsilon
    (BETWEEN, 1, True),
    (BETWEEN, 4, False),  # exp(-H) is 0.28, so 0.083 is enough
  )
  def test_threshold(self, law, token, is_kept):
    rule = lossy.Typical()
    emitted = verify(rule, [law, SHARP, SHARP], [token, 4], [0, 1])
    self.assertEqual(emitted, [token, 0] if is_kept else [0])

  def test_the_longest_path_wins_then_the_likeliest(self):
    rule = lossy.Typical()
    laws = [BETWEEN, BETWEEN, BETWEEN, SHARP, SHARP]
    parents = [0, 0, 1, 2]
    # Nodes 1 and 2 below the root, one child each.
    self.assertEqual(verify(rule, laws, [0, 1, 4, 2], parents), [1, 2, 0])
    self.assertEqual(verify(rule, laws, [1, 0, 2, 1], parents), [0, 1, 0])
    self.assertEqual(verify(rule, laws, [1, 0, 4, 4], parents), [0, 0])

  def test_greedy_targets_stay_greedy(self):
    one_hot = [0, 0, 1, 0, 0]
    laws = [one_hot, one_hot, SHARP]
    self.assertEqual(verify(lossy.Typical(), laws, [2, 1], [0, 1]), [2, 2])


class LenientTest(parameterized.TestCase):
  @parameterized.parameters(0.5, 0.9)
  def test_law_of_one_draft(self, lenience):
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    drafts = exact.honest(cases.constant(q))
    rule = lossy.Lenient(lenience)
    law = exact.law(rule, cases.constant(p), drafts, (1,), 1)
    kept = np.minimum(q, p / lenience)
    left = np.maximum(p - lenience * q, 0)
    expected = kept + (1 - kept.sum()) * left / left.sum()
    np.testing.assert_allclose(law, expected, atol=1e-12)
    self.assertTrue(np.all(law <= p / lenience + 1e-12))
    self.assertGreater(np.abs(law - p).sum(), 1e-3)


class ThresholdTest(parameterized.TestCase):
  def test_likely_tokens_need_no_test(self):
    laws = [BETWEEN, SHARP, SHARP]
    high = 1 - 2.0**-24  # Passes no test unless p is 1.
    for probability, kept in ((0.19, True), (0.21, False)):
      rule = lossy.Threshold(probability)
      emitted = verify(rule, laws, [1, 1], [0, 1], accept=high)
      self.assertEqual(emitted, [1, 0] if kept else [0])


class ClaimsTest(parameterized.TestCase):
  @parameterized.parameters(
    lossy.Typical(), lossy.Lenient(0.5), lossy.Threshold(0.5)
  )
  def test_no_proof_of_what_is_not_claimed(self, rule):
    self.assertFalse(rule.lossless)
    with self.assertRaisesRegex(ValueError, "lossless is False"):
      testing.check_exact(rule)

  @parameterized.parameters(
    (lambda: lossy.Lenient(0.0), "lenience is 0.0"),
    (lambda: lossy.Lenient(1.5), "lenience is 1.5"),
    (lambda: lossy.Threshold(float("nan")), "probability is nan"),
    (lambda: lossy.Typical(epsilon=2.0), "epsilon is 2.0"),
    (lambda: lossy.Typical(delta=-0.1), "delta is -0.1"),
  )
  def test_settings_out_of_range(self, make, message):
    with self.assertRaisesRegex(ValueError, message):
      make()


class AskedForTest(absltest.TestCase):
  """A rule that changes the text's law is used where that is said, only."""

  def test_a_method_asks_for_lossless_rules(self):
    with self.assertRaisesRegex(ValueError, "Typical changes .* lossless = Fa"):
      specjax.Method(verifier=lossy.Typical())
    method = specjax.Method(verifier=lossy.Typical(), lossless=False)
    self.assertFalse(method.verifier.lossless)

  def test_generate_asks_for_them_too(self):
    words: Any = benches.Words()
    ask = lambda **options: specjax.generate(
      toys.cycle(64),
      words,
      [[1, 2]],
      verifier=lossy.Threshold(0.5),
      max_new_tokens=2,
      **options,
    )
    with self.assertRaisesRegex(ValueError, "Threshold changes the law"):
      ask()
    self.assertEqual(ask(lossless=False)[0].tokens.tolist(), [3, 4])

  def test_a_config_says_so_before_anything_is_loaded(self):
    methods = {
      "fast": {
        "drafter": {"type": "ngram", "length": 2},
        "verifier": {"type": "typical"},
      }
    }
    with tempfile.TemporaryDirectory() as folder:
      path = runs.write_config(
        pathlib.Path(folder, "config.py"),
        pathlib.Path(folder, "none.gguf"),
        methods=methods,
      )
      message = "methods.fast.verifier 'typical' changes .* lossless = False"
      with self.assertRaisesRegex(ValueError, message):
        build.check(runs.read_config(path))
      build.check(runs.read_config(path, "lossless=False"))


if __name__ == "__main__":
  absltest.main()
