# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounds that are looked at are the rounds that were answered."""

from typing import Any

from absl.testing import absltest, parameterized
import jax
import numpy as np

from specjax import session
from specjax.answers import Method, Settings
from specjax.bench import recording, replay
from specjax.drafters import draft_model
from specjax.policies import policy
from tests import decoding, toys

VOCAB = 32
TARGET = toys.cycle(VOCAB)


def start(stop, prompts=((1,), (20,))):
  """Counts upwards; tokens 5 and 6 are the letters a and b."""
  texts = ["x"] * VOCAB
  texts[5:7] = "ab"
  letters: Any = decoding.Letters(texts)
  return session.Session(
    TARGET,
    letters,
    Method(
      draft_model.DraftModel(toys.part(VOCAB), 6),
      policy=policy.Fixed(6, widths=()),
    ),
    Settings(max_new_tokens=28, stop=stop),
    prompts,
    capacity=96,
  )


class StopStringTest(parameterized.TestCase):
  @parameterized.parameters(((),), (("ab",),), (("a", "xx"),))
  def test_rounds_say_what_the_answers_say(self, stop):
    asked = start(stop)
    columns: list[dict[str, list]] = [
      {name: [] for name in ("emitted", "accepted", "rejected", "tokens")}
      for _ in range(2)
    ]
    for before, seen in recording.steps(asked):
      kept = jax.device_get(seen.acceptance)
      for row, column in enumerate(columns):
        if before.active[row]:
          count = int(kept.count[row])
          column["emitted"].append(count)
          column["accepted"].append(int(kept.accepted[row]))
          column["rejected"].append(bool(kept.rejected[row]))
          column["tokens"] += kept.tokens[row, :count].tolist()
    for _ in asked.rounds():
      pass
    for column, answer in zip(columns, asked.results(), strict=True):
      for name, values in column.items():
        self.assertEqual(values, getattr(answer, name).tolist(), name)

  def test_a_replay_ends_where_the_string_ended_the_answer(self):
    """Five tokens to b of 28; the programs run no round more."""
    asked = start(("ab",), prompts=((1,),))
    record = recording.record(asked, 28)
    self.assertEqual(int(record.acceptance.count.sum()), 5)
    state = replay._recorded(asked, record)(recording.copy(asked.state))
    self.assertEqual(int(state.stats.rounds[0]), record.rounds)
    self.assertEqual(int(state.lengths[0]), 6)
    cache, _ = replay._forward_alone(asked, record)(recording.copy(asked.state))
    self.assertEqual(int(cache.lengths[0]), 5)

  def test_the_session_stays_as_it_was(self):
    asked = start(("ab",))
    before = jax.device_get(asked.state.lengths)
    for _ in recording.steps(asked):
      pass
    np.testing.assert_array_equal(before, asked.state.lengths)


if __name__ == "__main__":
  absltest.main()
