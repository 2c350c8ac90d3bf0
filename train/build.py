# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a checked config to what is trained, on what, and how it is judged."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict
import numpy as np

from specjax import api, tokenizers
from specjax import data as data_lib
from specjax import sampling as sampling_lib
from specjax.bench import backend, plugins
from specjax.models import model as model_lib
from specjax.models import sources
from train import (
  batches,
  conversations,
  decoding,
  frozen,
  losses,
  packing,
  schema,
  supervision,
  teacher,
)
from train.objectives import objective as objective_lib


@dataclasses.dataclass(frozen=True)
class Data:
  """Conversations to learn from and held-out ones, cut to the rows' width.

  Attributes:
    train, validation: examples.
    reports: lines that say what was read, left out and cut.
  """

  train: list[conversations.Example]
  validation: list[conversations.Example]
  reports: tuple[str, ...]


def data(config: ConfigDict, tokenizer: tokenizers.Tokenizer) -> Data:
  """Reads the conversations that a config names.

  Raises:
    ValueError, FileNotFoundError: see `conversations.read`; a conversation on
      both sides.
  """
  train, learnt = read_examples(
    config, config.data.train, tokenizer, config.data.limit
  )
  validation, held_out = read_examples(
    config, config.data.validation, tokenizer
  )
  both = {_text(e) for e in train} & {_text(e) for e in validation}
  if both:
    raise ValueError(
      f"{len(both)} conversations are in data.train and in data.validation: "
      "hold them out"
    )
  return Data(
    train, validation, (f"train: {learnt}", f"validation: {held_out}")
  )


def read_examples(
  config: ConfigDict,
  given: conversations.Sources,
  tokenizer: tokenizers.Tokenizer,
  limit: int = 0,
) -> tuple[list[conversations.Example], str]:
  """Conversations of some sources, cut to the rows' width, and what was read.

  Args:
    config: its licenses and width are used.
    given: a source or several.
    tokenizer: the target's.
    limit: tokens of answers to stop behind; 0 takes all.

  Raises:
    ValueError, FileNotFoundError: see `conversations.read`.
  """
  found, report = conversations.read(given, tokenizer, config.data.licenses)
  found, shortened = packing.cut(found, config.data.width)
  if limit:
    found = limited(found, limit)
  conversations.check(found, report)
  tokens = sum(int(e.loss.sum()) for e in found)
  total = sum(len(e.tokens) for e in found)
  return found, (
    f"{report}; {len(found)} used, {shortened} cut to {config.data.width} "
    f"tokens; {tokens} of {total} tokens are of answers"
  )


def limited(
  examples: Sequence[conversations.Example], tokens: int
) -> list[conversations.Example]:
  """The first examples, until they have so many tokens of answers."""
  sums = np.cumsum([int(example.loss.sum()) for example in examples])
  return list(examples[: int(np.searchsorted(sums, tokens)) + 1])


def _text(example: conversations.Example) -> bytes:
  return example.tokens.tobytes()


def draft_ids(
  examples: Sequence[conversations.Example], size: int, tokens: int
) -> np.ndarray | None:
  """[Q] int32 the tokens that answers use most, ascending; None is all.

  Args:
    examples: to learn from.
    size: Q; 0 is all.
    tokens: V, that the target knows.
  """
  if not 0 < size < tokens:
    return None
  used = np.zeros(tokens, np.int64)
  for example in examples:
    np.add.at(used, example.tokens[example.loss], 1)
  # Of equal counts the smaller id.
  order = np.argsort(-used, kind="stable")
  return np.sort(order[:size]).astype(np.int32)


def coverage(
  examples: Sequence[conversations.Example], ids: np.ndarray
) -> float:
  """Share of the tokens of answers that are among some tokens."""
  tokens = np.concatenate([e.tokens[e.loss] for e in examples])
  return float(np.mean(np.isin(tokens, ids)))


def objective(
  config: ConfigDict, target: model_lib.Model, ids: np.ndarray | None
) -> objective_lib.Objective:
  """What is trained.

  Raises:
    ValueError: it cannot be made.
  """
  kind = config.objective.type
  made = plugins.build(
    "objective",
    plugins.find("objective", kind, schema.OBJECTIVES),
    config.objective,
    {
      "target": target,
      "ids": None if ids is None else jnp.asarray(ids),
      "load": lambda name: sources.load(
        sources.resolve(name), config.dtype, "none", backend.mesh(config)
      )[0],
    },
    objective_lib.Objective,
  )
  if ids is not None and made.ids is None:
    raise ValueError(
      f"data.draft_vocab is {config.data.draft_vocab} but objective {kind!r} "
      "drafts every token: leave it out"
    )
  needed = tuple(made.feature_layers)
  return made.replace(target=target.replace(feature_layers=needed))


