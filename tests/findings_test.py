# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a comparison says about a difference, about time and about memory."""

import dataclasses
from typing import Any
from unittest import mock

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax import streams
from specjax.bench import findings, memory, replay, streaming
from specjax.drafters import draft_model
from specjax.reports import metrics
from tests import toys
from tests.benches import PROMPTS, Words, bench


def answer(name, tokens, sample=0):
  rounds = np.ones(len(tokens), int)
  none = np.zeros(len(tokens), int)
  return metrics.Answer(
    name, "g", 0, tuple(tokens), rounds, none, none, none, 0.1, 1.0, sample
  )


class MarginTest(absltest.TestCase):
  def test_it_is_the_gap_after_the_common_tokens(self):
    asked = bench()
    first, second = answer("p1", (7, 8, 9)), answer("p1", (7, 8, 4))
    found: Any = findings._margin(asked, first, second)
    logits = toys.last_logits(asked.target)([3, 7, 8])
    best = np.sort(logits)[-2:]
    # Logits of a few units from a float32 forward of two layers.
    self.assertAlmostEqual(found, best[1] - best[0], delta=1e-4)

  def test_an_answer_that_ends_early_differs_where_it_ends(self):
    asked = bench()
    short, long = answer("p1", (7, 8)), answer("p1", (7, 8, 9))
    self.assertEqual(
      findings._margin(asked, short, long),
      findings._margin(asked, long, answer("p1", (7, 8, 1))),
    )

  def test_a_prompt_that_fills_the_capacity(self):
    """120 tokens, 6 new ones and a block of 2 are all of the 128 slots."""
    ids = (tuple(range(60)) * 2,)
    asked = bench(ids=ids, stop=("x",))
    first, second = answer("p0", (7, 8, 9, 1, 2, 3)), answer("p0", (7, 8, 9, 1))
    found: Any = findings._margin(asked, first, second)
    logits = toys.last_logits(asked.target)([*ids[0], 7, 8, 9, 1])
    best = np.sort(logits)[-2:]
    # Logits of a few units from a float32 forward of two layers.
    self.assertAlmostEqual(found, best[1] - best[0], delta=1e-4)

  def test_sampling_uses_the_noise_of_prompt_sample_and_position(self):
    """log p + G of the third prompt's fourth new token, position 5.

    The prompt stands in two rows, one a sample; the second one is asked for.
    """
    temperature: Any = 1.0
    sampling = sampling_lib.Sampling(temperature=temperature)
    asked = bench(sampling=sampling, seed=5)
    again = dataclasses.replace(asked.task.prompts[2], sample=1)
    task = dataclasses.replace(
      asked.task,
      prompts=(*asked.task.prompts, again),
      ids=(*asked.task.ids, asked.task.ids[2]),
    )
    asked = dataclasses.replace(asked, task=task)
    first, second = (answer("p2", (7, 8, 4, last), 1) for last in (1, 2))
    found: Any = findings._margin(asked, first, second)
    keys = streams.row_keys(5, jnp.array([2]), jnp.array([1]))
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
      times = findings._replay(
        asked, [asked.methods["a"]] * 2, session_lib.Method(), asked.batches[:2]
      )
    self.assertEqual(times, [measured] * 2)
    self.assertEqual(seen, [(6, 6)] * 2)


