# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of training as counted by hand, and the benchmark made of it."""

import contextlib
import io
import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling
from tests import toys, train_runs
from train import benchmark, losses, rates, supervision, teacher, work
from train.objectives import medusa

TARGET = toys.tiny(0)
C = TARGET.config
ROWS, WIDTH = 2, 16


class OperationsTest(absltest.TestCase):
  X, Y = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
  ONE = 2 * 4 * 8 * 16

  def count(self, function, *args, **how):
    return work.operations(function, *args, **how) / self.ONE

  def test_products(self):
    product = lambda x, y: jnp.sum(jnp.tanh(x @ y))
    self.assertEqual(self.count(product, self.X, self.Y), 1)
    both = jax.value_and_grad(product, (0, 1))
    self.assertEqual(self.count(both, self.X, self.Y), 3)
    batched = lambda x, y: jnp.einsum("bij,bjk->bik", x, y)
    many = [np.stack([x] * 5) for x in (self.X, self.Y)]
    self.assertEqual(self.count(batched, *many), 5)

  def test_what_no_result_needs_is_not_done(self):
    unused = lambda x, y: (x @ y, jax.jit(jnp.matmul)(x, 2 * y))[0]
    self.assertEqual(self.count(unused, self.X, self.Y), 1)

  def test_loops(self):
    turn = lambda _, total: total + jax.jit(jnp.matmul)(self.X, self.Y)
    zeros = jnp.zeros((4, 16))
    known = lambda: jax.lax.fori_loop(0, 7, turn, zeros)
    self.assertEqual(self.count(known), 7)
    unknown = lambda n: jax.lax.fori_loop(0, n, turn, zeros)
    self.assertEqual(self.count(unknown, 3, turns=2.5), 2.5)


class TrainingTest(absltest.TestCase):
  def test_the_targets_pass(self):
    batch = rates.random_batch(TARGET, ROWS, WIDTH)
    tokens, answer = ROWS * WIDTH, ROWS * WIDTH // 2
    matrices = sum(
      x.size
      for name, layer in TARGET.params.items()
      for x in jax.tree.leaves(layer)
      if name.startswith("layer_") and x.ndim > 1
    )
    # Scores and weighted values of every pair, in every head and layer.
    pairs = ROWS * WIDTH * (WIDTH + 1) / 2
    attention = 4 * C.num_heads * C.head_dim * C.num_layers * pairs
    output = 2 * C.embed_dim * C.vocab_size * answer
    self.assertEqual(
      work.of_teacher(TARGET, batch), 2 * matrices * tokens + attention + output
    )

  def test_a_step_of_heads_on_rows_of_the_targets_matrix(self):
    ids = jnp.arange(10)
    made = medusa.medusa(TARGET, ids, num_heads=3)
    batch = rates.random_batch(TARGET, ROWS, WIDTH)
    seen = jax.eval_shape(teacher.read, TARGET, batch)
    params = jax.eval_shape(made.init, jax.random.key(0))
    D = C.embed_dim
    # Of a block: its value, its gradient, and that of what it reads; of the
    # rows: logits and what reaches the block, and the target's own logits.
    each = 3 * (2 * D * D * 3 + 2 * D * 10 * 3)
    for temperature, less in ((1.0, 0), (0.0, 3 * 2 * D * 10)):
      rule = supervision.Supervision(
        losses.weighted({"forward_kl": 1.0}),
        sampling.Sampling(temperature=jnp.full(1, temperature)),
        temperature,
      )
      self.assertEqual(
        work.of_step(made, rule, params, batch, seen),
        ROWS * WIDTH / 2 * (each - less),
      )


class CommandTest(parameterized.TestCase):
  def call(self, *argv: str) -> tuple[int, str]:
    error = io.StringIO()
    with (
      contextlib.redirect_stderr(error),
      contextlib.redirect_stdout(io.StringIO()),
    ):
      status = benchmark.main(list(argv))
    return status, error.getvalue()

  @pytest.mark.slow
  def test_measures_without_data(self):
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    config = train_runs.write_config(folder)
    for path in folder.glob("*.jsonl"):
      path.unlink()
    flags = (f"--config={config}", f"--workdir={folder / 'found'}")
    self.assertEqual(self.call(*flags), (0, ""))
    found = json.loads((folder / "found" / "benchmark.json").read_text())
    self.assertGreater(found["matrix_rate"], 0)
    for name in ("teacher", "step"):
      part = found[name]
      rate = part["operations"] / part["seconds"]
      self.assertAlmostEqual(part["share"], rate / found["matrix_rate"])
      self.assertBetween(part["share"], 0, 1)
    steps = [line["step"] for line in found["memory"]]
    self.assertEqual(steps, list(range(10, 41, 10)))
    self.assertGreater(min(line["bytes"] for line in found["memory"]), 0)

  @parameterized.parameters(
    (["--config=none.py", "--workdir=x"], "no config file 'none.py'"),
    (["--workdir=x"], "no config: "),
    (["--config=x.py"], "no workdir: "),
  )
  def test_mistakes(self, argv, part):
    status, error = self.call(*argv)
    self.assertEqual(status, 2)
    self.assertIn(part, error)


if __name__ == "__main__":
  absltest.main()
