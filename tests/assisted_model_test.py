# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft model sped up by lookup drafts what it drafts alone."""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing
from specjax.decoding import step
from specjax.drafters import assisted_model, draft_model
from specjax.testing import table
from specjax.verifiers import coupled
from tests import decoding, toys

TARGET = toys.tiny(0)
SAMPLING = sampling_lib.Sampling(
  temperature=jnp.array([0, 0.7, 1]), frequency=jnp.array([0, 0.3, 0.5])
)
_step = jax.jit(step.step)


class AssistedModelTest(parameterized.TestCase):
  def test_drafts_of_the_model_alone_with_its_laws(self):
    """Round by round, with penalties, whatever lookup finds.

    Passes of another width add in another order: laws agree to rounding.
    """
    model = toys.noisy(TARGET)
    drafters = (
      draft_model.DraftModel(model, 5),
      assisted_model.assisted_model(model, 5, copies=3),
    )
    fed, rounds = [], []
    for drafter in drafters:
      state, settings = decoding.start(TARGET, drafter, sampling=SAMPLING)
      drafts = []
      for _ in range(4):
        state, seen = _step(
          TARGET, drafter, coupled.Coupled(), state, *settings
        )
        drafts.append(jax.device_get(seen.draft))
      rounds.append(drafts)
      fed.append(np.asarray(state.drafter.cache.lengths))
    for one, other in zip(*rounds):
      np.testing.assert_array_equal(one.tokens, other.tokens)
      np.testing.assert_array_equal(one.count, other.count)
      np.testing.assert_allclose(
        np.exp(one.log_q), np.exp(other.log_q), atol=1e-5
      )
    np.testing.assert_array_equal(*fed)

  def test_copies_save_passes(self):
    """The draft model counts in a cycle that the prompt shows twice."""
    calls = []

    class Counted(toys.Table):
      def __call__(self, *arguments):
        jax.debug.callback(lambda: calls.append(1))
        return super().__call__(*arguments)

    cycle = toys.cycle(5)
    counted: Any = Counted(cycle.table)
    prompts = [[*range(5)] * 2] * 3
    spent = []
    for copies in (0, 4):
      drafter = assisted_model.assisted_model(counted, 8, copies=copies)
      decoding.run(cycle, drafter, prompts, new=18)
      jax.effects_barrier()
      spent.append(len(calls))
      calls.clear()
    # Two rounds of 8 tokens: one pass a token at first, then one for 5.
    self.assertLessEqual(spent[1], spent[0] - 8)

  @pytest.mark.slow
  def test_contract(self):
    draft = assisted_model.assisted_model(table.random(seed=1), 4, copies=3)
    testing.check_drafter(draft)


if __name__ == "__main__":
  absltest.main()
