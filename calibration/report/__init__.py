# SPDX-License-Identifier: Apache-2.0
"""Pages of runs, and the site of all of them.

A page is a pure function of its run document: no clock, no look-up on the host, stable order, the same bytes each time.
"""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from calibration.errors import EnvironmentLacksError
from calibration.files import read_regular
from calibration.report.environment import environment
from calibration.report.kept import page_of
from calibration.report.page import Page
from calibration.report.site import DOCS, SITE, build_site
from calibration.results.documents import MAX_DOCUMENT_BYTES, schema_validator
from calibration.results.layout import RUN
from calibration.results.store import validate

__all__ = ["DOCS", "SITE", "ReportPaths", "build_site", "prepare", "render_run"]

REPORT = "report"
PAGE = "page.rst"


@dataclass(frozen=True)
class ReportPaths:
    """Where a rendered page and its figures lie."""

    page: Path
    figures: tuple[Path, ...]


def prepare() -> None:
    """Compile all templates and the schema, so that processes forked from this one need not."""
    for name in environment().list_templates():
        environment().get_template(name)
    schema_validator()


def render_run(run_dir: Path, output: Path | None = None, *, checked: bool = False) -> ReportPaths:
    """Render the page of the run in *run_dir* into *output*, by default ``<run_dir>/report``, and return its paths.

    *checked* says that the run document was just found valid, and need not be looked at for that once more.
    The folder appears whole or not at all; an older one is replaced at once. Raises ``InputError`` where there is no
    valid run document, ``EnvironmentLacksError`` where the page cannot be written.
    """
    document = run_dir / RUN
    if not checked:
        validate(document)
    page = page_of(read_regular(document, MAX_DOCUMENT_BYTES))
    target = run_dir / REPORT if output is None else output
    try:
        _replace(target, page)
    except OSError as error:
        raise EnvironmentLacksError(
            f"the page cannot be written to {target}: {error.strerror or error}. What was there before is kept; free "
            "some space or give another directory"
        ) from error
    return ReportPaths(page=target / PAGE, figures=tuple(target / name for name in page.figures))


def _replace(target: Path, page: Page) -> None:
    """Write *page* beside *target* and exchange the two; nothing is left behind when that fails."""
    token = secrets.token_hex(4)
    pending, old = (target.with_name(f".{target.name}.{state}-{token}") for state in ("new", "old"))
    try:
        for name, text in {PAGE: page.text, **page.figures}.items():
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
