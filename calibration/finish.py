# SPDX-License-Identifier: Apache-2.0
"""The end of a run: its document is assembled, judged and written, and its references are kept."""

from datetime import UTC, datetime
from pathlib import Path

from calibration.judge.run import judge_run
from calibration.results.kept_shapes import keep_references
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import read_run, write_document
from calibration.run.assemble import assemble
from calibration.run.attempts import has_begun, start_of


def finish(directory: Path, *, now: datetime, interrupted: bool = False) -> RunDocument:
    """Assemble the run document, judge it by the run's limits, write it atomically, and return it.

    *now* and *interrupted* are as for ``assemble``. Raises ``InputError`` if the records are not those of a run,
    ``EnvironmentLacksError`` if the document cannot be written.
    """
    document = assemble(directory, now=now, interrupted=interrupted)
    document = judge_run(document, start_of(directory).limits if has_begun(directory) else ())
    write_document(directory, document)
    return document


def finished(results: Path, directory: Path, *, anew: bool) -> RunDocument:
    """Return the document of the run in *directory*; it is written first if there are records since, or it is missing.

    *anew* says that there are records since.
    """
    if not anew and (directory / RUN).exists():
        return read_run(directory)
    document = finish(directory, now=datetime.now(UTC))
    keep_references(results, document)
    return document
