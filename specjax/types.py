# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of specjax: what passes between target, drafter and verifier.

Axis letters: B batch, T drafted nodes (or the width of a block), W block width
(T + 1 when a draft is verified), U visible recent slots, P path length
(max_depth + 1), S token slots, D model width, F features width, V vocabulary,
E EOS ids, Q stop sequences.

The block. One round verifies a block of W = T + 1 slots. Slot 0 is the root:
the last committed token, which the target's cache does not hold yet (so
cache.lengths == lengths - 1). Drafted node i sits in slot i + 1 and `parents`
hold slots, so a chain has parents 0, 1, 2, ... Nodes come breadth first,
siblings stand in draw order, and the first `count` nodes are valid. Plain
decoding is the empty draft.
"""

from typing import TYPE_CHECKING, Any, Protocol

from flax import struct
import jax
import jax.numpy as jnp

from specjax import cache as cache_lib
from specjax import streams as streams_lib

if TYPE_CHECKING:
  from specjax import sampling as sampling_lib

KVCache = cache_lib.KVCache


class Output(struct.PyTreeNode):
  """What a model returns for a block."""

  logits: jax.Array  # [B, T, V] float32
  hidden: jax.Array  # [B, T, D] after the last layer's norm
  features: jax.Array | None  # [B, T, F] of the layers asked for
  cache: KVCache  # the block appended, not committed


class Draft(struct.PyTreeNode):
  """Proposed tokens, a tree below the last committed token.

  Attributes:
    tokens: the nodes; node i sits in slot i + 1.
    parents: slot of each node's parent.
    log_q: the law each node was drawn from given its parent and its earlier
      siblings (those removed, the rest renormalised). None means that the
      tokens are taken as given: a law with all mass on them. That is exact for
      every proposal that reads no ACCEPT or RESIDUAL stream.
    count: valid nodes of each row, the first ones.
    max_depth: the deepest node; T for a chain.
  """

  tokens: jax.Array  # [B, T] int32
  parents: jax.Array  # [B, T] int32
  log_q: jax.Array | None  # [B, T, V]
  count: jax.Array  # [B] int32
  max_depth: int = struct.field(pytree_node=False)
  part: jax.Array | None = None  # [B] int32 which of several drafters made it

  @property
  def is_chain(self) -> bool:
    return self.max_depth == self.tokens.shape[1]


class Acceptance(struct.PyTreeNode):
  """What a round keeps.

  Attributes:
    path: kept slots, the root first; valid below `count`.
    tokens: emitted tokens: the accepted nodes, then the target's own.
    count: tokens emitted, accepted + 1 unless a stop cut the round short.
    accepted: drafted tokens kept.
    rejected: the last kept slot had valid children and none was taken.
  """

  path: jax.Array  # [B, P] int32
  tokens: jax.Array  # [B, P] int32
  count: jax.Array  # [B] int32
  accepted: jax.Array  # [B] int32
  rejected: jax.Array  # [B] bool
  part: jax.Array | None = None  # [B] int32 the draft's


class Block(struct.PyTreeNode):
  """Tokens just committed; hidden[i] is what predicted tokens[i]."""

  tokens: jax.Array  # [B, W] int32
  hidden: jax.Array  # [B, W, D]
  features: jax.Array | None  # [B, W, F]
  count: jax.Array  # [B] int32


class View(struct.PyTreeNode):
  """A whole verify pass, for drafters that learn from rejected slots too."""

  output: Output
  draft: Draft
  acceptance: Acceptance


class Stop(struct.PyTreeNode):
  """When a row ends; data, so one trace serves all (sequences are padded).

  Attributes:
    eos: ids that end a row, padded with -1.
    limit: new tokens of each row.
    sequences: stop sequences, right-aligned and padded in front with -1.
  """

  eos: jax.Array  # [E] int32
  limit: jax.Array  # [B] int32
  sequences: jax.Array  # [Q, L] int32


class Context(struct.PyTreeNode):
  """What a drafter may know when it proposes: all of it was committed before.

  Attributes:
    tokens: prompt and answer so far.
    lengths: committed tokens; the next one gets this position.
    history: what the sampler must know of the text, or None if nothing.
    sampling: the target's settings, which an honest q shares.
    noise: Gumbel noise for proposals.
    draft_length: depth wanted, per row.
    cache: the target's; it goes through `propose` and comes back.
    policy, policy_state: asked for `keep_drafting` before each further node.
  """

  tokens: jax.Array  # [B, S] int32
  lengths: jax.Array  # [B] int32
  history: "sampling_lib.History | None"
  sampling: "sampling_lib.Sampling"
  noise: streams_lib.Noise
  draft_length: jax.Array  # [B] int32
  cache: KVCache
  policy: "Policy"
  policy_state: Any

  @property
  def last_token(self) -> jax.Array:
    """[B] the root: the newest committed token."""
    last = self.lengths[:, None] - 1
    return jnp.take_along_axis(self.tokens, last, axis=1)[:, 0]


class Stats(struct.PyTreeNode):
  """What each round of a row did since its last prompt, first round first."""

  rounds: jax.Array  # [B] int32
  emitted: jax.Array  # [B, S] int32
  drafted: jax.Array  # [B, S] int32 deepest valid node
  accepted: jax.Array  # [B, S] int32
  rejected: jax.Array  # [B, S] bool


class DecodeState(struct.PyTreeNode):
  """The carry of the decoding loop."""

  tokens: jax.Array  # [B, S] int32 prompt, then answer
  log_probs: jax.Array  # [B, S] float32 the model's own, of emitted tokens
  lengths: jax.Array  # [B] int32 committed tokens
  prompt_lengths: jax.Array  # [B] int32
  done: jax.Array  # [B] bool
  reason: jax.Array  # [B] int32 a stopping.Reason
  history: "sampling_lib.History | None"
  cache: KVCache  # the target's; lengths - 1 slots once prefilled
  drafter: Any
  policy: Any
  keys: jax.Array  # [B] typed keys
  round: jax.Array  # [B] int32 rounds run, over all prompts of the row
  stats: Stats


class Model(Protocol):
  """A language model as a pytree: parameters are leaves, the rest is static."""

  @property
  def vocab_size(self) -> int: ...  # V, the width of the logits
  @property
  def num_tokens(self) -> int: ...  # ids that get probability, the first ones
  @property
  def max_position(self) -> int: ...  # positions it was made for

  def __call__(
    self,
    tokens: jax.Array,
    cache: KVCache,
    positions: jax.Array | None = None,
    mask: jax.Array | None = None,
    features: jax.Array | None = None,
  ) -> Output:
    """Runs a block [B, T] that follows the committed slots of the cache.

    Args:
      tokens: the block.
      cache: keys and values; the block is appended, not committed.
      positions: [B, U] of the last U >= T slots, which end with the block;
        None counts on from the cache's lengths.
      mask: [B, T, U] which of those slots each token sees; None is causal.
        Everything before them is visible.
      features: [B, T, F] inputs of models that read another model's features.
    """

  def init_cache(self, batch: int, capacity: int, block: int) -> KVCache:
    """An empty cache for blocks of at most `block` slots."""

  def embed(self, tokens: jax.Array) -> jax.Array:
    """[...] ids to [..., D]."""

  def unembed(self, hidden: jax.Array) -> jax.Array:
    """[..., D] to logits [..., V] float32."""

  def truncate(self, layers: int) -> "Model":
    """The model of the first `layers` layers."""


class Drafter(Protocol):
  """Guesses what follows. It learns only what was committed, never rolls back.

  Uncommitted writes of a drafter lie past its lengths. A pytree itself, so its
  settings are static and its parameters are leaves.
  """

  @property
  def num_nodes(self) -> int: ...  # T
  @property
  def max_depth(self) -> int: ...  # of the deepest node; T for a chain

  def init(self, batch: int, capacity: int) -> Any:
    """State before the prompt; `capacity` counts token slots of the target."""

  def observe(self, state: Any, block: Block, view: View | None) -> Any:
    """Learns committed tokens; the prompt's chunks come first, without view."""

  def propose(self, state: Any, context: Context) -> tuple[Draft, Any, KVCache]:
    """A draft, the state, and the target's cache as it came or written past
    its lengths."""


