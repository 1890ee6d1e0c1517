# SPDX-License-Identifier: Apache-2.0
"""The charts of the method pages: ``python -m tests.report.method_charts`` writes those that differ.

Each kind's chart comes from the first document that has something to draw: the example run, then recorded and made
ones. The caption of a chart of made values says so.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from calibration.base.places import SHARE
from calibration.charts.base import Chart
from calibration.measurements import registry
from calibration.report.page_charts import Charts
from calibration.report.pictures import keep
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.report.made_counts import counted_document
from tests.report.made_curves import curves_document
from tests.report.made_lab import TIERED, server_document
from tests.report.report_documents import run_document

PAGES = SHARE / "docs" / "method"
FOLDER = SHARE / "docs" / "_static" / "method"
FIGURE = re.compile(r"\.\. figure:: \.\./_static/method/.*?\n\n(?=\S)", re.DOTALL)
AFTER = "\nWhat runs\n---------"


def documents() -> Iterator[tuple[RunDocument, str]]:
    """Yield documents, each with the note for the captions of its charts."""
    yield curves_document(), "Synthetic data: two nodes with DDR, and their link."
    yield read_run(SHARE / "results" / "example" / "run.json"), ""
    yield run_document(names=("prefetcher_effect",)), ""
    yield server_document(), "Synthetic data: 2 x 64 cores, 8 nodes."
    yield server_document(TIERED), "Synthetic data: the memory-only node has 30 % of the bandwidth."
    yield counted_document(), "Hardware counts are synthetic."


def drawn(kind: str, found: list[tuple[RunDocument, str]]) -> tuple[Chart, str] | None:
    """Return the first chart of *kind* in *found*, and its note; other kinds are left out of it."""
    for document, note in found:
        alone = [item for item in document.measurements if item.kind == kind]
        charts = Charts(document.model_copy(update={"measurements": tuple(alone)}))
        if chart := next(charts.drawn(kind), None):
            return chart, note
    return None


def written() -> Iterator[tuple[Path, str]]:
    """Yield the pages of all kinds and the files of their charts."""
    found = list(documents())
    for kind in registry():
        page = PAGES / f"{kind}.rst"
        text = FIGURE.sub("", page.read_text(encoding="utf-8"))
        if first := drawn(kind, found):
            chart, note = first
            files: dict[str, str] = {}
            stem = keep(files, chart).path.removesuffix(".svg")
            yield from ((FOLDER / name.replace(stem, kind), content) for name, content in files.items())
            head = f".. figure:: ../_static/method/{kind}.svg\n   :alt: {chart.alt}\n   :figclass: {chart.style}"
            text = text.replace(AFTER, f"\n{head}\n\n   {f'{chart.caption} {note}'.rstrip()}\n{AFTER}", 1)
        yield page, text


if __name__ == "__main__":
    for path, text in written():
        path.write_text(text, encoding="utf-8")
