# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is exported drafts what was trained, here and in other engines.

A folder that is loaded without an error may still be another drafter: a lost
map, a layer numbered from 1, a matrix transposed, a norm at another place. So
its laws are compared three ways: with those of training, with those of the
decoding loop, and with an engine of a few lines of numpy, which knows the file
and config.json alone.

Axis letters: T tokens, n slots, K heads, D model width, Q columns,
V vocabulary.
"""

import dataclasses
import json
import pathlib
import tempfile
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors

from specjax import types
from specjax.drafters import eagle as eagle_drafter
from specjax.drafters import medusa as medusa_drafter
from specjax.models.heads import (
  eagle_export,
  eagle_files,
  medusa_export,
  medusa_files,
)
from specjax.trees import branching
from tests import toys
from tests import train_objectives_test as trained
from train import supervision
from train.objectives import eagle, medusa

D, V, DEPTH = toys.TINY_CONFIG.embed_dim, toys.TINY_VOCAB, trained.DEPTH
TARGET, IDS = trained.TARGET, trained.IDS
PLAN = branching.chain(DEPTH)


@dataclasses.dataclass(frozen=True)
class Case:
  """A drafter and the layout that it is exported in.

  Attributes:
    format: of the layout.
    own: whether it has an output matrix of its own.
    reduced: whether it drafts some tokens only.
    same: whether what is loaded is the trained head, array by array.
  """

  format: str
  own: bool
  reduced: bool
  same: bool

  def objective(self) -> Any:
    ids = IDS if self.reduced else None
    if self.format != "eagle3":
      return medusa.medusa(TARGET, ids, DEPTH, 2, own_output=self.own)
    made = eagle.eagle(TARGET, ids, depth=DEPTH, own_output=self.own)
    return made.replace(target=TARGET.replace(feature_layers=(0, 1)))


CASES = {
  "medusa_shared": Case("medusa", False, False, False),
  "medusa_own": Case("medusa", True, False, True),
  "vllm_shared": Case("medusa-vllm", False, False, True),
  "vllm_shared_reduced": Case("medusa-vllm", False, True, True),
  "vllm_own": Case("medusa-vllm", True, False, True),
  "vllm_own_reduced": Case("medusa-vllm", True, True, True),
  "eagle3_own": Case("eagle3", True, False, True),
  "eagle3_own_reduced": Case("eagle3", True, True, True),
  "eagle3_shared": Case("eagle3", False, False, False),
  "eagle3_shared_reduced": Case("eagle3", False, True, False),
}
MAPS = {"d2t", "t2d", "token_map"}


class Reloaded(struct.PyTreeNode):
  """An objective whose drafter was exported and loaded again."""

  trained: Any
  loaded: Any

  target = property(lambda self: self.trained.target)
  ids = property(lambda self: self.trained.ids)
  teacher_forced = False

  def read(self, *arguments: Any) -> Any:
    return self.trained.read(*arguments)

  def logits(self, *arguments: Any) -> jax.Array:
    return self.trained.logits(*arguments)

  def drafter(self, params: Any, length: int) -> types.Drafter:
    del params, length
    return self.loaded


def spread(objective: Any) -> Any:
  """Parameters whose every number matters, without compiling `init`."""
  rng = np.random.default_rng(0)

  def leaf(x):
    value = rng.standard_normal(x.shape) / np.sqrt(x.shape[0])
    return jnp.asarray(1 + value if x.ndim == 1 else value, x.dtype)

  return jax.tree.map(leaf, jax.eval_shape(objective.init, jax.random.key(0)))


def exported(case: Case, objective: Any, params: Any, path: pathlib.Path):
  """The drafter of a folder that the trained one was written to."""
  target, head = objective.target, objective.drafter(params, DEPTH)
  if case.format == "eagle3":
    eagle_export.save(head.head, target, path)
    return eagle_drafter.Eagle(eagle_files.load(path, target), target, PLAN)
  if case.format == "medusa":
    medusa_export.save_original(head.heads, target, path, "some/target")
  else:
    medusa_export.save_vllm(head.heads, target, path)
  heads = medusa_files.load(path, target)
  return medusa_drafter.Medusa(heads, target, PLAN)


def wide(x: Any) -> np.ndarray:
  return np.asarray(x, np.float64)


def rms_norm(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
  return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * scale


def silu(x: np.ndarray) -> np.ndarray:
  return x / (1 + np.exp(-x))


def rotated(x: np.ndarray, theta: float) -> np.ndarray:
  """[T, heads, size] at positions 0, 1, ...; pairs are half a head apart."""
  half = x.shape[-1] // 2
  angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
  cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
  first, second = x[..., :half], x[..., half:]
  return np.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )


class Engine:
  """Reads a folder as other engines do; sizes are those of config.json."""

  def __init__(self, path: pathlib.Path):
    self.config = json.loads((path / "config.json").read_text())
    (file,) = path.glob("*.safetensors")
    self.tensors: dict[str, np.ndarray] = {
      name.removeprefix("medusa_heads."): x if name in MAPS else wide(x)
      for name, x in safetensors.load_file(file).items()
    }

  def medusa(self, hidden: np.ndarray) -> np.ndarray:
    """[n, K, V] logits of hidden states [n, D]."""
    c, t = self.config, self.tensors
    is_vllm = c.get("model_type") == "medusa"
    heads = c["num_heads"] if is_vllm else c["medusa_num_heads"]
    depth = c["num_hidden_layers"] if is_vllm else c["medusa_num_layers"]
    found = []
    for i in range(heads):
      x = hidden
      for j in range(depth):
        name = f"blocks.{i}.layers.{j}" if is_vllm else f"{i}.{j}.linear"
        x = x + silu(x @ t[f"{name}.weight"].T + t[f"{name}.bias"])
      name = f"lm_heads.{i}.weight" if is_vllm else f"{i}.{depth}.weight"
      if c.get("original_lm_head"):
        name = "lm_head.weight"
      found.append(x @ t[name].T)
    return self.placed(np.stack(found, axis=1), t.get("token_map"))

  def eagle3(self, embedded: np.ndarray, features: np.ndarray) -> np.ndarray:
    """[T, V] logits after pairs of tokens [T, D] and features [T, F]."""
    c, t = self.config, self.tensors
    norm = lambda x, name: rms_norm(x, t[f"{name}.weight"], c["rms_norm_eps"])
    layer = lambda x, name: x @ t[f"midlayer.{name}.weight"].T
    split = lambda x: x.reshape(len(x), -1, c["head_dim"])
    x = features @ t["fc.weight"].T
    read = np.concatenate(
      [
        norm(embedded, "midlayer.input_layernorm"),
        norm(x, "midlayer.hidden_norm"),
      ],
      axis=-1,
    )
    q, k, v = (split(layer(read, f"self_attn.{p}_proj")) for p in "qkv")
    shared = c["num_attention_heads"] // c["num_key_value_heads"]
    q, k = (rotated(a, c["rope_theta"]) for a in (q, k))
    k, v = (np.repeat(a, shared, axis=1) for a in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(c["head_dim"])
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y = np.einsum("hts,shd->thd", weights, v).reshape(len(x), -1)
    x = x + layer(y, "self_attn.o_proj")
    y = norm(x, "midlayer.post_attention_layernorm")
    y = silu(layer(y, "mlp.gate_proj")) * layer(y, "mlp.up_proj")
    x = x + layer(y, "mlp.down_proj")
    logits = norm(x, "norm") @ t["lm_head.weight"].T
    offsets = t.get("d2t")
    ids = None if offsets is None else np.arange(len(offsets)) + offsets
    return self.placed(logits, ids)

  def placed(self, logits: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
    """[..., V] logits over the target's ids of [..., Q] columns."""
    if ids is None:
      return logits
    found = np.full((*logits.shape[:-1], self.config["vocab_size"]), -np.inf)
    found[..., ids] = logits
    return found


