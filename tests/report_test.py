# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows, model text as data among it."""

import io

from absl.testing import absltest, parameterized
import rich.console

from specjax.reports import report, tables

SAME = {"equal": 6, "total": 6, "first_difference_margin": None}


def measures(**changes):
  values = {
    "block_efficiency": 2.5,
    "acceptance_rate": 0.625,
    "acceptance_by_position": {
      "unconditional": [0.75, 0.5],
      "conditional": [0.75, 2 / 3],
    },
    "tokens_per_second": 31.25,
    "speedup": {
      "mean": 1.5,
      "std": 0.1,
      "decode_only": 1.75,
      "without_degenerate": 1.375,
    },
    "time_to_first_token": {"p50": 0.25, "p90": 0.3125},
    "time_per_output_token": {"p50": 0.0125, "p90": 0.01875},
    "gaps": {"p50": 0.0205, "p90": 0.0305, "max": 0.1405, "tokens": 1.625},
    "streamed": 3,
    "memory": {
      "weights": 1,
      "draft_weights": 0,
      "cache": 1,
      "peak": 56 * 10**6,
    },
    "matched": {"equal": 5, "total": 6, "first_difference_margin": 2e-5},
    "time_share": {"draft": 0.01, "verify": 0.95, "other": 0.04},
    "degenerate": 0.125,
    "by_category": {},
  }
  return values | changes


def summary(**methods):
  return {
    "target": {"name": "tiny", "note": "4-bit (Q4_1), dequantised to float32"},
    "device": {"platform": "cpu", "processor": "A Chip", "cores": 2},
    "mesh": {"data": 1, "model": 1},
    "plain": measures(
      tokens_per_second=20.5, degenerate=0.375, matched=SAME, time_share=None
    )
    | {"width": 1},
    "methods": methods,
  }


def shown(what) -> str:
  out = io.StringIO()
  report.show(what, out)
  return out.getvalue()


