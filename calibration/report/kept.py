# SPDX-License-Identifier: Apache-2.0
"""What was made of run documents, kept in the cache by the digest of the document and of all that made it.

The end of a run makes its page, and the site that is built then finds it here.
"""

import csv
import functools
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from calibration import places
from calibration.files import write_whole
from calibration.report.environment import TEMPLATES
from calibration.report.markup import Html, to_html
from calibration.report.page import Page, render
from calibration.results.documents import schema_file
from calibration.results.migrations import VERSIONS, model_of
from calibration.results.model import Run, RunDocument
from calibration.results.plain import COLUMNS, figured, rows
from calibration.results.store import validate

CACHE: Final = places.CACHE / "pages"

KEPT_S: Final = 30 * 24 * 3600
"""What nothing asked for in so long is removed: a page is asked for every night while it is on the site."""


@dataclass(frozen=True)
class Data:
    """What the site says of a run without its page.

    ``csv`` has a line for each headline figure, ``titles`` the name of each for people. ``public``: the document has no
    output of other programs that may not be published. ``measured_on`` is the day of an import, ``None`` where it was
    measured here or nobody says.
    """

    run: Run
    imported: bool
    measured_on: date | None
    csv: str
    public: bool
    titles: Mapping[str, str]


def page_of(raw: bytes) -> Page:
    """Return the page of the run document *raw*, a valid ``run.json``."""
    found = _kept(raw, "page", lambda: vars(render(raw)))
    return Page(**found)


def html_of(raw: bytes) -> Html:
    """Return the page of *raw* as HTML. Raises ``InputError`` where docutils does not accept it."""
    page = page_of(raw)
    return Html(**_kept(raw, "html", lambda: to_html(page.text, page.figures)._asdict()))


def data_of(path: Path, raw: bytes, *, checked: bool) -> Data:
    """Return what the site says of the document *raw* at *path*; *checked*: it was found valid already.

    Raises ``InputError`` where it is not valid.
    """
    found = _kept(raw, "data", lambda: _data(model_of(raw) if checked else validate(path)))
    day = found["measured_on"]
    return Data(
        run=Run.model_validate_json(found["run"]),
        imported=found["imported"],
        measured_on=None if day is None else date.fromisoformat(day),
        csv=found["csv"],
        public=found["public"],
        titles=found["titles"],
    )


def _data(document: RunDocument) -> dict[str, Any]:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(document))
    imported = document.imported
    day = None if imported is None else imported.measured_on
    return {
        "run": document.run.model_dump_json(),
        "imported": imported is not None,
        "measured_on": None if day is None else day.isoformat(),
        "csv": stream.getvalue(),
        "public": len(document.readings) == len(document.public_readings),
        "titles": {each.metric.name: each.metric.title for each in figured(document, public=True)},
    }


def _kept(raw: bytes, what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what *make* makes, or made before; what was cut off while it was written is made again."""
    path = CACHE / f"{hashlib.sha256(raw + report_sha256().encode()).hexdigest()}.{what}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        os.utime(path)
    except (OSError, ValueError):
        found = make()
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(found).encode())
        except OSError:
            return found  # a page without a cache is a page
    return found


def forget_old() -> None:
    """Remove from the cache what nothing asked for in a month."""
    for path in CACHE.glob("*.json"):
        if time.time() - path.stat().st_mtime > KEPT_S:
            path.unlink(missing_ok=True)


@functools.cache
def report_sha256() -> str:
    """Return a hash of everything but the document that a page depends on: the package and its templates."""
    hashed = hashlib.sha256()
    sources = [*sorted(places.PACKAGE.rglob("*.py")), *map(schema_file, VERSIONS)]
    for path in [*sources, *sorted(TEMPLATES.rglob("*.j2"))]:
        hashed.update(f"{path}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()
