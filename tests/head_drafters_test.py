# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafters with heads: the same text as without, and no step out of place.

Heads written down by hand guess the target's text exactly, so one hidden state,
token or position read one step too early or too late shows at once.

Axis letters: B batch, D model width, V vocabulary.
"""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax import testing
from specjax.decoding import decode
from specjax.decoding import step as step_lib
from specjax.drafters import chained, eagle, empty, medusa
from specjax.models import model as model_lib
from specjax.models import transformer
from specjax.models.heads import chained_heads, eagle_heads
from specjax.models.heads import head as heads_lib
from specjax.trees import branching, plans, tree
from specjax.verifiers import coupled, rejection
from tests import decoding, draft_heads, heads_test

PATHS = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
PLANS = {
  "chain": draft_heads.CHAIN,
  "static": plans.Static(tree.from_config(PATHS)),
  "dynamic": plans.Dynamic(3, 2, 2, 6),
}
# What the default tier runs.
PAIRS = (("hydra", "dynamic"), ("block_parallel", "chain"))
REST = tuple(
  (kind, plan)
  for kind in draft_heads.KINDS
  for plan in PLANS
  if (kind, plan) not in PAIRS
)
WIDTH = 16  # ids of the hand-made models
LAYER = transformer.TransformerConfig(
  vocab_size=WIDTH,
  embed_dim=WIDTH,
  num_layers=1,
  num_heads=1,
  num_kv_heads=1,
  head_dim=2,
  mlp_dim=WIDTH,
  max_position=256,
  norm_eps=1e-6,
  rope_theta=10_000.0,
  rope_factors=None,
  tie_embeddings=True,
)
SAMPLING = sampling_lib.Sampling(jnp.array([0, 1.0, 0.8], jnp.float32))


def jumps() -> tuple[draft_heads.OneHot, np.ndarray]:
  """A target of one long cycle in random order, and its step as a matrix."""
  order = np.random.default_rng(0).permutation(WIDTH)
  step = np.zeros((WIDTH, WIDTH), np.float32)
  step[order, np.roll(order, -1)] = 1
  return draft_heads.OneHot(jnp.asarray(30 * step)), step


def still(head: Any, **params) -> Any:
  """The head with all matrices 0 but those given by dotted path."""

  def leaf(path, x):
    given = params.pop("__".join(key.key for key in path), None)
    if given is not None:
      assert given.shape == x.shape, (path, x.shape)
      return jnp.asarray(given, x.dtype)
    fill = 1 if path[-1].key == "scale" else 0
    return jnp.full(x.shape, fill, x.dtype)

  made = head.replace(params=jax.tree.map_with_path(leaf, head.params))
  assert not params, params
  return made


def _eagle(kind: str, **settings) -> eagle_heads.EagleHead:
  config = eagle_heads.EagleConfig(kind, LAYER, WIDTH, **settings)
  return draft_heads.blank(eagle_heads.EagleHead, config)


def medusa_by_hand(target, step):
  """Head k has the k + 1 steps after the hidden state's own in its matrix."""
  config = heads_lib.MedusaConfig(3, 0, WIDTH, WIDTH)
  head = draft_heads.blank(heads_lib.MedusaHeads, config)
  power = np.linalg.matrix_power
  return medusa.Medusa(
    still(
      head,
      **{
        f"head_{k}__output__kernel": 30 * power(step, k + 2) for k in range(3)
      },
    ),
    target,
    branching.chain(3),
  )


def hydra_by_hand(target, step):
  """Counts on from the hidden state, and never looks at tokens."""
  config = chained_heads.ChainedConfig("hydra", 3, 0, WIDTH, WIDTH)
  head = draft_heads.blank(chained_heads.ChainedHeads, config)
  power = np.linalg.matrix_power
  return chained.Chained(
    still(
      head,
      **{
        f"head_{k}__output__kernel": 30 * power(step, k + 2) for k in range(3)
      },
    ),
    target,
    branching.chain(3),
  )


def recurrent_by_hand(target, step):
  """Looks at the newest token alone."""
  del step
  config = chained_heads.ChainedConfig("recurrent", 3, 0, WIDTH)
  head = draft_heads.blank(chained_heads.ChainedHeads, config)
  read = np.eye(WIDTH)
  mix = np.concatenate([np.zeros_like(read), read])
  made = still(head, head_0__read__kernel=read, head_0__mix__kernel=mix)
  return chained.Chained(made, target, branching.chain(3))


def eagle_of_tokens(target, step):
  """An EAGLE-1 head whose feature is the token."""
  del step
  fuse = np.concatenate([np.eye(WIDTH), np.zeros((WIDTH, WIDTH))])
  made = still(_eagle("eagle"), fuse__kernel=fuse)
  return eagle.Eagle(made, target, branching.chain(3))


