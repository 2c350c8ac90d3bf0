# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Early exit: the target's own layers and cache."""

import dataclasses
import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import testing
from specjax.decoding import step
from specjax.drafters import early_exit, empty
from specjax.models.heads import exit_adapter, saved_heads
from specjax.verifiers import coupled, rejection
from tests import decoding, draft_heads, toys

CONFIG = dataclasses.replace(toys.TINY_CONFIG, num_layers=3)
TARGET = toys.tiny(0, CONFIG)
SAMPLING = sampling_lib.Sampling(temperature=jnp.array([0, 0.7, 1]))
ADAPTER = exit_adapter.ExitAdapter.init(
  exit_adapter.ExitConfig(exit_layer=2, rank=4, embed_dim=CONFIG.embed_dim),
  jax.random.key(0),
)


class EarlyExitTest(parameterized.TestCase):
  def test_text_is_plain_text(self):
    """Two rows are sampled, one is greedy; and drafts are of every quality."""
    drafter = early_exit.early_exit(TARGET, 2, 4)
    plain = decoding.run(TARGET, empty.Empty(1), sampling=SAMPLING)
    state = decoding.run(TARGET, drafter, sampling=SAMPLING)
    self.assertEqual(decoding.answers(state), decoding.answers(plain))
    self.assertEqual(decoding.outcomes(state), {"none", "some", "all"})
    # The drafter's writes left nothing behind in what was committed.
    for kept, own in zip(state.cache.layers, plain.cache.layers):
      for row, end in enumerate(state.cache.lengths):
        for new, old in zip(kept, own):
          # Blocks of other widths add in another order.
          np.testing.assert_allclose(new[row, :end], old[row, :end], atol=1e-5)

  def test_all_layers_are_never_refused(self):
    self.check_all_layers(rejection.Rejection())

  @pytest.mark.slow
  def test_all_layers_are_the_target(self):
    self.check_all_layers(coupled.Coupled())

  def check_all_layers(self, verifier):
    drafter = early_exit.early_exit(TARGET, 3, 4)
    policy = decoding.Scheduled.of([[2, 1, 0], [4, 4, 4], [0, 0, 0]])
    state = decoding.run(
      TARGET, drafter, verifier=verifier, sampling=SAMPLING, policy=policy
    )
    self.assertGreater(int(state.stats.drafted.max()), 3)
    np.testing.assert_array_equal(state.stats.accepted, state.stats.drafted)

  def test_adapters(self):
    """One of zeros drafts as if there were none, to the bit."""
    plain = early_exit.early_exit(TARGET, 2, 4)
    state, settings = decoding.start(TARGET, plain, sampling=SAMPLING)
    run = jax.jit(step.propose)
    zero, random = (
      plain.replace(adapter=adapter)
      for adapter in (ADAPTER, draft_heads.randomly(ADAPTER))
    )
    wanted, same, other = (
      jax.device_get(run(TARGET, d, rejection.Rejection(), state, *settings)[1])
      for d in (plain, zero, random)
    )
    jax.tree.map(np.testing.assert_array_equal, same, wanted)
    moved = np.exp(other.log_q[1:]) - np.exp(wanted.log_q[1:])
    self.assertGreater(np.abs(moved).max(), 0.1)
    np.testing.assert_allclose(np.exp(other.log_q).sum(-1), 1, atol=1e-5)

  @pytest.mark.slow
  def test_any_adapter_is_exact(self):
    drafter = early_exit.early_exit(TARGET, 2, 4)
    adapted = drafter.replace(adapter=draft_heads.randomly(ADAPTER))
    texts = [
      decoding.answers(decoding.run(TARGET, each, sampling=SAMPLING))
      for each in (adapted, empty.Empty(1))
    ]
    self.assertEqual(*texts)

  def test_an_adapter_from_a_folder(self):
    adapter = draft_heads.randomly(ADAPTER)
    folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    own = folder / "own"
    saved_heads.save(adapter, own)
    drafter: Any = early_exit.early_exit(TARGET, 2, 4, str(own))
    self.assertEqual(drafter.adapter.config, ADAPTER.config)
    known: Any = early_exit.early_exit(TARGET, 0, 4, str(own))
    self.assertEqual(known.model.config, drafter.model.config)
    jax.tree.map(
      np.testing.assert_array_equal, drafter.adapter.params, adapter.params
    )
    with self.assertRaisesRegex(ValueError, "trained behind 2 layers, not 1"):
      early_exit.early_exit(TARGET, 1, 4, str(own))
    wider = dataclasses.replace(CONFIG, embed_dim=64)
    with self.assertRaisesRegex(ValueError, "width 32, the target's is 64"):
      early_exit.early_exit(toys.tiny(0, wider), 2, 4, str(own))
    saved_heads.save(draft_heads.head("medusa"), folder / "other")
    with self.assertRaisesRegex(ValueError, "'MedusaHeads', ExitAdapter was"):
      early_exit.early_exit(TARGET, 2, 4, str(folder / "other"))
    with self.assertRaisesRegex(FileNotFoundError, "adapter 'nowhere'"):
      early_exit.early_exit(TARGET, 2, 4, "nowhere")

  @pytest.mark.slow
  def test_contract(self):
    testing.check_drafter(early_exit.early_exit(TARGET, 1, 4), TARGET)

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, "cannot keep 4 of 3 layers"):
      early_exit.early_exit(TARGET, 4, 2)
    with self.assertRaisesRegex(ValueError, "cannot keep 0 of 3 layers"):
      early_exit.early_exit(TARGET, 0, 2)
    with self.assertRaisesRegex(ValueError, "draft length 0 is no draft"):
      early_exit.early_exit(TARGET, 1, 0)


if __name__ == "__main__":
  absltest.main()
