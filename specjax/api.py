# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Python API: prompts in, answers out.

model, tokenizer = specjax.load("smollm2-135m-instruct-q4_1")
answers = specjax.generate(model, tokenizer, ["What is a comet?"])
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from specjax import answers, tokenizers, types
from specjax import sampling as sampling_lib
from specjax import session as session_lib
from specjax.drafters import empty
from specjax.verifiers import coupled

Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int]


def encode(
  tokenizer: tokenizers.Tokenizer, prompts: Sequence[Prompt]
) -> list[list[int]]:
  """Token ids of prompts.

  A text becomes one user message where the model has a chat template; messages
  are rendered with it; token ids are taken as they are.

  Raises:
    ValueError: there is no prompt, or one is empty.
  """
  if not prompts:
    raise ValueError("there is no prompt: give at least one")
  empty_ones = [i for i, prompt in enumerate(prompts) if len(prompt) == 0]
  if empty_ones:
    raise ValueError(f"prompt {empty_ones[0]} is empty: give it some text")
  if tokenizer.chat_template is not None:
    prompts = [
      [{"role": "user", "content": p}] if isinstance(p, str) else p
      for p in prompts
    ]
  # All chats at once: each call of the template sandbox has its price.
  chats: list[Any] = [p for p in prompts if isinstance(p[0], Mapping)]
  encoded = iter(tokenizer.encode_chats(chats) if chats else [])
  return [_ids(tokenizer, prompt, encoded) for prompt in prompts]


def _ids(tokenizer, prompt, encoded):
  if isinstance(prompt, str):
    return tokenizer.encode(prompt)
  if isinstance(prompt[0], Mapping):
    return next(encoded)
  return [int(token) for token in prompt]


def generate(
  model: types.Model,
  tokenizer: tokenizers.Tokenizer,
  prompts: Prompt | Sequence[Prompt],
  *,
  drafter: types.Drafter | None = None,
  verifier: types.Verifier | None = None,
  policy: types.Policy | None = None,
  lossless: bool = True,
  sampling: sampling_lib.Sampling | None = None,
  max_new_tokens: int = 128,
  stop: str | Sequence[str] = (),
  stop_tokens: Sequence[Sequence[int]] = (),
  seed: int | Sequence[int] = 0,
  samples: int = 1,
  batch_size: int | None = None,
) -> list[session_lib.Generation]:
  """Answers prompts.

  Args:
    model: the target.
    tokenizer: the model's own.
    prompts: one or several of: a text, a list of messages, a list of token ids.
    drafter: proposes tokens; None decodes plainly.
    verifier: None is the coupled rule, whose text no drafter can change.
    policy: None drafts as many tokens as the drafter can.
    lossless: refuse a verifier that changes the law of the text.
    sampling: None is greedy.
    max_new_tokens: of each answer.
    stop: a string that ends an answer, or several.
    stop_tokens: token sequences that end an answer.
    seed: of all randomness, together with a prompt's index here; or one seed a
      prompt, and then the index does not matter.
    samples: answers to each prompt, each with random numbers of its own; the
      first is what one alone would be.
    batch_size: answers at a time; None is all at once.

  Returns:
    One answer a prompt, in order; with several samples, those of a prompt stand
    together.

  Raises:
    ValueError: one line that names the value and the fix.
  """
  method = session_lib.Method(
    drafter if drafter is not None else empty.Empty(),
    verifier if verifier is not None else coupled.Coupled(),
    policy,
    lossless,
  )
  settings = session_lib.Settings(
    sampling if sampling is not None else sampling_lib.Sampling(),
    max_new_tokens,
    stop if isinstance(stop, str) else tuple(stop),
    _sequences(stop_tokens),
    seed=tuple(np.asarray(seed).tolist())
    if np.ndim(seed)
    else np.asarray(seed).item(),
  )
  ids = encode(tokenizer, _as_list(prompts))
  sizes = {"batch_size": batch_size, "samples": samples}
  return list(answer_all(model, tokenizer, method, settings, ids, **sizes))


def answer_all(
  model: types.Model,
  tokenizer: tokenizers.Tokenizer,
  method: session_lib.Method,
  settings: session_lib.Settings,
  ids: Sequence[Sequence[int]],
  *,
  batch_size: int | None = 1,
  samples: int = 1,
  indices: Sequence[int] | None = None,
  capacity: int | None = None,
) -> Iterator[session_lib.Generation]:
  """Answers of token prompts, batch by batch, in order.

  Args:
    model: the target.
    tokenizer: for EOS ids and text.
    method: drafter, verifier, policy.
    settings: of the answers.
    ids: prompts as token ids.
    batch_size: rows of a batch; the last one is filled with rows that end at
      once, so that one program serves all. None is all in one batch.
    samples: answers to each prompt, one after the other.
    indices: of the prompts in their file, which choose their random streams.
    capacity: token slots of a row; None is the bucket of the longest prompt.
  """
  if not ids:
    raise ValueError("there is no prompt: give at least one")
  sampling = answers.arrays(settings.sampling, len(ids), model, tokenizer)
  answers.check_samples(samples, sampling)
  seeds, places, _ = answers.random_streams(settings, indices, None, len(ids))
  capacity = capacity or session_lib.bucket(model, method, settings, ids)
  # A row is an answer: the prompt and the sample of each.
  prompt = np.repeat(np.arange(len(ids)), samples)
  sample = np.tile(np.arange(samples), len(ids))
  for batch in _batches(len(prompt), batch_size):
    asked = prompt[batch]
    session = session_lib.Session(
      model,
      tokenizer,
      method,
      dataclasses.replace(settings, seed=tuple(seeds[asked])),
      [ids[i] for i in asked],
      indices=places[asked].tolist(),
      samples=sample[batch].tolist(),
      sampling=sampling.take(asked),
      rows=batch.stop - batch.start,
      capacity=capacity,
    )
    for _ in session.rounds():
      pass
    yield from session.results()


def _batches(count: int, size: int | None) -> list[slice]:
  """Slices of one size; None is all at once."""
  size = count if size is None else size
  if size < 1:
    raise ValueError(f"batch_size is {size}: use 1 or more")
  return [slice(at, at + size) for at in range(0, count, size)]


def _sequences(stop_tokens: Any) -> tuple[tuple[int, ...], ...]:
  if any(np.ndim(sequence) != 1 for sequence in stop_tokens):
    raise ValueError(
      f"stop_tokens {stop_tokens!r} is no list of token lists: write [[2]]"
    )
  return tuple(tuple(map(int, sequence)) for sequence in stop_tokens)


def _as_list(prompts: Any) -> list[Prompt]:
  """One prompt or several, as a list of prompts."""
  if isinstance(prompts, str):
    return [prompts]
  prompts = prompts.tolist() if hasattr(prompts, "tolist") else list(prompts)
  single = bool(prompts) and isinstance(prompts[0], Mapping | int | np.integer)
  return [prompts] if single else prompts
