# SPDX-License-Identifier: Apache-2.0
"""Pages against their run documents: tables and blocks are formatted here a second time, without the templates."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import median
from typing import Any

import pytest
from docutils import nodes

from calibration.base import units
from calibration.base.statistics import MIN_COVERAGE
from calibration.context.loader import load
from calibration.measurements import declaration, row_of
from calibration.measurements.base import Metric
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.report.sections import MAX_ALIKE
from calibration.results.model import RunDocument
from tests.recorded import read, read_whole
from tests.report.made_counts import counted_document
from tests.report.report_documents import (
    FIXTURES,
    MACHINE,
    as_bytes,
    page_of,
    parsed,
    parsed_measurements,
    run_document,
    with_nodes,
)

Json = dict[str, Any]


def chosen_document() -> RunDocument:
    """Return a run whose loaded latency has delays that were chosen for shares of the load's bandwidth."""
    name = "chosen-delays/loaded_latency"
    context = load(FIXTURES / "context" / f"{MACHINE}.tar.gz")
    measured = parsed_measurements("loaded_latency", read_whole(name, read(name)), context)
    return run_document(names=("loaded_latency",)).model_copy(update={"measurements": tuple(measured)})


DOCUMENTS = {
    "every-kind": run_document,
    "two-nodes": lambda: with_nodes(run_document(), 2),
    "eight-nodes": lambda: with_nodes(run_document(names=("latency_matrix", "bandwidth_matrix", "c2c_latency")), 8),
    "counters": counted_document,
    "chosen-delays": chosen_document,
}

SCALES = {
    "ns": ("ns", 1.0), "µs": ("ns", 1e3), "ms": ("ns", 1e6), "s": ("ns", 1e9), "MHz": ("Hz", 1e6), "GHz": ("Hz", 1e9),
    "MB/s": ("MB/s", 1.0), "GB/s": ("MB/s", 1e3), "%": ("fraction", 0.01),
    "per second": ("per hour", 3600.0), "per minute": ("per hour", 60.0),
}  # fmt: skip
"""What a unit on a page is of which unit of the document."""


@cache
def page(name: str) -> tuple[RunDocument, nodes.document]:
    document = DOCUMENTS[name]()
    return document, parsed(page_of(document))


def tables(tree: nodes.document) -> Iterator[tuple[str | None, list[list[str]]]]:
    """Yield each table, heading first, with the command of the measurement whose section it is in."""
    command = None
    for node in tree.findall(lambda item: isinstance(item, nodes.table | nodes.literal_block)):
        if isinstance(node, nodes.literal_block):
            first = node.astext().split("\n")[0]
            command = first if first.startswith("$ ") else command
        else:
            yield command, [[cell.astext() for cell in row.findall(nodes.entry)] for row in node.findall(nodes.row)]


def is_close(text: str, value: float) -> bool:
    """Tell whether *text* is *value* rounded to its decimals, with at least two digits."""
    decimals = len(text.partition(".")[2])
    digits = len(text.replace(".", "").lstrip("-0"))
    return abs(float(text) - value) <= 0.5001 * 10**-decimals and (digits >= 2 or value == float(text))


def shows(text: str, value: float, unit: str) -> bool:
    """Tell whether *text*, a number and a unit, is *value* in *unit*."""
    number, shown = text.split(" ", 1)
    of, scale = SCALES.get(shown, (shown, 1.0))
    if (unit, shown) == ("s", "s"):
        of, scale = "s", 1.0
    return of == unit and is_close(number, value / scale)


# The summary


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_have_every_metric_with_unit_and_half_width(name: str) -> None:
    document, tree = page(name)
    metrics = [
        metric
        for measurement in document.measurements
        for metric in declaration(measurement.kind).metrics(measurement.values)
    ]
    rows = [row for _, table in tables(tree) if table[0] == ["Metric", "Value", "±", "Trust"] for row in table[1:]]
    assert rows
    places = Counter(row_of(metric.name).quantity(metric.name) for metric in metrics)
    shown = {row[0].removesuffix(", cross-check") for row in rows}
    for metric in metrics:
        many = places[row_of(metric.name).quantity(metric.name)] > MAX_ALIKE
        assert many or metric.title in shown or metric.name.startswith("max_bandwidth."), metric
    for title, value, plus_minus, _ in rows:
        of = re.sub(r" \((?:(?:lowest|highest) of|the same on all) \d+\)$", "", title.removesuffix(", cross-check"))
        found = [metric for metric in metrics if metric.title == of and shows(value, metric.value, metric.unit)]
        assert found, (title, value)
        assert plus_minus in {half_width(item) for item in found}, title