class Verifier(Protocol):
  """Decides what of a draft is kept. Randomness is an argument.

  `lossless`: the output law is the target's. `chain_only`: trees are refused
  before tracing.
  """

  @property
  def lossless(self) -> bool: ...
  @property
  def chain_only(self) -> bool: ...

  def noise(
    self, streams: streams_lib.Streams, vocab: int
  ) -> streams_lib.Noise:
    """The noise a drafter may use under this rule."""

  def draw(
    self, streams: streams_lib.Streams, lengths: jax.Array, draft: Draft
  ) -> Any:
    """The round's random numbers.

    Args:
      streams: where they come from.
      lengths: [B] position of the token that the root predicts.
      draft: for its shapes.
    """

  def verify(self, log_p: jax.Array, draft: Draft, uniforms: Any) -> Acceptance:
    """Pure and piecewise constant in `uniforms`; log_p is [B, T + 1, V].

    Follows the dtype of log_p: float32 in decoding, float64 in proofs.
    """


class Policy(Protocol):
  """How many tokens to draft. It sees no clock and no token it decides on.

  `widths`: at most two node counts below the drafter's that get a compiled
  round of their own; a round runs at the narrowest one that holds its draft.
  """

  @property
  def widths(self) -> tuple[int, ...]: ...

  def init(self, batch: int) -> Any:
    """State before the first round."""

  def draft_length(self, state: Any) -> jax.Array:
    """Depth [B] of the next draft."""

  def keep_drafting(self, state: Any, law: jax.Array) -> jax.Array:
    """[B] bool: draft one more, whose law is [B, V] without any settings."""

  def update(
    self, state: Any, acceptance: Acceptance, draft_length: jax.Array
  ) -> Any:
    """Learns from a round."""
