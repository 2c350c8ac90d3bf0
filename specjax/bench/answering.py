# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""One prompt, answered on the terminal as it grows."""

from ml_collections import ConfigDict
import numpy as np

from specjax import session as session_lib
from specjax import tokenizers
from specjax.bench import build, loading
from specjax.reports import metrics, report, tables


def answer(
  config: ConfigDict, name: str | None = None, *, mark: bool = False
) -> None:
  """Prints the answer to `config.prompts` and one line of measures.

  With `config.samples` there are several answers, one below the other.

  Args:
    config: checked.
    name: of the method, "plain" for none; None takes the first.
    mark: see `report.AnswerView`.
  """
  prompts = build.prompts(config)
  build.check(config)  # A mistake must not cost a load.
  name = name or next(iter(build.names(config)), "plain")
  config = build.only(config, name)  # Drafts of others are not loaded.
  loaded = loading.load(config)
  target, tokenizer = loaded.target.model, loaded.tokenizer
  methods = build.methods(config, target, loaded.draft_models)
  method = methods.get(name, session_lib.Method())
  task = build.task(config, tokenizer, prompts)
  capacity = build.capacity(target, task, {name: method})
  for prompt, ids in zip(task.prompts, task.ids):
    session = session_lib.Session(
      target,
      tokenizer,
      method,
      task.settings,
      [ids],
      samples=[prompt.sample],
      rows=config.mesh.data,  # Others than the first end at once.
      capacity=capacity,
    )
    view = report.AnswerView(mark=mark)
    begun, seconds = stream(session, tokenizer, view)
    view.end(_summary(name, session, begun, seconds))


def stream(
  session: session_lib.Session,
  tokenizer: tokenizers.Tokenizer,
  view: report.AnswerView,
) -> tuple[int, float]:
  """Prints each round's tokens as they come, those that were drafted marked.

  Returns:
    Tokens and seconds of the first round, which waits for the compiler.
  """
  text = tokenizer.detokenizer()
  first = None
  for (row,) in session.stream():
    first = first or (len(row.tokens), session.decode_seconds)
    drafted, own = np.split(row.tokens, [row.accepted])
    view.write(text.push(drafted.tolist()), accepted=True)
    view.write(text.push(own.tolist()), accepted=False)
  view.write(text.flush(), accepted=False)
  return first or (0, 0.0)


def _summary(
  name: str, session: session_lib.Session, begun: int, seconds: float
) -> str:
  """One line; the rate leaves out the first round."""
  result = session.results()[0]
  seen = metrics.Answer(
    id="",
    group="",
    run=0,
    tokens=tuple(result.tokens.tolist()),
    emitted=result.emitted,
    drafted=result.drafted,
    accepted=result.accepted,
    rejected=result.rejected,
    prefill_seconds=result.prefill_seconds,
    decode_seconds=result.decode_seconds,
  )
  left = len(result.tokens) - begun
  rate = left / (result.decode_seconds - seconds) if left > 0 else None
  return (
    f"{name}: {len(result.tokens)} tokens (ended by {result.reason}), "
    f"{tables.number(rate, 1)} tokens/s, "
    f"tau {tables.number(metrics.block_efficiency([seen]))}, "
    f"alpha {tables.number(metrics.acceptance_rate([seen]))}"
  )
