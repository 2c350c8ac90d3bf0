# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything the sampler can ask of a text, against a slow oracle.

The oracle reads lists of ids, one token after the other; it knows no blocks, no
trees and no arrays of states. Five rows ask for different things at once.

Axis letters: B batch, T nodes, W = T + 1 slots, V vocabulary.
"""

import functools
import itertools
import re
from typing import Any

from absl.testing import absltest, parameterized
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import api, session, types
from specjax import sampling as sampling_lib
from specjax.decoding import step as step_lib
from specjax.decoding import stopping
from specjax.drafters import draft_model, empty, ngram
from specjax.sampling import automata
from specjax.verifiers import coupled, rejection
from tests import decode_test, decoding, reference, toys

LETTERS: Any = decoding.Letters(
  ("<e>", "a", "b", "c", "ab", "bc", "aa", "d", "e", "cab", "f", "g"), (0,)
)
VOCAB = LETTERS.num_tokens
TABLE = 1.5 * np.random.default_rng(3).standard_normal((VOCAB, VOCAB))
TARGET = toys.Table(jnp.asarray(TABLE, jnp.float32))
NEW = 20
PROMPTS = ((7, 8, 4, 7, 8), (3, 4), (5, 6, 5, 6, 5, 6), (1,), (9, 2))
CHOICES = ("abcab", "ab", "bca", "cabcabcab")
PATTERN = "(ab|c)+d?(e|ef){2,3}"
# What each row asks for; the oracle reads the same table.
ROWS: tuple[dict[str, Any], ...] = (
  {
    "repetition": 2.0,
    "bias": {3: 2.0, 5: -np.inf, 0: 3.0},
    "min_tokens": 10,
    "bad_words": ((7, 8, 4), (3, 10, 3)),
  },
  {
    "temperature": 0.8,
    "presence": 0.3,
    "frequency": 0.4,
    "bad_words": ((2,), (1, 1), (3, 4, 3), (6, 6)),
    "top_k": 5,
    "min_p": 0.1,
  },
  {
    "temperature": 1.2,
    "allowed": (0, 1, 3, 5, 6, 8),
    "bias": {6: 0.5, 2: 9.0},
    "min_tokens": 9,
    "top_p": 0.9,
  },
  {"temperature": 1.0, "constraint": "choices", "presence": 3.0},
  {"temperature": 0.7, "constraint": "regex", "frequency": 2.0},
)
OFF = {
  "temperature": 0.0,
  "top_k": 0,
  "top_p": 1.0,
  "min_p": 0.0,
  "repetition": 1.0,
  "presence": 0.0,
  "frequency": 0.0,
  "min_tokens": 0,
}


def sampling() -> sampling_lib.Sampling:
  machines = {
    "choices": automata.choices(CHOICES, LETTERS),
    "regex": automata.regex(PATTERN, LETTERS),
  }
  settings: dict[str, Any] = {
    name: [row.get(name, off) for row in ROWS] for name, off in OFF.items()
  }
  for name in ("bias", "allowed", "bad_words"):
    settings[name] = [row.get(name) for row in ROWS]
  settings["constraint"] = [
    machines.get(row.get("constraint", "")) for row in ROWS
  ]
  return sampling_lib.per_row(
    sampling_lib.Sampling(**settings), len(ROWS), vocab=VOCAB, eos=(0,)
  )


SAMPLING = sampling()
ENDINGS = [
  "".join(letters)
  for n in range(4)
  for letters in itertools.product("abcdef", repeat=n)
]


@functools.cache
def may_write(kind: str, text: str, complete: bool) -> bool:
  """Whether an answer may be `text`, or else begin with it."""
  if kind == "choices":
    return any(c == text if complete else c.startswith(text) for c in CHOICES)
  endings = [""] if complete else ENDINGS
  return any(re.fullmatch(PATTERN, text + end) for end in endings)


def forbidden(row: dict[str, Any], prompt: list[int], answer: list[int]):
  """Ids that may not follow."""
  text = "".join(LETTERS.texts[t] for t in answer)
  for token in range(VOCAB):
    if "allowed" in row and token not in row["allowed"]:
      yield token
    longer = [*prompt, *answer, token]
    if any(
      tuple(longer[-len(word) :]) == word for word in row.get("bad_words", ())
    ):
      yield token
    if token == 0 and len(answer) < row.get("min_tokens", 0):
      yield token
    if "constraint" in row:
      after = text + (LETTERS.texts[token] if token else "")
      if not may_write(row["constraint"], after, complete=token == 0):
        yield token


def oracle(row: dict[str, Any], prompt_length: int):
  """Logits after ids, as the settings of a row leave them."""

  def logits(tokens):
    tokens = list(tokens)
    x = TABLE.astype(np.float32)[tokens[-1]].astype(np.float64)
    counts = np.bincount(tokens, minlength=VOCAB)
    factor = row.get("repetition", 1.0)
    x = np.where(counts > 0, np.where(x > 0, x / factor, x * factor), x)
    x = x - row.get("presence", 0) * (counts > 0)
    x = x - row.get("frequency", 0) * counts
    for token, value in row.get("bias", {}).items():
      x[token] += value
    prompt, answer = tokens[:prompt_length], tokens[prompt_length:]
    x[list(forbidden(row, prompt, answer))] = -np.inf
    return x

  return logits


def filters(row: dict[str, Any]) -> dict[str, Any]:
  names = ("temperature", "top_k", "top_p", "min_p")
  return {name: row.get(name, OFF[name]) for name in names}


class Bush(struct.PyTreeNode):
  """Six nodes of a table's best tokens, drawn with the rule's noise."""

  table: jax.Array  # [V, V]
  num_nodes: int = struct.field(pytree_node=False, default=6)
  max_depth: int = struct.field(pytree_node=False, default=3)
  parents = (0, 0, 1, 1, 2, 3)

  def init(self, batch: int, capacity: int) -> None:
    del batch, capacity

  def observe(self, state, block, view):
    del block, view
    return state

  def propose(self, state, context: types.Context):
    tokens, depths = [context.last_token], [0]
    for node, parent in enumerate(self.parents):
      at = context.lengths + depths[parent]
      slots = jnp.full_like(at, parent)
      scores = self.table[tokens[parent]] + context.noise(at, slots)
      rank = self.parents[:node].count(parent)
      tokens.append(jnp.argsort(-scores, axis=-1)[:, rank])
      depths.append(depths[parent] + 1)
    drafted = jnp.stack(tokens[1:], axis=1).astype(jnp.int32)
    parents = jnp.broadcast_to(jnp.array(self.parents), drafted.shape)
    count = jnp.full(len(drafted), 6)
    draft = types.Draft(drafted, parents, None, count, self.max_depth)
    return draft, state, context.cache


NOISE = 0.4 * np.random.default_rng(5).standard_normal((VOCAB, VOCAB))
NOISY = toys.Table(jnp.asarray(TABLE + NOISE, jnp.float32))
DRAFTERS: dict[str, Any] = {
  "plain": empty.Empty(1),
  "right": draft_model.DraftModel(TARGET, 3),
  "noisy": draft_model.DraftModel(NOISY, 3),
  "ngram": ngram.NGram(length=3, min_n=1),
  "bush": Bush(NOISY.table),
}
VERIFIERS = {"coupled": coupled.Coupled(), "rejection": rejection.Rejection()}
_step = jax.jit(step_lib.step)


def rounds(drafter: str, verifier: str):
  """The final state, and each round with the state before it."""
  state, rest = decoding.start(
    TARGET, DRAFTERS[drafter], PROMPTS, sampling=SAMPLING, new=NEW, eos=(0,)
  )
  seen = []
  while not np.all(state.done):
    before = decoding.fetch(state)
    rule = VERIFIERS[verifier]
    state, happened = _step(TARGET, DRAFTERS[drafter], rule, state, *rest)
    seen.append((before, jax.device_get(happened)))
  return decoding.fetch(state), seen


def paths(draft: types.Draft, row: int):
  """Slot and tokens below the root of each valid node, the root included."""
  below = [[]]
  yield 0, []
  for node in range(int(draft.count[row])):
    parent = int(draft.parents[row, node])
    below.append([*below[parent], int(draft.tokens[row, node])])
    yield node + 1, below[-1]


def check_laws(test: absltest.TestCase, seen) -> int:
  """Compares the law of every node with the oracle's; how many there were."""
  checked = 0
  for before, happened in seen:
    for row in map(int, np.flatnonzero(~before.done)):
      start = int(before.prompt_lengths[row])
      known = before.tokens[row, : before.lengths[row]].tolist()
      follow = oracle(ROWS[row], start)
      for slot, path in paths(happened.draft, row):
        text = [*known, *path]
        # Below a token that may not stand there, and below EOS, no law counts.
        steps = range(len(known), len(text))
        if any(follow(text[:at])[text[at]] == -np.inf for at in steps):
          continue
        if 0 in path:
          continue
        expected = np.exp(
          reference.log_probs(follow(text), **filters(ROWS[row]))
        )
        got = np.exp(happened.log_p[row, slot])
        # float32 against float64, after penalties, a division and a sum.
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
        checked += 1
  return checked


