# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers on meshes of 8 CPU devices, in a process of its own.

  python -m tests.mesh_program few|all

writes one line of JSON for each model, mesh and method: the tokens, how arrays
lie on the devices, and what the compiled loop sends between them.
"""

import dataclasses
import json
import pathlib
import re
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp

from specjax import answers, sharding
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.bench import backend
from specjax.decoding import decode
from specjax.drafters import (
  cross_vocabulary,
  draft_model,
  ngram,
  tree_draft_model,
)
from specjax.models import int8
from specjax.models import model as model_lib
from specjax.models.heads import eagle_files, saved_heads
from specjax.policies import policy
from specjax.verifiers import coupled, rejection
from tests import decoding, draft_heads, toys

MESHES = ((1, 1), (8, 1), (1, 8), (2, 4))
DEVICES, ROWS, NEW = 8, 8, 24
# A number that no other size has, so that a cache is known by it.
CAPACITY = 192
# 2 kv heads are repeated on longer axes; 9 and 3 heads, as in SmolLM2, divide
# by none, and attention is held whole. The embedding of a tied model is read
# twice; this one has 8-bit matrices as well.
MODELS: dict[str, dict[str, Any]] = {
  "grouped": dict(num_heads=8, num_kv_heads=2),
  "odd": dict(num_heads=9, num_kv_heads=3),
  "tied": dict(tie_embeddings=True, qkv_bias=True, qk_norm=True),
}
METHODS = {
  "plain": (None, "coupled"),
  "ngram": ("ngram", "coupled"),
  "draft": ("draft", "coupled"),
  "ngram_rejection": ("ngram", "rejection"),
  "draft_rejection": ("draft", "rejection"),
  "draft_tree": ("tree", "coupled"),
  "draft_cross_vocabulary": ("cross_vocabulary", "rejection"),
  "medusa": ("medusa", "rejection"),
  "eagle": ("eagle3", "coupled"),
  "chained": ("hydra", "coupled"),
  "block_parallel": ("block_parallel", "rejection"),
}
# What the default tier runs: rows that are split, heads held whole, kv heads
# repeated; both drafters and rules.
FEW = (
  ("grouped", "ngram", ((1, 1), (8, 1))),
  ("odd", "draft_rejection", ((1, 1), (1, 8))),
  ("tied", "ngram", ((1, 1), (2, 4))),
)
VERIFIERS = {"coupled": coupled.Coupled, "rejection": rejection.Rejection}
COLLECTIVES = re.compile(
  r" = (.*?) (all-gather|all-to-all|collective-permute|all-reduce)[\w-]*\("
)


def config(name: str):
  return dataclasses.replace(toys.TINY_CONFIG, **MODELS[name])


def prompts() -> list[list[int]]:
  """Ragged, and with repetitions for drafters that look things up."""
  return [[*decoding.PROMPTS[row % 3], row] for row in range(ROWS)]


def head_drafter(kind: str, target: Any) -> Any:
  """With heads from a folder."""
  made = draft_heads.drafter(kind, target)
  name = "heads" if hasattr(made, "heads") else "head"
  head = getattr(made, name)
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "own"
    saved_heads.save(head, path)
    if kind == "eagle3":
      loaded = eagle_files.load(path, target)
    else:
      loaded = saved_heads.load(path, target, type(head))
  return made.replace(**{name: loaded})


def shared(draft: Any) -> Any:
  """A draft model that lacks some of the target's tokens."""
  ids = jnp.arange(toys.TINY_VOCAB)
  return cross_vocabulary.SharedVocabulary(
    draft, ids, jnp.where(ids % 8, ids, -1), draft.num_tokens
  )


def method(kind: str | None, rule: str, target: Any, draft: Any) -> Any:
  if kind is None:
    return answers.Method()
  drafter = {
    "cross_vocabulary": lambda: draft_model.DraftModel(shared(draft), 4),
    "medusa": lambda: head_drafter("medusa", target),
    "eagle3": lambda: head_drafter("eagle3", target),
    "hydra": lambda: head_drafter("hydra", target),
    "block_parallel": lambda: head_drafter("block_parallel", target),
    "ngram": lambda: ngram.NGram(4),
    "draft": lambda: draft_model.DraftModel(draft, 4),
    "tree": lambda: tree_draft_model.dynamic_tree(draft, 3, 3, 3, 8),
  }[kind]()
  depth = drafter.max_depth
  wanted = policy.Fixed(depth, widths=())
  return answers.Method(drafter, VERIFIERS[rule](), wanted)


