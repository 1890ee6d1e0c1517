# SPDX-License-Identifier: Apache-2.0
"""The page of an imported document: the sections of the published pages, with figures of unknown uncertainty."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibration.measurements import registry
from calibration.measurements.base import Metric
from calibration.model import format_time
from calibration.report.charts.base import Chart
from calibration.report.environment import Fact, environment, kind_module
from calibration.report.page_charts import Charts
from calibration.report.sections import SECTIONS
from calibration.results.model import Imported, RunDocument
from calibration.results.readings import INCONSISTENCIES, Reading

FORMATS: Final = {
    "csit_page": "published calibration page",
    "mlc": "raw output of Intel MLC",
    "pma_jitter": "raw output of PMA jitter",
}


@dataclass(frozen=True)
class ReadPart:
    """The readings of one kind."""

    title: str
    charts: tuple[Chart, ...]
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class ReadLine:
    """One line of the summary."""

    metric: Metric
    instrument: str


def render_imported(document: RunDocument, imported: Imported, raw: bytes, charts: Charts) -> str:
    """Return the text of the page of *document*, which was read from *raw*; its *charts* are drawn."""
    return (
        environment()
        .get_template("imported.rst.j2")
        .render(
            document=document,
            run=document.run,
            imported=imported,
            digest=hashlib.sha256(raw).hexdigest(),
            meanings=INCONSISTENCIES,
            lines=[
                ReadLine(metric, each.instrument)
                for each in document.public_readings
                for metric in each.values.metrics()
            ],
            provenance=[
                Fact("Imported", format_time(imported.imported_at)),
                Fact("Measured on", None if imported.measured_on is None else imported.measured_on.isoformat()),
                Fact("Recognised as", FORMATS[imported.format]),
                Fact("File", imported.source),
                Fact("Kept as", f"{imported.text}, in the directory of {document.run.id}"),
                Fact("Its sha256", imported.sha256),
                Fact("Harness", f"version {document.run.harness_version}"),
                Fact("Isolated CPUs (isolcpus)", imported.isolcpus),
            ],
            sections=[(section, list(_parts(document, section, charts))) for section in SECTIONS],
        )
    )


def _parts(document: RunDocument, section: str, charts: Charts) -> Iterator[ReadPart]:
    modules = {kind: kind_module(kind) for kind in registry()}
    for kind in sorted(modules, key=lambda each: (modules[each].position, each)):
        found = [each for each in document.public_readings if each.values.kind == kind]
        if found and modules[kind].section == section:
            yield ReadPart(
                title=registry()[kind].title,
                charts=tuple(chart for each in found if (chart := charts.read(each)) is not None),
                readings=tuple(found),
            )
