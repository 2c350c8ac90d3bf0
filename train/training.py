# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""A whole run: loads, trains, and leaves a drafter."""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import pathlib
import shutil
from typing import Any

from ml_collections import ConfigDict
import numpy as np

from specjax.bench import backend, storage
from specjax.models import sources
from specjax.reports import report
from train import (
  batches,
  build,
  conversations,
  features,
  loop,
  optimizer,
  saving,
  step,
  tracking,
  trained,
)

DRAFTER = "drafter"
SUMMARY = "summary.json"
# What must be the same when a run is gone on with.
_BOUND = ("target", "data", "draft_vocab")


def train(
  config: ConfigDict,
  plain: Mapping[str, Any],
  folder: pathlib.Path,
  overwrite: bool = False,
) -> None:
  """Trains in a folder, from the start or from its newest checkpoint.

  Args:
    config: checked.
    plain: the same as JSON has it.
    folder: of the run.
    overwrite: what is in it is removed, once nothing is left to be refused.

  Raises:
    ValueError, OSError: a mistake, in one line.
    FloatingPointError: a loss that is no number.
  """
  backend.set_up()
  target, tokenizer, _ = backend.load(config)
  data = build.data(config, tokenizer)
  old = None if overwrite else folder
  ids = _draft_ids(config, data, target.num_tokens, old)
  plan = _plan(config, target, tokenizer, data, ids)
  state = _begin(plan, old, config.init_from)
  if config.data.features:
    features.check(config.data.features, _bound(plan, config))
  if overwrite:
    shutil.rmtree(folder)
  folder.mkdir(parents=True, exist_ok=True)
  _write(folder / trained.CONFIG, plain)
  for line in (*data.reports, *_described(data, ids, plan)):
    report.say(line)
  plan = _with_features(plan, config)
  with (
    saving.Saver(folder / trained.CHECKPOINTS, config.keep) as saver,
    tracking.Tracker(
      folder, int(state.step), plan.steps, config.tensorboard
    ) as tracker,
  ):
    state, is_done = loop.run(plan, saver, tracker, state)
    if not is_done:
      tracker.say(f"stopped at step {int(state.step)}: run it again to go on")
      return
    best = saver.best
    if best not in (None, int(state.step)):
      state = saver.load(best, state)
    _leave(plan, state, tokenizer, folder, plain)
    tracker.say(f"drafter of step {int(state.step)}: {folder / DRAFTER}")


def _draft_ids(config, data, tokens, folder) -> np.ndarray | None:
  """The vocabulary of what a run goes on from; that of its data at the start.

  The columns of a trained head stand for the same tokens, whatever it is
  trained on next.
  """
  size = config.data.draft_vocab
  begun = None if folder is None else trained.find(folder)
  if begun is None and config.init_from:
    begun = trained.read(config.init_from, "init_from")
  if begun is None:
    return build.draft_ids(data.train, size, tokens)
  ids = begun.draft_ids()
  found = tokens if ids is None else len(ids)
  if found != (size if 0 < size < tokens else tokens):
    raise ValueError(
      f"data.draft_vocab is {size} but {begun.folder} drafts {found} tokens: "
      f"use data.draft_vocab = {found}"
    )
  return ids


def _plan(config, target, tokenizer, data, ids) -> loop.Plan:
  objective = build.objective(config, target, ids)
  build.check_extra(config, objective, data.validation)
  order = batches.Order(
    data.train,
    config.data.width,
    config.batch_size,
    config.seed,
    config.data.workers,
  )
  steps = config.steps or round(config.epochs * order.steps_per_epoch)
  if not steps:
    raise ValueError(
      f"epochs is {config.epochs} of {order.steps_per_epoch} steps each, which "
      "makes none: use more"
    )
  settings = optimizer.Settings(**config.optimizer)
  return loop.Plan(
    objective=objective,
    judged=build.judged(config),
    optimizer=optimizer.make(settings, steps),
    rate=optimizer.schedule(settings, steps),
    order=order,
    features=None,
    accumulation=config.accumulation,
    steps=steps,
    evaluate=build.evaluation(config, objective, data.validation, tokenizer),
    evaluate_every=config.evaluation.every,
    save_every=config.save_every,
    note={
      "target": sources.fingerprint(target),
      "data": digest(data.train),
      "draft_vocab": None if ids is None else _digest(ids),
      trained.DRAFT_IDS: None if ids is None else ids.tolist(),
    },
    key=build.key(config),
  )