def shards(array: jax.Array) -> list[int]:
  """Parts an array has along each of its dimensions."""
  part = array.sharding.shard_shape(array.shape)
  return [whole // own for whole, own in zip(array.shape, part)]


def sent(text: str) -> list[list[Any]]:
  """Operation and dimensions of each array that devices exchange."""
  found = []
  for result, operation in COLLECTIVES.findall(text):
    for dims in re.findall(r"\w\d*\[([\d,]*)\]", result):
      found.append([operation, [int(d) for d in dims.split(",") if d]])
  return found


def answer(target, one: answers.Method) -> dict[str, Any]:
  sampling = sampling_lib.Sampling(temperature=jnp.asarray([0.0, 1.0] * 4))
  letters: Any = decoding.Letters([str(i) for i in range(toys.TINY_VOCAB)])
  session = session_lib.Session(
    target,
    letters,
    one,
    answers.Settings(max_new_tokens=NEW, seed=3),
    prompts(),
    sampling=sampling,
    capacity=CAPACITY,
  )
  state = session.state
  lowered = decode.advance.lower(
    session.model,
    one.drafter,
    one.verifier,
    state,
    session.sampling,
    session.policy,
    session.stop,
    4,
  )
  text = lowered.compile().as_text() or ""
  for _ in session.rounds():
    pass
  state = session.state
  drafted = jax.tree.leaves(state.drafter)
  return {
    "tokens": [result.tokens.tolist() for result in session.results()],
    "accepted": int(sum(result.accepted.sum() for result in session.results())),
    "cache": shards(state.cache.layers[0][0]),
    "rows": {
      name: shards(getattr(state, name))
      for name in ("tokens", "lengths", "done", "keys")
    },
    "draft_cache": [shards(x) for x in drafted if x.ndim == 4][:1],
    "sent": sent(text),
    "head_outputs": head_outputs(one.drafter),
    "programs": programs(session),
  }


def programs(session) -> int:
  """Loops that a further turn compiles, which is told in chunks."""
  names = []

  def listen(event: str, duration_secs: float, **details: str | int):
    del duration_secs
    if event.endswith("backend_compile_duration"):
      names.append(details["fun_name"])

  jax.monitoring.register_event_duration_secs_listener(listen)
  session.prefill([[1, 2]] * ROWS)
  for _ in session.rounds(2):
    pass
  return names.count("jit(run)")


def head_outputs(drafter: Any) -> list[list[int]]:
  """How the output matrices of draft heads lie."""
  head = getattr(drafter, "head", getattr(drafter, "heads", None))
  if head is None:
    return []
  leaves = jax.tree.leaves_with_path(head.params)
  return [
    shards(leaf)
    for keys, leaf in leaves
    if leaf.shape[-1] == toys.TINY_VOCAB and keys[-2].key == "output"
  ]


def weights(target) -> dict[str, list[int]]:
  layer = target.params["layer_0"]
  output = target.params.get("unembed", target.params["embed"])
  return {
    "embedding": shards(target.params["embed"]["embedding"]),
    "query": shards(layer["attention"]["query"]["kernel"]),
    "key": shards(layer["attention"]["key"]["kernel"]),
    "output": shards(layer["attention"]["output"]["kernel"]),
    "up": shards(layer["mlp"]["up"]["kernel"]),
    "down": shards(layer["mlp"]["down"]["kernel"]),
    "norm": shards(layer["mlp_norm"]["scale"]),
    "unembed": shards(output["kernel" if "kernel" in output else "embedding"]),
  }


def models(name: str) -> tuple[Any, Any]:
  """A target and a draft that it accepts in part."""
  target = model_lib.Model.init(config(name), jax.random.key(0))
  noise = model_lib.Model.init(config(name), jax.random.key(1))
  params = jax.tree.map(lambda a, b: a + 0.2 * b, target.params, noise.params)
  draft = target.replace(params=params)
  if name == "tied":
    target, draft = int8.model(target), int8.model(draft)
  return target, draft


def main(which: str) -> None:
  jax.config.update("jax_num_cpu_devices", DEVICES)
  every = tuple((name, label, MESHES) for name in MODELS for label in METHODS)
  for name, label, meshes in every if which == "all" else FEW:
    target, draft = models(name)
    for sizes in meshes:
      mesh = sharding.make_mesh(*sizes)
      placed = target.on_mesh(mesh)
      record = {
        "model": name,
        "mesh": sizes,
        "method": label,
        "kv_copies": placed.config.kv_copies,
        "weights": weights(placed),
        **answer(placed, method(*METHODS[label], placed, draft.on_mesh(mesh))),
      }
      print(json.dumps(record), flush=True)
      backend.free_programs()


if __name__ == "__main__":
  main(*sys.argv[1:])