class TableTest(absltest.TestCase):
  def test_every_number_is_there(self):
    text = shown(summary(ngram=measures()))
    for word in (
      "dequantised",
      "A Chip, 2 cores",
      "20.5",
      "2.50",
      "0.62",
      "31.2",
      "1.50 ± 0.10",
      "1.75",
      "5/6",
      "ngram differs first at a margin of 2.0e-05 at most",
      "0.12",
      "0.38",
      "1.38",
      "0.01 / 0.95 / 0.04",
      "250 / 312",
      "12.5 / 18.8",
      "20.5 / 30.5 / 140",
      "1.62",
      "56",
      "3 streamed answers",
      "0.75",
    ):
      self.assertIn(word, text)

  def test_what_is_not_known_is_not_a_number(self):
    speedup = dict.fromkeys(measures()["speedup"])
    memory = dict.fromkeys(measures()["memory"])
    text = shown(
      summary(
        m=measures(
          acceptance_rate=None,
          matched=None,
          time_share=None,
          time_to_first_token=None,
          time_per_output_token=None,
          gaps=None,
          speedup=speedup,
          memory=memory,
        )
      )
    )
    self.assertIn("m draws from streams of its own: no ids to compare", text)
    self.assertNotIn("None", text)

  def test_tables_fit_into_100_columns(self):
    """Six groups, twenty positions, numbers as long as they get."""
    part = measures()
    positions = {"unconditional": [0.75] * 20, "conditional": [0.75] * 20}
    whole = measures(
      by_category=dict.fromkeys(
        (
          "mt_bench",
          "translation",
          "summarization",
          "math_reasoning",
          "qa",
          "rag",
        ),
        part,
      ),
      tokens_per_second=1234.5,
      matched={"equal": 480, "total": 480, "first_difference_margin": None},
      time_to_first_token={"p50": 1.2345, "p90": 12.345},
      time_per_output_token={"p50": 0.12345, "p90": 0.2345},
      gaps={"p50": 0.12345, "p90": 0.2345, "max": 1.2345, "tokens": 12.25},
      memory={"peak": 14e9},
      time_share={"draft": 0.01, "verify": 1.02, "other": -0.03},
      acceptance_by_position=positions,
    )
    text = shown(summary(ngram_10=whole, draft_model_4=whole))
    self.assertLessEqual(max(map(len, text.splitlines())), tables.WIDTH)
    self.assertEqual(tables.WIDTH, 100)
    # A row that was wrapped would leave the name of its method alone.
    for name in ("ngram_10", "draft_model_4"):
      rows = [line for line in text.splitlines() if name in line]
      self.assertLen(rows, 4)
      self.assertIn("480/480", rows[0])
      self.assertIn("0.01 / 1.02 / -0.03", rows[1])
      self.assertLen(rows[2].split("/"), 7)
      self.assertEqual(rows[3].count("0.75"), 12)
    self.assertIn("kept at (of 20)", text)

  def test_other_weights_are_another_target(self):
    """In the heading for the target, in a note for a draft."""
    what = summary(plain_copy=measures(), small=measures())
    what["target"]["note"] = "int8 weights (per output channel), computed in x"
    what["drafts"] = {
      "plain_copy": {"description": "d"},
      "small": {"description": "d", "quantization": "int8"},
    }
    text = shown(what)
    self.assertIn("tiny, int8 weights (per output channel)", text)
    self.assertIn("small drafts with int8 weights", text)
    self.assertNotIn("plain_copy drafts", text)
    self.assertNotIn("samples", text)
    self.assertIn(", 4 samples a prompt", shown(what | {"samples": 4}))

  def test_a_mesh_is_named(self):
    text = shown(summary(a=measures()) | {"mesh": {"data": 2, "model": 4}})
    self.assertIn("on mesh 2 x 4 of A Chip, 2 cores", " ".join(text.split()))

  def test_categories_and_names_are_no_markup(self):
    part = measures(block_efficiency=3.25)
    whole = measures(by_category={"[red]code": part, "[/b]": part})
    text = shown(summary(**{"[bold]x\x1b[2J": whole}))
    for word in ("[red]code", "[/b]", "[bold]x\\x1b[2J", "3.25 / 1.75"):
      self.assertIn(word, text)
    self.assertNotIn("\x1b", text)


class AnswerViewTest(parameterized.TestCase):
  def test_accepted_text_is_marked_by_colour_on_a_terminal(self):
    out = io.StringIO()
    terminal = rich.console.Console(file=out, force_terminal=True, width=80)
    with absltest.mock.patch.object(
      rich.console, "Console", return_value=terminal
    ):
      view = report.AnswerView()
    view.write("[/INST] own", accepted=False)
    view.write(" drafted", accepted=True)
    # 4;32 is underlined green.
    self.assertRegex(
      out.getvalue(), r"^\[/INST\] own\x1b\[4;32m drafted\x1b\[0m$"
    )

  @parameterized.parameters((True, "own« drafted»"), (False, "own drafted"))
  def test_elsewhere_only_if_asked(self, mark, expected):
    out = io.StringIO()
    view = report.AnswerView(out, mark=mark)
    view.write("own", accepted=False)
    view.write(" drafted", accepted=True)
    view.write("", accepted=True)
    self.assertEqual(out.getvalue(), expected)

  @parameterized.parameters(
    ("\x1b[2J", "\\x1b[2J"),
    ("a\rb\x07", "a\\x0db\\x07"),
    ("\u202etxet", "\\u202etxet"),
    ("\x9b31m", "\\x9b31m"),
    ("line\n\tü — 漢", "line\n\tü — 漢"),
  )
  def test_control_characters_are_shown(self, text, expected):
    self.assertEqual(tables.visible(text), expected)


class ProgressTest(absltest.TestCase):
  def test_it_is_quiet_where_there_is_no_terminal(self):
    out = io.StringIO()
    with report.progress(3, 1, out) as say:
      say(1, "ngram [/b]")
    self.assertEqual(out.getvalue(), "")


if __name__ == "__main__":
  absltest.main()
