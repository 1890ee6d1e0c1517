# SPDX-License-Identifier: Apache-2.0
"""Allow one nightly calibration at a time per results directory.

The lock is a kernel lock (``fcntl``) on the file :data:`LOCK`: it belongs to the process that took it, not to its
children, and ends with it. The file remains without a meaning.
"""

import fcntl
import getpass
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from calibration.base.errors import EnvironmentLacksError
from calibration.base.files import open_regular
from calibration.base.model import Model, UtcTime

LOCK: Final = ".nightly.lock"
"""The lock file in the results; its content describes the holder."""


MAX_HOLDER_BYTES: Final = 4096
"""Limit for reading the holder's description."""


class Holder(Model):
    """Who runs the calibration, and since when."""

    user: str
    host: str
    pid: int
    since: UtcTime


def hold(results: Path, now: datetime) -> BinaryIO:
    """Lock *results* for this process until the returned file is closed or the process ends.

    The process must not open the lock file again: closing that would release the lock. Raises ``EnvironmentLacksError``
    if another process holds the lock or the results cannot be written.
    """
    path = results / LOCK
    try:
        results.mkdir(parents=True, exist_ok=True)
        file = open_regular(path, "r+b", create=True)
    except OSError as error:
        raise _unlockable(path, error) from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # POSIX allows both
        with file:
            raise _held(results, file.read(MAX_HOLDER_BYTES)) from error
    except OSError as error:
        file.close()
        raise _unlockable(path, error) from error
    holder = Holder(user=_user(), host=socket.gethostname(), pid=os.getpid(), since=now.astimezone(UTC))
    file.truncate(0)
    file.write(holder.model_dump_json().encode() + b"\n")
    return file


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return str(os.getuid())


def _unlockable(path: Path, error: OSError) -> EnvironmentLacksError:
    return EnvironmentLacksError(
        f"cannot lock the results: {path}: {error.strerror or error}. Make it writable, or set "
        "calibration_results_dir to another directory"
    )


def _held(results: Path, content: bytes) -> EnvironmentLacksError:
    try:
        holder = Holder.model_validate_json(content)
    except ValidationError:
        who = "its owner is unknown"
    else:
        who = f"{holder.user} on {holder.host}, process {holder.pid}, since {holder.since:%Y-%m-%d %H:%M:%S} UTC"
    return EnvironmentLacksError(
        f"another nightly calibration uses {results}: {who}. Wait until it ends, or stop it with SIGTERM: it restores "
        "its SUTs"
    )