def eagle_of_features(target, step):
  """An EAGLE-1 head that moves the feature on and never looks at tokens."""
  fuse = np.concatenate([np.zeros((WIDTH, WIDTH)), step])
  made = still(_eagle("eagle"), fuse__kernel=fuse)
  return eagle.Eagle(made, target, branching.chain(3))


def eagle3_of_features(target, step):
  """The MLP of an EAGLE-3 head moves the feature on, in every pass."""
  made = _eagle("eagle3", feature_layers=(0,), draft_vocab=WIDTH)
  # A norm makes 4 of the 1 in a vector of 16, and silu(8) of it about 8.
  made = still(
    made,
    fuse__kernel=np.eye(WIDTH),
    mlp__gate__kernel=2 * np.eye(WIDTH),
    mlp__up__kernel=np.eye(WIDTH) / 32,
    mlp__down__kernel=step - np.eye(WIDTH),
    output__kernel=30 * step,
  )
  return eagle.Eagle(made, target, branching.chain(3))


class AlignmentTest(parameterized.TestCase):
  @parameterized.parameters(
    medusa_by_hand,
    hydra_by_hand,
    eagle_of_tokens,
    eagle_of_features,
    eagle3_of_features,
  )
  def test_a_head_that_is_right_is_always_accepted(self, make):
    self.check(make)

  @pytest.mark.slow
  def test_a_recurrent_head_that_is_right(self):
    self.check(recurrent_by_hand)

  def check(self, make):
    """Rows of one, five and thirteen tokens, with rounds that draft nothing."""
    target, step = jumps()
    drafter = make(target, step)
    policy = decoding.Scheduled.of([[3, 3, 3], [0, 2, 3], [0, 0, 0], [1, 3, 0]])
    state = decoding.run(
      target, drafter, sampling=SAMPLING, policy=policy, new=24
    )
    for row in range(3):
      counters = decoding.counters(state, row)
      # A prompt is no part of the cycle, so the first features say nothing.
      self.assertFalse(any(counters["rejected"][1:]))
      self.assertEqual(counters["accepted"][1:-1], counters["drafted"][1:-1])
    self.assertGreater(np.sum(state.stats.accepted), 30)


class TextTest(parameterized.TestCase):
  def _check(self, kind, plan):
    target = draft_heads.target()
    plain = decoding.run(target, empty.Empty(1), sampling=SAMPLING, new=24)
    state = decoding.run(
      target,
      draft_heads.drafter(kind, target, PLANS[plan]),
      sampling=SAMPLING,
      new=[24, 1, 24],
    )
    expected = decoding.answers(plain)
    expected[1] = expected[1][:1]
    self.assertEqual(decoding.answers(state), expected)
    self.assertGreater(np.sum(state.stats.drafted), 0)

  @parameterized.parameters(*PAIRS)
  def test_equals_plain_decoding(self, kind, plan):
    self._check(kind, plan)

  @parameterized.parameters(*REST)
  @pytest.mark.slow
  def test_equals_plain_decoding_in_every_pair(self, kind, plan):
    self._check(kind, plan)

  @pytest.mark.slow
  def test_keeps_the_contract(self):
    """A head that is right, on a tree: much is kept."""
    target, step = jumps()
    drafter = eagle3_of_features(target, step).replace(plan=PLANS["static"])
    found = testing.check_drafter(drafter, target)
    self.assertGreater(found["plain"], 0.5)

  @parameterized.product(kind=draft_heads.KINDS, plan=tuple(PLANS))
  @pytest.mark.slow
  def test_keeps_the_contract_in_every_pair(self, kind, plan):
    target = draft_heads.target()
    drafter = draft_heads.drafter(kind, target, PLANS[plan])
    found = testing.check_drafter(drafter, target)
    self.assertGreater(found["shapes"], 0)


