# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A language model of random weights, and texts that it writes."""

import json
import pathlib
import string
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers as tokenizers_lib

import specjax
from specjax import tokenizers
from specjax.models import transformer

_WORDS = ("<s>", "</s>", *string.ascii_letters, *string.digits)
_CONFIG = transformer.TransformerConfig(
  vocab_size=len(_WORDS),
  embed_dim=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_dim=64,
  max_position=256,
  norm_eps=1e-5,
  rope_theta=10_000.0,
  rope_factors=None,
  # Tied, every token of a random model predicts itself.
  tie_embeddings=False,
)
# Spread of what the matrices give, relative to what they get. So set, a text
# has 1.7 nats a token, and depends on what attention finds more than on the
# last token alone.
_GAINS = {("attention", "output"): 1.5, ("mlp", "down"): 0.5, ("unembed",): 3.0}
PROMPT = 8  # random tokens before a text
NEW = 64  # the target's own


def write(folder: pathlib.Path, seed: int) -> None:
  """The model and a tokenizer of 64 words, as `specjax.load` reads them."""
  shapes = jax.eval_shape(
    lambda key: specjax.Model.init(_CONFIG, key).params, jax.random.key(0)
  )
  rng = np.random.default_rng(seed)

  def weight(path, shape):
    *module, name = (key.key for key in path)
    noise = rng.standard_normal(shape.shape)
    if name == "scale":
      return jnp.ones(shape.shape, jnp.float32)
    gain = _GAINS.get(tuple(module[-2:]), 1.0) / np.sqrt(len(noise))
    return jnp.asarray((0.5 if name == "embedding" else gain) * noise)

  params = jax.tree.map_with_path(weight, shapes)
  model = specjax.Model.from_params(_CONFIG, params)
  specjax.save(model, _tokenizer(), folder, "huggingface")


def _tokenizer() -> tokenizers.Tokenizer:
  words = {word: i for i, word in enumerate(_WORDS)}
  tokenizer = tokenizers_lib.Tokenizer(
    tokenizers_lib.models.BPE(vocab=words, merges=[])
  )
  tokenizer.pre_tokenizer = tokenizers_lib.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers_lib.decoders.ByteLevel()
  tokenizer.add_special_tokens(list(_WORDS[:2]))
  names = json.dumps({"bos_token": _WORDS[0], "eos_token": _WORDS[1]})
  with tempfile.TemporaryDirectory() as name:
    tokenizer.save(f"{name}/tokenizer.json")
    pathlib.Path(name, "tokenizer_config.json").write_text(names)
    return tokenizers.from_folder(name)


def prompts(number: int, seed: int) -> list[list[int]]:
  """[number][PROMPT] random tokens."""
  rng = np.random.default_rng(seed)
  return rng.integers(2, len(_WORDS), (number, PROMPT)).tolist()


def write_texts(
  path: pathlib.Path,
  model: specjax.Model,
  tokenizer: tokenizers.Tokenizer,
  number: int,
  seed: int,
) -> None:
  """Texts at temperature 1, in the form of answers to train on."""
  asked = prompts(number, seed)
  answers = specjax.generate(
    model,
    tokenizer,
    asked,
    sampling=specjax.Sampling(temperature=1.0),
    max_new_tokens=NEW,
    seed=seed,
    batch_size=128,
  )
  half = path.with_suffix(".new")
  with open(half, "w", encoding="utf-8") as file:
    for i, (prompt, answer) in enumerate(zip(asked, answers)):
      line = {
        "id": f"{path.stem}/{i}",
        "prompt_ids": prompt,
        "answer_ids": answer.tokens.tolist(),
      }
      file.write(json.dumps(line) + "\n")
  half.replace(path)
