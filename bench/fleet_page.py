# SPDX-License-Identifier: Apache-2.0
"""Writes the published cost of a fleet: the tables of docs/development/benchmarks.rst, from a real run.

``python bench/fleet_page.py`` renews the page from bench/fleet.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.page import PAGE, between, renew, table

DOCUMENT = Path(__file__).parent / "fleet.json"
BEGIN = ".. The tables below are written by bench/fleet_page.py."

COLUMNS: Mapping[str, str] = {
    "suts": "SUTs",
    "wall_s": "Wall time, s",
    "controller_cpu_s_per_sut": "CPU per SUT, s",
    "controller_peak_rss_mib": "Memory, MiB",
    "processes_at_peak": "Processes",
    "plain_ansible_cpu_s_per_sut": "By hand, CPU per SUT, s",
    "plain_ansible_wall_s": "By hand, wall time, s",
    "site_cpu_s_per_sut": "Site, CPU per SUT, s",
}

TITLES: Mapping[str, str] = {
    "controller_cpu_s_per_sut": "CPU seconds of the controller per SUT",
    "controller_peak_rss_mib": "Peak memory of the controller, MiB",
}


def _cell(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.2f}" if isinstance(value, float) and value < 100 else f"{value:.0f}"


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst."""
    machine = document["machine"]
    rows = [[_cell(each.get(name)) for name in COLUMNS] for each in document["fleets"]]
    about = f"Profile {document['profile']}, {document['steps']} steps, {document['forks']} forks"
    lines = [f"{about}, on {machine['cpus']} CPUs that the SUTs shared:", ""]
    lines += [*table(tuple(COLUMNS.values()), rows), ""]
    targets = [
        (
            TITLES[name],
            f"≤ {each['limit']:g}",
            _cell(document[name]),
            {True: "met", False: "missed", None: "not judged"}[each["met"]],
        )
        for name, each in document["targets"].items()
    ]
    lines += [*table((f"At {document['suts']} SUTs", "Target", "Found", ""), targets), ""]
    return "\n".join(lines)


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