def _with_features(plan, config) -> loop.Plan:
  """The plan, with what the target says read from `data.features` if given."""
  if not config.data.features:
    return plan
  found = features.prepare(
    config.data.features,
    plan.objective.target,
    plan.order.examples,
    _bound(plan, config),
    report.say,
  )
  return dataclasses.replace(plan, features=found)


def _bound(plan, config) -> features.Binding:
  return features.Binding(
    plan.note["target"],
    plan.note["data"],
    config.data.width,
    plan.judged.temperature or 1.0,
  )


def _begin(
  plan: loop.Plan, folder: pathlib.Path | None, init_from: str
) -> step.State:
  """The newest state of a folder, or one to begin with; nothing is written."""
  state = step.init(plan.objective, plan.optimizer, plan.key)
  if folder is not None and (folder / trained.CHECKPOINTS).is_dir():
    with saving.Saver(folder / trained.CHECKPOINTS, None) as saver:
      if saver.latest is not None:
        _check_note(saver.note(saver.latest), plan.note, folder)
        return saver.load(saver.latest, state)
  if init_from:
    found = trained.read(init_from, "init_from").parameters(state.params)
    return state.replace(params=found)
  return state


def digest(examples: list[conversations.Example]) -> str:
  """Of tokens and masks, in their order."""
  found = hashlib.sha256()
  for example in examples:
    found.update(np.int64(len(example.tokens)).tobytes())
    found.update(example.tokens.tobytes() + example.loss.tobytes())
  return found.hexdigest()


def _digest(ids: np.ndarray) -> str:
  return hashlib.sha256(np.asarray(ids, np.int32).tobytes()).hexdigest()


def _check_note(old, new, folder) -> None:
  """Refuses to go on with another target, data or vocabulary."""
  changed = [key for key in _BOUND if old.get(key) != new[key]]
  if changed:
    raise ValueError(
      f"{folder} was trained with another {', '.join(changed)}: name another "
      "folder, or --overwrite"
    )


def _described(data, ids, plan) -> list[str]:
  lines = [
    f"{plan.steps} steps, {plan.order.steps_per_epoch} an epoch; data "
    f"{plan.note['data'][:12]}"
  ]
  if ids is not None:
    share = build.coverage(data.train, ids)
    held_out = build.coverage(data.validation, ids)
    lines.append(
      f"{len(ids)} tokens can be drafted: {share:.1%} of the tokens of answers "
      f"and {held_out:.1%} of held-out ones"
    )
  return lines


def _leave(plan, state, tokenizer, folder, plain) -> None:
  """The drafter's folder, which appears when it is whole, and its measures."""
  made = folder / f"{DRAFTER}.new"
  if made.exists():
    shutil.rmtree(made)
  plan.objective.save(state.params, made, tokenizer)
  if (folder / DRAFTER).exists():
    shutil.rmtree(folder / DRAFTER)
  made.rename(folder / DRAFTER)
  lines = tracking.read(folder)
  evaluations = [line for line in lines if line["kind"] == "evaluation"]
  by_step = {line["step"]: line for line in evaluations}
  summary = {
    "step": int(state.step),
    "before": by_step.get(0),
    "after": by_step.get(int(state.step)),
    "note": {key: plan.note[key] for key in _BOUND},
    "config": dict(plain),
  }
  _write(folder / SUMMARY, summary)


def _write(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  text = json.dumps(value, indent=2) + "\n"
  storage.write(storage.locate(path), text.encode())