class ProposalTest(absltest.TestCase):
  def test_pairs_are_those_of_the_text(self):
    """Each token with the feature that predicted it; the first has none."""
    target, head = draft_heads.target(), draft_heads.head("eagle")
    drafter = eagle.Eagle(head, target, draft_heads.CHAIN)
    state, _ = decoding.start(target, drafter)
    embedding = np.asarray(target.params["embed"]["embedding"], np.float64)
    padded, _ = decoding.pad(decoding.PROMPTS)
    width = padded.shape[1]
    forward = jax.jit(model_lib.Model.__call__)
    hiddens = forward(target, padded, target.init_cache(3, width, width)).hidden
    for row, prompt in enumerate(decoding.PROMPTS):
      pairs = len(prompt) - 1
      self.assertEqual(state.drafter.cache.lengths[row], pairs)
      if pairs:
        hidden = np.asarray(hiddens[row, :pairs], np.float64)
        given = heads_test.eagle_given(
          head, embedding[np.asarray(prompt[1:])], hidden
        )
        np.testing.assert_allclose(
          state.drafter.feature[row], given[-1], **heads_test.TOLERANCE
        )

  def test_a_narrow_head_draws_only_what_it_has(self):
    target, step = jumps()
    kept = np.arange(0, WIDTH, 2)
    columns = np.full(WIDTH, -1)
    columns[kept] = kept
    drafter = eagle3_of_features(target, step)
    head = drafter.head.replace(columns=jnp.asarray(columns))
    drafter = drafter.replace(head=head)
    state, settings = decoding.start(target, drafter, sampling=SAMPLING)
    parts = target, drafter, rejection.Rejection()
    _, draft = jax.jit(step_lib.propose)(*parts, state, *settings)
    np.testing.assert_array_equal(draft.count, [3, 0, 3])
    for row in (0, 2):
      self.assertContainsSubset(np.asarray(draft.tokens[row]), kept)
      law = np.exp(draft.log_q[row])
      np.testing.assert_allclose(law[:, kept].sum(-1), 1, rtol=1e-6)
      self.assertEqual(np.delete(law, kept, axis=1).max(), 0)


class MistakesTest(parameterized.TestCase):
  @pytest.mark.fault_case("B41")
  def test_a_draft_deeper_than_the_heads(self):
    """FasterDecoding/Medusa#63: a tree for more heads, or other ranks."""
    head = draft_heads.head("medusa")
    target = draft_heads.target()
    with self.assertRaisesRegex(ValueError, "depth 5 does not fit 4 Medusa"):
      medusa.Medusa(head, target, branching.chain(5))
    with self.assertRaisesRegex(ValueError, r"\(0, 0, 0, 0\) is 4 deep"):
      branching.plan(3, [1, 1, 1, 1], 0, 1, 1, 1.0, 4)
    with self.assertRaisesRegex(ValueError, "rank 6"):
      branching.plan(3, [[i] for i in range(7)], 0, 1, 1, 1.0, 6)

  def test_a_target_that_does_not_give_the_features(self):
    target = draft_heads.target().replace(feature_layers=())
    drafter = draft_heads.drafter("eagle3", target)
    with self.assertRaisesRegex(ValueError, r"layers \(0, 1\)"):
      decoding.start(target, drafter)
    given: Any = decode.with_features(target, drafter)
    self.assertEqual(given.feature_layers, (0, 1))

  def test_both_kinds_of_tree(self):
    with self.assertRaisesRegex(ValueError, "fixed tree or the nodes"):
      branching.plan(2, [[0]], 4, 2, 2, 1.0, 8)

  def test_no_draft(self):
    with self.assertRaisesRegex(ValueError, "draft length 0"):
      branching.chain(0)


class RowsTest(absltest.TestCase):
  def test_a_session_asks_the_target_for_the_features(self):
    target, step = jumps()
    drafter = eagle3_of_features(target, step)
    letters: Any = decoding.Letters([chr(97 + i) for i in range(WIDTH)])
    session = session_lib.Session(
      target.replace(feature_layers=()),
      letters,
      session_lib.Method(drafter),
      session_lib.Settings(max_new_tokens=12),
      [[1, 2, 3], [4]],
    )
    list(session.rounds())
    for answer in session.results():
      self.assertLen(answer.tokens, 12)
      self.assertLessEqual(len(answer.emitted), 5)

  def test_a_row_that_is_done_keeps_its_state(self):
    """Pitfall 16: an observed block of no tokens changes nothing."""
    target, step = jumps()
    drafter = eagle3_of_features(target, step)
    state, rest = decoding.start(
      target,
      drafter,
      sampling=SAMPLING,
      policy=decoding.Scheduled.of([[3, 3, 3]]),
      new=[1, 24, 24],
    )
    parts = target, drafter, coupled.Coupled()
    # It ends in the first round, and the second draft reads what that left.
    state = decode.advance(*parts, state, *rest, 2)
    before = jax.device_get(state.drafter.feature)[0]
    lengths = jax.device_get(state.drafter.cache.lengths)[0]
    state = decode.advance(*parts, state, *rest, 3)
    np.testing.assert_array_equal(state.drafter.feature[0], before)
    self.assertEqual(state.drafter.cache.lengths[0], lengths)


if __name__ == "__main__":
  absltest.main()