@jax.jit
def of_pairs(head: Any, target: Any, tokens: jax.Array, features: jax.Array):
  """[T, V] logits of an EAGLE-3 head after T pairs."""
  block = types.Block(tokens, features, features, jnp.full(1, len(tokens[0])))
  cache = head.init_cache(1, tokens.shape[1])
  x, _ = head(tokens, head.features(block), cache, target)
  return head.logits(x, target)[0]


class Folder(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))


class GoldenTest(Folder):
  @parameterized.named_parameters(CASES.items())
  def test_what_is_loaded_and_what_an_engine_reads(self, case):
    objective = case.objective()
    params = spread(objective)
    loaded: Any = exported(case, objective, params, self.folder / "x")
    if case.same:
      wanted = objective.drafter(params, DEPTH)
      jax.tree.map(np.testing.assert_array_equal, loaded, wanted)
    engine = Engine(self.folder / "x")
    rng = np.random.default_rng(1)
    ids = np.arange(V) if objective.ids is None else np.asarray(objective.ids)
    if case.format == "eagle3":
      tokens = jnp.asarray(rng.integers(0, V, (1, 5)))
      features = jnp.asarray(rng.standard_normal((1, 5, 2 * D)), jnp.float32)
      target = objective.target
      found = of_pairs(loaded.head, target, tokens, features)
      embedded = wide(target.embed(tokens)[0])
      theirs = engine.eagle3(embedded, wide(features[0]))
      known = jnp.asarray(rng.standard_normal((5, DEPTH, D)), jnp.float32)
      again = loaded.head.logits(known, target)
    else:
      known = jnp.asarray(rng.standard_normal((5, D)), jnp.float32)
      found = again = loaded.heads(known, objective.target)
      theirs = engine.medusa(wide(known))
    ours = objective.logits(params, known, supervision.output_rows(objective))
    # A copied matrix is multiplied in another order: roundings of float32.
    near = 0 if case.same else 1e-5
    np.testing.assert_allclose(again[..., ids], ours, rtol=0, atol=near)
    # Float32 against float64.
    np.testing.assert_allclose(found, theirs, rtol=1e-4, atol=1e-4)
    self.assertEqual(np.isfinite(found).sum() * V, found.size * len(ids))

  @parameterized.named_parameters(CASES.items())
  @pytest.mark.slow
  def test_laws_of_training_are_those_of_decoding(self, case):
    """Those of a head that comes back as it was are tested where it is."""
    objective = case.objective()
    params = spread(objective)
    loaded = exported(case, objective, params, self.folder / "x")
    near, shifted = trained.compare(Reloaded(objective, loaded), params)
    self.assertLess(near, trained.LawsTest.NEAR)
    self.assertGreater(shifted, 0.1)


