# SPDX-License-Identifier: Apache-2.0
"""Page of an imported document: the sections of the published pages, without uncertainties."""

from typing import Any, Final

from calibration.base.model import format_time
from calibration.formats.readings import INCONSISTENCIES
from calibration.measurements import registry
from calibration.report.blocks import Blocks
from calibration.report.environment import Fact, blocks_of, kind_modules
from calibration.report.page_charts import Charts
from calibration.report.sections import SECTIONS
from calibration.results.model import Imported, RunDocument, public_readings

FORMATS: Final = {
    "csit_page": "published calibration page",
    "mlc": "raw output of Intel MLC",
    "pma_jitter": "raw output of PMA jitter",
    "mess": "curves of Mess",
}


def imported_page(document: RunDocument, imported: Imported, digest: str, charts: Charts) -> Blocks:
    """Return the page of *document* with the given *digest*; *charts* collects its charts."""
    modules = kind_modules()
    sections: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
    for section, parts in sections.items():
        for kind in (kind for kind in modules if modules[kind].section == section):
            if found := [reading for reading in public_readings(document) if reading.values.kind == kind]:
                drawn = [chart for reading in found if (chart := charts.read(reading)) is not None]
                parts.append({"title": registry()[kind].title, "charts": drawn, "readings": found})
    return blocks_of(
        "imported",
        document=document,
        run=document.run,
        imported=imported,
        digest=digest,
        meanings=INCONSISTENCIES,
        lines=[
            {"metric": metric, "instrument": reading.instrument}
            for reading in public_readings(document)
            for metric in reading.values.metrics()
        ],
        provenance=[
            Fact("Imported", format_time(document.run.started_at)),
            Fact("Measured on", None if imported.measured_on is None else imported.measured_on.isoformat()),
            Fact("Recognised as", FORMATS[imported.format]),
            Fact("File", imported.source),
            Fact("Kept as", f"{imported.text}, in the directory of {document.run.id}"),
            Fact("Its sha256", imported.sha256),
            Fact("Harness", f"version {document.run.harness_version}"),
            Fact("Isolated CPUs (isolcpus)", imported.isolcpus),
        ],
        sections=sections.items(),
    )
