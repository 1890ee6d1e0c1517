# SPDX-License-Identifier: Apache-2.0
"""The errors a command can end with, and the exit code that goes with each.

Every message says what was expected, what was found and what to do.
"""

from typing import ClassVar

GOOD = 0
VERDICT_FAILED = 1
BAD_INPUT = 2
ENVIRONMENT = 3
INTERRUPTED = 4


class CalibrationError(Exception):
    """A failure that the user is told about in one message; ``exit_code`` is the command's exit code."""

    exit_code: ClassVar[int] = ENVIRONMENT


class InputError(CalibrationError):
    """What the user gave cannot be used: a profile, an inventory, a file, an option."""

    exit_code = BAD_INPUT


class EnvironmentLacksError(CalibrationError):
    """The machine cannot do it: no memory, no permission, no space, no compiler."""

    exit_code = ENVIRONMENT