def half_width(metric: Metric) -> str:
    """Return the half-width of the interval of *metric* as the tables print it."""
    if metric.interval is None or not metric.value:
        return "-"
    percent = (metric.interval[1] - metric.interval[0]) / 2 / abs(metric.value) * 100
    if percent > 100:
        return units.plus_minus(metric) or ""  # the ends: test_filters.py has known answers
    digits = max(0, 1 - math.floor(math.log10(percent))) if percent >= 0.05 else 0
    text = f"±{percent:.{digits}f} %" if percent >= 0.05 else "±<0.1 %"
    low = metric.coverage is not None and metric.coverage < MIN_COVERAGE
    return f"{text} ({metric.coverage:.0%} coverage)".replace("% c", " % c") if low else text


def test_a_chosen_delay_is_named_by_its_share() -> None:
    document, tree = page("chosen-delays")
    (values,) = (measurement["values"] for measurement in json.loads(as_bytes(document))["measurements"])
    named = [
        str(point["inject_delay"]) + ("" if point["share"] is None else f" ({100 * point['share']:.0f} % of full load)")
        for point in values["points"]
    ]
    assert len([text for text in named if text.endswith("% of full load)")]) == 4
    first_cells = [[row[0] for row in rows[1:]] for _, rows in tables(tree)]
    assert named in first_cells


# Tables of estimates


def found(value: object) -> Iterator[Json]:
    """Yield all estimates in the JSON of a measurement's values."""
    if isinstance(value, dict):
        if "estimator" in value and "samples" in value:
            yield value
        else:
            for item in value.values():
                yield from found(item)
    elif isinstance(value, list):
        for item in value:
            yield from found(item)


def is_row_of(row: dict[str, str], estimate: Json, unit: str) -> bool:
    """Tell whether the cells of *row*, by their titles, are *estimate*, with its extremes from its samples."""
    of, scale = ("s", 1.0) if unit == estimate["unit"] == "s" else SCALES.get(unit, (unit, 1.0))
    if of != estimate["unit"]:
        return False
    flat = [sample / scale for placement in estimate["samples"] for sample in placement]
    value, counts = row[f"Median, {unit}"], f"{len(estimate['samples'])} / {len(flat)}"
    cells = [
        is_close(value, estimate["value"] / scale),
        is_range(row["Minimum to maximum"], (min(flat), max(flat))),
        row["Target met"] == {True: "yes", False: "no", None: "-"}[estimate["converged"]],
    ]
    interval = row.get("Interval (coverage)")
    if interval is None:
        interval = row["Confidence interval (coverage)"]
        prediction = estimate["prediction"]
        cells.append(row["Rounds / placements / windows"] == f"{len(set(estimate['rounds'])) or '-'} / {counts}")
        cells.append(is_range(row["Prediction, next run"], prediction and [end / scale for end in prediction]))
    else:
        cells.append(row["Placements / windows"] == counts)
        if len(estimate["samples"]) > 1:
            cells.append(is_close(value, median(median(sample) for sample in estimate["samples"]) / scale))
    if estimate["interval"] is None:
        return all(cells) and (row[f"Half-width, {unit}"], interval) == ("-", "-")
    bounds, coverage = re.fullmatch(r"(.*) \(([\d.]+) %\)", interval).groups()  # type: ignore[union-attr]
    ends = [end / scale for end in estimate["interval"]]
    cells += [is_range(bounds, ends), is_close(coverage, 100 * estimate["coverage"])]
    return all(cells) and is_close(row[f"Half-width, {unit}"], (ends[1] - ends[0]) / 2)


