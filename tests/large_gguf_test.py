# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A large 4-bit model loads within its memory and decodes with its draft.

The files have Qwen2's layout and random blocks. The models of the default tier
have a twentieth of the parameters and go through the same code; the slow tier
runs the sizes of Qwen2.5 1.5B and 0.5B (8.2 GB of float32).
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

from absl.testing import absltest, parameterized
import gguf
import numpy as np
import pytest

from specjax.text import vocabulary

ROOT = pathlib.Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Of a model with Qwen2's layout and heads of 64 or 128."""

  layers: int
  width: int
  heads: int
  kv_heads: int
  mlp: int
  vocab: int

  @property
  def kv_width(self) -> int:
    return self.width // self.heads * self.kv_heads

  def tensors(self) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor, [outputs, inputs] of matrices."""
    width, kv, mlp = self.width, self.kv_width, self.mlp
    layer: dict[str, tuple[int, ...]] = {
      "attn_norm.weight": (width,),
      "attn_q.weight": (width, width),
      "attn_q.bias": (width,),
      "attn_k.weight": (kv, width),
      "attn_k.bias": (kv,),
      "attn_v.weight": (kv, width),
      "attn_v.bias": (kv,),
      "attn_output.weight": (width, width),
      "ffn_norm.weight": (width,),
      "ffn_gate.weight": (mlp, width),
      "ffn_up.weight": (mlp, width),
      "ffn_down.weight": (width, mlp),
    }
    shapes: dict[str, tuple[int, ...]] = {
      "token_embd.weight": (self.vocab, width)
    }
    for index in range(self.layers):
      for name, shape in layer.items():
        shapes[f"blk.{index}.{name}"] = shape
    shapes["output_norm.weight"] = (width,)
    return shapes

  def num_parameters(self) -> int:
    return sum(int(np.prod(shape)) for shape in self.tensors().values())

  def keys(self) -> dict[str, int]:
    return {
      "qwen2.block_count": self.layers,
      "qwen2.context_length": 32768,
      "qwen2.embedding_length": self.width,
      "qwen2.feed_forward_length": self.mlp,
      "qwen2.attention.head_count": self.heads,
      "qwen2.attention.head_count_kv": self.kv_heads,
    }


QWEN_1_5B = Sizes(28, 1536, 12, 2, 8960, 151_936)
QWEN_0_5B = Sizes(24, 896, 14, 2, 4864, 151_936)
SMALL = Sizes(2, 1024, 8, 2, 6144, 30_000)
SMALL_DRAFT = Sizes(1, 512, 4, 2, 2048, 30_000)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
  """Bytes, words that no merge makes, an end, and padding up to `size`."""
  letters = sorted(vocabulary.byte_alphabet())
  known = size - 271  # As many ids pad the vocabulary of Qwen2.5.
  words = ["wo", *(f"word{i}" for i in range(known - len(letters) - 2))]
  padding = [f"[PAD{i}]" for i in range(known, size)]
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre("qwen2")
  writer.add_token_list([*letters, *words, "<|im_end|>", *padding])
  writer.add_token_types([1] * (known - 1) + [3] + [5] * (size - known))
  writer.add_token_merges(["w o"])
  writer.add_eos_token_id(known - 1)


def _blocks(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
  """Random Q4_0 blocks [rows, bytes] whose numbers have a matrix's usual size.

  A block is a float16 scale and 32 numbers from -8 to 7 in 16 bytes.
  """
  rows, columns = shape
  blocks = np.frombuffer(rng.bytes(rows * columns // 32 * 18), np.uint8)
  blocks = blocks.reshape(-1, 18).copy()
  # Numbers spread evenly over 16 values have a deviation of 4.6.
  scale = np.array([columns**-0.5 / 4.6], np.float16)
  blocks[:, :2] = scale.view(np.uint8)
  return blocks.reshape(rows, -1)


def write(path: pathlib.Path, sizes: Sizes, seed: int) -> None:
  """Writes a model tensor by tensor."""
  rng = np.random.default_rng(seed)
  writer = gguf.GGUFWriter(path, "qwen2")
  for key, value in sizes.keys().items():
    writer.add_uint32(key, value)
  writer.add_float32("qwen2.attention.layer_norm_rms_epsilon", 1e-6)
  writer.add_float32("qwen2.rope.freq_base", 1e6)
  _add_vocabulary(writer, sizes.vocab)
  q4 = gguf.GGMLQuantizationType.Q4_0
  for name, shape in sizes.tensors().items():
    if len(shape) == 1:
      nbytes = 4 * shape[0]
      writer.add_tensor_info(name, shape, np.dtype(np.float32), nbytes)
      continue
    stored = (shape[0], shape[1] // 32 * 18)
    nbytes = stored[0] * stored[1]
    writer.add_tensor_info(name, stored, np.dtype(np.uint8), nbytes, q4)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_ti_data_to_file()
  for name, shape in sizes.tensors().items():
    if len(shape) == 2:
      writer.write_tensor_data(_blocks(shape, rng))
    else:
      mean = 1.0 if "norm" in name else 0.0
      values = rng.normal(mean, 0.02, shape).astype(np.float32)
      writer.write_tensor_data(values)
  writer.close()


# Loads both, decodes with and without the draft, and prints what it saw.
# VmHWM starts anew with the program; ru_maxrss would begin at the parent's.
PROGRAM = """
import json, pathlib, sys, time
import gguf, jax, tokenizers
import specjax

