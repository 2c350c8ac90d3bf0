# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The order of a comparison, and what it says about a difference."""

import dataclasses
from typing import Any

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from specjax import data, metrics, streams
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.bench import build, comparison, measure, replay
from specjax.drafters import ngram
from tests import toys

PROMPTS = ((5, 6, 7, 5, 6), (3,), (9, 9))


class Words:
  """As much of a tokenizer as a session asks for."""

  eos_ids = (63,)

  def decode(self, ids):
    return " ".join(map(str, ids))


def bench(batch_size=1, runs=2, ids=PROMPTS, **settings: Any):
  words: Any = Words()
  prompts = [data.Prompt(f"p{i}", i, "x") for i in range(len(ids))]
  return measure.Bench(
    target=toys.tiny(),
    tokenizer=words,
    task=build.Task(
      tuple(prompts),
      ids,
      session_lib.Settings(max_new_tokens=6, **settings),
    ),
    methods={
      "a": session_lib.Method(ngram.NGram(2)),
      "b": session_lib.Method(ngram.NGram(3)),
    },
    batch_size=batch_size,
    capacity=128,
    runs=runs,
  )


def answer(name, tokens):
  rounds = np.ones(len(tokens), int)
  none = np.zeros(len(tokens), int)
  return metrics.Answer(
    name, "g", 0, tuple(tokens), rounds, none, none, none, 0.1, 1.0
  )


class PlanTest(parameterized.TestCase):
  @parameterized.parameters(1, 2)
  def test_every_method_meets_every_batch_in_every_run(self, batch_size):
    asked = bench(batch_size, runs=3)
    plan = list(measure.plan(asked, session_lib.Method()))
    entries = [
      (run, name, index) for run, batch, name, _ in plan for index in batch
    ]
    self.assertLen(set(entries), len(entries))
    self.assertLen(entries, asked.answers)
    names = {name for _, name, _ in entries}
    self.assertEqual(names, {"a", "b", "plain", "plain_reference"})

  def test_methods_take_turns_within_a_batch(self):
    """Between two batches of one method stand all the others."""
    plan = [
      (run, batch[0], name)
      for run, batch, name, _ in measure.plan(bench(), session_lib.Method())
      if name != "plain_reference"
    ]
    for at in range(0, len(plan), 3):
      places = {(run, batch) for run, batch, _ in plan[at : at + 3]}
      self.assertLen(places, 1)
    first = {name for _, _, name in plan[::3]}
    self.assertEqual(first, {"a", "b", "plain"})

  @parameterized.parameters((1, 2), (2, 1), (3, 1))
  def test_the_reference_has_at_least_two_rows(self, batch_size, width):
    method = measure.reference_method(bench(batch_size))
    self.assertEqual(method.block, width)


class SpreadTest(parameterized.TestCase):
  @parameterized.parameters(
    (0, ()),
    (1, (0,)),
    (2, (0, 2)),
    (3, (0, 2, 5)),
    (5, (0, 2, 5, 1, 3)),
    (9, (0, 2, 5, 1, 3, 4)),
  )
  def test_replayed_batches_come_from_all_groups(self, count, expected):
    prompts = tuple(
      data.Prompt(f"p{i}", i, "x", group=group)
      for i, group in enumerate("aabbbc")
    )
    settings = session_lib.Settings()
    asked = dataclasses.replace(
      bench(), task=build.Task(prompts, ((1,),) * 6, settings)
    )
    found = [batch[0] for batch in comparison._spread(asked, count)]
    self.assertEqual(tuple(found), expected)


class MarginTest(absltest.TestCase):
  def test_it_is_the_gap_after_the_common_tokens(self):
    asked = bench()
    first, second = answer("p1", (7, 8, 9)), answer("p1", (7, 8, 4))
    found: Any = comparison._margin(asked, "p1", first, second)
    logits = toys.last_logits(asked.target)([3, 7, 8])
    best = np.sort(logits)[-2:]
    # Logits of a few units from a float32 forward of two layers.
    self.assertAlmostEqual(found, best[1] - best[0], delta=1e-4)

  def test_an_answer_that_ends_early_differs_where_it_ends(self):
    asked = bench()
    short, long = answer("p1", (7, 8)), answer("p1", (7, 8, 9))
    self.assertEqual(
      comparison._margin(asked, "p1", short, long),
      comparison._margin(asked, "p1", long, answer("p1", (7, 8, 1))),
    )

  def test_a_prompt_that_fills_the_capacity(self):
    """120 tokens, 6 new ones and a block of 2 are all of the 128 slots."""
    ids = (tuple(range(60)) * 2,)
    asked = bench(ids=ids, stop=("x",))
    first, second = answer("p0", (7, 8, 9, 1, 2, 3)), answer("p0", (7, 8, 9, 1))
    found: Any = comparison._margin(asked, "p0", first, second)
    logits = toys.last_logits(asked.target)([*ids[0], 7, 8, 9, 1])
    best = np.sort(logits)[-2:]
    # Logits of a few units from a float32 forward of two layers.
    self.assertAlmostEqual(found, best[1] - best[0], delta=1e-4)

  def test_sampling_uses_the_noise_of_prompt_and_position(self):
    """log p + G of the third prompt's fourth new token, position 5."""
    temperature: Any = 1.0
    sampling = sampling_lib.Sampling(temperature=temperature)
    asked = bench(sampling=sampling, seed=5)
    first, second = answer("p2", (7, 8, 4, 1)), answer("p2", (7, 8, 4, 2))
    found: Any = comparison._margin(asked, "p2", first, second)
    keys = streams.row_keys(5, jnp.array([2]), jnp.array([0]))
    noise = streams.Streams(keys, jnp.array([0])).gumbel(
      streams.SAMPLE, jnp.array([[5]]), jnp.array([[0]]), toys.TINY_VOCAB
    )
    logits = toys.last_logits(asked.target)([*PROMPTS[2], 7, 8, 4])
    best = np.sort(logits + np.asarray(noise[0, 0]))[-2:]
    # Logits of a few units from a float32 forward of two layers.
    self.assertAlmostEqual(found, best[1] - best[0], delta=1e-4)


class ReplayTest(absltest.TestCase):
  def test_plain_decoding_goes_on_where_it_would_have_ended(self):
    """EOS is any token here, and stop tokens too."""
    words: Any = Words()
    words.eos_ids = tuple(range(64))
    asked = dataclasses.replace(bench(stop_tokens=((5,),)), tokenizer=words)
    seen = []
    measured = replay.Times(1.0, 1.0, 1.0, 1.0, 1, 1)

    def measure_(method, plain, limit, compiled):
      del method, compiled
      for _ in plain.rounds():
        pass
      seen.append((len(plain.results()[0].tokens), limit))
      return measured

    with absltest.mock.patch.object(replay, "measure", measure_):
      times = comparison._replay(
        asked, asked.methods["a"], session_lib.Method(), 2
      )
    self.assertEqual(times, [measured] * 2)
    self.assertEqual(seen, [(6, 6)] * 2)


if __name__ == "__main__":
  absltest.main()
