# SPDX-License-Identifier: Apache-2.0
"""What was made of run documents, kept in the cache by the digest of the document and of all that made it.

The end of a run makes all of it, so that the site of the night only has to copy.
"""

import csv
import functools
import hashlib
import io
import os
import time
from collections.abc import Callable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar

from calibration import places
from calibration.errors import InputError
from calibration.files import write_whole
from calibration.model import Model
from calibration.report.environment import TEMPLATES
from calibration.report.markup import to_html
from calibration.report.page import render
from calibration.results.documents import SCHEMA
from calibration.results.model import Run, RunDocument
from calibration.results.plain import Row, figured, rows
from calibration.results.store import read_run

CACHE: Final = places.CACHE / "pages"

KEPT_S: Final = 30 * 24 * 3600
"""What nothing asked for in so long is removed: a page is asked for every night while it is on the site."""

MADE_WITH: Final = ("docutils", "furo", "jinja2", "sphinx", "vl-convert-python")
"""Packages whose other version makes another page or another guide."""


class Made(Model):
    """The page of a run: its text and figures, and the same as HTML, see ``Html``.

    ``fault`` says why docutils refuses the text; there is no HTML then.
    """

    text: str
    figures: dict[str, str]
    title: str = ""
    body: str = ""
    contents: str = ""
    fault: str | None = None


class Data(Model):
    """What the site says of a run without its page.

    ``csv`` has a line for each headline figure, ``titles`` the name of each for people. ``public``: the document has no
    output of other programs that may not be published. ``measured_on`` is the day of an import, ``None`` if it was
    measured here or nobody says.
    """

    run: Run
    imported: bool
    measured_on: date | None
    csv: str
    public: bool
    titles: Mapping[str, str]


Kind = TypeVar("Kind", bound=Model)


def page_of(raw: bytes) -> Made:
    """Return the page of the run document *raw*, a valid ``run.json``."""
    return _kept(raw, Made, lambda: _made(raw))


def _made(raw: bytes) -> Made:
    page = render(raw)
    try:
        return Made(text=page.text, figures=page.figures, **to_html(page.text, page.figures)._asdict())
    except InputError as error:
        return Made(text=page.text, figures=page.figures, fault=str(error))


def data_of(path: Path, raw: bytes, *, checked: bool) -> Data:
    """Return what the site says of the document *raw* at *path*; *checked*: it was found valid already.

    Raises ``InputError`` if it is not valid.
    """
    return _kept(raw, Data, lambda: _data(RunDocument.model_validate_json(raw) if checked else read_run(path)))


def _data(document: RunDocument) -> Data:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows(document))
    return Data(
        run=document.run,
        imported=document.imported is not None,
        measured_on=None if document.imported is None else document.imported.measured_on,
        csv=stream.getvalue(),
        public=len(document.readings) == len(document.public_readings),
        titles={figure.metric.name: figure.metric.title for figure in figured(document, public=True)},
    )


def _kept(raw: bytes, kind: type[Kind], make: Callable[[], Kind]) -> Kind:
    """Return what *make* makes, or made before; what was cut off while it was written is made again."""
    key = hashlib.sha256(raw + report_sha256().encode()).hexdigest()
    path = CACHE / f"{key}.{kind.__name__.lower()}.json"
    try:
        found = kind.model_validate_json(path.read_bytes())
        os.utime(path)
    except (OSError, ValueError):
        found = make()
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            write_whole(path, found.model_dump_json().encode())
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
    """Return a hash of everything but the document that a page depends on: our code and templates, and what we use."""
    hashed = hashlib.sha256("\n".join(map(version, MADE_WITH)).encode())
    for path in (*sorted(places.PACKAGE.rglob("*.py")), SCHEMA, *sorted(TEMPLATES.rglob("*.j2"))):
        hashed.update(f"{path}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()
