# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The same tokens on a mesh as on one device, with arrays really split."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import jax
import numpy as np
import pytest

from specjax import sharding
from specjax.models import model, placement
from tests import mesh_program, toys

# Set by conftest; not among the attributes that jax declares.
CACHE = "jax_compilation_cache_dir"


def records(which):
  """Lines of `mesh_program`, by model and method."""
  folder = getattr(jax.config, CACHE)
  environment = {
    **os.environ,
    "JAX_COMPILATION_CACHE_DIR": folder or tempfile.mkdtemp(),
    "JAX_PLATFORMS": "cpu",
  }
  done = subprocess.run(
    [sys.executable, "-m", "tests.mesh_program", which],
    cwd=pathlib.Path(__file__).parents[1],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise AssertionError(done.stderr)
  found = {}
  for line in done.stdout.splitlines():
    record = json.loads(line)
    found.setdefault((record["model"], record["method"]), []).append(record)
  return found


class SameTokensTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.records = records("few")

  def check(self, found):
    for (name, method), several in found.items():
      one = several[0]
      self.assertEqual(one["mesh"], [1, 1])
      self.assertGreater(len(several), 1)
      if method != "plain" and name != "tied":
        self.assertGreater(one["accepted"], 0)
      for record in several:
        with self.subTest(f"{name} {method} {record['mesh']}"):
          # The margin rule allows a difference where two tokens are closer
          # than rounding; these models have no such place.
          self.assertEqual(record["tokens"], one["tokens"])
          self.assertEqual(record["accepted"], one["accepted"])
          self.check_places(record)

  def check_places(self, record):
    data, parts = record["mesh"]
    config = mesh_program.config(record["model"])
    heads = 1 if config.num_heads % parts else parts
    self.assertEqual(record["programs"], 0)
    self.assertEqual(record["cache"], [data, 1, heads, 1])
    if record["method"].startswith("draft"):
      self.assertEqual(record["draft_cache"], [[data, 1, heads, 1]])
    # Those whose heads have an output matrix of their own.
    if record["method"] in ("medusa", "eagle"):
      self.assertNotEmpty(record["head_outputs"])
    for shards in record["head_outputs"]:
      self.assertEqual(shards, [1, parts])
    for name, shards in record["rows"].items():
      self.assertEqual(shards[0], data, name)
    self.assertEqual(
      record["weights"],
      {
        "embedding": [parts, 1],
        "query": [1, heads],
        "key": [1, heads],
        "output": [heads, 1],
        "up": [1, parts],
        "down": [parts, 1],
        "norm": [1],
        "unembed": [parts, 1] if record["model"] == "tied" else [1, parts],
      },
    )
    # Two kv heads on an axis of 4 or 8 devices, by the smallest factor.
    copies = {4: 2, 8: 4}.get(heads, 1)
    self.assertEqual(record["kv_copies"], copies)
    self.check_sent(record)

  def check_sent(self, record):
    """Devices exchange activations and logits, no cache and no matrix."""
    if record["mesh"] != [1, 1]:
      self.assertNotEmpty(record["sent"])
    config = mesh_program.config(record["model"])
    matrices = (config.vocab_size, config.mlp_dim)
    for operation, dims in record["sent"]:
      self.assertNotIn(mesh_program.CAPACITY, dims, operation)
      if record["mesh"][1] == 1:
        # Rows stay where they are, the logits that siblings are ranked by too.
        self.assertNotIn(toys.TINY_VOCAB, dims, operation)
      if operation != "all-reduce":
        # The width of the model stands in every matrix beside one of these.
        is_matrix = config.embed_dim in dims and {*dims} & {*matrices}
        self.assertFalse(is_matrix, f"{operation} {dims}")

  def test_pairs(self):
    self.check(self.records)
    meshes = {
      tuple(record["mesh"])
      for several in self.records.values()
      for record in several
    }
    self.assertEqual(meshes, set(mesh_program.MESHES))

  @pytest.mark.slow
  def test_every_drafter_and_rule(self):
    self.check(records("all"))


class RulesTest(parameterized.TestCase):
  def mesh(self, data, model) -> Any:
    """Rules read the lengths of the axes only."""
    return jax.sharding.AbstractMesh((data, model), ("data", "model"))

  @parameterized.parameters(
    # 12 query heads on an axis of 4: kv heads, copies of each.
    (4, 1),
    (3, 4),
    (2, 2),
    (1, 4),
    (12, 1),
    (6, 2),
  )
  @pytest.mark.fault_case("B60")
  def test_kv_heads_that_do_not_divide_are_repeated(self, kv_heads, copies):
    """keras-team/keras-hub#1613; NVIDIA/TensorRT-LLM#4308."""
    rules, found = sharding.rules_for(
      self.mesh(1, 4), heads=12, kv_heads=kv_heads, mlp=8, vocab=8, name="m"
    )
    self.assertEqual(rules.kv_heads, "model")
    self.assertEqual(found, copies)
    self.assertEqual(kv_heads * copies % 4, 0)
    self.assertEqual(12 % (kv_heads * copies), 0)

  def test_heads_that_do_not_divide_are_held_whole(self):
    """SmolLM2: 9 query heads and 3 kv heads."""
    rules, copies = sharding.rules_for(
      self.mesh(2, 4), heads=9, kv_heads=3, mlp=1536, vocab=49152, name="m"
    )
    self.assertEqual(copies, 1)
    self.assertEqual(
      (rules.batch, rules.heads, rules.kv_heads, rules.mlp, rules.vocab),
      ("data", None, None, "model", "model"),
    )

  def test_a_mesh_that_divides_nothing_is_refused(self):
    with self.assertRaisesRegex(
      ValueError, "mesh.model 7 divides nothing of m: neither 9 heads nor"
    ):
      sharding.rules_for(
        self.mesh(1, 7), heads=9, kv_heads=3, mlp=1536, vocab=49152, name="m"
      )

  def test_too_few_devices_are_refused(self):
    with self.assertRaisesRegex(ValueError, "mesh data 2 x model 64 needs 128"):
      sharding.make_mesh(2, 64)

  def test_rows_that_do_not_divide_are_refused(self):
    rules = sharding.Rules(self.mesh(4, 1))
    with self.assertRaisesRegex(ValueError, "6 rows do not divide by mesh.da"):
      sharding.check_rows(rules, 6)
    sharding.check_rows(rules, 8)
    sharding.check_rows(None, 7)

  def test_repeated_kv_heads_are_stored_once(self):
    target = model.Model.init(toys.TINY_CONFIG, jax.random.key(0))
    plan = placement.plan(target.config, self.mesh(1, 4))
    self.assertEqual(plan.config.kv_copies, 2)
    held = jax.tree.map_with_path(
      lambda keys, x: placement.repeat(
        plan.config, tuple(key.key for key in keys), np.asarray(x)
      ),
      target.params,
    )
    key = held["layer_0"]["attention"]["key"]["kernel"]
    self.assertEqual(key.shape, (32, 2 * 2 * 8))
    np.testing.assert_array_equal(key[:, :8], key[:, 8:16])
    stored = placement.stored(plan.config, held)
    jax.tree.map(np.testing.assert_array_equal, stored, target.params)


if __name__ == "__main__":
  absltest.main()
