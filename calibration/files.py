# SPDX-License-Identifier: Apache-2.0
"""Files in directories where other users may write: results are often shared.

Only regular files are opened. Opening a device or a FIFO can do harm or wait for ever, so a name is first resolved with
``O_PATH``, which opens nothing, then examined, and opened through ``/proc``: nothing can be swapped in between.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from calibration.errors import EnvironmentLacksError, InputError


def read_regular(path: Path, limit_bytes: int, *, below: Path | None = None) -> bytes:
    """Return the content of the regular file at *path*.

    No symbolic link is followed below the directory *below*, by default the one that holds the file. Raises
    ``FileNotFoundError`` for a missing file, ``InputError`` for one that is no regular file, larger than
    *limit_bytes* or unreadable.
    """
    with open_regular(path, below=below) as stream:
        try:
            large = os.fstat(stream.fileno()).st_size > limit_bytes
            content = b"" if large else stream.read(limit_bytes + 1)
        except OSError as error:
            raise _unreadable(path, error) from error
    if large or len(content) > limit_bytes:
        raise InputError(f"{path}: larger than {limit_bytes} bytes")
    return content


def open_regular(path: Path, *, below: Path | None = None) -> BinaryIO:
    """Return the regular file at *path*, open for reading. Follows and raises what ``read_regular`` does."""
    found = None
    try:
        found = _find(path, path.parent if below is None else below)
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: {'a symbolic link' if stat.S_ISLNK(mode) else 'not a regular file'}; remove it")
        if not Path("/proc/self/fd").is_dir():
            raise EnvironmentLacksError(f"{path}: cannot be opened safely; mount /proc")
        return os.fdopen(os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        if found is not None:
            os.close(found)


def _find(path: Path, below: Path) -> int:
    """Return an ``O_PATH`` descriptor of *path*, reached from *below* without following a link."""
    names = path.relative_to(below).parts if path.is_relative_to(below) else ("..",)
    if not names or ".." in names:
        raise InputError(f"{path}: not below {below}")
    here = os.open(below, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, name in enumerate(names, 1):
        folder = os.O_DIRECTORY if number < len(names) else 0
        try:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | folder, dir_fd=here)
        except NotADirectoryError:
            raise InputError(f"{path}: {name} is a symbolic link or not a directory; remove it") from None
        finally:
            os.close(here)
        here = inner
    return here


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror or error}")
