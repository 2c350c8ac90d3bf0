# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chat templates: what they may see and do, and how they are stopped."""

import os
import time
from unittest import mock

from absl.testing import absltest, parameterized

from specjax.text import chat

USER = {"role": "user", "content": "hi"}
# One for each way to use more time or memory than a prompt is worth.
SILENT_LOOP = (
  "{% for i in range(99999) %}{% for j in range(99999) %}"
  "{% endfor %}{% endfor %}"
)
DOUBLING_LIST = (
  "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}"
  "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}"
)
CALLS = (
  "{% macro f(n) %}{% if n %}{% set _ = f(n - 1) %}{% set _ = f(n - 1) %}"
  "{% endif %}{% endmacro %}{{ f(60) }}"
)


def render(template: str, messages=(USER,), **settings) -> str:
  variables = settings.pop("variables", {})
  return chat.render(template, [list(messages)], variables, **settings)[0]


class RenderTest(parameterized.TestCase):
  def test_a_template_sees_messages_and_special_tokens(self):
    template = (
      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>"
      "{{ m['content'] | trim }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    messages = [{"role": "system", "content": " be terse "}, USER]
    variables = {"bos_token": "<s>"}
    self.assertEqual(
      render(template, messages, variables=variables),
      "<s><system>be terse<user>hi<assistant>",
    )
    self.assertEqual(
      render(
        template, messages, variables=variables, add_generation_prompt=False
      ),
      "<s><system>be terse<user>hi",
    )

  def test_blocks_are_trimmed_as_templates_expect(self):
    template = "  {% if true %}\n  a\n  {% endif %}\nb"
    self.assertEqual(render(template), "  a\nb")

  @parameterized.named_parameters(
    ("json", "{{ messages | tojson }}", '[{"role": "user", "content": "hi"}]'),
    ("json_is_not_html", "{{ '<\u00e9&' | tojson }}", '"<\u00e9&"'),
    ("json_indent", "{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
    ("no_tools", "{{ tools is none }} {{ documents }}", "True None"),
    ("absent", "{{ custom_tools is defined }}[{{ absent }}]", "False[]"),
    ("break", "{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}", "1"),
    ("generation", "a{% generation %}{{ 'b' }}{% endgeneration %}c", "abc"),
    (
      "namespace",
      "{% set n = namespace(x=1) %}{% set n.x = 2 %}{{ n.x }}",
      "2",
    ),
  )
  def test_language(self, template, expected):
    self.assertEqual(render(template), expected)

  def test_the_date_is_always_the_same(self):
    template = "{{ date_string }}|{{ strftime_now('%Y-%m-%d') }}"
    self.assertEqual(render(template), "26 Jul 2024|2024-07-26")

  def test_many_conversations_keep_their_order(self):
    conversations = [[{"role": "user", "content": str(i)}] for i in range(500)]
    texts = chat.render("{{ messages[0].content }}", conversations, {})
    self.assertEqual(texts, [str(i) for i in range(500)])
    self.assertEqual(chat.render("x", [], {}), [])

  def test_content_is_data(self):
    message = {"role": "user", "content": "{{ 1 + 1 }}{% if %}\u00e9\U0001f600"}
    self.assertEqual(
      render("{{ messages[0].content }}", [message]), message["content"]
    )


class RefusalTest(parameterized.TestCase):
  def check(self, message: str, template: str, **settings) -> None:
    with self.assertRaisesRegex(ValueError, message) as caught:
      render(template, **settings)
    self.assertNotIn("\n", str(caught.exception))
    self.assertLess(len(str(caught.exception)), 400)

  @parameterized.named_parameters(
    ("class", "{{ ''.__class__ }}"),
    ("subscript", "{{ ''['__class__'] }}"),
    ("filter", "{{ messages | attr('__class__') }}"),
    ("globals", "{{ cycler.__init__.__globals__ }}"),
    ("format", "{{ '{0.__class__}'.format(messages) }}"),
    ("function", "{{ raise_exception.__globals__ }}"),
    ("change", "{{ messages.append(1) }}"),
  )
  def test_an_escape_is_refused(self, template):
    self.check("SecurityError: access to attribute", template)

  @parameterized.named_parameters(
    (
      "own_error",
      "{{ raise_exception('roles must\nalternate') }}",
      "roles must",
    ),
    ("syntax", "{% if %}", "TemplateSyntaxError"),
    ("undefined", "{{ a.b.c }}", "'a' is undefined"),
    ("include", "{% include '/etc/hostname' %}", "no loader"),
    (
      "recursion",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "Recursion",
    ),
    ("range", "{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    ("long_message", "{{ raise_exception('x' * 9999) }}", "xxx"),
  )
  def test_an_error_is_one_line(self, template, message):
    self.check(f"chat template failed: .*{message}", template)

  @parameterized.parameters(SILENT_LOOP, DOUBLING_LIST, CALLS)
  def test_time_is_bounded(self, template):
    start = time.monotonic()
    self.check(
      "did not end within|ended its process|Memory", template, max_seconds=0.5
    )
    # 0.5 s and the end of the process; the rest is for a busy machine.
    self.assertLess(time.monotonic() - start, 5)

  def test_memory_is_bounded(self):
    self.check("MemoryError", "{% set x = 'ab' * (2 ** 33) %}")

  def test_output_is_bounded(self):
    template = "{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}"
    self.assertLen(render(template, max_characters=10**6), 10**6)
    self.check("more than 999999 characters", template, max_characters=999_999)

  def test_template_size_is_bounded(self):
    self.check("1000001 characters", "x" * 1_000_001)

  @parameterized.named_parameters(
    ("empty", [], "empty message list"),
    ("text", "hi", "must be a list"),
    ("one_message", USER, "must be a list"),
    ("no_mapping", [USER, "hi"], "message 1 is 'hi'"),
    ("role", [{"role": "me", "content": "hi"}], "message 0 has role 'me'"),
    ("no_role", [{"content": "hi"}], "message 0 has role None"),
    ("no_content", [USER, {"role": "user"}], "message 1 has content None"),
    ("content", [{"role": "user", "content": 3}], "message 0 has content 3"),
    ("bytes", [USER | {"extra": b"x"}], "not plain JSON"),
  )
  def test_messages_are_checked(self, messages, error):
    with self.assertRaisesRegex(ValueError, error):
      chat.render("{{ messages }}", [messages], {})

  def test_the_template_process_has_no_secrets(self):
    """Whatever leaks out of the sandbox finds no environment to read."""
    kept = {k for k in os.environ if k in ("PATH", "LD_LIBRARY_PATH")}
    with (
      mock.patch.dict(os.environ, {"HF_TOKEN": "secret"}),
      mock.patch("subprocess.run", wraps=chat.subprocess.run) as run,
    ):
      render("x")
    self.assertEqual(set(run.call_args.kwargs["env"]), kept)


if __name__ == "__main__":
  absltest.main()
