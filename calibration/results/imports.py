# SPDX-License-Identifier: Apache-2.0
"""Imported documents: texts of others in the store of run documents, beside what was measured here.

The text is kept as it came; what is read from it can be read again. Importing the same text twice changes nothing.
"""

import codecs
import hashlib
import secrets
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from calibration import __version__
from calibration.errors import EnvironmentLacksError, InputError
from calibration.formats.csit_page import Published, read_published
from calibration.formats.lines import MAX_CHARACTERS
from calibration.results.layout import RUN, SCHEMA_VERSION, run_directory
from calibration.results.model import Imported, NotMeasured, Run, RunDocument
from calibration.results.readings import Inconsistency, inconsistency
from calibration.results.store import read_run, write_document

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for the time of an import where that is of no interest."""

UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a text begins that PowerShell wrote."""

PROFILE: Final = "imported"
"""What stands for the profile: nobody chose one."""


def read_file(path: Path) -> tuple[bytes, Published]:
    """Return the bytes of the text at *path*, and what it says.

    Raises ``InputError`` where it cannot be read, is too large or where nothing is recognised in it.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise InputError(f"expected a text at {path}: {error.strerror}") from error
    try:
        return raw, read_published(raw.decode("utf-16" if raw[:2] in UTF_16 else "utf-8", errors="replace"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def shared_figures(pages: Sequence[tuple[str, Published]]) -> list[list[Inconsistency]]:
    """Return, for each of the named *pages*, which of its results another page has to the last digit.

    Two machines, or one machine under two kernels, do not measure the same digits: one page has the other's figures.
    """
    found: list[list[Inconsistency]] = []
    for name, page in pages:
        own: list[Inconsistency] = []
        for other_name, other in pages:
            same = [
                each.id
                for each in page.read.readings
                if any(each.values == theirs.values for theirs in other.read.readings)
            ]
            if other_name == name or other.context == page.context or not same:
                continue
            own.append(
                inconsistency(
                    "SAME_FIGURES",
                    ", ".join(same),
                    f"the digits are those of {other_name}, whose kernel or host is another",
                )
            )
        found.append(own)
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
    """Return the run document of a *published* text, *raw* as it came from the file *source*.

    *testbed* and *sut* outrank what the text says; *publish* lets pages show raw output of Intel MLC; *more* are
    inconsistencies that were found beside it. Raises ``InputError`` where nobody says whose figures they are.
    """
    testbed, sut = testbed or published.testbed, sut or published.sut
    if testbed is None or sut is None:
        raise InputError(
            f"expected the testbed and the SUT that {source} is about, and the text does not say: give --testbed and "
            "--sut"
        )
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
            kernels=None,
            status="imported",
        ),
        attempts=(),
        context=None,
        facts={},
        plan=None,
        measurements=(),
        not_measured=tuple(
            NotMeasured(kind=each.kind, what=each.what, reason=each.reason, cause="not_given") for each in read.not_read
        ),
        verdicts=(),
        readings=read.readings,
        imported=Imported(
            format=published.format,
            source=source,
            sha256=sha256,
            text="imported.rst" if published.format == "csit_page" else "imported.txt",
            title=published.title,
            measured_on=measured_on,
            imported_at=now,
            publish=publish or published.format != "mlc",
            cmdline=published.context.cmdline,
            uname=published.context.uname,
            isolcpus=published.context.isolcpus,
            inconsistencies=(*read.inconsistencies, *more),
        ),
    )


def store(results: Path, document: RunDocument, raw: bytes) -> Path:
    """Put *document* and the text *raw* it was read from into *results*; return the run's directory.

    The directory appears whole or not at all; one that holds the same import already is left as it is. Raises
    ``InputError`` for a name that is not fit for a directory, ``EnvironmentLacksError`` where nothing can be written.
    """
    run, imported = document.run, document.imported
    if imported is None:
        raise ValueError(f"expected an imported document, found {run.id}")
    directory = run_directory(results, run.testbed, run.sut, run.id)
    if (directory / RUN).is_file() and _same(read_run(directory), document):
        return directory
    pending = directory.with_name(f".{run.id}.{secrets.token_hex(4)}")
    try:
        pending.mkdir(parents=True)
        (pending / imported.text).write_bytes(raw)  # nobody can know the directory's name
        write_document(pending, document)
        if directory.exists():
            shutil.rmtree(directory)
        pending.replace(directory)
    except OSError as error:
        raise EnvironmentLacksError(
            f"the import cannot be written below {results}: {error.strerror or error}. Free some space or give another "
            "directory"
        ) from error
    finally:
        shutil.rmtree(pending, ignore_errors=True)
    return directory


def _same(one: RunDocument, other: RunDocument) -> bool:
    """Tell whether two imports differ in nothing but when they were made."""

    def timeless(document: RunDocument) -> RunDocument:
        if document.imported is None:
            return document
        return document.model_copy(
            update={
                "run": document.run.model_copy(update={"started_at": EPOCH, "finished_at": EPOCH}),
                "imported": document.imported.model_copy(update={"imported_at": EPOCH}),
            }
        )

    return timeless(one) == timeless(other)
