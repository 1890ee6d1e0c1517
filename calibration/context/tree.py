# SPDX-License-Identifier: Apache-2.0
"""Read a captured or live root, a directory or a tar archive, and record what could not be read.

Every read is bounded in size and cannot block. Symbolic links stay inside the root, so a captured directory cannot
include files of this machine.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from calibration.base.archives import UNREADABLE, TooLargeError, members, opened
from calibration.base.text import visible
from calibration.context.errors import ContextError
from calibration.runner.capture import absent

T = TypeVar("T")

CAPTURE = "/capture.json"
"""What a capture says of itself, and of what it could not copy."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file read, as a capture copies it (calibration/runner/capture.py)."""

MAX_CONTENT_BYTES = 160 * 1024 * 1024
"""Most bytes of files kept from one archive: a SUT's own capture stops at 128 MiB (calibration/runner/capture.py)."""

MAX_ARCHIVE_MEMBERS = 310_000
"""Most members of one archive: a SUT's own capture stops at 300000."""

MAX_ARCHIVE_BYTES = 448 * 1024 * 1024
"""Most bytes unpacked from one archive: the content, and per member a header and padding of 512 bytes."""

MAX_PATH = 4096
"""Longest path of a member, as Linux has it."""

MAX_DEPTH = 64
"""Most directories in a path or a link's target; devices behind many bridges have about thirty."""

MAX_TEXT_BYTES = 64 * 1024
"""Default limit of a text file: an attribute in sysfs has at most one page."""

MAX_WORK_BYTES = 6 * MAX_CONTENT_BYTES
"""Bound on all work on one root; 504 CPUs with 20,000 threads on isolated ones take a third.

Counts the bytes read, and each look-up, step of a path and number of a list as so many bytes: symbolic links can make
a small archive expensive, and so can ``0-8191`` in many files.
"""

MIN_WORK_BYTES = 128 * 1024 * 1024
"""Work on any archive, however small: 8192 CPUs listed in one line are looked up."""

WORK_PER_BYTE = 16
"""Additional work per unpacked byte of an archive."""

LOOKUP_BYTES, STEP_BYTES, NUMBER_BYTES = 256, 64, 16

MAX_UNREADABLE = 1000
"""Most unreadable files listed by name; the rest is counted."""

MAX_REASON = 500
"""Longest reason kept."""

MAX_LINKS = 40
"""Symbolic links followed for one path, as in the kernel."""


class _Store(Protocol):
    def read(self, path: str) -> bytes | None: ...

    def names(self, path: str) -> tuple[str, ...]: ...

    def kind(self, path: str) -> str | None: ...

    def link(self, path: str) -> str | None: ...

    def most_work(self) -> int: ...


def follow(path: str, link: Callable[[str], str | None]) -> str:
    """Resolve symbolic links in an absolute path without leaving the root.

    ``link`` returns the target of a path whose parents are resolved, None if it is no link. Raises ``OSError``
    (ELOOP, ENAMETOOLONG) after :data:`MAX_LINKS` links and beyond :data:`MAX_DEPTH` directories.
    """
    left = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    if len(left) > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:MAX_PATH])
    links = 0
    while left:
        part = left.pop()
        if part == ".":
            continue
        if part == "..":
            done[-1:] = []
            continue
        target = link("/" + "/".join([*done, part]))
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path[:MAX_PATH])
        if target.startswith("/"):
            done = []
        left.extend([step for step in target.split("/") if step][::-1])
        if len(done) + len(left) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:MAX_PATH])
    return "/" + "/".join(done)


