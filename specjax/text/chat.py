# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chat templates: from a list of messages to the text a model was tuned on.

A template is a program that came with somebody's weights. It runs in jinja2's
immutable sandbox, and the sandbox runs in a process of its own: an expression
such as `'a' * 10**9`, or a loop that prints nothing, can be ended only from
outside. That process is this very file, started in isolated mode with only the
variables that start Python, no files to write and a ceiling on memory; it gets
a request on stdin, answers on stdout and ends. A call costs about 0.1 s however
many conversations it renders, so callers with many should send them together.

The date that templates may ask for is fixed, so that the same messages give
the same ids on any day.
"""

from collections.abc import Mapping, Sequence
import contextlib
import datetime
import importlib.util
import json
import math
import os
import subprocess
import sys
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
# The day that the Llama 3 templates name when they are given none.
DATE = datetime.date(2024, 7, 26)
DATE_FORMAT = "%d %b %Y"
MAX_SECONDS = 10.0
MAX_CHARACTERS = 4_000_000  # of one rendered conversation
MAX_TEMPLATE = 1_000_000  # characters of the template itself
MAX_MEMORY = 2**30  # bytes of the rendering process
# What some platforms need to start Python at all; no user's secrets.
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")

Message = Mapping[str, Any]


def check_messages(messages: Sequence[Message]) -> None:
  """Raises ValueError unless every message is {"role", "content": text}."""
  if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
    raise ValueError(
      f"messages must be a list of {{role, content}}, not {messages!r:.80}"
    )
  if not messages:
    raise ValueError("empty message list: give at least one user message")
  for index, message in enumerate(messages):
    if not isinstance(message, Mapping):
      raise ValueError(
        f"message {index} is {message!r:.80}, not {{role, content}}"
      )
    role = message.get("role")
    if role not in ROLES:
      raise ValueError(
        f"message {index} has role {role!r:.80}: use one of {', '.join(ROLES)}"
      )
    content = message.get("content")
    if not isinstance(content, str):
      raise ValueError(
        f"message {index} has content {content!r:.80}: it must be text"
      )


def render(
  template: str,
  conversations: Sequence[Sequence[Message]],
  variables: Mapping[str, str],
  *,
  add_generation_prompt: bool = True,
  max_seconds: float = MAX_SECONDS,
  max_characters: int = MAX_CHARACTERS,
) -> list[str]:
  """Renders each conversation with one template.

  Args:
    template: jinja2 source, as models ship it. It sees `messages`, `tools` and
      `documents` (None), `date_string`, `add_generation_prompt`, the functions
      `raise_exception` and `strftime_now`, and `variables`.
    conversations: messages, each accepted by `check_messages`.
    variables: special tokens by name, such as {"bos_token": "<s>"}.
    add_generation_prompt: whether the text ends where the answer begins.
    max_seconds: time for the whole call, 10 ms more for each conversation.
    max_characters: longest text that one conversation may become.

  Returns:
    The texts, in order. BOS is in them if the template wrote it.

  Raises:
    ValueError: one line: a refused message, an error or escape in the template,
      or a bound that it hit.
  """
  if len(template) > MAX_TEMPLATE:
    raise ValueError(
      f"chat template of {len(template)} characters, the most is {MAX_TEMPLATE}"
    )
  for messages in conversations:
    check_messages(messages)
  if not conversations:
    return []
  values: dict[str, Any] = {
    **variables,
    "date_string": DATE.strftime(DATE_FORMAT),
    "add_generation_prompt": add_generation_prompt,
    "tools": None,
    "documents": None,
  }
  seconds = max_seconds + 0.01 * len(conversations)
  request = {
    "paths": _library_paths(),
    "template": template,
    "conversations": [[dict(m) for m in c] for c in conversations],
    "variables": values,
    "characters": max_characters,
    "seconds": seconds,
  }
  answer = _ask(request, seconds)
  if "error" in answer:
    raise ValueError(f"chat template failed: {answer['error']}")
  return answer["texts"]


def _library_paths() -> list[str]:
  """Folders that hold jinja2, found without importing it here."""
  paths = []
  for name in ("jinja2", "markupsafe"):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
      raise ImportError(f"chat templates need {name}: pip install jinja2")
    paths.append(os.path.dirname(os.path.dirname(spec.origin)))
  return sorted(set(paths))


def _ask(request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
  try:
    data = json.dumps(request).encode("ascii")
  except (TypeError, ValueError, RecursionError) as error:
    raise ValueError(f"messages are not plain JSON: {error}") from None
  # -I keeps this folder off the path (its types.py would hide Python's), -S
  # saves the start-up time of the site packages.
  command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
  try:
    done = subprocess.run(
      command,
      input=data,
      capture_output=True,
      timeout=seconds,
      env={k: v for k, v in os.environ.items() if k in _KEPT_ENVIRONMENT},
      check=False,
    )
  except subprocess.TimeoutExpired:
    raise ValueError(
      f"chat template did not end within {seconds:.3g} s: use another template"
    ) from None
  try:
    return json.loads(done.stdout)
  except ValueError:
    return {"error": f"it ended its process (exit status {done.returncode})"}


# ---- The rendering process -------------------------------------------------


def _limit_resources(seconds: float) -> None:
  """Ceilings that hold even if the sandbox should leak."""
  try:
    import resource
  except ImportError:  # Not a POSIX system: the caller's deadline remains.
    return
  limits = (
    (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
    (resource.RLIMIT_AS, MAX_MEMORY),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_CORE, 0),
  )
  for kind, value in limits:
    # macOS knows the address space limit but may refuse to set it.
    with contextlib.suppress(ValueError, OSError):
      resource.setrlimit(kind, (value, value))


def _raise_exception(message: str) -> None:
  import jinja2

  raise jinja2.TemplateError(message)


def _to_json(
  value: Any,
  ensure_ascii: bool = False,
  indent: int | str | None = None,
  separators: tuple[str, str] | None = None,
  sort_keys: bool = False,
) -> str:
  """JSON as prompts want it; jinja2's own filter escapes for HTML."""
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )


