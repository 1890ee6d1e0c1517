# SPDX-License-Identifier: Apache-2.0
"""Writes the published comparison: the tables of docs/development/peers.rst, from the document of one real run.

``python bench/page.py`` renews the page from bench/peers.json. A test holds page and document together, so that a
figure of the page is always one that was measured. Figures of Intel MLC stay out: its licence restricts publishing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parent / "peers.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "peers.rst"
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
    cache = machine["last_level_cache_bytes"]
    described = [
        ("Processor", f"{machine['processor']}, family {machine['family']}, model {machine['model']}"),
        ("CPUs used", f"{len(machine['cpus'])}, {machine['threads_per_core']} per core, {machine['nodes']} node(s)"),
        ("Last-level cache", f"{cache / 2**20:.0f} MiB as the kernel reports it" if cache else "not reported"),
        ("Memory", f"{machine['memory_bytes'] / 2**30:.1f} GiB"),
        ("Virtual machine", {True: "yes", False: "no", None: "unknown"}[machine["guest"]]),
        ("Kernel", str(machine["kernel"])),
        ("Transparent huge pages", str(machine["transparent_hugepages"])),
        ("Working set", f"{machine['working_set_bytes'] / 2**20:.0f} MiB over all threads and arrays"),
        ("Alternations", str(document["alternations"])),
    ]
    entries = _public(document)
    rows, misses, peer_rows, unmeasured = [], [], [], []
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
        for label, each in entry["peers"].items():
            if each["tool"] == "mlc":
                continue
            low, high = each["ratio"]["spread"]
            ratio = f"{each['ratio']['value']:.3g} [{low:.3g}, {high:.3g}]"
            peer_rows.append((TITLES[name] + unit, label, figure(each["figure"]["value"]), ratio))
    lines = [*table(("The machine", ""), described), ""]
    lines += [*table(("Quantity", "Ours", "Best peer", "Which", "Ratio", "Target", ""), rows), ""]
    lines += [
        f"Missed on this machine: {', '.join(misses)}." if misses else "No target was missed on this machine.",
        "",
    ]
    if unmeasured:
        lines += ["Not measured in this run:", "", *unmeasured, ""]
    lines += ["Every peer that ran, ratio ours to theirs:", ""]
    lines += [*table(("Quantity", "Peer", "Its figure", "Ratio"), peer_rows), ""]
    law = [
        (
            f"{row['buffer_bytes'] / 1024:.0f} KiB",
            f"{row['hit_share']:.2f}",
            figure(row["one_node_per_line_ns"]),
            figure(row["four_nodes_per_line_ns"]),
            figure(row["predicted_ns"]),
        )
        for row in document["cache_hit_law"]
    ]
    if law:
        head = ("Buffer", "Hits by the law", "Ours, ns", "sc-membench, ns", "Predicted for it, ns")
        lines += [
            "Latency by size, and what the cache-hit law makes of four nodes in a line:",
            "",
            *table(head, law),
            "",
        ]
    absent = [f"* {each['peer']}: {each['reason']}." for each in document["not_compared"]]
    if absent:
        lines += ["Not compared:", "", *absent, ""]
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
