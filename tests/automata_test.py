# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Choices and patterns over tokens, against Python's own string matching."""

import itertools
import re
import string
import sys
import tracemalloc
from typing import Any
from unittest import mock

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from specjax.sampling import automata, constraints
from tests import decoding

WORDS = decoding.Letters(("<e>", "a", "b", "c", "ab", "bc", "<f>"), (0, 6))


def texts(machine, words=WORDS, limit: int = 6) -> set[str]:
  """All complete answers of at most `limit` tokens."""
  found, open_paths = set(), [(int(machine.start(1)[0]), "")]
  for _ in range(limit + 1):
    longer = []
    for state, text in open_paths:
      allowed = np.flatnonzero(machine.allows(jnp.array(state)))
      for token in allowed:
        if token in words.eos_ids:
          found.add(text)
          continue
        to = machine.advance(jnp.array(state), jnp.array(token))
        longer.append((int(to), text + words.texts[token]))
    open_paths = longer
  return found


class ChoicesTest(parameterized.TestCase):
  def test_every_split_of_every_choice(self):
    machine = automata.choices(("abc", "ab", "ca"), WORDS)
    self.assertEqual(texts(machine), {"abc", "ab", "ca"})
    first = np.flatnonzero(machine.allows(machine.start(1))[0])
    self.assertEqual(first.tolist(), [1, 3, 4])  # a, c, ab

  def test_a_choice_that_no_tokens_spell_is_left_out(self):
    """And no step leads towards it alone: `d` is in no token."""
    machine = automata.choices(("abd", "ac"), WORDS)
    self.assertEqual(texts(machine), {"ac"})
    state = machine.advance(machine.start(1), jnp.array([1]))
    self.assertEqual(np.flatnonzero(machine.allows(state)[0]).tolist(), [3])

  def test_beyond_the_vocabulary_and_after_death_nothing_is_allowed(self):
    machine = automata.choices(("abc",), WORDS)
    for token in (2, 99):
      state = machine.advance(machine.start(1), jnp.array([token]))
      self.assertEqual(int(state[0]), constraints.DEAD)
      self.assertFalse(np.any(machine.allows(state)))
    track: Any = constraints.track(machine, 2)
    allowed = np.asarray(track.allows(9))
    self.assertEqual(allowed.shape, (2, 9))
    self.assertFalse(np.any(allowed[:, 7:]))

  @parameterized.parameters(
    ((), "choices is \\(\\): give one or several texts"),
    (("a", ""), "give one or several texts"),
    ("yes", "choices is 'yes': give one or several texts"),
    (("d",), "cannot be written with this vocabulary"),
    ((5, "a"), "choices is \\(5, 'a'\\): give one or several texts"),
    (5, "choices is 5: give one or several texts"),
    (("a", "\ud800"), "is not valid Unicode"),
    (("ab" * 3000,), "needs more than 4096 states"),
  )
  def test_mistakes(self, given, message):
    with self.assertRaisesRegex(ValueError, message):
      automata.choices(given, WORDS)

  def test_needs_an_end(self):
    words = decoding.Letters(("a", "b"))
    with self.assertRaisesRegex(ValueError, "needs an EOS id to end answers"):
      automata.choices(("a",), words)


