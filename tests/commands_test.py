# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the README tells a user to type is what continuous integration runs."""

import pathlib
import re

from absl.testing import absltest, parameterized

ROOT = pathlib.Path(__file__).resolve().parent.parent


def _one_line_commands(text: str) -> str:
  """The text with continued lines joined and blanks made single."""
  return re.sub(r"\s+", " ", text.replace("\\\n", " "))


class CommandsTest(parameterized.TestCase):
  @parameterized.parameters(
    "python -m pytest -n auto",
    "python -m specjax.run --config=configs/quickstart.py",
  )
  def test_readme_and_ci_agree(self, command):
    for name in ("README.md", ".ci/run"):
      text = _one_line_commands((ROOT / name).read_text())
      self.assertIn(command, text, f"{name} does not name the command")

  def test_local_links_of_the_documents_exist(self):
    missing = [
      f"{page.relative_to(ROOT)}: {link}"
      for page in sorted(ROOT.rglob("*.md"))
      if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
      for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
      if not (page.parent / link).exists()
    ]
    self.assertEmpty(missing, "\n".join(missing))


if __name__ == "__main__":
  absltest.main()
