# SPDX-License-Identifier: Apache-2.0
"""What rendering keeps in the cache, by the digest of all that it was made from. Any file of it can be deleted."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from calibration.base import places
from calibration.base.errors import InputError
from calibration.base.files import OUTPUT_BYTES, read_regular, write_whole

FOLDER: Final = places.CACHE / "pages"

LIFETIME_S: Final = 7 * 24 * 3600
"""Unused entries are removed after this time: what is on the site is used every night. A page takes 1.5 MB."""

Made = TypeVar("Made")


def kept(name: str, parsed: Callable[[bytes], Made], make: Callable[[], Made], raw: Callable[[Made], bytes]) -> Made:
    """Return what is kept under *name* as *parsed*, or *make* it and keep it as *raw*.

    What cannot be read, or *parsed* refuses with ``ValueError``, is made again.
    """
    path = FOLDER / name
    with suppress(OSError, ValueError, InputError):
        found = parsed(read_regular(path, OUTPUT_BYTES))
        with suppress(OSError):  # it may be another user's
            os.utime(path)
        return found
    made = make()
    with suppress(OSError):  # the cache is optional
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_whole(path, raw(made))
    return made


def prune() -> None:
    """Remove entries unused for a week."""
    for path in FOLDER.glob("*"):
        with suppress(OSError):  # another process has just removed it, or it is another user's
            if time.time() - path.stat().st_mtime > LIFETIME_S:
                path.unlink()
