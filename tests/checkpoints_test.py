# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays on disk: containers, devices, kills, and foreign trees."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

from absl.testing import absltest, parameterized
import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import checkpoints

ROOT = pathlib.Path(__file__).parents[1]


def example() -> dict:
  """Every kind of container and dtype that a training state has."""
  optimizer = optax.adamw(1e-3)
  params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
  return {
    "layers": {0: jnp.ones(2), 1: jnp.zeros(2)},
    "pair": (jnp.ones(1, jnp.bfloat16), jnp.zeros((), jnp.float16)),
    "list": [jnp.arange(3, dtype=jnp.int8)],
    "params": params,
    "optimizer": optimizer.init(params),
    "step": 7,
    "key": jax.random.key_data(jax.random.key(3)),
    "nothing": None,
    "empty": {},
  }


class CheckpointTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder) / "saved"

  @pytest.mark.fault_case("B62")
  def test_containers_come_back_as_they_were(self):
    """google/orbax#2561, google/flax#4308: keys become texts, tuples lists."""
    tree = example()
    checkpoints.save(self.path, tree, {})
    loaded = checkpoints.load(self.path, jax.eval_shape(lambda: tree))
    self.assertEqual(jax.tree.structure(loaded), jax.tree.structure(tree))
    wanted = jax.tree.map(jnp.asarray, tree)
    chex.assert_trees_all_equal_dtypes(loaded, wanted)
    chex.assert_trees_all_equal(loaded, wanted)

  @pytest.mark.fault_case("B62")
  def test_training_goes_on_bit_for_bit(self):
    """google/flax#4308: an update of a restored state that changes nothing."""
    optimizer = optax.adamw(1e-2)

    def loss(params, x):
      return jnp.sum((params[0] * x + params[1]) ** 2)

    @jax.jit
    def step(state, x):
      params, moments = state
      updates, moments = optimizer.update(
        jax.grad(loss)(params, x), moments, params
      )
      return optax.apply_updates(params, updates), moments

    params = {0: jnp.ones(4), 1: jnp.zeros(4)}
    state = step((params, optimizer.init(params)), jnp.arange(4.0))
    checkpoints.save(self.path, state, {})
    loaded = checkpoints.load(self.path, jax.eval_shape(lambda: state))
    after = step(loaded, jnp.ones(4))
    chex.assert_trees_all_equal(after, step(state, jnp.ones(4)))
    self.assertFalse(np.any(after[0][0] == state[0][0]))

  @pytest.mark.fault_case("B61")
  def test_other_devices(self):
    """google/orbax#648, #683: saved on four devices, read on two and on one."""
    code = """
      import sys
      import jax, numpy as np
      from jax.sharding import NamedSharding, PartitionSpec as P
      jax.config.update("jax_num_cpu_devices", 8)
      from specjax import checkpoints

      def spread(count):
        mesh = jax.make_mesh((count,), ("data",), devices=jax.devices()[:count])
        return NamedSharding(mesh, P("data"))

      values = np.arange(32.0, dtype=np.float32).reshape(8, 4)
      state = {"draft": values, "optimizer": (values + 1, values[0])}
      places = {"draft": spread(4), "optimizer": (spread(4), spread(4))}
      saved = jax.device_put(state, places)
      checkpoints.save(sys.argv[1], saved, {"step": 3})
      target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spread(2)),
        state,
      )
      loaded = checkpoints.load(sys.argv[1], target)
      for leaf, value in zip(jax.tree.leaves(loaded), jax.tree.leaves(state)):
        np.testing.assert_array_equal(leaf, value)
        assert leaf.sharding == spread(2), leaf.sharding
        assert len(leaf.addressable_shards) == 2
    """
    self.run_python(code)
    self.assertEqual(jax.device_count(), 1)
    found = checkpoints.describe(self.path)
    self.assertEqual(found.metadata, {"step": 3})
    self.assertEqual(found.arrays[("optimizer", "0")].shape, (8, 4))
    values = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    whole = {"draft": values, "optimizer": (values + 1, values[0])}
    for target in (whole, {"draft": whole["draft"]}):
      target = jax.eval_shape(lambda tree=target: tree)
      loaded = checkpoints.load(self.path, target, partial=True)
      wanted = {name: whole[name] for name in target}
      chex.assert_trees_all_equal(loaded, wanted)
      for leaf in jax.tree.leaves(loaded):
        self.assertEqual(leaf.devices(), {jax.devices()[0]})

  def test_a_killed_save_leaves_nothing_that_loads(self):
    """The process ends where the complete folder would get its name."""
    code = """
      import os, sys
      import numpy as np
      from specjax import checkpoints

      os.rename = os.replace = lambda *args, **kwargs: os._exit(9)
      checkpoints.save(sys.argv[1], {"a": np.ones(100_000)}, {})
    """
    self.run_python(code, status=9)
    self.assertNotEmpty(list(self.path.parent.iterdir()))
    target = {"a": jax.ShapeDtypeStruct((2,), jnp.float32)}
    with self.assertRaisesRegex(FileNotFoundError, "saved does not exist"):
      checkpoints.load(self.path, target)
    checkpoints.save(self.path, {"a": jnp.ones(2)}, {})
    chex.assert_trees_all_equal(
      checkpoints.load(self.path, target), {"a": jnp.ones(2)}
    )

  def test_the_target_decides_dtype_and_place(self):
    checkpoints.save(self.path, {"a": jnp.full(3, 1 / 3), "i": 1}, {})
    target = {
      "a": jax.ShapeDtypeStruct((3,), jnp.bfloat16),
      "i": np.zeros((), np.int32),
    }
    loaded = checkpoints.load(self.path, target)
    self.assertEqual(loaded["a"].dtype, jnp.bfloat16)
    self.assertIsInstance(loaded["a"], jax.Array)
    self.assertIsInstance(loaded["i"], np.ndarray)
    np.testing.assert_array_equal(loaded["a"], jnp.bfloat16(1 / 3))

  @parameterized.named_parameters(
    ("more", {"b": 1.0}, "lacks array b"),
    ("fewer", {"params": None}, "has the unknown array params/b"),
    ("shape", {"step": np.ones(2, np.int32)}, r"as int32\[\], but int32\[2\]"),
    ("kind", {"step": 1.0}, r"step as int32\[\], but float32\[\]"),
    ("container", {"list": {0: np.ones(3, np.int8)}}, "structures do not ma"),
  )
  def test_another_tree_is_refused_by_name(self, change, message):
    checkpoints.save(self.path, example(), {})
    target = jax.eval_shape(lambda: example() | change)
    with self.assertRaisesRegex(ValueError, message) as raised:
      checkpoints.load(self.path, target)
    self.assertNotIn("\n", str(raised.exception))

  def test_metadata_and_sizes(self):
    note = {"name": "ü", "values": [1, 2.5, None], "inner": {"a": True}}
    checkpoints.save(self.path, {"zeros": jnp.zeros((500, 500))}, note)
    self.assertEqual(checkpoints.describe(self.path).metadata, note)
    # Uncompressed: a megabyte of zeros takes a megabyte.
    self.assertBetween(checkpoints.size(self.path), 1_000_000, 1_100_000)

  def test_relative_paths_and_homes(self):
    before = os.getcwd()
    self.addCleanup(os.chdir, before)
    os.chdir(self.path.parent)
    checkpoints.save("saved", {"a": jnp.ones(2)}, {})
    self.assertTrue(self.path.is_dir())
    home = os.path.relpath(self.path, pathlib.Path.home())
    found = checkpoints.describe(f"~/{home}")
    self.assertEqual(list(found.arrays), [("a",)])

  @parameterized.named_parameters(
    ("metadata", {"a": jnp.ones(2)}, {"x": {1, 2}}, "is no JSON"),
    ("nan", {"a": jnp.ones(2)}, {"x": float("nan")}, "is no JSON"),
    ("text", {"a": "text"}, {}, "cannot save .*text"),
    ("key", {"a": jax.random.key(0)}, {}, "jax.random.key_data"),
  )
  def test_what_cannot_be_saved(self, tree, note, message):
    with self.assertRaisesRegex(ValueError, message) as raised:
      checkpoints.save(self.path, tree, note)
    self.assertNotIn("\n", str(raised.exception))
    self.assertEmpty(list(self.path.parent.iterdir()))

  def test_an_existing_folder_is_kept(self):
    checkpoints.save(self.path, {"a": jnp.ones(2)}, {})
    with self.assertRaisesRegex(ValueError, "saved exists already: name a new"):
      checkpoints.save(self.path, {"a": jnp.zeros(2)}, {})
    target = {"a": jax.ShapeDtypeStruct((2,), jnp.float32)}
    loaded = checkpoints.load(self.path, target)
    chex.assert_trees_all_equal(loaded, {"a": jnp.ones(2)})

  def test_what_is_no_checkpoint(self):
    self.path.mkdir()
    with self.assertRaisesRegex(ValueError, "is no complete Orbax") as raised:
      checkpoints.describe(self.path)
    self.assertNotIn("\n", str(raised.exception))

  def run_python(self, code: str, status: int = 0) -> None:
    """Runs code that may end as it likes, with the path as its argument."""
    done = subprocess.run(
      [sys.executable, "-c", textwrap.dedent(code), self.path],
      cwd=ROOT,
      env={**os.environ, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, status, done.stderr[-2000:])


if __name__ == "__main__":
  absltest.main()
