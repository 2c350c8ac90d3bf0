# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrong calls of the Python API end in one line, before anything runs."""

from typing import Any, cast

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

import specjax
from specjax import streams
from specjax.decoding import decode, stopping
from tests import decoding, toys

TARGET = toys.tiny(0)
LETTERS: Any = decoding.Letters([f"{i:02d} " for i in range(toys.TINY_VOCAB)])
SAMPLED = specjax.Sampling(temperature=1.0)


def generate(prompts, **options):
  options: dict[str, Any] = {"max_new_tokens": 6, **options}
  return specjax.generate(TARGET, LETTERS, prompts, **options)


def session(prompts, method=None, **settings):
  settings: dict[str, Any] = {"max_new_tokens": 6, **settings}
  return specjax.Session(
    TARGET,
    LETTERS,
    method or specjax.Method(),
    specjax.Settings(**settings),
    prompts,
    capacity=128,
  )


class MistakesTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ("no_prompt", [], {}, "no prompt"),
    ("empty_prompt", [[1], []], {}, "prompt 1 is empty"),
    ("id_too_large", [[7, 64, 8]], {}, "token 64"),
    ("id_negative", [[7, -1, 8]], {}, "token -1"),
    ("seeds", [[1], [2]], {"seed": [1, 2, 3]}, "3 seeds for 2"),
    ("seed_range", [[1]], {"seed": -1}, "seed"),
    ("stop_tokens", [[1]], {"stop_tokens": [5]}, "stop_tokens"),
    ("stop_string", [[1]], {"stop": ""}, "stop string is empty"),
    ("negative", [[1]], {"max_new_tokens": -1}, "max_new_tokens is -1"),
    ("too_long", [[1] * 250], {"max_new_tokens": 60}, "310 positions"),
    ("batch_size", [[1]], {"batch_size": 0}, "batch_size is 0"),
    (
      "temperature",
      [[1]],
      {"sampling": specjax.Sampling(temperature=-1.0)},
      "temperature is -1",
    ),
  )
  def test_one_line(self, prompts, options, words):
    with self.assertRaisesRegex(ValueError, words) as caught:
      generate(prompts, **options)
    self.assertNotIn("\n", str(caught.exception))

  def test_one_prompt_a_conversation(self):
    kept = session([[1, 2], [3], [4]])
    list(kept.rounds())
    for turn in ([[9, 9]], [[9]] * 4):
      with self.assertRaisesRegex(ValueError, "for 3 conversations"):
        kept.prefill(turn)

  def test_rounds_must_move(self):
    with self.assertRaisesRegex(ValueError, "chunk is 0"):
      next(session([[1]]).rounds(0))

  def test_a_session_needs_a_prompt(self):
    with self.assertRaisesRegex(ValueError, "no prompt"):
      specjax.Session(TARGET, LETTERS, specjax.Method(), specjax.Settings(), [])

  def test_a_draft_of_another_vocabulary(self):
    draft = specjax.DraftModel(toys.tiny(1, num_tokens=60), 2)
    with self.assertRaisesRegex(ValueError, "60 tokens"):
      generate([[1]], drafter=draft)


class ValuesTest(absltest.TestCase):
  def test_numbers_of_numpy_are_numbers(self):
    one = generate([[1, 2]], seed=np.int64(3), sampling=SAMPLED)
    other = generate(np.array([[1, 2]]), seed=3, sampling=SAMPLED)
    np.testing.assert_array_equal(one[0].tokens, other[0].tokens)

  def test_sets_of_stop_sequences_share_a_program(self):
    """Sets of like size are padded alike."""
    shapes = {
      stopping.make_stop([2], [4], sequences).sequences.shape
      for sequences in ([[1, 2, 3]], [[1, 2, 3, 4]])
    }
    self.assertEqual(shapes, {(1, 4)})

  def test_padding_of_stop_sequences_matches_nothing(self):
    plain = generate([[1, 2, 3]])[0].tokens.tolist()
    never = [[63, 63], [62, 62, 62], [61]]
    self.assertFalse({63, 62, 61} & set(plain))
    stopped = generate([[1, 2, 3]], stop_tokens=never)[0]
    self.assertEqual(stopped.tokens.tolist(), plain)
    cut = generate([[1, 2, 3]], stop_tokens=[*never, plain[1:3]])[0]
    self.assertEqual(cut.tokens.tolist(), plain[:3])

  def test_streams_do_not_depend_on_the_default_generator(self):
    keys = lambda: streams.row_keys(3, jnp.arange(2), jnp.zeros(2, int))
    wanted = jax.random.key_data(keys())
    with jax.default_prng_impl("rbg"):
      np.testing.assert_array_equal(jax.random.key_data(keys()), wanted)

  def test_a_stop_string_leaves_no_trace_of_later_rounds(self):
    """Rounds between two searches must not decide the next turn's text."""
    method = specjax.Method(
      specjax.DraftModel(toys.noisy(TARGET), 3), specjax.Rejection()
    )
    texts = []
    for chunk in (1, None):
      free = session([[1, 2, 3]], method, sampling=SAMPLED, max_new_tokens=20)
      list(free.rounds())
      third = LETTERS.texts[free.results()[0].tokens[4]]
      kept = session(
        [[1, 2, 3]], method, sampling=SAMPLED, max_new_tokens=20, stop=third
      )
      list(kept.rounds(chunk))
      first = kept.results()[0]
      self.assertEqual(first.reason, "stop")
      kept.prefill([[5, 6]])
      list(kept.rounds(chunk))
      texts.append((first.text, kept.results()[0].text))
    self.assertEqual(texts[0], texts[1])

  def test_untied_logits_are_float32_in_bfloat16_models(self):
    """Rounded logits would make ties, and ties go to the lowest id."""
    small = jax.tree.map(lambda x: x.astype(jnp.bfloat16), TARGET)
    logits = small.unembed(small.embed(jnp.arange(8)[None]))
    self.assertEqual(logits.dtype, jnp.float32)
    rounded = logits.astype(jnp.bfloat16).astype(jnp.float32)
    self.assertGreater(float(jnp.mean(logits != rounded)), 0.5)

  def test_a_wrong_rule_for_trees_is_named(self):
    with self.assertRaisesRegex(ValueError, "chains only"):
      decode.check(
        TARGET,
        cast(Any, _Fork()),
        specjax.Rejection(),
        np.array([1]),
        stopping.make_stop([], [1]),
        64,
      )


class _Fork:
  num_nodes, max_depth = 2, 1


if __name__ == "__main__":
  absltest.main()
