# SPDX-License-Identifier: Apache-2.0
"""Retention policy: remove the raw data of old runs first, the whole runs later.

Only files that a run wrote are removed, only from run directories, and symbolic links are not followed. These runs are
kept whole: runs without a time in their name (imports, and runs named by hand), runs without a readable document, the
newest run and the newest complete run of each SUT, and all runs named in a file below ``references/``. What a killed
controller half wrote is removed with the raw data of its run, or after a day if that has no document.
"""

import os
import re
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from calibration.base.errors import InputError
from calibration.base.files import PARTIAL, able_to, read_regular
from calibration.results.documents import parse_json
from calibration.results.layout import (
    CHECKER_OUTPUT,
    DCDIAG_OUTPUT,
    MAX_REFERENCE_BYTES,
    MLC_FOLDER,
    RECORDS,
    REFERENCES,
    REPORT,
    RUN,
    SAFE_NAME,
)
from calibration.results.nights import REDATE, misdated, night_of
from calibration.results.store import read_run

_RAW: Final = re.compile(
    rf"{re.escape(RECORDS)}|context(?:-\d+)?\.tar\.gz|{re.escape(CHECKER_OUTPUT)}|{re.escape(MLC_FOLDER)}|{REPORT}"
    rf"|{re.escape(DCDIAG_OUTPUT)}|{PARTIAL.pattern}"
)
"""Names in a run's directory of the raw data, of files generated from the document, and of half-written files."""

_ABANDONED_S: Final = 24 * 3600.0
"""Age of a half-written file that nobody writes any more."""


class UnreadableReferenceError(InputError):
    """A file below ``references/`` cannot be read: runs it depends on are unknown, so none may be removed."""


class Policy(NamedTuple):
    """Nights to keep whole runs, and their raw data; 0 means forever."""

    nights: int
    raw_nights: int


class Expired(NamedTuple):
    """A run (path below the results), and what to remove: half-written files, its raw data or all of it."""

    directory: Path
    what: Literal["partial", "raw", "run"]


def expired(results: Path, tonight: date, policy: Policy) -> list[Expired]:
    """Return the runs to remove, whole or in part, by *policy*.

    A run expires after N nights if it is more than N days older than *tonight*, and there are at least N later nights:
    a clock that jumps makes one night, whatever it says. Misdated nights do not count, and their runs are kept. Raises
    ``InputError`` if a number is negative, *results* is no directory or *tonight* is misdated,
    ``UnreadableReferenceError`` if a reference file cannot be read.
    """
    for name, value in zip(("retention_nights", "retention_raw_nights"), policy, strict=True):
        if value < 0:
            raise InputError(f"{name} is {value}; it must not be negative")
    if not results.is_dir():
        raise InputError(f"no directory of results at {results}")
    if not any(policy):
        return []
    relied_on = _names_in_references(results)
    found = [Expired(run.relative_to(results), "partial") for run in _killed(results) if any(_abandoned(run))]
    suts = [_runs(sut) for sut in _suts(results)]
    nights = {night for runs in suts for _, night in runs}
    wrong = misdated({tonight, *nights})
    if tonight in wrong:
        raise InputError(f"the night {tonight} is far from the other nights: nothing was removed; {REDATE}")
    ordered = sorted(nights - wrong)
    for runs in suts:
        for directory, night in _older([run for run in runs if run[1] not in wrong]):
            later = len(ordered) - bisect_right(ordered, night)
            expiry = _expired(directory, min((tonight - night).days, later + 1), policy)
            if expiry and directory.name not in relied_on and _status(directory) is not None:
                found.append(Expired(directory.relative_to(results), expiry))
    return found


def _expired(directory: Path, age: int, policy: Policy) -> Literal["raw", "run"] | None:
    if policy.nights and age > policy.nights:
        return "run"
    if policy.raw_nights and age > policy.raw_nights and any(_raw(directory)):
        return "raw"
    return None


def _runs(sut: Path) -> list[tuple[Path, date]]:
    """Return a SUT's runs and their nights, sorted."""
    return [
        (folder, night) for folder in _folders(sut) if (night := night_of(folder.name)) and (folder / RUN).is_file()
    ]


def _killed(results: Path) -> Iterator[Path]:
    """Yield the directories of runs without a document."""
    for sut in _suts(results):
        yield from (folder for folder in _folders(sut) if night_of(folder.name) and not (folder / RUN).exists())


def _older(runs: list[tuple[Path, date]]) -> list[tuple[Path, date]]:
    """Return a SUT's *runs* without the newest and the newest complete one."""
    newest: set[Path] = set()
    for directory, _ in reversed(runs):
        status = _status(directory)
        if status == "complete" or (status and not newest):
            newest.add(directory)
        if status == "complete":
            break
    return [run for run in runs if run[0] not in newest]


def remove(results: Path, expired: Expired) -> None:
    """Remove what is *expired*. Raises ``EnvironmentLacksError`` if that fails."""
    directory = results / expired.directory
    with able_to(f"remove the expired run {directory}"):
        for path in _abandoned(directory) if expired.what == "partial" else _raw(directory):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if expired.what == "run":
            (directory / RUN).unlink()  # last: after an interruption it is still a run, and is removed next time
        if expired.what != "raw":
            for place in (directory, directory.parent, directory.parent.parent):
                if any(place.iterdir()):
                    return
                place.rmdir()


def _folders(parent: Path) -> list[Path]:
    """Return the real directories in *parent* with names that the store allows, sorted."""
    with os.scandir(parent) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and SAFE_NAME.fullmatch(entry.name)
        )


def _suts(results: Path) -> list[Path]:
    return [sut for testbed in _folders(results) if testbed.name != REFERENCES for sut in _folders(testbed)]


def _status(directory: Path) -> str | None:
    """Return the status in the document of *directory*; ``None`` if it is not that of the run there."""
    try:
        run = read_run(directory / RUN).run
    except InputError:
        return None  # reported as unreadable every night, and kept
    return run.status if (run.testbed, run.sut, run.id) == directory.parts[-3:] and run.status != "imported" else None


def _raw(directory: Path) -> list[Path]:
    with os.scandir(directory) as entries:
        return sorted(Path(entry.path) for entry in entries if _RAW.fullmatch(entry.name))


def _abandoned(directory: Path) -> list[Path]:
    """Return the half-written files in *directory* of a process that was killed."""
    before = time.time() - _ABANDONED_S
    with os.scandir(directory) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if PARTIAL.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before
        )


def _names_in_references(results: Path) -> set[str]:
    """Return the names of all runs in files below ``references/``, whatever their format."""
    found: set[str] = set()
    for path in sorted((results / REFERENCES).rglob("*.json")):
        try:
            found |= set(_texts(parse_json(path, read_regular(path, MAX_REFERENCE_BYTES, below=results))))
        except (FileNotFoundError, InputError) as error:
            raise UnreadableReferenceError(
                f"{error}; nothing was removed, as it may name runs to keep. Restore or remove it"
            ) from error
    return found


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _texts(item)
