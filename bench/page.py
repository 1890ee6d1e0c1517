# SPDX-License-Identifier: Apache-2.0
"""Writes the published comparison with other tools, in docs/development/benchmarks.rst, from one real run.

``python bench/page.py`` renews the page from bench/peers.json. A test holds page and document together, so that a
figure of the page is always one that was measured. Figures of Intel MLC stay out: its licence restricts publishing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parent / "peers.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "benchmarks.rst"
"""The page of all benchmarks; each has its own lines on it, after its ``BEGIN``."""

BEGIN = ".. The tables below are written by bench/page.py."
END = ".. Here end the tables."

TITLES: Mapping[str, str] = {
    "read": "Read bandwidth",
    "write_nt": "Non-temporal write",
    "copy_bus": "Copy, bytes on the bus",
    "triad": "Triad, program bytes",
    "latency": "Random latency, huge pages",
    "latency_time": "Time for one latency",
    "gap_step_ns": "Finest interruption told",
    "latency_base_pages": "Random latency, base pages",
    "latency_half_width": "Half-width of ours",
    "gap_coverage": "Time observed for gaps",
    "interruptions_per_s": "Interruptions above 2 µs",
    "l1_cycles": "L1 load to use",
    "c2c": "Line from another core",
}


def figure(value: float | None) -> str:
    """Return a figure with as many digits as a reader can use."""
    if value is None:
        return "—"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an rst table with simple borders, columns as wide as they need."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    border = "  ".join("=" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return [border, line(head), border, *(line(row) for row in rows), border]


def _ratio(entry: Mapping[str, Any]) -> str:
    if entry["median_ratio"] is None:
        return "—"
    return f"{entry['median_ratio']:.3g} [{entry['spread'][0]:.3g}, {entry['spread'][1]:.3g}]"


def _public(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all quantities; where Intel MLC was the best peer the row says only that."""
    entries = {**document["ratios"], **document["also"]}
    hidden = {"best_peer": None, "median_ratio": None, "spread": None, "met": None, "peer": "mlc, not published"}
    return {name: entry | hidden if str(entry["peer"]).startswith("mlc") else entry for name, entry in entries.items()}


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst."""
    machine = document["machine"]
    guest = {True: ", virtual machine", False: "", None: ""}[machine["guest"]]
    entries = _public(document)
    rows, misses, unmeasured = [], [], []
    for name, entry in entries.items():
        if entry["ours"] is None:
            unmeasured.append(f"* {TITLES[name]}: {entry['reason']}.")
            continue
        unit = "" if entry["unit"] == "1" else f", {entry['unit']}"
        verdict = {True: "met", False: "missed", None: "—"}[entry["met"]]
        theirs = figure(entry["best_peer"])
        peer, target = entry["peer"] or "—", entry["target"] or "—"
        rows.append((TITLES[name] + unit, figure(entry["ours"]), theirs, peer, _ratio(entry), target, verdict))
        if entry["met"] is False:
            misses.append(TITLES[name])
    size = f"{machine['working_set_bytes'] / 2**20:.0f} MiB over all threads, {document['alternations']} alternations"
    about = f"{machine['processor']}, {len(machine['cpus'])} CPUs{guest}, Linux {machine['kernel']}; {size}:"
    lines = [about, ""]
    lines += [*table(("Quantity", "Ours", "Best peer", "Which", "Ratio", "Target", ""), rows), ""]
    lines += [
        f"Missed on this machine: {', '.join(misses)}." if misses else "No target was missed on this machine.",
        "",
    ]
    if unmeasured:
        lines += ["Not measured in this run:", "", *unmeasured, ""]
    return "\n".join(lines)


def between(page: str, tables: str, begin: str) -> str:
    """Return *page* with *tables* between the lines *begin* and ``END``. Raises ``ValueError`` where it lost them."""
    before, found, rest = page.partition(begin)
    _old, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"expected the lines {begin!r} and {END!r} in the page")
    return f"{before}{begin}\n\n{tables}\n{END}{after}"


def renew(page: Path, document: Path, renewed: Callable[[str, Mapping[str, Any]], str]) -> None:
    """Write *page* as *renewed* makes it of its text and the *document*, a file of JSON."""
    page.write_text(renewed(page.read_text(encoding="utf-8"), json.loads(document.read_bytes())), encoding="utf-8")


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
