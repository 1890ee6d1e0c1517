# SPDX-License-Identifier: Apache-2.0
"""Renders the pages of runs beside their documents."""

import hashlib
import secrets
import shutil
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from calibration.base.errors import InputError
from calibration.base.files import able_to, read_regular
from calibration.base.grouping import grouped
from calibration.judge.standing import Standings
from calibration.references.library import library, results_of
from calibration.report.page import Page, render
from calibration.report.page_cache import data_of, keep_page, report_sha256
from calibration.report.rst import to_rst
from calibration.results.layout import REFERENCES, REPORT, RUN, find_runs
from calibration.results.nights import night_of, today
from calibration.results.store import StoredRun, stored_run

PAGE: Final = "page.rst"

INPUTS: Final = "inputs.sha256"
"""Beside a page: the hash of what it was rendered from, see ``inputs_of``."""


def rendered(stored: StoredRun, standings: Standings) -> Page:
    """Return the page of *stored*, with its standing and the references of its results.

    Raises ``InputError`` if it is not a run document.
    """
    return render(stored, library(results_of(stored.path)), standings.of(stored.path, stored.document))


def render_run(run_dir: Path, standings: Standings, inputs: str | None = None) -> Path:
    """Render the page of the run in *run_dir* into ``<run_dir>/report``, and return its path.

    A page rendered from the same *inputs* is left as it is. The folder is replaced atomically. Raises ``InputError`` if
    there is no valid run document, ``EnvironmentLacksError`` if the page cannot be written.
    """
    target = run_dir / REPORT
    if inputs is not None and _inputs(target) == inputs and (target / PAGE).is_file():
        return target / PAGE
    stored = stored_run(run_dir / RUN)
    references, standing = library(results_of(stored.path)), standings.of(stored.path, stored.document)
    page = render(stored, references, standing)
    files = {PAGE: to_rst(page.blocks), **page.figures}
    with able_to(f"write the page to {target}", ". The old page is kept; free some space, or get write access"):
        _replace(target, files if inputs is None else files | {INPUTS: inputs})
    data_of(stored)  # for the site
    if not any(other.parent > run_dir for other in run_dir.parent.glob(f"*/{RUN}")):
        keep_page(stored, references, standing, page)  # the site has the newest of a SUT
    return target / PAGE


def inputs_of(results: Path) -> dict[Path, str]:
    """Return the runs below *results*, each with a hash of all that its page is rendered from.

    That is our program, and the state of the references and of the documents of its testbed up to its night, with which
    it is judged; for a run that the harness did not name, of all documents of its testbed. Raises ``InputError`` if
    *results* is not a directory.
    """
    testbeds = grouped((run.parent.parent, run) for run in find_runs(results))
    references = (path for path in sorted((results / REFERENCES).rglob("*")) if path.is_file())
    common = _sha256(
        report_sha256(), *(testbed.name for testbed in testbeds), *(_state(path, results) for path in references)
    )
    found: dict[Path, str] = {}
    for runs in testbeds.values():
        nights = grouped((night_of(run.name) or date.min, run) for run in runs)
        doubted = [str(night) for night in nights if night > today() + timedelta(days=1)]
        known = _sha256(common, *doubted)
        for night in sorted(nights):
            known = _sha256(known, *(_state(run / RUN, results) for run in nights[night]))
            found |= {run: _sha256(known, str(run.relative_to(results))) for run in nights[night]}
        found |= {run: _sha256(known, str(run.relative_to(results))) for run in nights.get(date.min, ())}
    return found


def _sha256(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _state(path: Path, results: Path) -> str:
    """Return the name of *path*, and by what the index, too, knows that it changed."""
    found = path.lstat()
    return f"{path.relative_to(results)} {found.st_size} {found.st_ctime_ns}"


def _inputs(target: Path) -> str:
    """Return the hash beside the page in *target*; the empty text if there is none."""
    try:
        return read_regular(target / INPUTS, 64).decode("ascii", "replace")
    except (FileNotFoundError, InputError):
        return ""


def _replace(target: Path, files: Mapping[str, str]) -> None:
    """Write *files* beside *target* and exchange the two; clean up on failure."""
    token = secrets.token_hex(4)
    pending, old = (target.with_name(f".{target.name}.{state}-{token}") for state in ("new", "old"))
    try:
        for name, text in files.items():
            path = pending / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if target.exists():
            target.rename(old)
        try:
            pending.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        for leftover in (pending, old):
            shutil.rmtree(leftover, ignore_errors=True)
