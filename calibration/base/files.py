# SPDX-License-Identifier: Apache-2.0
"""Files in directories where other users may write, such as shared results.

Only regular files are opened. Opening a device or a FIFO can do harm or block, so a name is first resolved with
``O_PATH``, which opens nothing, then examined, and opened through ``/proc``, which prevents swapping in between. New
files get unpredictable names.
"""

import ctypes
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import BinaryIO, Final, Literal

from calibration.base.errors import EnvironmentLacksError, InputError


def read_regular(path: Path, limit_bytes: int, *, below: Path | None = None) -> bytes:
    """Return the content of the regular file at *path*.

    No symbolic link is followed below the directory *below*, by default the file's own. Raises ``FileNotFoundError``
    for a missing file, ``InputError`` for one that is not regular, larger than *limit_bytes* or unreadable.
    """
    with open_regular(path, below=below) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            large = size > limit_bytes
            content = b"" if large else stream.read(size + 1)  # for no more: the buffer has the size that is asked for
            if len(content) > size:  # it grows, or is of a file system without sizes
                content += stream.read(limit_bytes + 1 - len(content))
        except OSError as error:
            raise _unreadable(path, error) from error
    if large or len(content) > limit_bytes:
        raise InputError(f"{path}: larger than {limit_bytes} bytes")
    return content


OUTPUT_BYTES: Final = 1 << 30
"""Most bytes of a file that one of our commands wrote and another reads: the judgement of 1000 SUTs has a fifth."""


def read_given(path: Path, limit_bytes: int = OUTPUT_BYTES) -> bytes:
    """Return the content of the file at *path*, which the operator named: it may be a link or a pipe.

    Raises ``InputError`` if it is larger than *limit_bytes* or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(limit_bytes + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > limit_bytes:
        raise InputError(f"{path}: larger than {limit_bytes} bytes")
    return content


def regular_lines(path: Path, limit_bytes: int) -> Iterator[bytes]:
    """Yield the lines of the regular file at *path*, with the newlines that end them. Raises like ``read_regular``."""
    with open_regular(path) as stream:
        try:
            if os.fstat(stream.fileno()).st_size > limit_bytes:
                raise InputError(f"{path}: larger than {limit_bytes} bytes")
            yield from stream
        except OSError as error:
            raise _unreadable(path, error) from error


Mode = Literal["rb", "r+b", "ab", "a+b"]

_FLAGS: Final[dict[Mode, int]] = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "ab": os.O_WRONLY | os.O_APPEND,
    "a+b": os.O_RDWR | os.O_APPEND,
}


def open_regular(path: Path, mode: Mode = "rb", *, below: Path | None = None, create: bool = False) -> BinaryIO:
    """Return the regular file at *path*, open and unbuffered.

    Like ``read_regular``; also raises ``OSError`` if the file cannot be opened for writing. With *create* a missing
    file is made.
    """
    found = None
    try:
        if create:
            with suppress(FileExistsError):  # anything that exists, including a link
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        found = _find(path, path.parent if below is None else below)
        status = os.fstat(found).st_mode
        if not stat.S_ISREG(status):
            kind = "a symbolic link" if stat.S_ISLNK(status) else "not a regular file"
            raise InputError(f"{path}: {kind}; remove it")
        if not Path("/proc/self/fd").is_dir():
            raise EnvironmentLacksError(f"{path}: cannot be opened safely; mount /proc")
        descriptor = os.open(f"/proc/self/fd/{found}", _FLAGS[mode] | os.O_NONBLOCK)
        return os.fdopen(descriptor, mode, buffering=-1 if mode == "rb" else 0)
    except OSError as error:
        if mode != "rb" or isinstance(error, FileNotFoundError):
            raise
        raise _unreadable(path, error) from error
    finally:
        if found is not None:
            os.close(found)


def refuse_links(path: Path, *, below: Path) -> None:
    """Raise ``InputError`` if a part of *path* below the directory *below* is a symbolic link."""
    for part in [path, *path.parents][: len(path.relative_to(below).parts)]:
        if part.is_symlink():
            raise InputError(f"{part}: a symbolic link; remove it")


PARTIAL: Final = re.compile(r"\..+\.[0-9a-f]{16}")
"""Names of files that ``pending`` writes; they stay if its process is killed."""


@contextmanager
def pending(path: Path, content: bytes) -> Iterator[Path]:
    """Write *content* to disk beside *path*, and remove that file after the block unless it was moved."""
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with written.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield written
    finally:
        with suppress(OSError):
            written.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write *content* to *path* atomically, replacing an existing file."""
    with pending(path, content) as written:
        written.replace(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file beside *path* to be written in the block; it then replaces *path* atomically.

    After an exception *path* is as before.
    """
    with pending(path, b"") as written:
        yield written
        with written.open("rb") as file:
            os.fsync(file.fileno())
        written.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at *path* in the block; others wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(path, "ab", create=True) as lock:
        flock(lock, LOCK_EX)
        yield


@contextmanager
def able_to(what: str, remedy: str = "") -> Iterator[None]:
    """Raise ``EnvironmentLacksError`` for ``OSError`` in the block: *what* cannot be done, why, and the *remedy*."""
    try:
        yield
    except OSError as error:
        raise EnvironmentLacksError(f"cannot {what}: {error.strerror or error}{remedy}") from error


def sync_all(directory: Path) -> None:
    """Write the file system of *directory* to disk: for thousands of new files, faster than each of them."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if library.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(descriptor)


def _find(path: Path, below: Path) -> int:
    """Return an ``O_PATH`` descriptor of *path*, reached from *below* without following a link."""
    names = path.relative_to(below).parts if path.is_relative_to(below) else ("..",)
    if not names or ".." in names:
        raise InputError(f"{path}: not below {below}")
    here = os.open(below, os.O_PATH | os.O_DIRECTORY)
    for number, name in enumerate(names, 1):
        folder = os.O_DIRECTORY if number < len(names) else 0
        try:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | folder, dir_fd=here)
        except NotADirectoryError:
            raise InputError(f"{path}: {name} is a symbolic link or not a directory; remove it") from None
        finally:
            os.close(here)
        here = inner
    return here


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror or error}")
