# SPDX-License-Identifier: Apache-2.0
"""Writes the published comparison of methods: the tables of docs/development/drift.rst, from the document of a run.

``python bench/drift_page.py`` renews the page from bench/drift.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.page import between, renew, table

DOCUMENT = Path(__file__).parent / "drift.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "drift.rst"
BEGIN = ".. The tables below are written by bench/drift_page.py."


def percent(share: Mapping[str, Any]) -> str:
    """Return a share with its interval, in percent."""
    low, high = share["interval"]
    return f"{share['share']:.1%} [{low:.1%}, {high:.1%}]".replace("%", "")


def _plain(share: Mapping[str, Any]) -> str:
    return f"{100.0 * share['share']:.0f}"


def _factor(factor: float) -> str:
    return "threefold" if factor > 1.0 else "a third"


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst."""
    machine, taken = document["machine"], document["time"]
    first, *others = (str(after) for after in document["after"])
    described = [
        ("CPUs, Python, NumPy", f"{machine['cpus']}, {machine['python']}, {machine['numpy']}"),
        *((name, found) for name, found in document["versions"].items()),
        (
            f"This project, {taken['series']} series of {taken['nights']} nights",
            f"{taken['wall_s']:.1f} s, {taken['cpu_s']:.1f} s of CPU time",
        ),
    ]
    rows = [
        (
            noise,
            method,
            *(percent(each["found"][after]) for after in (first, *others)),
            "{:.2f} [{:.2f}, {:.2f}]".format(each["false"]["per_1000"], *each["false"]["interval"]),
            "—" if each["date_exact"] is None else f"{100.0 * each['date_exact']:.0f}",
            "—" if each["date_error_nights"] is None else f"{each['date_error_nights']:.0f}",
            f"{each['ms_per_series']:.3g}",
        )
        for noise, methods in document["noises"].items()
        for method, each in methods.items()
    ]
    heads = (
        "Noise",
        "Method",
        f"Found, after {first} nights, %",
        *(f"after {after}, %" for after in others),
        "False alarms per 1000 nights",
        "Date exact, %",
        "Median error, nights",
        "ms per year",
    )
    lines = [*table(("The run", ""), described), "", *table(heads, rows), ""]
    lines += [f"* Not compared: {name}, because {reason}." for name, reason in document["not_compared"].items()]
    lines += ["", "Shifts of other sizes, normal noise: found within so many nights, %:", ""]
    sizes = [
        (str(each["after"]), f"{each['size']:g} sd", *(_plain(share) for share in each["within"].values()))
        for each in document["sizes"]
    ]
    lines += [*table(("Nights before", "Shift", "3", "7", "14", "30"), sizes), ""]
    lines += ["The 95 % interval of the size of a shift of 3 sd has the true size, %:", ""]
    coverage = [(each["noise"], str(each["nights"]), percent(each["inside"])) for each in document["coverage"]]
    lines += [*table(("Noise", "Nights after it", "Covered"), coverage), ""]
    lines += ["A standard deviation that changed after 90 nights: found within so many nights, %:", ""]
    spread = [
        (each["noise"], _factor(each["factor"]), *(_plain(share) for share in each["within"].values()))
        for each in document["spread"]
    ]
    lines += [*table(("Noise", "Change", "10", "15", "20", "30"), spread), ""]
    lines += ["Flips between two levels reported, of series with so many nights of the same, %:", ""]
    flips = [(each["noise"], *(percent(share) for share in each["within"].values())) for each in document["flips"]]
    lines += [*table(("Noise", "20", "30", "60", "90"), flips), ""]
    lines += ["A level that rises over 30 nights, normal noise: found within so many nights of the beginning, %:", ""]
    ramps = [
        (f"{each['total']:g} sd", *(_plain(share) for share in each["within"].values())) for each in document["ramps"]
    ]
    lines += [*table(("In total", "15", "30", "60"), ramps), ""]
    return "\n".join(lines)


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
