# SPDX-License-Identifier: Apache-2.0
"""Cache of rendered pages, keyed by the digests of the document and of the code that renders it.

Whoever renders a run's page keeps what the site has of it. A page depends on the answer on its SUT, too: a later answer
gives another page.
"""

import csv
import functools
import hashlib
import io
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from typing import Final, TypeVar

from calibration.base import places
from calibration.base.model import Model
from calibration.judge.standing import Standing, headlines_of
from calibration.references.library import Library
from calibration.report.environment import TEMPLATES
from calibration.report.html import to_html
from calibration.report.kept import kept
from calibration.report.page import Page, render
from calibration.results.model import MetricsDocument, Run, RunDocument, public_readings
from calibration.results.plain import PlainRow, rows
from calibration.results.store import StoredRun

PACKAGES: Final = ("docutils", "furo", "jinja2", "sphinx", "vl-convert-python")
"""Packages whose version affects a page or the guide."""

SUT_ROOT: Final = "../../../"
"""The way from the page of a SUT to the site's first page."""

LINKS: Final = "<!-- links -->"
"""Stands for the links to the data of a page: text of a page has no such comment, because it is escaped."""


class Made(Model):
    """A run's page as HTML, see ``Html``, and its pictures by path."""

    figures: dict[str, str]
    title: str
    body: str
    contents: str


class Data(Model):
    """What the site uses of a run besides its page.

    ``csv`` has a line per headline metric. ``public``: the document has no output of other programs that must not be
    published. ``measured_on`` is the day of an import, ``None`` if measured here or unknown. ``headlines`` are its
    headline metrics by name. ``whole``: the whole document is valid, which a page needs.
    """

    run: Run
    imported: bool
    measured_on: date | None
    csv: str
    public: bool
    headlines: tuple[str, ...]
    whole: bool


Kind = TypeVar("Kind", bound=Model)


def page_of(stored: StoredRun, references: Library, standing: Standing | None, root: str) -> Made:
    """Return the page of *stored*, compared with *references*, with its *standing*; *root* as for HTML.

    ``LINKS`` stands for the links to its data. Raises ``InputError`` if it is not a run document.
    """
    return _cached(
        _source(stored, references, standing, root), Made, lambda: _made(render(stored, references, standing), root)
    )


def keep_page(stored: StoredRun, references: Library, standing: Standing | None, page: Page) -> None:
    """Keep the *page* rendered of the same arguments as those of ``page_of`` for the site."""
    _cached(_source(stored, references, standing, SUT_ROOT), Made, lambda: _made(page, SUT_ROOT))


def _source(stored: StoredRun, references: Library, standing: Standing | None, root: str) -> bytes:
    return stored.content + "\n".join((references.digest, repr(standing), root)).encode()


def _made(page: Page, root: str) -> Made:
    pictures = {path: text for path, text in page.figures.items() if path.endswith(".svg")}
    return Made(figures=pictures, **to_html(page.blocks, page.figures, root, LINKS)._asdict())


def data_of(stored: StoredRun, *, whole: bool = True) -> Data:
    """Return the site's data of *stored*. Raises ``InputError`` if it is not a run document.

    Only what they have of it is read unless the *whole* is to be valid.
    """
    data = _cached(stored.content, Data, lambda: _data(stored.document if whole else stored.read_as(MetricsDocument)))
    if whole and not data.whole:
        _ = stored.document
    return data


def _data(document: RunDocument | MetricsDocument) -> Data:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(PlainRow._fields)
    writer.writerows(rows(document))
    return Data(
        run=document.run,
        imported=document.imported is not None,
        measured_on=None if document.imported is None else document.imported.measured_on,
        csv=stream.getvalue(),
        public=len(document.readings) == len(public_readings(document)),
        headlines=headlines_of(document),
        whole=isinstance(document, RunDocument),
    )


def _cached(source: bytes, kind: type[Kind], make: Callable[[], Kind]) -> Kind:
    """Return the cached result of *make* from *source*, or call it."""
    key = hashlib.sha256(source + report_sha256().encode()).hexdigest()
    return kept(
        f"{key}.{kind.__name__.lower()}.json",
        kind.model_validate_json,
        make,
        lambda made: made.model_dump_json().encode(),
    )


@functools.cache
def report_sha256() -> str:
    """Return a hash of everything a page depends on besides the document and the results' references."""
    hashed = hashlib.sha256("\n".join(map(version, PACKAGES)).encode())
    for path in (
        *sorted(places.PACKAGE.rglob("*.py")),
        *sorted(TEMPLATES.rglob("*.j2")),
        *sorted(places.PACKAGE.rglob("*.yml")),
    ):
        hashed.update(f"{path}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()
