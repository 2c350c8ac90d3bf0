# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a user may ask of the sampler, and how it is refused.

Axis letters: B batch.
"""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

import specjax
from specjax import sampling as sampling_lib
from specjax.sampling import automata
from tests import decoding, toys

LETTERS: Any = decoding.Letters(("<e>", "a", "b", "c", "ab", "bc"), (0,))
LARGER = automata.choices(("a",), decoding.Letters("<abcdef", (0,)))
Sampling = sampling_lib.Sampling

# Settings of two rows, and the one line that refuses them.
MISTAKES = (
  ({"temperature": "hot"}, "temperature is 'hot': give a number, or one for"),
  ({"temperature": ["a", 1]}, r"temperature is \['a', 1\]: give a number"),
  ({"temperature": [[1], [1, 2]]}, "temperature is .*: give a number, or one"),
  ({"temperature": True}, "temperature is True: give a number"),
  ({"temperature": {0: 1.0}}, "temperature is {0: 1.0}: give a number"),
  ({"temperature": []}, r"temperature has shape \(0,\): give one number"),
  ({"temperature": 1e300}, r"temperature is 1e\+300: it must be finite"),
  ({"repetition": 1e-60}, "repetition is 1e-60: it must be above 0"),
  ({"top_k": 2.5}, "top_k is 2.5: it must be 0 .off. or more, whole"),
  ({"top_k": [2**40, 1]}, r"top_k is 1.09951e\+12: it must be .* below 2\^31"),
  ({"min_tokens": 1.5}, "min_tokens is 1.5: it must be 0 .off. or more, whole"),
  ({"bias": 3}, "bias is 3: give {token id: what is added}, or one a row"),
  ({"bias": "ab"}, "bias is 'ab': give {token id"),
  ({"bias": [3, None]}, "bias is 3: give {token id"),
  ({"bias": {"a": 1.0}}, "bias has 'a': token ids are whole numbers"),
  ({"bias": {1.5: 1.0}}, "bias has 1.5: token ids are whole numbers"),
  ({"bias": {1: "b"}}, "bias of token 1 is 'b': it must be a number"),
  ({"bias": {1: 1e39}}, r"bias of token 1 is 1e\+39: it must be finite"),
  ({"allowed": "abc"}, "allowed has 'abc': give token ids, as"),
  ({"allowed": 3}, "allowed has 3: give token ids, as"),
  ({"allowed": ["a"]}, "allowed has 'a': token ids are whole numbers"),
  ({"allowed": [1.5]}, "allowed has 1.5: token ids are whole numbers"),
  ({"allowed": [1, [2]]}, "allowed has 1: give token ids"),
  ({"allowed": [None] * 3}, "allowed has 3 entries for 2 rows"),
  ({"bad_words": "ab"}, "bad_words has 'ab': give sequences of token ids"),
  (
    {"bad_words": [5, 6]},
    r"bad_words has 5: give sequences .* as \[\[5, 6\]\]",
  ),
  ({"bad_words": ["ab"]}, "bad_words has 'ab': give sequences of token ids"),
  ({"bad_words": [[5], None]}, "bad_words has 5: give sequences of token ids"),
  ({"bad_words": [[0.5]]}, "bad_words has 0.5: token ids are whole numbers"),
  ({"constraint": "abc"}, "constraint is 'abc': give what automata.choices"),
  ({"constraint": []}, "constraint has 0 for 2 rows"),
  ({"constraint": LARGER}, "constraint knows 7 tokens but the model has 6"),
  ({"constraint": [None, LARGER]}, "constraint knows 7 tokens but the model"),
)


class SettingsTest(parameterized.TestCase):
  @parameterized.parameters(*MISTAKES)
  def test_mistakes(self, settings, message):
    """The same line from the function and from the whole program."""
    message = f"sampling.{message}"
    with self.assertRaisesRegex(ValueError, message) as caught:
      sampling_lib.per_row(Sampling(**settings), 2, vocab=6, eos=(0,))
    self.assertNotIn("\n", str(caught.exception))
    with self.assertRaisesRegex(ValueError, message):
      specjax.generate(
        toys.cycle(6), LETTERS, [[1], [2]], sampling=Sampling(**settings)
      )

  @parameterized.parameters(({"temperature": 1.0},), ("warm",), (0.7,))
  def test_settings_that_are_no_sampling(self, given: Any):
    with self.assertRaisesRegex(ValueError, "give a specjax.Sampling"):
      specjax.generate(toys.cycle(6), LETTERS, [[1]], sampling=given)

  def test_an_end_that_is_not_there_cannot_be_held_back(self):
    message = "min_tokens is 2 but there is no EOS id to hold back: name one"
    with self.assertRaisesRegex(ValueError, message):
      sampling_lib.per_row(Sampling(min_tokens=2), 2)
    endless: Any = decoding.Letters(("a", "b"))
    with self.assertRaisesRegex(ValueError, message):
      specjax.generate(
        toys.cycle(2), endless, [[1]], sampling=Sampling(min_tokens=2)
      )
    # Where nothing is to be held back none is missed.
    free = sampling_lib.per_row(Sampling(min_tokens=[0, None]), 2)
    self.assertEqual(free, Sampling())

  @parameterized.parameters(
    "temperature", "top_k", "min_p", "presence", "bias", "allowed",
    "bad_words", "constraint",
  )  # fmt: skip
  def test_rows_of_none_are_free(self, name):
    """None stands for a row without the setting: for all, it is not used."""
    asked = Sampling(**{name: [None, None]})
    self.assertEqual(sampling_lib.per_row(asked, 2), Sampling())

  def test_a_row_of_none_among_others(self):
    asked = Sampling(
      temperature=[None, 0.5],
      top_k=[3, None],
      top_p=[None, np.float32(0.5)],
      bias=[None, {1: 2}],
      allowed=[None, {2, 3}],
      bad_words=[None, [[1, 2]]],
      constraint=[None, automata.choices(("ab",), LETTERS)],
    )
    row = sampling_lib.per_row(asked, 2, vocab=6)
    np.testing.assert_array_equal(row.temperature, [0, 0.5])
    np.testing.assert_array_equal(row.top_k, [3, 0])
    np.testing.assert_array_equal(row.top_p, [1, 0.5])
    only = np.where(np.isin(np.arange(6), (2, 3)), 0, -np.inf)
    np.testing.assert_array_equal(row.bias.dense(6), [[0] * 6, only])
    np.testing.assert_array_equal(row.bad_words, [[[-1, -1]], [[1, 2]]])
    allowed = np.asarray(row.constraint.allows(6))
    self.assertEqual(allowed.sum(axis=1).tolist(), [6, 2])

  @parameterized.parameters(np.asarray, jnp.asarray, tuple)
  def test_numbers_and_ids_may_be_arrays(self, kind):
    lists = {
      "temperature": [0.5, 0],
      "top_k": [3, 0],
      "allowed": [2, 3],
      "bad_words": [[1, 2], [3, 3]],
    }
    given = Sampling(**{name: kind(value) for name, value in lists.items()})
    both = (sampling_lib.per_row(x, 2) for x in (given, Sampling(**lists)))
    jax.tree.map(np.testing.assert_array_equal, *both)

  def test_a_bias_below_all_numbers_forbids(self):
    row = sampling_lib.per_row(Sampling(bias={1: -1e300}), 1)
    self.assertEqual(np.asarray(row.bias.dense(3)).tolist(), [[0, -np.inf, 0]])


if __name__ == "__main__":
  absltest.main()