class LayoutTest(Folder):
  def test_layers_of_the_target_in_both_ways_of_counting(self):
    """sgl-project/sglang#25454: ids of one way were read as of the other."""
    case = CASES["eagle3_own_reduced"]
    objective = case.objective()
    exported(case, objective, spread(objective), self.folder / "x")
    path = self.folder / "x" / "config.json"
    config = json.loads(path.read_text())
    self.assertEqual(config["eagle_aux_hidden_state_layer_ids"], [1, 2])
    inner = config.pop("eagle_config")
    self.assertEqual(inner["eagle_aux_hidden_state_layer_ids"], [0, 1])
    # What vLLM alone needs is enough.
    path.write_text(json.dumps(config))
    found = eagle_files.load(self.folder / "x", objective.target)
    self.assertEqual(found.config.feature_layers, (0, 1))

  @pytest.mark.fault_case("B45")
  def test_heads_that_share_a_matrix_read_the_rows_of_their_map(self):
    """vllm-project/vllm-ascend#9795: without it, other rows are drafted."""
    case = CASES["vllm_shared_reduced"]
    objective = case.objective()
    exported(case, objective, spread(objective), self.folder / "x")
    file = self.folder / "x" / "model.safetensors"
    tensors = safetensors.load_file(file)
    self.assertEqual(
      tensors["medusa_heads.lm_head.weight"].shape, (len(IDS), D)
    )
    del tensors["token_map"]
    safetensors.save_file(tensors, file)
    with self.assertRaisesRegex(ValueError, "drafts 42 of the target's 64"):
      medusa_files.load(self.folder / "x", TARGET)

  def test_columns_that_stand_for_no_token_are_left_out(self):
    """A file may map columns to rows of padding; others keep their order."""
    target = toys.tiny(num_tokens=60)
    found = medusa.medusa(
      target, jnp.asarray([3, 62, 9, 5]), 2, own_output=True
    )
    head = found.drafter(spread(found), 2).heads
    medusa_export.save_vllm(head, target, self.folder / "whole")
    loaded = medusa_files.load(self.folder / "whole", target)
    medusa_export.save_vllm(loaded, target, self.folder / "again")
    engine = Engine(self.folder / "again")
    np.testing.assert_array_equal(engine.tensors["token_map"], [3, 9, 5])
    x = np.random.default_rng(0).standard_normal((2, D))
    theirs = engine.medusa(x)[..., [3, 9, 5]]
    wanted = Engine(self.folder / "whole").medusa(x)[..., [3, 9, 5]]
    np.testing.assert_array_equal(theirs, wanted)

  @parameterized.parameters(60, 72)
  def test_padding_of_another_size_is_no_other_vocabulary(self, size):
    target, other = (
      toys.tiny(
        config=dataclasses.replace(toys.TINY_CONFIG, vocab_size=vocab),
        num_tokens=60,
      )
      for vocab in (V, size)
    )
    objective = medusa.medusa(other, None, 1, own_output=True)
    head = objective.drafter(spread(objective), 1).heads
    first, second = self.folder / "first", self.folder / "second"
    medusa_export.save_original(head, other, first, "")
    loaded = medusa_files.load(first, target)
    medusa_export.save_original(loaded, target, second, "")
    was, now = (Engine(path).tensors["0.1.weight"] for path in (first, second))
    self.assertEqual((was.shape, now.shape), ((size, D), (V, D)))
    np.testing.assert_array_equal(was[:60], now[:60])

  def test_a_mistake_in_names_that_both_ways_share(self):
    """The contract is spelled out beside them."""
    case = CASES["medusa_own"]
    objective = case.objective()
    names = medusa_files.original_names

    def wrong(number, depth):
      found = names(number, depth)
      return {
        path: name.replace("linear", "lin") for path, name in found.items()
      }

    with (
      mock.patch.object(medusa_files, "original_names", wrong),
      self.assertRaisesRegex(ValueError, "'0.0.lin.bias' the head has F32"),
    ):
      exported(case, objective, spread(objective), self.folder / "x")
    self.assertEmpty(list(self.folder.iterdir()))

  def test_a_layer_that_the_layout_does_not_have(self):
    objective = CASES["eagle3_own"].objective()
    layer = dataclasses.replace(objective.config.layer, qkv_bias=True)
    config = dataclasses.replace(objective.config, layer=layer)
    objective = objective.replace(config=config)
    head = objective.drafter(spread(objective), DEPTH).head
    with self.assertRaisesRegex(ValueError, "cannot state"):
      eagle_export.save(head, objective.target, self.folder / "x")
    layer = dataclasses.replace(layer, output_bias=True)
    config = dataclasses.replace(objective.config, layer=layer)
    objective = objective.replace(config=config)
    head = objective.drafter(spread(objective), DEPTH).head
    with self.assertRaisesRegex(ValueError, "'attention.key.bias' .* F32"):
      eagle_export.save(head, objective.target, self.folder / "x")
    self.assertEmpty(list(self.folder.iterdir()))

  def test_a_folder_that_is_there(self):
    case = CASES["medusa_own"]
    objective = case.objective()
    with self.assertRaisesRegex(ValueError, "exists already"):
      exported(case, objective, spread(objective), self.folder)


if __name__ == "__main__":
  absltest.main()
