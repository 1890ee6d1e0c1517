# SPDX-License-Identifier: Apache-2.0
"""Imported documents: third-party texts in the store of run documents.

The text is kept verbatim and can be parsed again. Importing the same text twice changes nothing.
"""

import codecs
import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from calibration import __version__
from calibration.base.errors import InputError
from calibration.base.files import able_to
from calibration.formats.csit_page import Published, read_published
from calibration.formats.lines import MAX_CHARACTERS
from calibration.formats.readings import Inconsistency, inconsistency
from calibration.results.layout import RUN, SCHEMA_VERSION, run_directory
from calibration.results.model import Imported, NotMeasured, Run, RunDocument
from calibration.results.store import read_run, write_document

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Placeholder time of an import that is not stored."""

UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks of texts written by PowerShell."""

PROFILE: Final = "imported"
"""Placeholder profile."""


def read_file(path: Path) -> tuple[bytes, Published]:
    """Return the bytes of the text at *path*, and its content.

    Raises ``InputError`` if it cannot be read, is too large or is not recognised.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        return raw, read_published(raw.decode("utf-16" if raw[:2] in UTF_16 else "utf-8", errors="replace"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def shared_figures(pages: Sequence[tuple[str, Published]]) -> list[list[Inconsistency]]:
    """Return, for each of the named *pages*, which of its results equal another page's to the last digit.

    Two machines, or two versions of Linux, do not measure the same digits: one page has the other's values.
    """
    found: list[list[Inconsistency]] = [[] for _ in pages]
    for (name, page), faults in zip(pages, found, strict=True):
        for other_name, other in pages:
            theirs = [reading.values for reading in other.read.readings]
            same = [reading.id for reading in page.read.readings if reading.values in theirs]
            if other_name != name and other.context != page.context and same:
                reason = f"the same digits as {other_name}, which has another kernel or host"
                faults.append(inconsistency("SAME_FIGURES", ", ".join(same), reason))
    return found


def document_of(
    published: Published,
    raw: bytes,
    *,
    source: str,
    testbed: str | None,
    sut: str | None,
    measured_on: date | None,
    now: datetime,
    publish: bool = False,
    more: Sequence[Inconsistency] = (),
) -> RunDocument:
    """Return the run document of a *published* text, *raw* as read from the file *source*.

    *testbed* and *sut* override the text; *publish* lets pages show raw output of Intel MLC; *more* are further
    inconsistencies. Raises ``InputError`` if the SUT is unknown.
    """
    testbed, sut = testbed or published.testbed, sut or published.sut
    if testbed is None or sut is None:
        raise InputError(f"{source} does not name its testbed and SUT: give --testbed and --sut")
    sha256 = hashlib.sha256(raw).hexdigest()
    read = published.read
    return RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(
            id=f"imported-{sha256[:12]}",
            testbed=testbed,
            sut=sut,
            profile=PROFILE,
            started_at=now,
            finished_at=now,
            harness_version=__version__,
            probe=None,
            status="imported",
        ),
        attempts=(),
        context=None,
        facts={},
        flags=(),
        meltdown_checker=None,
        mlc=None,
        opendcdiag=None,
        plan=None,
        measurements=(),
        not_measured=tuple(NotMeasured(**dict(gone), cause="not_given") for gone in read.not_read),
        verdicts=(),
        record=(),
        consistency=(),
        readings=read.readings,
        imported=Imported(
            **dict(published.context),
            format=published.format,
            source=source,
            sha256=sha256,
            text="imported.rst" if published.format == "csit_page" else "imported.txt",
            title=published.title,
            measured_on=measured_on,
            publish=publish or published.format != "mlc",
            inconsistencies=(*read.inconsistencies, *more),
        ),
    )


def store(results: Path, document: RunDocument, raw: bytes) -> Path:
    """Store *document* and its source text *raw* in *results*; return the run's directory.

    Does nothing if the directory already holds the same import. Raises ``InputError`` for a name unfit for a directory,
    ``EnvironmentLacksError`` if nothing can be written.
    """
    run, imported = document.run, document.imported
    if imported is None:
        raise ValueError(f"{run.id} is not an import")
    directory = run_directory(results, run.testbed, run.sut, run.id)
    if (directory / RUN).is_file() and read_run(directory).model_copy(update={"run": run}) == document:
        return directory
    with able_to(f"write the import to {results}", ". Free some space, or choose another directory"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / imported.text).write_bytes(raw)  # the directory's name is its hash
    write_document(directory, document)
    return directory
