# SPDX-License-Identifier: Apache-2.0
"""Renders the page of a run beside its document."""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from calibration.base.files import able_to
from calibration.judge.standing import Standings
from calibration.references.library import library, results_of
from calibration.report.page import Page, render
from calibration.report.page_cache import data_of, keep_page
from calibration.report.rst import to_rst
from calibration.results.layout import REPORT, RUN
from calibration.results.store import StoredRun, stored_run

PAGE = "page.rst"


def rendered(stored: StoredRun, standings: Standings) -> Page:
    """Return the page of *stored*, with its standing and the references of its results.

    Raises ``InputError`` if it is not a run document.
    """
    return render(stored, library(results_of(stored.path)), standings.of(stored.path, stored.document))


def render_run(run_dir: Path, standings: Standings) -> Path:
    """Render the page of the run in *run_dir* into ``<run_dir>/report``, and return its path.

    The folder is replaced atomically. Raises ``InputError`` if there is no valid run document,
    ``EnvironmentLacksError`` if the page cannot be written.
    """
    target = run_dir / REPORT
    stored = stored_run(run_dir / RUN)
    references, standing = library(results_of(stored.path)), standings.of(stored.path, stored.document)
    page = render(stored, references, standing)
    with able_to(f"write the page to {target}", ". The old page is kept; free some space, or get write access"):
        _replace(target, {PAGE: to_rst(page.blocks), **page.figures})
    data_of(stored)  # for the site
    if not any(other.parent > run_dir for other in run_dir.parent.glob(f"*/{RUN}")):
        keep_page(stored, references, standing, page)  # the site has the newest of a SUT
    return target / PAGE


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
