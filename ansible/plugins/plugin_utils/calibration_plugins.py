# SPDX-License-Identifier: Apache-2.0
"""What the plugins that run on the controller have in common.

Ansible loads plugins by path, so this module finds the package ``calibration`` of the checkout it lies in.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

from ansible.plugins.action import ActionBase

ROOT = os.path.abspath(__file__ + "/../../../..")
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from calibration.errors import CalibrationError


@contextlib.contextmanager
def orderly_end():
    """Turn the signals that end a worker into an exception in the block, so that nothing half-written stays.

    Ansible's own handler ends a worker, and what it started, on the spot. It gets the signal once the block has tidied
    up; a second signal is ignored until then.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    received = []

    def interrupt(number, _frame):
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in received:
            os.kill(os.getpid(), number)


PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def end_with_controller():
    """Have the kernel end this worker, and with it what it started, when the controller's process is killed.

    Without it a worker whose controller was killed would go on measuring for nobody.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class CalibrationAction(ActionBase):
    """An action that is done on the controller; it needs no connection to the SUT."""

    _requires_connection = False
    ORDERLY = True
    """Whether an interruption waits for what is being written; not where a command on a SUT is waited for."""

    SPEC = {}
    """Arguments of ``validate_argument_spec``."""

    def act(self, arguments):
        """Do it and return the fields of the result. A ``CalibrationError`` becomes the task's failure."""
        raise NotImplementedError

    def run(self, tmp=None, task_vars=None):
        """Return the task's result."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(**self.SPEC)
        try:
            with orderly_end() if self.ORDERLY else contextlib.nullcontext():
                return {**result, "changed": False, **self.act(arguments)}
        except CalibrationError as error:
            return {**result, "failed": True, "msg": str(error), "exit_code": error.exit_code}
