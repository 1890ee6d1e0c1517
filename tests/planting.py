# SPDX-License-Identifier: Apache-2.0
"""Files that another user may plant where a file is opened, and witnesses of opens."""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HUGE_BYTES = 1 << 40
LARGE_BYTES = 24 << 20
"""Exceeds every limit of the tests."""


def sparse(path: Path, _outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


def device(path: Path, _outside: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # as /dev/zero


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, outside: path.symlink_to(outside),
    "link to a device": lambda path, _outside: path.symlink_to("/dev/zero"),
    "dangling link": lambda path, outside: path.symlink_to(outside.with_name("absent")),
    "FIFO": lambda path, _outside: os.mkfifo(path),
    "device": device,
    "directory": lambda path, _outside: path.mkdir(),
    "sparse": sparse,
    "large": lambda path, _outside: path.write_bytes(bytes(LARGE_BYTES)),
}
"""Each plants something at a path; the second path is of a file that must not be reached through it."""


def plant(kind: str, path: Path, outside: Path) -> None:
    """Replace *path* with something of *kind*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    KINDS[kind](path, outside)


class Witness:
    """Reports whether any process opened one of *paths*, by inotify; resolving a name with O_PATH does not count."""

    IN_OPEN = 0x20

    def __init__(self, *paths: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        self._paths = {}
        for path in paths:
            number = library.inotify_add_watch(self._descriptor, bytes(path), self.IN_OPEN)
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._paths[number] = path

    def __enter__(self) -> "Witness":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def opened(self) -> list[Path]:
        """Return the paths opened since the last call."""
        found = []
        while True:
            try:
                events = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return found
            while events:
                number, mask, _cookie, length = struct.unpack_from("iIII", events)
                if mask & self.IN_OPEN:
                    found.append(self._paths[number])
                events = events[16 + length :]


def watched(kind: str, path: Path, outside: Path) -> Witness:
    """Return a witness for the file planted at *path*."""
    return Witness(outside, path) if kind in {"FIFO", "device"} else Witness(outside)


@contextmanager
def opens(*, resolved: bool = False) -> Iterator[list[str]]:
    """Collect the paths opened by this process in the block, as given.

    Created files do not count, and O_PATH look-ups only if *resolved*.
    """
    found: list[str] = []
    active = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if active and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if not flags & os.O_EXCL and (resolved or not flags & os.O_PATH):
                found.append(os.fsdecode(arguments[0]))

    sys.addaudithook(hook)
    try:
        yield found
    finally:
        active.clear()


def swap_after(monkeypatch: pytest.MonkeyPatch, call: str, swap: Callable[[], object]) -> None:
    """Call *swap* once, right after the first call of ``os.<call>``."""
    real = getattr(os, call)
    left = [swap]

    def calling(*arguments: object, **options: object) -> object:
        result = real(*arguments, **options)
        if left:
            left.pop()()
        return result

    monkeypatch.setattr(os, call, calling)
