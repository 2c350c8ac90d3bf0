# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many prompts through few rows: nobody's answer depends on the others."""

import collections
from collections.abc import Sequence
from typing import Any
from unittest import mock

from absl.testing import absltest
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax.decoding import refill
from specjax.drafters import empty, ngram
from specjax.policies import policy
from specjax.verifiers import coupled
from tests import decoding, toys

EOS = 5
# More than there are rows, ragged, and some ended by EOS before the limit.
PROMPTS = tuple(
  tuple(np.random.default_rng(i).integers(6, 60, 1 + 3 * (i % 5)).tolist())
  for i in range(8)
)
TEMPERATURES = (0.0, 1.0)


class Queue:
  """Requests that are there from the start, and some that come later."""

  def __init__(self, requests: Sequence[refill.Request]):
    self.waiting = collections.deque(requests)
    self.taken: list[int] = []

  def take(self, most):
    self.taken.append(most)
    count = min(most, len(self.waiting))
    return [self.waiting.popleft() for _ in range(count)]


def program(target, **changes) -> refill.Program:
  settings: dict[str, Any] = {
    "target": target,
    "drafter": empty.Empty(),
    "verifier": coupled.Coupled(),
    "policy": policy.Fixed(0),
    "eos": (EOS,),
    "max_new_tokens": 12,
    "capacity": decoding.CAPACITY,
    "rows": 3,
    "reading": 2,
    "rounds": 5,
    "seed": 3,
  }
  return refill.Program(**settings | changes)


def requests() -> list[refill.Request]:
  return [
    refill.Request(ids, i, temperature=TEMPERATURES[i % 2], note=f"n{i}")
    for i, ids in enumerate(PROMPTS)
  ]


def alone(target, request: refill.Request) -> list[int]:
  """The answer of `decode`, in a batch that holds nothing else."""
  state = decoding.run(
    target,
    empty.Empty(),
    [request.ids] * 3,
    indices=[request.index] * 3,
    seed=3,
    new=12,
    eos=(EOS,),
    sampling=sampling_lib.Sampling(
      temperature=jnp.full(3, request.temperature)
    ),
    policy=policy.Fixed(0),
  )
  return decoding.answers(state)[0]


class RefillTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.target = toys.tiny(0)
    cls.alone = [alone(cls.target, request) for request in requests()]

  def check(self, answers):
    """Each request has its own answer, once."""
    self.assertCountEqual(
      [a.request.index for a in answers], range(len(PROMPTS))
    )
    for answer in answers:
      self.assertEqual(list(answer.tokens), self.alone[answer.request.index])
      ended = answer.tokens[-1] == EOS
      self.assertEqual(answer.reason, "eos" if ended else "length")
      self.assertEqual(answer.request.note, f"n{answer.request.index}")

  def test_rows_do_not_see_each_other(self):
    """Greedy and drawn answers, in rows that were others' before."""
    queue = Queue(requests())
    answers = list(program(self.target).answer(queue))
    self.check(answers)
    self.assertEqual({a.reason for a in answers}, {"eos", "length"})
    self.assertLessEqual(max(queue.taken), 2)

  def test_prompts_are_read_together(self):
    """All rows at first; then a free row waits for another one."""
    reads = mock.Mock(wraps=refill.decode.start)
    with mock.patch.object(refill.decode, "start", reads):
      self.check(list(program(self.target).answer(Queue(requests()))))
    # One without prompts makes the empty rows; three rows are two reads.
    most = 1 + 2 + -(-(len(PROMPTS) - 3) // 2) + 1  # The last may be alone.
    self.assertLessEqual(reads.call_count, most)

  @pytest.mark.slow
  def test_a_drafter_changes_no_answer(self):
    drafter = ngram.NGram(2)
    answers = program(
      self.target, drafter=drafter, policy=policy.Fixed(2)
    ).answer(Queue(requests()))
    self.check(list(answers))

  def test_answers_may_ask_more(self):
    """What comes while others are under way, and when nothing else is."""
    first, *later = requests()
    queue = Queue([first])
    answers = []
    for answer in program(self.target).answer(queue):
      answers.append(answer)
      count = min(len(answers), len(later))
      queue.waiting.extend(later[:count])
      del later[:count]
    self.check(answers)

  def test_the_sample_chooses_the_stream(self):
    request = refill.Request(PROMPTS[1], 1, sample=1, temperature=1.0)
    (answer,) = program(self.target).answer(Queue([request]))
    self.assertNotEqual(list(answer.tokens), self.alone[1])

  def test_a_prompt_that_does_not_fit(self):
    made = program(self.target)
    self.assertEqual(made.room(), decoding.CAPACITY - 12 - 1)
    too_long = refill.Request((6,) * (made.room() + 1), 0)
    with self.assertRaisesRegex(
      ValueError, "prompt of 84 tokens and 12 new ones do not fit 96 slots"
    ):
      list(made.answer(Queue([too_long])))
    longest = refill.Request((6,) * made.room(), 0)
    (answer,) = made.answer(Queue([longest]))
    self.assertNotEmpty(answer.tokens)


if __name__ == "__main__":
  absltest.main()