class StreamingTest(absltest.TestCase):
  def test_waits_are_those_of_who_watches(self):
    """A clock that ticks once a look; rows of 1 and 6 rounds of one token.

    The first row ends by its own stop token and waits for nothing after it.
    """
    temperature: Any = 1.0
    sampling = sampling_lib.Sampling(temperature=temperature)
    asked = bench(2, ids=PROMPTS[:2], sampling=sampling)
    plain = session_lib.Method()
    session = asked.session(plain, range(2))
    for _ in session.rounds():
      pass
    first = int(session.results()[0].tokens[0])
    self.assertNotIn(first, session.results()[1].tokens)
    asked = bench(
      2, ids=PROMPTS[:2], sampling=sampling, stop_tokens=((first,),)
    )
    clock = mock.Mock(perf_counter=mock.Mock(side_effect=range(100)))
    with mock.patch.object(streaming, "time", clock):
      short, long = streaming.measure_batch(asked, plain, range(2))
    self.assertEqual((short.first_seconds, long.first_seconds), (1, 1))
    self.assertEmpty(short.gap_seconds)
    self.assertEqual(long.gap_seconds.tolist(), [1] * 5)
    self.assertEqual(long.gap_tokens.tolist(), [1] * 5)

  def test_a_gap_brings_what_its_round_emitted(self):
    asked = bench()
    for batch in asked.batches:
      method = asked.methods["b"]
      session = asked.session(method, batch)
      for _ in session.rounds():
        pass
      (answered,) = session.results()
      (arrival,) = streaming.measure_batch(asked, method, batch)
      self.assertEqual(
        arrival.gap_tokens.tolist(), answered.emitted[1:].tolist()
      )
      self.assertLen(arrival.gap_seconds, len(answered.emitted) - 1)
      self.assertGreater(min(arrival.first_seconds, *arrival.gap_seconds), 0)

  def test_methods_take_turns(self):
    asked, told = bench(), []
    found = streaming.measure_all(
      asked, asked.methods, asked.batches[:2], told.append
    )
    self.assertEqual(told, ["a", "b", "a", "b"])
    self.assertEqual(
      {name: len(found[name]) for name in found}, {"a": 2, "b": 2}
    )

  def test_an_empty_answer_has_no_first_token(self):
    asked = bench()
    nothing = dataclasses.replace(asked.task.settings, max_new_tokens=0)
    asked = dataclasses.replace(
      asked, task=dataclasses.replace(asked.task, settings=nothing)
    )
    found = streaming.measure_batch(asked, session_lib.Method(), range(1))
    self.assertEmpty(list(found))


class MemoryTest(absltest.TestCase):
  def test_it_is_of_one_method(self):
    """The peak follows the method, in whatever order they are asked.

    Arguments alone are the weights of both and all caches; temporaries of a
    wider block come on top.
    """
    asked = bench()
    draft = session_lib.Method(draft_model.DraftModel(toys.tiny(1), 3))
    found: list[Any] = [
      memory.measure(asked.session(method, asked.batches[0]))
      for method in (draft, session_lib.Method())
    ]
    big, small = found
    # 4 bytes a number, as the toy's parameters say.
    weights = 4 * sum(x.size for x in jax.tree.leaves(asked.target.params))
    self.assertEqual((big["weights"], small["weights"]), (weights, weights))
    self.assertEqual(
      (big["draft_weights"], small["draft_weights"]), (weights, 0)
    )
    self.assertGreater(big["cache"], small["cache"])
    for one in found:
      held = one["weights"] + one["draft_weights"] + one["cache"]
      self.assertGreaterEqual(one["peak"], held)
    self.assertGreater(big["peak"], small["peak"])

  def test_nothing_is_compiled_for_it(self):
    asked = bench()
    session = asked.session(asked.methods["a"], asked.batches[0])
    for _ in asked.session(asked.methods["a"], asked.batches[0]).rounds():
      pass
    # It says "Compiling" and "Finished tracing" where there is a need to.
    with jax.log_compiles(), self.assertNoLogs("jax", "WARNING"):
      memory.measure(session)

  def test_where_the_backend_does_not_say(self):
    asked = bench()
    session = asked.session(session_lib.Method(), asked.batches[0])
    program = mock.MagicMock()
    program.lower().compile().memory_analysis.return_value = None
    with mock.patch.object(memory.decode, "advance", program):
      self.assertIsNone(memory.measure(session)["peak"])
      # Settings of Python may be leaves; jit makes arrays of 4 bytes of them.
      session.method = mock.Mock(drafter=(0.5, 2))
      self.assertEqual(memory.measure(session)["draft_weights"], 8)


if __name__ == "__main__":
  absltest.main()
