# SPDX-License-Identifier: Apache-2.0
"""Writes the published measurement of the drift check: the tables of docs/development/drift.rst.

``python bench/drift_page.py`` renews the page from bench/drift.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.special import betaincinv, gammaincinv

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.drift import SHIFTS
from bench.page import between, renew, table

DOCUMENT = Path(__file__).parent / "drift.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "drift.rst"
BEGIN = ".. The tables below are written by bench/drift_page.py."


def per_thousand(alarms: int, nights: int) -> str:
    """Return alarms per 1000 metric-nights with the exact Poisson interval, 95 %."""
    low = gammaincinv(alarms, 0.025) if alarms else 0.0
    scale = 1000.0 / nights
    return f"{alarms * scale:.2f} [{low * scale:.2f}, {gammaincinv(alarms + 1, 0.975) * scale:.2f}]"


def percent(hits: int, tries: int) -> str:
    """Return a share with its exact binomial interval (Clopper and Pearson), 95 %, in percent."""
    low = betaincinv(hits, tries - hits + 1, 0.025) if hits else 0.0
    high = betaincinv(hits + 1, tries - hits, 0.975) if hits < tries else 1.0
    return f"{100.0 * hits / tries:.1f} [{100.0 * low:.1f}, {100.0 * high:.1f}]"


def _found(row: Mapping[str, Any], series: int, *after: str) -> list[str]:
    tries = {"shifts": SHIFTS * series, "drifts": series}
    return [percent(row[kind][nights], tries[kind]) for kind in tries for nights in after]


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst."""
    machine, taken, series = document["machine"], document["time"], document["series"]
    described = [
        ("CPUs, Python, NumPy", f"{machine['cpus']}, {machine['python']}, {machine['numpy']}"),
        (
            f"{taken['series']} series of {taken['nights']} nights",
            f"{taken['wall_s']:.1f} s, {taken['cpu_s']:.1f} s of CPU time",
        ),
    ]
    rates = [
        (
            noise,
            per_thousand(row["alarms"], row["nights"]),
            per_thousand(row["t_test_alarms"], row["nights"]),
            *_found(row, series, "60", "120"),
        )
        for noise, row in document["noises"].items()
    ]
    short = [(noise, *_found(row, series, "20", "30")) for noise, row in document["noises"].items()]
    known = [(rho, f"{100.0 * share:.0f}") for rho, share in document["known_noise"].items()]
    coverage = [(row["noise"], str(row["nights"]), percent(row["hits"], row["tries"])) for row in document["coverage"]]
    spread = [
        (
            row["noise"],
            "threefold" if row["factor"] > 1.0 else "a third",
            *(f"{100.0 * hits / row['tries']:.0f}" for hits in row["hits"].values()),
        )
        for row in document["spread"]
    ]
    flips = [
        (row["noise"], *(percent(hits, row["tries"]) for hits in row["hits"].values())) for row in document["flips"]
    ]
    parts = [
        ("", ("The run", ""), described),
        (
            "False alarms per 1000 metric-nights; changes found, %, after so many nights:",
            (
                "Noise",
                "False alarms",
                "of a t test",
                "Shift of 4 sd by the third night, after 60",
                "after 120",
                "Drift of 0.15 sd a night within 14, after 60",
                "after 120",
            ),
            rates,
        ),
        (
            "The same of new series:",
            ("Noise", "Shift, after 20 nights", "after 30", "Drift, after 20", "after 30"),
            short,
        ),
        (
            "Drifts found, %, if level, deviation and autocorrelation were known and only drifts were looked for:",
            ("Autocorrelation", "Found"),
            known,
        ),
        (
            "The 95 % interval of the size of a shift of 4 sd has the true size, %:",
            ("Noise", "Nights after it", "Covered"),
            coverage,
        ),
        (
            "A standard deviation that changed after 90 nights: found within so many nights, %:",
            ("Noise", "Change", "10", "15", "20", "30"),
            spread,
        ),
        (
            "Flips between two levels reported, of series with so many nights of the same, %:",
            ("Noise", "20", "30", "60", "90"),
            flips,
        ),
    ]
    lines: list[str] = []
    for title, head, rows in parts:
        lines += [*([title, ""] if title else []), *table(head, rows), ""]
    return "\n".join(lines)


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