def _content(descriptor: int) -> bytes:
    """Return the content of an open file. Raises ``OSError`` unless it is regular and of bounded size."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError("not a regular file")
    chunks = []
    size = 0
    while chunk := os.read(descriptor, 1 << 16):
        size += len(chunk)
        if size > MAX_FILE_BYTES:
            raise OSError(f"larger than {MAX_FILE_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


class _Directory:
    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._targets: dict[str, str | None] = {}

    def _resolve(self, path: str) -> str:
        """Return the host path of ``path`` with symbolic links resolved inside the root."""
        return path if self._root == "/" else self._root + follow(path, self._link)

    def _link(self, inside: str) -> str | None:
        if inside not in self._targets:
            try:
                self._targets[inside] = str(Path(self._root + inside).readlink())
            except OSError:  # no link, or missing: opening it will tell
                self._targets[inside] = None
        return self._targets[inside]

    def read(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return _content(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if absent(path, error):
                return None
            raise

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in Path(self._resolve(path)).iterdir()))
        except OSError as error:
            if absent(path, error):
                return ()
            raise

    def most_work(self) -> int:
        return MAX_WORK_BYTES

    def link(self, path: str) -> str | None:
        parent, name = posixpath.split(path)
        return self._link(posixpath.join(follow(parent, self._link), name))

    def kind(self, path: str) -> str | None:
        try:
            return "directory" if stat.S_ISDIR(Path(self._resolve(path)).stat().st_mode) else "file"
        except OSError:
            return None


class _Archive:
    def __init__(self, path: Path, raw: BinaryIO, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._files: dict[str, bytes | None] = {}
        self._links: dict[str, str] = {}
        self._children: dict[str, set[str]] = {"/": set()}
        self._unpacked_bytes = 0
        try:
            with opened(raw, most_bytes=MAX_ARCHIVE_BYTES) as archive:
                self._read(archive)
        except TooLargeError as error:
            raise ContextError(
                f"{path}: too large, a capture has at most {MAX_CONTENT_BYTES} bytes in {MAX_ARCHIVE_MEMBERS} files; "
                "capture the machine again"
            ) from error
        except UNREADABLE as error:
            raise ContextError(
                f"{path}: not a readable tar.gz archive ({visible(str(error))[:200]}); capture the machine again"
            ) from error

    def _read(self, archive: tarfile.TarFile) -> None:
        """Keep the files and links of *archive*; skip every other type of member."""
        kept_bytes = 0
        for member in members(archive, most=MAX_ARCHIVE_MEMBERS):
            if any(len(path) > MAX_PATH or path.count("/") > MAX_DEPTH for path in (member.name, member.linkname)):
                continue
            name = posixpath.normpath("/" + member.name.lstrip("/"))
            if member.issym():
                self._links[name] = member.linkname
            elif member.isreg():
                self._files[name] = None
                if member.size <= MAX_FILE_BYTES:
                    kept_bytes += member.size
                    if kept_bytes > MAX_CONTENT_BYTES:
                        raise TooLargeError
                    content = archive.extractfile(member)
                    self._files[name] = content.read() if content is not None else b""
            elif not member.isdir():
                continue
            self._add(name, member.isdir())
        self._unpacked_bytes = archive.offset  # not the sum of sizes: a link may claim a size it does not have

    def most_work(self) -> int:
        return min(MAX_WORK_BYTES, MIN_WORK_BYTES + WORK_PER_BYTE * self._unpacked_bytes)

    def _add(self, name: str, is_directory: bool) -> None:
        if is_directory:
            self._children.setdefault(name, set())
        while name != "/":
            parent, base = posixpath.split(name)
            known = parent in self._children
            self._children.setdefault(parent, set()).add(base)
            if known:
                return
            if len(self._children) > MAX_ARCHIVE_MEMBERS:
                raise TooLargeError
            name = parent

    def _resolve(self, path: str) -> str:
        if path in self._files or path in self._children:
            return path
        return follow(path, self._link)

    def _link(self, path: str) -> str | None:
        self._spend(STEP_BYTES)
        return self._links.get(path)

    def link(self, path: str) -> str | None:
        parent, name = posixpath.split(path)
        return self._link(posixpath.join(self._resolve(parent), name))

    def read(self, path: str) -> bytes | None:
        resolved = self._resolve(path)
        content = self._files.get(resolved)
        if content is None and resolved in self._files:
            raise OSError(f"larger than {MAX_FILE_BYTES} bytes")
        return content

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._children.get(self._resolve(path), ())))

    def kind(self, path: str) -> str | None:
        resolved = self._resolve(path)
        if resolved in self._children:
            return "directory"
        return "file" if resolved in self._files else None


class Tree:
    """A root whose files are read by absolute path, and a record of every unusable file."""

    def __init__(self, root: Path, content: bytes | None = None) -> None:
        self.root = root
        self._work_bytes = 0
        store: _Store
        if content is not None:
            store = _Archive(root, io.BytesIO(content), self.spend)
        elif root.is_dir():
            store = _Directory(root)
        elif root.is_file():
            with root.open("rb") as raw:
                store = _Archive(root, raw, self.spend)
        else:
            fault = "neither a directory nor a tar.gz archive" if root.exists() else "no such file or directory"
            raise ContextError(f"{root}: {fault}; give / for this machine or the path of a capture")
        self._store = store
        self._most_work_bytes = store.most_work()
        self._unreadable: dict[str, str] = {}
        self._not_listed = 0

    def spend(self, size_bytes: int) -> None:
        """Account for work. Raises :class:`ContextError` beyond the root's limit."""
        self._work_bytes += size_bytes
        if self._work_bytes > self._most_work_bytes:
            raise ContextError(
                f"{self.root}: more CPUs, files or links than a machine has at most; capture the machine again"
            )

    def note(self, path: str, reason: str) -> None:
        """Record that ``path`` exists and could not be used; the first reason stays."""
        name = visible(path[:MAX_PATH])
        if name not in self._unreadable and len(self._unreadable) >= MAX_UNREADABLE:
            self._not_listed += 1
        else:
            self._unreadable.setdefault(name, visible(reason[:MAX_REASON]))

    @property
    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(path, reason) sorted by path; beyond :data:`MAX_UNREADABLE` the last entry counts the rest."""
        more = [("/", f"{self._not_listed} more unreadable files")] if self._not_listed else []
        return (*sorted(self._unreadable.items()), *more)

    def raw(self, path: str) -> bytes | None:
        """Return the bytes of a file; None if missing or unreadable (recorded)."""
        content = self._ask(self._store.read, path, None)
        self.spend(len(content or b""))
        return content

    def text(self, path: str, most_bytes: int = MAX_TEXT_BYTES) -> str | None:
        """Return a file as text without trailing line ends; None if missing or unreadable (recorded).

        Trailing NUL bytes are dropped (page padding, device-tree strings); bytes that are not UTF-8 become surrogate
        escapes, which no parser takes for digits.
        """
        content = self.raw(path)
        if content is None:
            return None
        if len(content) > most_bytes:
            self.note(path, f"larger than {most_bytes} bytes")
            return None
        return content.rstrip(b"\0\r\n \t").decode("utf-8", "surrogateescape")

    def word(self, path: str) -> str | None:
        """Return a file of one printable line, stripped; None if missing, empty or (recorded) binary."""
        return self.parse(path, printable_line) or None

    def parse(self, path: str, parser: Callable[[str], T], most_bytes: int = MAX_TEXT_BYTES) -> T | None:
        """Return ``parser`` applied to the text of a file; a ``ValueError`` is recorded as unparsable."""
        text = self.text(path, most_bytes)
        if text is None:
            return None
        try:
            found = parser(text)
        except ValueError as error:
            self.note(path, f"unparsable: {visible(str(error))}")
            return None
        if isinstance(found, tuple):
            self.spend(NUMBER_BYTES * len(found))
        return found

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted entries of a directory; empty if missing or unreadable (recorded)."""
        found: tuple[str, ...] = self._ask(self._store.names, path, ())
        self.spend(STEP_BYTES * len(found))
        return found

    def numbered(self, path: str, prefix: str, last: int = 9_999_999) -> tuple[int, ...]:
        """Return N, up to *last*, of every ``prefixN`` entry of a directory, in order."""
        pattern = re.compile(re.escape(prefix) + r"([0-9]{1,7})", re.ASCII)
        found = (int(m.group(1)) for m in map(pattern.fullmatch, self.names(path)) if m)
        return tuple(sorted(number for number in found if number <= last))

    def matching(self, pattern: str, most: int) -> list[str]:
        """Return the existing paths that match *pattern*, parts of which have wildcards; about *most* of them."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            if re.search(r"[*?\[]", part):
                found = [f"{base}/{name}" for base in found for name in fnmatch.filter(self.names(base or "/"), part)]
            else:
                found = [f"{base}/{part}" for base in found]
            if len(found) > most:
                break
        return [path for path in found if self.exists(path)]

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link; None if it is none, or missing."""
        return self._ask(self._store.link, path, None)

    def exists(self, path: str) -> bool:
        """Return whether the path exists in the root."""
        return self._ask(self._store.kind, path, None) is not None

    def is_dir(self, path: str) -> bool:
        """Return whether the path is a directory in the root."""
        return self._ask(self._store.kind, path, None) == "directory"

    def _ask(self, question: Callable[[str], T], path: str, unknown: T) -> T:
        """Return the answer to *question* about *path*, or *unknown* if it cannot be read (recorded)."""
        self.spend(LOOKUP_BYTES)
        try:
            return question(path)
        except OSError as error:
            self.note(path, os.strerror(error.errno) if error.errno else str(error))
            return unknown


