# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A draft model with another tokenizer, by the tokens that both know.

The foreign model is wrapped as a `types.Model` in the target's ids, so every
drafter that takes a model takes it too, in batches and sampled. Its law is that
of the shared tokens, normalised by the one sampler: the law which the tokens
are really drawn from, so ratio rules stay exact for any overlap (arXiv
2502.05202, token-level intersection).

Axis letters: B batch, T block width, V target's vocabulary, W draft's.
"""

from absl import logging
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sharding, tokenizers, types
from specjax.drafters import draft_model

_NONE = -1  # The draft has no such token.


def cross_vocabulary(
  target: types.Model,
  model: types.Model,
  tokenizer: tokenizers.Tokenizer,
  draft_tokenizer: tokenizers.Tokenizer,
  length: int,
) -> draft_model.DraftModel:
  """A draft model of another vocabulary (arXiv 2502.05202).

  Args:
    target: the model that answers.
    model: the draft model.
    tokenizer: the target's.
    draft_tokenizer: the draft model's.
    length: tokens to draft at most.

  Raises:
    ValueError: the vocabularies share no token.
  """
  pairs = shared_tokens(tokenizer, draft_tokenizer)
  if not pairs:
    raise ValueError(
      "the draft model's tokenizer shares no token with the target's: choose "
      "another draft model"
    )
  logging.info(
    "the draft model knows %d of the target's %d tokens",
    len(pairs),
    tokenizer.num_tokens,
  )
  outputs = np.full((target.vocab_size,), _NONE, np.int32)
  outputs[list(pairs)] = list(pairs.values())
  inputs = np.maximum(outputs, 0)
  for token in set(range(tokenizer.num_tokens)) - set(pairs):
    inputs[token] = _last_piece(tokenizer, draft_tokenizer, token)
  wrapped = SharedVocabulary(
    model, jnp.asarray(inputs), jnp.asarray(outputs), target.num_tokens
  )
  return draft_model.DraftModel(wrapped, length)


def shared_tokens(
  target: tokenizers.Tokenizer, draft: tokenizers.Tokenizer
) -> dict[int, int]:
  """Draft's id of each target token that both vocabularies have.

  Ordinary tokens are the same when their bytes are; special tokens when their
  texts are, or when both end an answer or begin a text. Of several ids with
  the same bytes (byte fallbacks beside characters) the last one counts.
  """
  ours, theirs = _by_meaning(target), _by_meaning(draft)
  return {ours[key]: theirs[key] for key in ours if key in theirs}


def _by_meaning(tokenizer: tokenizers.Tokenizer) -> dict[tuple, int]:
  special = tokenizer.special_ids
  found = {
    (token in special, tokenizer.token_bytes(token)): token
    for token in range(tokenizer.num_tokens)
  }
  # By their role, whatever they are called; no other entry may name them too.
  roles = {"bos": tokenizer.bos_id, "eos": (*tokenizer.eos_ids, None)[0]}
  roles = {role: token for role, token in roles.items() if token is not None}
  found = {k: v for k, v in found.items() if v not in roles.values()}
  return found | {(True, role): token for role, token in roles.items()}


def _last_piece(tokenizer, draft_tokenizer, token) -> int:
  """Draft's id for the end of a token that it writes with several, or 0."""
  text = tokenizer.token_bytes(token).decode("utf-8", "replace")
  pieces = draft_tokenizer.encode(text, bos=False)
  return pieces[-1] if pieces else 0


class SharedVocabulary(struct.PyTreeNode):
  """A model of another vocabulary, in the target's ids.

  What the draft lacks it never proposes, and reads as its own last piece of
  that text: a guess of a guess, which costs acceptance and nothing else.

  Attributes:
    model: the foreign model.
    inputs: [V] the draft's id to feed for each target id.
    outputs: [V] the draft's id that means the same; -1 where there is none.
    num_tokens: ids the target's tokenizer knows.
  """

  model: types.Model
  inputs: jax.Array
  outputs: jax.Array
  num_tokens: int = struct.field(pytree_node=False)

  @property
  def rules(self) -> sharding.Rules | None:
    return sharding.rules_of(self.model)

  @property
  def vocab_size(self) -> int:
    return self.outputs.shape[0]

  @property
  def max_position(self) -> int:
    return self.model.max_position

  def __call__(
    self,
    tokens: jax.Array,
    cache: types.KVCache,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
    features: jax.Array | None = None,
  ) -> types.Output:
    """See `types.Model`."""
    fed = jnp.take(self.inputs, tokens, mode="clip")
    output = self.model(fed, cache, positions, mask, features)
    return output.replace(logits=self._in_target_ids(output.logits))

  def init_cache(self, batch: int, capacity: int, block: int) -> types.KVCache:
    return self.model.init_cache(batch, capacity, block)

  def embed(self, tokens: jax.Array) -> jax.Array:
    return self.model.embed(jnp.take(self.inputs, tokens, mode="clip"))

  def unembed(self, hidden: jax.Array) -> jax.Array:
    return self._in_target_ids(self.model.unembed(hidden))

  def truncate(self, layers: int) -> "SharedVocabulary":
    return self.replace(model=self.model.truncate(layers))

  def _in_target_ids(self, logits):
    """[..., W] to [..., V]; what the draft lacks gets -inf."""
    found = jnp.take(logits, jnp.maximum(self.outputs, 0), axis=-1)
    return jnp.where(self.outputs >= 0, found, -jnp.inf)
