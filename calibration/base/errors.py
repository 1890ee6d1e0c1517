# SPDX-License-Identifier: Apache-2.0
"""Errors that end a command, and their exit codes.

Every message says what is wrong and what to do.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

GOOD = 0
VERDICT_FAILED = 1
BAD_INPUT = 2
ENVIRONMENT = 3
INTERRUPTED = 4

EXIT_CODES = {
    GOOD: "done and good",
    VERDICT_FAILED: "done, and a verdict failed, a planned measurement is missing, or a SUT was not left clean",
    BAD_INPUT: "bad usage or bad input: an option, a profile, an inventory, a file, a name",
    ENVIRONMENT: "the environment cannot do it: no space, no permission, no memory on a node, no compiler, a SUT that "
    "is not reachable",
    INTERRUPTED: "interrupted",
}
"""Meaning of each exit code."""


class CalibrationError(Exception):
    """A failure reported to the user in one message; ``exit_code`` is the command's exit code."""

    exit_code: ClassVar[int] = ENVIRONMENT


class InputError(CalibrationError):
    """Invalid user input: a profile, an inventory, a file, an option."""

    exit_code = BAD_INPUT


class EnvironmentLacksError(CalibrationError):
    """The machine lacks something: memory, permission, space, a compiler."""

    exit_code = ENVIRONMENT


class SutError(EnvironmentLacksError):
    """A SUT is lost or answers incorrectly: a fault of neither the settings nor the controller."""


class ConnectionLostError(SutError):
    """The connection to a SUT failed."""


class NoAnswerError(SutError):
    """A SUT did not answer in time."""


class AnswerTooLongError(SutError):
    """A SUT's answer exceeds the limit."""


class RefusedError(SutError):
    """The runner on a SUT refused: it is reserved, a setting cannot be changed, a run is gone.

    ``faults`` are settings that are not restored (``calibration.base.tuning.Unrestored``), ``run_id`` is that of the
    run in the way, if it has the form of one.
    """

    def __init__(self, message: str, faults: Sequence[Any] = (), run_id: str | None = None) -> None:
        super().__init__(message)
        self.faults = faults
        self.run_id = run_id
