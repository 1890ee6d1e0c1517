# SPDX-License-Identifier: Apache-2.0
"""One nightly calibration at a time for each directory of results.

The lock is the kernel's (``fcntl``), on the file :data:`LOCK` in the results: it belongs to the process that took it,
not to its children, and ends with that process however it ends. The file stays, and says nothing by itself.
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
"""The file in the results that a nightly calibration locks; what is in it is for who finds it locked."""


MAX_HOLDER_BYTES: Final = 4096
"""As much is read of what the holder wrote."""


class Holder(Model):
    """Who calibrates, and since when."""

    user: str
    host: str
    pid: int
    since: UtcTime


def hold(results: Path, now: datetime) -> BinaryIO:
    """Lock *results* for this process until the file that is returned is closed, or the process ends.

    The process must not open the lock's file a second time: closing that would end the lock. Raises
    ``EnvironmentLacksError`` if another process holds it, or the results cannot be written.
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