def is_range(text: str, ends: Sequence[float] | None) -> bool:
    """Tell whether *text* is the range between *ends*, or the mark for a missing one."""
    if ends is None:
        return text == "-"
    return all(is_close(shown, end) for shown, end in zip(text.split(" to "), ends, strict=True))


def named(measurement: Json) -> dict[str, Json]:
    """Return the estimates of some kinds by the names that their rows must have."""
    values, kind = measurement["values"], measurement["kind"]
    if kind in {"latency_matrix", "bandwidth_matrix"}:
        column = "latency_ns" if kind == "latency_matrix" else "bandwidth_mb_s"
        return {
            f"CPUs of node {row['cpu_node']}, memory of node {row['memory_node']}": row[column]
            for row in values["table"]["rows"]
            if row[column] is not None
        }
    if kind in {"max_bandwidth", "peak_injection_bandwidth"}:
        return {name: mix["bandwidth_mb_s"] for name, mix in values["mixes"].items()}
    if kind == "bandwidth_scaling":
        return {
            f"{row['threads']} thread{'s' * (row['threads'] > 1)} on {row['group']}": row["bandwidth_mb_s"]
            for row in values["table"]["rows"]
        }
    if kind == "c2c_latency":
        return {
            f"local {row['transfer'].removeprefix('local_').upper()}": row["latency_ns"]
            for row in values["table"]["rows"]
            if row["transfer"].startswith("local_")
        }
    if kind == "idle_latency":
        return {f"CPU {values['cpu']}, memory of node {values['node']}": values["latency_ns"]}
    return {}


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "eight-nodes"])  # shown as half-widths
def test_every_row_of_estimates_matches_the_document(name: str) -> None:
    document, tree = page(name)
    measurements = json.loads(as_bytes(document))["measurements"]
    by_command: dict[str, list[Json]] = {}
    for measurement in measurements:
        by_command.setdefault("$ " + shlex.join(measurement["argv"]), []).append(measurement)
    seen: set[tuple[str, str]] = set()
    for command, table in tables(tree):
        heading, *rows = table
        if command not in by_command or heading[0] != "Metric" or not heading[1].startswith("Median, "):
            continue
        unit = heading[1].removeprefix("Median, ")
        for title, *cells in rows:
            candidates = [item for measurement in by_command[command] for item in found(measurement["values"])]
            for measurement in by_command[command]:
                candidates = [named(measurement)[title]] if title in named(measurement) else candidates
                seen.add((measurement["id"], title))
            row = dict(zip(heading[1:], cells, strict=True))
            assert any(is_row_of(row, candidate, unit) for candidate in candidates), (command, title, cells)
    for measurement in measurements:
        assert {(measurement["id"], title) for title in named(measurement)} <= seen


def test_a_table_of_rounds_has_predictions_and_names_the_largest_spread() -> None:
    document, tree = page("every-kind")
    (values,) = (item.values for item in document.measurements if item.kind == "loaded_latency")
    assert isinstance(values, LoadedLatencyValues)
    (found,) = (rows for _, rows in tables(tree) if rows[0][0] == "Delay")
    pairs = [(point, probe) for point in values.points for probe in point.probes]
    for cells, (point, probe) in zip(found[1:], pairs, strict=True):
        estimate = probe.latency_ns
        named = list(zip(found[0], cells, strict=True))
        latency, bandwidth = (text for title, text in named if title == "Prediction, next run")
        assert is_range(latency, estimate.prediction)
        assert is_range(bandwidth, point.bandwidth_mb_s.prediction)
        row = dict(named)
        counts = f"{len(set(estimate.rounds))} / {estimate.placements} / {estimate.windows}"
        assert row["Rounds / placements / windows"] == counts
        assert estimate.largest_spread is not None
        spreads = row["Spread of rounds / placements / windows (largest)"]
        level, spread = estimate.largest_spread
        *_, largest = re.fullmatch(r"(.+) / (.+) / (.+) \((\w+)\)", spreads).groups()  # type: ignore[union-attr]
        assert largest == level
        shown = spreads.split(" / ")[("rounds", "placements", "windows").index(level)]
        assert is_close(shown.split(" ")[0], 100 * spread)
