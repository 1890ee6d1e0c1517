# SPDX-License-Identifier: Apache-2.0
"""A limit on the memory that reading a SUT's answer may take."""

import ctypes
import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

PARSE_FACTOR: Final = 16
"""Memory for parsing an answer, as a multiple of its size: JSON of many small numbers becomes many objects."""

MEMORY_SPARE_BYTES: Final = 32 << 20
"""Other memory of a worker."""


SHORT_BYTES: Final = MEMORY_SPARE_BYTES // 64
"""Text that takes less than the spare memory, whatever is in it: an object has some 20 bytes per character."""


def bounded_parsing(text: str) -> AbstractContextManager[None]:
    """Return a block that raises ``MemoryError`` before much more memory is used than JSON of the size of *text* takes.

    Short texts need no limit: setting one costs more than parsing them.
    """
    return bounded_memory(PARSE_FACTOR * len(text)) if len(text) > SHORT_BYTES else nullcontext()


def _data_bytes() -> int | None:
    """Return the memory that counts against this process's data limit, or None if unknown."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        rows = dict(line.split(":", 1) for line in text.splitlines())
        return int(rows["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None  # no such file: the size of an answer is still checked after it arrived


@contextmanager
def bounded_memory(wanted_bytes: int) -> Iterator[None]:
    """Raise ``MemoryError`` in the block before it uses much more than *wanted_bytes* of memory.

    Connection plugins collect a SUT's output until it ends, whatever its size; the kernel's limit covers all of them,
    and what is made of the answer.
    """
    with suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)  # freed but still mapped memory would add to the bound
    taken = _data_bytes()
    if taken is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = taken + wanted_bytes + MEMORY_SPARE_BYTES
    known = [item for item in (soft, hard, wanted) if item != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
