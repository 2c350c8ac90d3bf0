# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for drafters and verifiers of your own.

  from specjax import testing

  testing.check_exact(MyVerifier())
  testing.check_drafter(MyDrafter(length=4))

Both raise AssertionError with what is wrong, and return what they measured.
"""

from specjax.testing.proposals import check_drafter
from specjax.testing.rules import check_exact

__all__ = ["check_drafter", "check_exact"]
