# SPDX-License-Identifier: Apache-2.0
"""Read untrusted tar archives once, from the beginning, within limits."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, Self, cast

MAX_HEADER_BYTES = 64 * 1024
"""Longest extended header with a member's name or times; usually one block of 512 bytes."""

GZIP = b"\x1f\x8b"
"""Magic number of gzip."""

UNREADABLE = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError)
"""Exceptions for a file that is not an archive, or is damaged."""


class TooLargeError(Exception):
    """An archive exceeds a limit."""


class _Unpacked:
    """The tar stream in a ``.tar.gz`` or ``.tar`` file.

    Other compressions are refused: they may need gigabytes of memory before the first byte.
    """

    def __init__(self, raw: BinaryIO, most_bytes: int) -> None:
        compressed = raw.read(2) == GZIP
        raw.seek(0)
        self._file: BinaryIO = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if compressed else raw
        self._left = most_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return the next *size* bytes. Raises ``TooLargeError`` beyond the limit."""
        if size > self._left:
            raise TooLargeError
        self._left -= size
        return self._file.read(size)


class _Member(tarfile.TarInfo):
    """A member with short headers only: tarfile reads headers, and sparse maps, as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the member of a header. Raises ``TooLargeError`` for one that is too long."""
        member = super().frombuf(buf, encoding, errors)
        heads = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")
        if member.type == tarfile.GNUTYPE_SPARSE or (member.type in heads and member.size > MAX_HEADER_BYTES):
            raise TooLargeError
        return member


@contextmanager
def opened(raw: BinaryIO, *, most_bytes: int) -> Iterator[tarfile.TarFile]:
    """Open the tar archive *raw* for one pass; unpack at most *most_bytes*.

    The block raises ``TooLargeError`` beyond that, ``UNREADABLE`` for damaged content.
    """
    with _Unpacked(raw, most_bytes) as unpacked:
        stream = cast("IO[bytes]", unpacked)  # of which tarfile uses no more than reading
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            yield archive


def members(archive: tarfile.TarFile, *, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members of *archive*. Raises ``TooLargeError`` for more than *most*."""
    for count, member in enumerate(archive):
        archive.members = []  # type: ignore[attr-defined]  # remembered for seeking, and nothing here seeks
        if count >= most:
            raise TooLargeError
        yield member
