# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The `sampling` section of a config: texts as tokens, and what is refused."""

import pathlib
import tempfile
from typing import Any

from absl.testing import absltest, parameterized
import numpy as np

from specjax import sampling as sampling_lib
from specjax import tokenizers
from specjax.bench import build
from specjax.models import gguf_header
from tests import runs

LETTER = {word: token for token, word in enumerate(runs.WORDS)}


class SectionTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = pathlib.Path(folder.name)
    cls.model = runs.write_model(cls.folder / "tiny.gguf")
    metadata = gguf_header.read(cls.model).metadata
    cls.tokenizer = tokenizers.from_gguf(metadata)

  def config(self, **section) -> Any:
    path = self.folder / "config.py"
    runs.write_config(path, self.model, sampling=section)
    return runs.read_config(path)

  def settings(self, **section) -> sampling_lib.Sampling:
    """As arrays of one row."""
    config = self.config(**section)
    build.check(config)
    asked = build.settings(config, self.tokenizer).sampling
    return sampling_lib.per_row(asked, 1, vocab=24, eos=self.tokenizer.eos_ids)

  def test_nothing_asked_is_nothing_used(self):
    self.assertEqual(self.settings(), sampling_lib.Sampling())

  def test_texts_become_tokens(self):
    row = self.settings(
      bias=(("a", 2.0), (5, -1)),
      allowed=("a", 1, "ab"),
      bad_words=("abc", (7, 8)),
      min_tokens=2,
      choices=("bad", "cab"),
    )
    dense = np.asarray(row.bias.dense(24))[0]
    allowed = {LETTER["a"]: 2.0, 1: 0.0, LETTER["ab"]: 0.0}
    self.assertEqual({i: dense[i] for i in np.flatnonzero(dense > -9)}, allowed)
    words = [LETTER["ab"], LETTER["c"]], [7, 8]
    np.testing.assert_array_equal(row.bad_words, [words])
    np.testing.assert_array_equal(row.min_tokens, [2])
    np.testing.assert_array_equal(row.eos, [[1]])
    first = np.flatnonzero(row.constraint.allows(24)[0])
    self.assertEqual(first.tolist(), [LETTER["b"], LETTER["c"]])

  def test_a_regex(self):
    track = self.settings(regex="[bc]+d").constraint
    first = np.flatnonzero(track.allows(24)[0])
    self.assertEqual(first.tolist(), [LETTER["b"], LETTER["c"]])

  @parameterized.parameters(
    ({"allowed": ("abc",)}, "allowed has 'abc', which is 2 tokens"),
    ({"allowed": (99,)}, "has token 99: the model's ids are 0 to 23"),
    ({"bias": (("?", 1.0),)}, "sampling.bias has '\\?', which is 0 tokens"),
    ({"bias": (("a", "b"),)}, "sampling.bias adds 'b': it must be a number"),
    ({"bias": (("a", 1.0), (LETTER["a"], 2.0))}, "names token .* twice"),
    ({"bias": ("ab",)}, "sampling.bias holds 'ab': write pairs"),
    ({"bad_words": ((1, "a"),)}, "give texts, or tuples of ids"),
    ({"bad_words": ("",)}, "bad_words has an empty one"),
    ({"min_tokens": -1}, "sampling.min_tokens is -1"),
    ({"temperature": None}, "sampling.temperature is None: it must be"),
    ({"top_k": 2.5}, "sampling.top_k is 2.5: it must be int"),
    ({"top_k": 2**40}, "sampling.top_k is 1.09951e\\+12: it must be"),
    ({"bias": 3}, "sampling.bias is 3: it must be"),
    ({"bias": (None,)}, "sampling.bias holds None: write pairs"),
    ({"allowed": "abc"}, "sampling.allowed is 'abc': it must be"),
    ({"allowed": (None, None)}, "sampling.allowed has None, which is 0 tokens"),
    ({"allowed": (1.5,)}, "sampling.allowed has 1.5, which is 0 tokens"),
    ({"bad_words": (5, 6)}, "has 5: give texts, or tuples of ids"),
    ({"bad_words": (None,)}, "has None: give texts, or tuples of ids"),
    ({"choices": (1, 2)}, "sampling.choices is .1, 2.: give one or several"),
    ({"choices": ("a", "")}, "sampling.choices .* give one or several texts"),
    ({"choices": ("z",)}, "sampling.choices .* cannot be written"),
    ({"choices": ("a",), "regex": "b"}, "has choices and a regex: leave one"),
    ({"regex": "("}, "sampling.regex '\\(' cannot be used"),
    ({"regexp": "a"}, "did you mean 'regex'"),
  )
  def test_mistakes(self, section, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      self.settings(**section)
    self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
  absltest.main()