def peak():
  status = pathlib.Path("/proc/self/status").read_text()
  return int(status.split("VmHWM:")[1].split()[0]) * 1024

def load(path):
  before, start = peak(), time.perf_counter()
  model, tokenizer = specjax.load(path)
  jax.block_until_ready(model.params)
  leaves = jax.tree.leaves(model.params)
  seen = dict(
    growth=peak() - before,
    seconds=time.perf_counter() - start,
    total=sum(leaf.nbytes for leaf in leaves),
    largest=max(leaf.nbytes for leaf in leaves),
    known=model.num_tokens,
  )
  return model, tokenizer, seen

jax.block_until_ready(jax.device_put(jax.numpy.ones(8)))
target, tokenizer, first = load(sys.argv[1])
draft, _, second = load(sys.argv[2])
settings = dict(max_new_tokens=12, sampling=specjax.Sampling(temperature=1.0))
start = time.perf_counter()
answers = [
  specjax.generate(target, tokenizer, ["What is a comet?"], **settings, **more)
  for more in ({}, {"drafter": specjax.DraftModel(draft, 3)})
]
print(json.dumps(dict(
  target=first,
  draft=second,
  ids=[list(map(int, answer[0].tokens)) for answer in answers],
  drafted=int(answers[1][0].drafted.sum()),
  seconds=time.perf_counter() - start,
  peak=peak(),
)))
"""


def run(target: Sizes, draft: Sizes) -> dict:
  """What PROGRAM saw."""
  with tempfile.TemporaryDirectory() as folder:
    paths = [pathlib.Path(folder) / name for name in ("t.gguf", "d.gguf")]
    for seed, (path, sizes) in enumerate(zip(paths, (target, draft))):
      write(path, sizes, seed)
    done = subprocess.run(
      [sys.executable, "-c", PROGRAM, *map(str, paths)],
      capture_output=True,
      text=True,
      check=False,
      cwd=ROOT,
    )
  if done.returncode:
    raise AssertionError(done.stderr)
  seen = json.loads(done.stdout)
  print(json.dumps(seen), file=sys.stderr)
  return seen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
class LargeGgufTest(parameterized.TestCase):
  def check(self, target: Sizes, draft: Sizes, slack: int):
    seen = run(target, draft)
    loaded = seen["target"]
    self.assertEqual(loaded["total"], 4 * target.num_parameters())
    self.assertEqual(loaded["known"], target.vocab - 271)
    self.assertLessEqual(loaded["growth"], 1.3 * loaded["total"] + slack)
    # A growth below the parameters would mean that nothing was measured.
    self.assertGreater(loaded["growth"], 0.95 * loaded["total"])
    plain, drafted = seen["ids"]
    self.assertLen(plain, 12)
    self.assertEqual(drafted, plain)
    self.assertGreater(seen["drafted"], 0)

  def test_a_twentieth_of_the_size(self):
    """The file's header and the vocabulary weigh more here than in the rule."""
    self.check(SMALL, SMALL_DRAFT, slack=64 << 20)

  @pytest.mark.slow
  def test_qwen_1_5b_with_qwen_0_5b(self):
    self.assertEqual(QWEN_1_5B.num_parameters(), 1_543_714_304)
    self.check(QWEN_1_5B, QWEN_0_5B, slack=0)


if __name__ == "__main__":
  absltest.main()
