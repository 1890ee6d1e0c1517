# SPDX-License-Identifier: Apache-2.0
"""The reservation of a traffic generator, as CSIT makes it: a directory with a file in it for each SUT of the run.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import time

from calibration.runner import files
from calibration.runner.lock import Held

EMPTY_S = 3
"""Time for which an empty reservation may be in the making by another SUT of this run."""

MAX_NAMES = 10
"""Files of a reservation named in one message."""


def file_name(run_id, sut):
    """Return the name of a SUT's file in the reservation of a traffic generator."""
    return "%s%s-%s" % (files.PREFIX, run_id, sut)


def holders(path):
    """Return the holders of the traffic generator as text."""
    found = os.lstat(path)
    names = sorted(os.listdir(path)) if stat.S_ISDIR(found.st_mode) else []
    shown = ", ".join(files.printable(name, 128) for name in names[:MAX_NAMES]) or "an empty directory or other file"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
    return f"{shown}{more} of {files.user_name(found.st_uid)}, last changed at {since} by that machine's clock"


def is_shared(path, run_id):
    """Return whether another SUT of this run made the reservation; None if it is empty (so far)."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    names = os.listdir(path)
    return all(name.startswith("%s%s-" % (files.PREFIX, run_id)) for name in names) if names else None


def hold(path, run_id, sut, text, check_mode):
    """Take CSIT's reservation at *path* for a SUT of a run; return whether it is new. Raises Held."""
    name = file_name(run_id, sut)
    until = time.monotonic() + EMPTY_S
    while True:
        if check_mode and not os.path.lexists(path):
            return True
        shared = None
        if not check_mode:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o755)
                shared = True
        try:
            shared = shared or is_shared(path, run_id)
            if shared is None and time.monotonic() < until:
                time.sleep(0.1)  # another SUT of this run may be making it
                continue
            if not shared:
                raise Held(
                    f"the traffic generator is reserved at {path} by {holders(path)}. Wait for it; if it is certainly "
                    f"dead, end it with playbooks/cleanup.yml for that run, or with rm -r {shlex.quote(path)} on the "
                    "traffic generator if it is not a calibration's"
                )
            if check_mode:
                return False
            here = files.open_directory(path)
            try:
                files.write_synced(name, text + "\n", 0o644, here)
            except FileExistsError:
                return False
            finally:
                os.close(here)
        except FileNotFoundError:
            continue  # the last SUT released it meanwhile
        return True


def release(path, run_id, sut, check_mode):
    """Release the traffic generator for this SUT of this run; return whether it was held."""
    place = os.path.join(path, file_name(run_id, sut))
    if check_mode:
        return os.path.lexists(place)
    try:
        os.unlink(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
    return True