def judged(config: ConfigDict) -> supervision.Supervision:
  """The losses that a config asks for."""
  return supervision.Supervision(
    loss=losses.weighted(config.losses.to_dict()),
    sampling=sampling_lib.per_row(sampling(config.sampling), 1),
    temperature=float(config.sampling.temperature),
    decay=float(config.decay),
    extra=tuple((k, float(v)) for k, v in config.extra.items() if v),
  )


def check_extra(
  config: ConfigDict,
  made: objective_lib.Objective,
  examples: Sequence[conversations.Example],
) -> None:
  """Refuses weights of losses that the objective does not work out."""
  if not config.extra:
    return

  def extra(batch):
    seen = teacher.read(made.target, batch)
    return made.read(made.init(key(config)), batch, seen)[1]

  batch = next(batches.all_rows(examples, config.data.width, 1))
  known = jax.eval_shape(extra, batch)
  for name in config.extra:
    if name not in known:
      raise ValueError(
        f"extra.{name} is given, but {config.objective.type} works out "
        f"{', '.join(known) or 'no further losses'}: leave it out"
      )


def sampling(section: Mapping[str, Any]) -> sampling_lib.Sampling:
  """Settings of serving."""
  given = {
    name: section[name]
    for name, nothing in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
    if section[name] != nothing
  }
  return sampling_lib.Sampling(temperature=section["temperature"], **given)


def evaluation(
  config: ConfigDict,
  made: objective_lib.Objective,
  examples: Sequence[conversations.Example],
  tokenizer: tokenizers.Tokenizer,
) -> Callable[[Any], dict[str, Any]]:
  """Measures of parameters on held-out conversations, and while decoding.

  `tau` and `alpha` are those of `evaluation.select`; `gap` is how much less of
  a draft the decoding loop keeps than the held-out texts promise.

  Raises:
    ValueError, FileNotFoundError: prompts that cannot be read.
  """
  serving = sampling(config.sampling)
  settings, as_served = samplings(serving)
  if config.evaluation.limit:
    examples = limited(examples, config.evaluation.limit)
  prompts = _prompts(config.evaluation.prompts, tokenizer)
  rows = list(
    batches.all_rows(examples, config.data.width, config.evaluation.rows)
  )
  depth = judged_depth(config, made)

  def measure(params):
    found = frozen.measures(made, params, rows, settings, depth)
    found["serving"] = found[as_served]
    chosen = found[config.evaluation.select]
    measures = {"tau": chosen["tau"], "alpha": chosen["alpha"], **found}
    if not prompts:
      return measures
    decoded = decoding.measures(
      made.target,
      tokenizer,
      made.drafter(params, depth),
      prompts,
      serving,
      config.evaluation.max_new_tokens,
    )
    gap = None
    if decoded["alpha"] is not None:
      gap = found["serving"]["alpha_renewal"] - decoded["alpha"]
    return {**measures, "decode": decoded, "gap": gap}

  return measure


def judged_depth(config: ConfigDict, made: objective_lib.Objective) -> int:
  """Positions of a draft that are judged: not more than it was made for."""
  depth = config.evaluation.depth
  return depth if made.teacher_forced else min(depth, made.depth)


def samplings(
  serving: sampling_lib.Sampling,
) -> tuple[dict[str, sampling_lib.Sampling], str]:
  """Settings to judge by name, one row each, and which of them is served."""
  found = {
    "temperature_0": sampling_lib.Sampling(),
    "temperature_1": sampling_lib.Sampling(temperature=jnp.ones(1)),
  }
  for name, temperature in (("temperature_0", 0.0), ("temperature_1", 1.0)):
    if serving == sampling_lib.Sampling(temperature):
      return found, name
  served = {"serving": sampling_lib.per_row(serving, 1)}
  return {**found, **served}, "serving"


def _prompts(source: Any, tokenizer: tokenizers.Tokenizer) -> list[list[int]]:
  """Token ids of prompts to decode; none if the config names none."""
  if not source:
    return []
  contents = [prompt.content for prompt in data_lib.load_prompts(source)]
  return api.encode(tokenizer, contents)


def key(config: ConfigDict) -> jax.Array:
  """Of the first parameters."""
  return jax.random.key(config.seed)