def _environment() -> Any:
  import jinja2
  import jinja2.ext
  import jinja2.nodes
  import jinja2.sandbox

  class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    def unsafe_undefined(self, obj, attribute):
      # The library's own answer prints as nothing; an escape should be seen.
      raise jinja2.exceptions.SecurityError(
        f"access to attribute {attribute!r} of {type(obj).__name__} is refused"
      )

  class Generation(jinja2.ext.Extension):
    """`{% generation %}` marks answers for training; here its body is text."""

    def __init__(self, environment):
      super().__init__(environment)
      self.tags = {"generation"}

    def parse(self, parser):
      line = next(parser.stream).lineno
      body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
      return jinja2.nodes.Scope(body, lineno=line)

  environment: Any = Sandbox(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[Generation, jinja2.ext.loopcontrols],
  )
  environment.filters["tojson"] = _to_json
  environment.globals["raise_exception"] = _raise_exception
  environment.globals["strftime_now"] = DATE.strftime
  return environment


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
  sys.path.extend(request["paths"])
  template = _environment().from_string(request["template"])
  texts = []
  for messages in request["conversations"]:
    pieces, size = [], 0
    for piece in template.generate(messages=messages, **request["variables"]):
      pieces.append(piece)
      size += len(piece)
      if size > request["characters"]:
        return {
          "error": f"it wrote more than {request['characters']} characters"
        }
    texts.append("".join(pieces))
  return {"texts": texts}


def _one_line(error: Exception) -> str:
  text = " ".join(str(error).split())[:300]
  return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _main() -> None:
  request = json.loads(sys.stdin.buffer.read())
  _limit_resources(request["seconds"])
  try:
    answer = _answer(request)
  except Exception as error:  # Whatever a template raises becomes one line.
    answer = {"error": _one_line(error)}
  sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
  _main()
