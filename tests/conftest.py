# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

import signal
from collections.abc import Generator

import hypothesis
import pytest

from tests.tools import fail_if_skipped

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asserts a duration. What a change must pass is the same each time; the long search is another each time.
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what was skipped where nothing may be."""
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a file that was skipped where none may be."""
    return fail_if_skipped((yield))