def printable_line(text: str) -> str:
    """Return one printable line, stripped. Raises ``ValueError`` otherwise."""
    bare = text.strip()
    if not bare.isprintable():
        raise ValueError(f"not one printable line: {bare[:40]!r}")
    return bare


def integer(text: str) -> int:
    """Return a decimal integer of at most 19 digits. Raises ``ValueError`` otherwise."""
    if re.fullmatch(r"\s*-?[0-9]{1,19}\s*", text, re.ASCII) is None:
        raise ValueError(f"not an integer: {text[:40]!r}")
    return int(text)


def count(text: str) -> int:
    """Return a non-negative decimal integer. Raises ``ValueError`` otherwise."""
    value = integer(text)
    if value < 0:
        raise ValueError(f"negative: {value}")
    return value


def kernel_of(tree: Tree) -> tuple[str | None, str | None]:
    """Return release and version of the kernel: those of ``/proc/sys/kernel``, which a tree may lack, or the banner."""
    banner = re.match(r"Linux version (\S+)(?:.*? (#[0-9].*))?", tree.text("/proc/version") or "")
    release, version = banner.groups() if banner else (None, None)
    return (
        tree.word("/proc/sys/kernel/osrelease") or (release and visible(release)),
        tree.word("/proc/sys/kernel/version") or (version and visible(version.strip())),
    )