class OracleTest(parameterized.TestCase):
  @parameterized.parameters("plain", "right", "noisy", "ngram", "bush")
  @pytest.mark.fault_case("B27")
  def test_coupled_text(self, drafter):
    """vllm-project/vllm#38202: every setting reaches every drafted slot."""
    state, seen = rounds(drafter, "coupled")
    expected = [
      reference.generate(
        oracle(row, len(prompt)),
        prompt,
        NEW,
        key=reference.row_key(0, index),
        eos={0},
        **filters(row),
      )[0]
      for index, (row, prompt) in enumerate(zip(ROWS, PROMPTS))
    ]
    self.assertEqual(decoding.answers(state), expected)
    self.assertGreater(check_laws(self, seen), sum(map(len, expected)) - 1)
    if drafter == "right":
      # An honest draft knows the settings, along its own path.
      self.assertEqual(decoding.outcomes(state), {"all"})
    for row, reason in enumerate(state.reason):
      ends = expected[row][-1] == 0
      self.assertEqual(reason == stopping.Reason.EOS, ends)

  @parameterized.parameters("right", "noisy", "ngram")
  def test_rejection_laws(self, drafter):
    state, seen = rounds(drafter, "rejection")
    self.assertGreater(check_laws(self, seen), 40)
    for row, answer in enumerate(decoding.answers(state)):
      follow = oracle(ROWS[row], len(PROMPTS[row]))
      for at, token in enumerate(answer):
        logits = follow([*PROMPTS[row], *answer[:at]])
        self.assertTrue(np.isfinite(logits[token]))
    if drafter == "right":
      self.assertEqual(decoding.outcomes(state), {"all"})

  @parameterized.parameters("coupled", "rejection")
  @pytest.mark.fault_case("B27")
  def test_a_draft_of_what_is_forbidden(self, verifier):
    """vllm-project/vllm#42744: bias and minimum reach all offsets.

    Token 0 is likely and drafted everywhere. Row 0 forbids it by its bias; in
    the others it is EOS, which the third and the first token must not be.
    """
    rule = VERIFIERS[verifier]
    asked = sampling_lib.per_row(
      sampling_lib.Sampling(
        temperature=1.0,
        bias=[{0: -100.0}, None, None],
        min_tokens=[0, 3, 1],
      ),
      3,
      vocab=3,
      eos=(0,),
    )
    state = decoding.run(
      toys.row([0.9998, 0.0001, 0.0001]),
      decode_test.Constant(4),
      [[1], [1], [0]],
      sampling=asked,
      verifier=rule,
      eos=(0,),
      new=20,
    )
    answers = decoding.answers(state)
    self.assertLen(answers[0], 20)
    self.assertNotIn(0, answers[0])
    self.assertEqual([len(answers[1]), answers[1][-1]], [4, 0])
    self.assertEqual([len(answers[2]), answers[2][-1]], [2, 0])

  def test_a_row_with_nothing_left_ends(self):
    """With an error, never with a token that was forbidden."""
    asked = sampling_lib.per_row(
      sampling_lib.Sampling(
        allowed=[[0, 2], [1, 2], []], bad_words=[[2, 0], [2, 2]]
      ),
      3,
    )
    for drafter in (empty.Empty(4), decode_test.Constant(4)):
      state = decoding.run(
        toys.row([0.2, 0.3, 0.5]),
        drafter,
        [[1], [1], [1]],
        sampling=asked,
        new=6,
      )
      # After 2 the first row may write neither 0 nor 2.
      self.assertEqual(
        decoding.answers(state), [[2], [2, 1, 2, 1, 2, 1], [2, 1, 2, 1, 2, 1]]
      )
      self.assertEqual(state.reason[0], stopping.Reason.ERROR)
      self.assertEqual(state.reason[1], stopping.Reason.LENGTH)

  def test_the_rows_are_not_idle(self):
    """Each setting of the table changes the text of its row."""
    for index, (row, prompt) in enumerate(zip(ROWS, PROMPTS)):
      texts = []
      for left_out in (None, *(set(row) - {"temperature"})):
        asked = {k: v for k, v in row.items() if k != left_out}
        tokens, _ = reference.generate(
          oracle(asked, len(prompt)),
          prompt,
          NEW,
          key=reference.row_key(0, index),
          eos={0},
          **filters(asked),
        )
        texts.append((left_out, tokens))
      idle = [name for name, tokens in texts[1:] if tokens == texts[0][1]]
      self.assertEmpty(idle, f"row {index}")


