# SPDX-License-Identifier: Apache-2.0
"""Runs the command line within the test's own process, where what it imports is there already."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from calibration.cli import main

WIDTH = "120"
"""Columns of the terminal."""


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it printed to stdout and stderr."""

    code: int
    said: str


def calibration(*arguments: str | Path) -> Ended:
    """Run ``calibration`` with *arguments*, as in a terminal of ``WIDTH`` columns."""
    said = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.setattr(sys, "argv", ["calibration", *map(str, arguments)])
        patch.setenv("COLUMNS", WIDTH)
        with pytest.raises(SystemExit) as ended:
            main()
    return Ended(int(ended.value.code or 0), said.getvalue())