class RegexTest(parameterized.TestCase):
  @parameterized.parameters(
    "a|ab",
    "(ab|a)(c|bc)",
    "a*",
    "^(b|bc){1,2}$",
    "[ab]c?|cab",
    "(?:a+?)b|",
    "^ab$|^ca$",
    "^a$|bc|^c",
    r"\Aa|b",
    r"a[^]b^$]?|b[\]^]?|(c)$",
    "[]b^]c|[^]b^]",
  )
  def test_equals_a_full_match(self, pattern):
    """The shorter of two branches must not hide the longer: a|ab."""
    found = texts(automata.regex(pattern, WORDS), limit=4)
    letters = [
      "".join(x) for n in range(9) for x in itertools.product("abc", repeat=n)
    ]
    matching = {x for x in letters if re.fullmatch(pattern, x)}
    # Up to 4 letters, all are within 4 tokens; longer ones may not be.
    short = {x for x in matching if len(x) <= 4}
    self.assertContainsSubset(short, found)
    self.assertContainsSubset(found, matching)

  def test_bytes_of_a_letter_in_several_tokens(self):
    class Bytes(decoding.Letters):
      def token_bytes(self, token):
        return (b"<e>", b"\xc3", b"\xa9", b"a")[token]

    words = Bytes(("<e>", "?", "!", "a"), (0,))
    machine = automata.regex("é|a", words)
    self.assertEqual(texts(machine, words), {"?!", "a"})

  def test_an_anchor_as_a_letter(self):
    words = decoding.Letters(("<e>", "$", "^", "a"), (0,))
    for pattern in (r"\^a\$", "[$^]a[$]", r"^[[^a]&&[\^]]a\$$"):
      machine = automata.regex(pattern, words)
      self.assertIn("^a$", texts(machine, words), pattern)

  @parameterized.parameters(
    ("(", "regex '\\(' cannot be used: it is malformed"),
    ("a)|(b", "cannot be used: it is malformed"),
    ("(?x) # (\na)|(b", "cannot be used: it is malformed"),
    ("(?=a)a", "cannot be used: .* has look-around"),
    ("(^a|^b)", "has \\^ inside: the whole answer matches anyway, leave it"),
    ("a(b$|c)", r"has \$ inside: .* leave it out \(the letters are"),
    ("a^b", "has \\^ inside"),
    ("(?m)^a", "has \\^ inside"),
    (r"b\Aa", r"has \\A inside"),
    (r"[ab]\za", r"has \\z inside"),
    ("d", "cannot be written with this vocabulary: some of its bytes"),
    ("a{5000}", "needs more than 4096 states"),
    (5, "regex 5 is no text: give a pattern"),
  )
  def test_mistakes(self, pattern, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      automata.regex(pattern, WORDS)
    self.assertNotRegex(str(caught.exception), r"\n|x00|state \d")

  def test_without_the_package(self):
    with (
      mock.patch.dict(sys.modules, {"outlines_core": None}),
      self.assertRaisesRegex(
        ValueError, r"pip install 'specjax\[constraints\]'"
      ),
    ):
      automata.regex("a", WORDS)


class LargeVocabularyTest(absltest.TestCase):
  """50,000 tokens, of which few are on any path or all act alike."""

  WORDS = decoding.Letters(
    ("<e>", *string.ascii_lowercase, *(f"x{i}" for i in range(50_000))), (0,)
  )

  def test_long_choices(self):
    """A number for every state and token would take 300 MB."""
    letters = np.random.default_rng(0).choice([*"abcdefgh"], (26, 60))
    asked = ["".join(row) for row in letters]
    tracemalloc.start()
    machine = automata.choices(asked, self.WORDS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    self.assertLess(peak, 64e6)
    # A class for each letter, one for the end, one for all that is dead.
    self.assertGreater(machine.table.shape[0], 1500)
    self.assertEqual(machine.table.shape[1], 10)
    state = machine.start(1)
    for letter in asked[7]:
      state = machine.advance(
        state, jnp.array([self.WORDS.texts.index(letter)])
      )
    self.assertEqual(np.flatnonzero(machine.allows(state)[0]).tolist(), [0])

  def test_tokens_that_act_alike(self):
    machine = automata.regex("[a-z0-9]{1,9}", self.WORDS)
    kinds = [
      int(machine.classes[self.WORDS.texts.index(token)])
      for token in ("a", "b", "x1", "x2", "x12345", "<e>")
    ]
    self.assertEqual((kinds[0], kinds[2]), (kinds[1], kinds[3]))
    self.assertLen(set(kinds), 4)
    # Tokens differ by their length alone; then EOS and what never comes.
    self.assertEqual(machine.table.shape[1], 8)


class UnionTest(absltest.TestCase):
  def test_each_row_keeps_its_own(self):
    asked = [
      automata.choices(("abc", "b"), WORDS),
      None,
      automata.regex("c(ab|b)*", WORDS),
    ]
    asked.append(asked[0])
    track: Any = constraints.track(asked, 4)
    own: list[Any] = [constraints.track(a, 1) for a in asked if a is not None]
    rng = np.random.default_rng(0)
    for _ in range(6):
      allowed = np.asarray(track.allows(7))
      alone = [np.asarray(t.allows(7))[0] for t in own]
      np.testing.assert_array_equal(allowed[[0, 2, 3]], alone)
      self.assertTrue(np.all(allowed[1]))
      weights = allowed * rng.random(allowed.shape)
      tokens = jnp.asarray(weights.argmax(axis=1))
      track = track.extend(tokens[:, None], jnp.ones((4, 1), bool))
      own = [
        t.extend(tokens[row][None, None], jnp.ones((1, 1), bool))
        for t, row in zip(own, (0, 2, 3))
      ]


if __name__ == "__main__":
  absltest.main()
