# SPDX-License-Identifier: Apache-2.0
"""Paths in a directory of results: ``<results>/<testbed>/<sut>/<run-id>/run.json``, and the references beside.

Does not import the models.
"""

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from calibration.base.errors import InputError
from calibration.base.files import refuse_links

RUN: Final = "run.json"
"""The run document in a run's directory."""

RECORDS: Final = "records.jsonl"
"""What happened in a run, appended step by step, so that a crash loses nothing."""

CAPTURE: Final = "context.tar.gz"
"""The raw capture of the run's start."""

CHECKER_OUTPUT: Final = "meltdown-checker.txt"
"""Output of the operator's spectre-meltdown-checker."""

DCDIAG_OUTPUT: Final = "opendcdiag.yaml"
"""Output of the operator's opendcdiag."""

MLC_FOLDER: Final = "mlc"
"""Output of the operator's Intel MLC, one file per command."""

REPORT: Final = "report"
"""The page and its charts, rendered from the run document."""

REFERENCES: Final = "references"
"""The directory in the results that is not a testbed's."""

THIS_MACHINE: Final = "localhost"
"""The testbed of runs without an inventory: of the controller itself. It belongs to no lab: beside testbeds of a lab it
is neither judged nor missed."""

MAX_REFERENCE_BYTES: Final = 64 * 1024 * 1024
"""Largest file of references: hundreds of acceptances of the largest machine are smaller."""

SCHEMA_VERSION: Literal["run/1"] = "run/1"
"""The version of the run document described by :mod:`calibration.results.model`."""

SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Form of a testbed, SUT or run identifier, which becomes a directory's name."""


def directories(parent: Path) -> list[str]:
    """Return the names of the directories in *parent*; hidden ones are not ready. Raises ``OSError``."""
    with os.scandir(parent) as entries:
        return [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]


def new_run_id(now: datetime) -> str:
    """Return an unpredictable run identifier that sorts by time."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def check_names(*, testbed: str, sut: str) -> None:
    """Raise ``InputError`` for a name of a testbed or a SUT unfit for a directory."""
    for what, name in (("testbed", testbed), ("SUT", sut)):
        _check_name(what, name)
    if testbed == REFERENCES:
        raise InputError(f"a testbed cannot be called {REFERENCES!r}: that directory has the references")


def _check_name(what: str, name: str) -> None:
    if not SAFE_NAME.fullmatch(name):
        raise InputError(
            f"not a valid {what} name: {name!r}; use letters, digits, '.', '_' and '-', at most 128, the first a "
            "letter or digit"
        )


def run_directory(results: Path, testbed: str, sut: str, run_id: str) -> Path:
    """Return the directory of a run. Raises ``InputError`` for a name unfit for a directory, and for links."""
    check_names(testbed=testbed, sut=sut)
    _check_name("run identifier", run_id)
    directory = results / testbed / sut / run_id
    refuse_links(directory, below=results)
    return directory


def find_runs(results: Path) -> list[Path]:
    """Return the directories of all assembled runs below *results*, by testbed, SUT and time.

    Raises ``InputError`` if *results* is not a directory.
    """
    if not results.is_dir():
        raise InputError(f"no directory of results at {results}")
    return sorted(path.parent for path in results.glob(f"*/*/*/{RUN}"))