class AnswersTest(parameterized.TestCase):
  """Through the Python API: two sessions of one Sampling, several samples."""

  @parameterized.parameters(
    ("coupled", "plain"), ("coupled", "ngram"), ("rejection", "ngram")
  )
  def test_answers_have_their_form(self, verifier, drafter):
    asked = sampling_lib.Sampling(
      temperature=1.0,
      bad_words=[[[3]], None],
      constraint=[
        automata.regex("[a-c]{3,5}(d|e)+", LETTERS),
        automata.choices(CHOICES, LETTERS),
      ],
    )
    for seed in range(2):
      answers = api.generate(
        TARGET,
        LETTERS,
        [[1, 2, 1, 2], [6, 7, 6]],
        drafter=DRAFTERS[drafter],
        verifier=VERIFIERS[verifier],
        sampling=asked,
        samples=2,
        seed=seed,
        max_new_tokens=40,
      )
      for answer in answers[:2]:
        self.assertNotIn(3, answer.tokens)
        self.assertRegex(answer.text, "^[a-c]{3,5}(d|e)*(<e>)?$")
        if answer.reason == "eos":
          self.assertRegex(answer.text, "^[a-c]{3,5}(d|e)+<e>$")
      for answer in answers[2:]:
        self.assertIn(answer.text, [f"{choice}<e>" for choice in CHOICES])

  def test_each_turn_begins_anew(self):
    settings = session.Settings(
      sampling_lib.Sampling(
        temperature=1.0, constraint=automata.choices(CHOICES, LETTERS)
      ),
      max_new_tokens=10,
    )
    method = session.Method(DRAFTERS["ngram"])
    talk = session.Session(
      TARGET, LETTERS, method, settings, [[1, 2]], capacity=64
    )
    for prompt in ([5], [3, 4], None):
      for _ in talk.rounds():
        pass
      choices = [f"{choice}<e>" for choice in CHOICES]
      self.assertIn(talk.results()[0].text, choices)
      if prompt:
        talk.prefill([prompt])


if __name__ == "__main__":
  absltest.main()
