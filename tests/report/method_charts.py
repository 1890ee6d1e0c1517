# SPDX-License-Identifier: Apache-2.0
"""The charts of the method pages, drawn from runs: ``python -m tests.report.method_charts RUN...``.

Each kind's chart comes from the first run that has something to draw. What no run has, such as a matrix of nodes on a
machine of one, comes from the tests' synthetic server, and its caption says so.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from calibration.base.places import SHARE
from calibration.charts.base import Chart
from calibration.measurements import registry
from calibration.report.page_charts import Charts
from calibration.report.pictures import keep
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.machines import Machine
from tests.report.made_counts import counted_document
from tests.report.made_lab import server_document

PAGES = SHARE / "docs" / "method"
FOLDER = SHARE / "docs" / "_static" / "method"
SERVER = Machine(cpus=128, cpu_nodes=8, memory_only_nodes=0, lines=400, threads=1)
MADE = "Synthetic data: 2 x 64 cores, 8 nodes."
COUNTS = "Hardware counts are synthetic."
FIGURE = re.compile(r"\.\. figure:: \.\./_static/method/.*?\n\n(?=\S)", re.DOTALL)


def drawn(document: RunDocument, kind: str) -> Iterator[tuple[dict[str, str], Chart]]:
    """Yield the first chart of *kind* that *document* has, if any, with its files by name."""
    for chart in Charts(document).drawn(kind):
        files: dict[str, str] = {}
        stem = keep(files, chart).path.removesuffix(".svg")
        renamed = {name.replace(stem, kind): text for name, text in files.items()}
        yield renamed, chart
        return


def main(paths: list[str]) -> None:
    """Write the charts and their figures on the pages."""
    documents = [(read_run(Path(path)), "") for path in paths]
    documents += [(server_document(SERVER), MADE), (counted_document(), COUNTS)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in registry():
        page = PAGES / f"{kind}.rst"
        text = FIGURE.sub("", page.read_text(encoding="utf-8"))
        for document, note in documents:
            if chart := next(drawn(document, kind), None):
                files, found = chart
                for name, content in files.items():
                    (FOLDER / name).write_text(content, encoding="utf-8")
                path = f"../_static/method/{kind}.svg"
                head = f".. figure:: {path}\n   :alt: {found.alt}\n   :figclass: {found.style}"
                figure = f"{head}\n\n   {found.caption} {note}".rstrip()
                text = text.replace("\nWhat runs\n---------", f"\n{figure}\n\nWhat runs\n---------", 1)
                break
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
