# SPDX-License-Identifier: Apache-2.0
"""The page that lists what is read of pages with the faults of published ones is what the importer reads of them.

``CALIBRATION_BLESS=1`` writes the page anew, to be reviewed before it is committed.
"""

import os
from pathlib import Path

from calibration.formats.csit_page import read_published
from calibration.report.environment import tidy
from calibration.report.filters import inline
from calibration.results.imports import shared_figures
from tests.readings import PAGES, figures

PAGE = Path(__file__).resolve().parents[2] / "docs" / "development" / "published_pages.rst"

HEAD = """\
.. SPDX-License-Identifier: Apache-2.0

What was read of published pages
================================

FD.io CSIT publishes calibration pages that were put together by hand. The pages in ``tests/fixtures/pages`` are
composed with the same structure and the same kinds of faults; the table is what ``calibration import`` reads of them,
and a test holds the two equal. Every number that stands below a heading of a result is a value, and stands on the page
of the import (``tests/report/test_imported_page.py``). Where the published pages are beside the checkout, in
``../shared/reference/csit-pages`` or where ``CALIBRATION_PUBLISHED_PAGES`` says, a test finds the same kinds of faults
in them.

.. list-table::
   :header-rows: 1
   :widths: 16 14 30 40

   * - Page
     - Machine
     - Values
     - Inconsistencies
"""


def text() -> str:
    pages = [(path.name, read_published(path.read_text(encoding="utf-8"))) for path in PAGES]
    found = HEAD
    for (name, page), shared in zip(pages, shared_figures(pages), strict=True):
        kinds = ", ".join(each.values.kind for each in page.read.readings)
        gone = [each for each in page.read.not_read if "TBC" in each.reason]
        absent = len(page.read.not_read) - len(gone)
        values = f"{len(figures(page.read))} in {len(page.read.readings)} results: {kinds}."
        values += f" {len(gone)} say TBC." if gone else ""
        values += f" {absent} of 8 are not on the page." if absent else ""
        found += f"   * - ``{name}``\n     - {inline(page.title)}, {inline(page.sut)}\n     - {inline(values)}\n"
        faults = [*page.read.inconsistencies, *shared]
        lines = dict.fromkeys(f"{inline(each.code)}: {inline(each.reason)}" for each in faults)
        for place, line in enumerate(lines):
            found += f"     {'- ' if place == 0 else '  '}* {line}\n"
    return tidy(found)


def test_the_table_is_what_the_importer_reads() -> None:
    if os.environ.get("CALIBRATION_BLESS") == "1":
        PAGE.write_text(text(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text()
