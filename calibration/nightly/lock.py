# SPDX-License-Identifier: Apache-2.0
"""Allow one nightly calibration at a time per results directory.

The lock is a kernel lock (``fcntl``) on the file :data:`LOCK`: it belongs to the process that took it, not to its
children, and ends with it. The file remains and means nothing by itself.
"""

import fcntl
import getpass
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from calibration.errors import EnvironmentLacksError
from calibration.files import open_regular
from calibration.model import Model, UtcTime

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
        raise EnvironmentLacksError(
            f"expected to lock the results by {path}, found that it cannot be written: {error.strerror or error}. "
            "Mend that, or set calibration_results_dir to another directory"
        ) from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with file:
            raise _held(results, file.read(MAX_HOLDER_BYTES)) from error
    holder = Holder(user=_user(), host=socket.gethostname(), pid=os.getpid(), since=now.astimezone(UTC))
    file.truncate(0)
    file.write(holder.model_dump_json().encode() + b"\n")
    return file


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return str(os.getuid())


def _held(results: Path, content: bytes) -> EnvironmentLacksError:
    try:
        holder = Holder.model_validate_json(content)
    except ValidationError:
        who = "one that has not said yet who it is"
    else:
        who = (
            f"that of {holder.user} on {holder.host}, process {holder.pid}, since {holder.since:%Y-%m-%d %H:%M:%S} UTC"
        )
    return EnvironmentLacksError(
        f"expected no other nightly calibration with the results in {results}, found {who}. Wait for its end, or end "
        "it by SIGTERM: then it puts its SUTs right"
    )
