# SPDX-License-Identifier: Apache-2.0
"""Merge results that several controllers wrote, such as one per slice of an inventory, into one directory.

Each run is copied to a staging directory, verified there and renamed, so that it appears whole or not at all. A merge
may be interrupted and repeated; nothing is ever deleted from either side. Pages (``report/``) are left out: they are
rendered from the documents.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import locked, open_regular, read_regular
from calibration.results.documents import parse_json
from calibration.results.kept_shapes import merge_references
from calibration.results.layout import RECORDS, REFERENCES, REPORT, RUN, directories, run_directory
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from calibration.run.records import MAX_RECORDS_BYTES

LOCK: Final = ".merge.lock"
"""File in the destination, locked during a merge: others wait."""

STAGING: Final = ".merging"
"""Directory in the destination with the run that is being copied."""

MAX_FILE_BYTES: Final = 2 * MAX_RECORDS_BYTES
"""Largest file of a run: its records, with the lines that follow the last one of sutprobe."""


class Merged(NamedTuple):
    """Numbers of runs that were copied and that were there already, and why others were refused, a line each."""

    copied: int
    known: int
    refused: tuple[str, ...]


def merge(destination: Path, sources: Sequence[Path]) -> Merged:
    """Copy the runs of the results in *sources*, and references learned by them, into *destination*.

    A run that *destination* has with the same content, or continued, is skipped; one that the source has continued
    replaces it. A run with other content, an invalid document or a damaged file is refused; the others are copied.
    Learned references that *destination* has already stay.

    Raises ``InputError`` for a source that is not a directory of its own, ``EnvironmentLacksError`` if *destination*
    cannot be written.
    """
    there = destination.resolve()
    for source in sources:
        here = source.resolve()
        if not source.is_dir():
            raise InputError(f"no directory of results at {source}")
        if here.is_relative_to(there) or there.is_relative_to(here):
            raise InputError(f"{source} overlaps {destination}; merge into a separate directory")
    copied, known, refused = 0, 0, []
    try:
        with _staging(destination) as staging:
            for source in sources:
                for names in _runs(source):
                    try:
                        outcome = _merge_run(source, destination, names, staging)
                    except InputError as error:
                        refused.append(f"{'/'.join(names)} of {source}: {error}")
                    else:
                        copied += outcome == "copied"
                        known += outcome == "known"
                refused += merge_references(destination, source)
    except OSError as error:
        raise EnvironmentLacksError(
            f"cannot merge into {destination}: {error}. The runs merged so far are complete; repeat the command after "
            "freeing space or granting access"
        ) from error
    return Merged(copied, known, tuple(refused))


@contextmanager
def _staging(destination: Path) -> Iterator[Path]:
    """Lock *destination*, and provide the path of the staging directory, without what an interruption left there."""
    with locked(destination / LOCK):
        staging = destination / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _runs(source: Path) -> Iterator[tuple[str, str, str]]:
    """Yield testbed, SUT and identifier of each run in *source* with a document or records."""
    for testbed in sorted(directories(source)):
        if testbed == REFERENCES:
            continue
        for sut in sorted(directories(source / testbed)):
            for run_id in sorted(directories(source / testbed / sut)):
                if any((source / testbed / sut / run_id / name).exists() for name in (RUN, RECORDS)):
                    yield testbed, sut, run_id


def _merge_run(
    source: Path, destination: Path, names: tuple[str, str, str], staging: Path
) -> Literal["copied", "known"]:
    """Copy the run *names*, unless it is known. Raises ``InputError`` if it is refused."""
    run, target = run_directory(source, *names), run_directory(destination, *names)
    if target.exists() and _is_known(run, target):
        return "known"
    shutil.rmtree(staging, ignore_errors=True)
    files = _copy(run, staging)
    _verify(staging, names)
    if target.exists():
        for file in sorted(files, key=lambda file: file == Path(RECORDS)):  # last: until then the run is not known
            (target / file).parent.mkdir(exist_ok=True)
            (staging / file).replace(target / file)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.rename(target)
    return "copied"


def _is_known(run: Path, target: Path) -> bool:
    """Return whether *target* has all of *run*; false if *run* continues it.

    Raises ``InputError`` if neither continues the other. Size and time of a file stand for its content.
    """
    if all(_stamp(run / name) == _stamp(target / name) for name in (RUN, RECORDS)):
        return True
    new, old = ({name: _content(where / name) for name in (RUN, RECORDS)} for where in (run, target))
    if new[RUN] == old[RUN] and (old[RECORDS] is None or new[RECORDS] in (None, old[RECORDS])):
        return True  # records that the retention policy deleted are not restored
    if new[RECORDS] is not None and old[RECORDS] is not None:
        if _continues(old, new):
            return True
        if _continues(new, old):
            return False
    raise InputError(f"differs from {target}; remove one of them")


def _continues(one: dict[str, bytes | None], other: dict[str, bytes | None]) -> bool:
    """Return whether the files of *one* are those of *other* after more records or the assembly of its document."""
    longer, shorter = one[RECORDS] or b"", other[RECORDS] or b""
    return longer.startswith(shorter) and (other[RUN] is None or (one[RUN] is not None and longer != shorter))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None


def _copy(run: Path, staging: Path) -> list[Path]:
    """Copy the files of *run* with their times to *staging* and to disk; return their paths below it.

    Raises ``InputError`` for links and special files.
    """
    files = []
    for path in sorted(run.rglob("*")):
        file = path.relative_to(run)
        if file.parts[0] == REPORT or any(part.startswith(".") for part in file.parts):
            continue
        target = staging / file
        if path.is_dir() and not path.is_symlink():
            continue
        with open_regular(path, below=run) as opened:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                shutil.copyfileobj(opened, copy)
                copy.flush()
                os.fsync(copy.fileno())
            found = os.fstat(opened.fileno())
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        files.append(file)
    return files


def _verify(staging: Path, names: tuple[str, str, str]) -> None:
    """Raise ``InputError`` unless the run in *staging* has the identity *names*, and every file is the recorded one."""
    document = None
    try:
        if (staging / RUN).exists():
            document = read_run(staging / RUN)
            named = (document.run.testbed, document.run.sut, document.run.id)
        else:
            with (staging / RECORDS).open("rb") as file:
                first = parse_json(staging / RECORDS, file.readline())
            named = (first["testbed"], first["sut"], first["id"])
    except (InputError, LookupError, TypeError) as error:
        fault = str(error) if isinstance(error, InputError) else f"{RECORDS} does not begin with the start of a run"
        raise InputError(fault.removeprefix(f"{staging}/")) from error
    if named != names:
        raise InputError(f"contains the run {'/'.join(map(str, named))}")
    for name, sha256 in () if document is None else _kept_files(document):
        path = staging / name
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise InputError(f"{name} is damaged: its sha256 differs from the run document")


def _kept_files(document: RunDocument) -> Iterator[tuple[str, str | None]]:
    """Yield the files beside *document*, each with its hash."""
    others = (document.meltdown_checker, document.opendcdiag, *(document.mlc.commands if document.mlc else ()))
    pairs = (
        *((attempt.capture, attempt.capture_sha256) for attempt in document.attempts),
        *((run.output, run.output_sha256) for run in others if run),
        *((imported.text, imported.sha256) for imported in (document.imported,) if imported),
    )
    yield from ((name, sha256) for name, sha256 in pairs if name is not None)
