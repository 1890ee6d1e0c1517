# SPDX-License-Identifier: Apache-2.0
"""Pages against their run documents: tables and blocks are formatted here a second time, without the templates."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import median
from typing import Any

import pytest
from docutils import nodes

from calibration import units
from calibration.context import load
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.traffic_points import Setting
from calibration.report.sections import MAX_FAMILY
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import RunDocument
from calibration.statistics import MIN_COVERAGE
from calibration.sutprobe.document import read_document
from tests.report.made_counts import counted_document
from tests.report.report_documents import (
    FIXTURES,
    MACHINE,
    as_bytes,
    page_of,
    parsed,
    parsed_measurements,
    run_document,
    second_document,
    with_nodes,
    with_rounds,
)

Json = dict[str, Any]
Row = list[str | None]
"""The words of a line; ``None`` stands for any one word."""


def chosen_document() -> RunDocument:
    """Return a run whose loaded latency has delays that were chosen for shares of the load's bandwidth."""
    printed = (FIXTURES / "sutprobe" / "chosen-delays" / "loaded_latency.json").read_text(encoding="utf-8")
    context = load(FIXTURES / "context" / f"{MACHINE}.tar.gz")
    measured = parsed_measurements("loaded_latency", read_document(json.loads(printed)), context)
    return run_document(names=("loaded_latency",)).model_copy(update={"measurements": tuple(measured)})


def rounds_document() -> RunDocument:
    """Return a run that was measured in rounds."""
    document = run_document(
        names=("idle_latency", "loaded_latency", "core_frequency", "latency_matrix", "max_bandwidth")
    )
    measurements = tuple(
        measurement.model_copy(update={"values": with_rounds(measurement.values)})
        for measurement in document.measurements
    )
    return document.model_copy(update={"measurements": measurements, "record": metrics_of_record(measurements)})


DOCUMENTS = {
    "every-kind": run_document,
    "two-nodes": lambda: with_nodes(run_document(), 2),
    "eight-nodes": lambda: with_nodes(run_document(names=("latency_matrix", "bandwidth_matrix", "c2c_latency")), 8),
    "counters": counted_document,
    "chosen-delays": chosen_document,
    "in-rounds": rounds_document,
    "second-instrument": lambda: second_document(names=("idle_latency", "latency_matrix")),
}

SCALES = {
    "ns": ("ns", 1.0),
    "µs": ("ns", 1e3),
    "ms": ("ns", 1e6),
    "s": ("ns", 1e9),
    "MHz": ("Hz", 1e6),
    "GHz": ("Hz", 1e9),
    "MB/s": ("MB/s", 1.0),
    "GB/s": ("MB/s", 1e3),
    "%": ("fraction", 0.01),
}
"""What a unit on a page is of which unit of the document."""

MIXES = {
    "reads": "ALL Reads :",
    "3:1": "3:1 Reads-Writes :",
    "2:1": "2:1 Reads-Writes :",
    "1:1": "1:1 Reads-Writes :",
    "stream_triad": "Stream-triad like:",
}


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


def ns(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


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
    families = Counter(re.sub(r"\d+", "#", metric.name) for metric in metrics)
    shown = {row[0] for row in rows}
    for metric in metrics:
        many = families[re.sub(r"\d+", "#", metric.name)] > MAX_FAMILY
        assert many or metric.title in shown or metric.name.startswith("max_bandwidth."), metric
    for title, value, plus_minus, _ in rows:
        of = re.sub(r" \((?:lowest|highest) of \d+\)$", "", title)
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


# Blocks laid out as other tools print them: the rows that each kind must have


def mixes(decimals: int) -> Callable[[Json], Iterator[Row]]:
    def rows(values: Json) -> Iterator[Row]:
        for name, mix in values["mixes"].items():
            yield [*MIXES.get(name, f"{name} :").split(), f"{mix['bandwidth_mb_s']['value']:.{decimals}f}"]

    return rows


def matrix(field: str) -> Callable[[Json], Iterator[Row]]:
    def rows(values: Json) -> Iterator[Row]:
        yield ["Numa", "node", *map(str, values["memory_nodes"])]
        for node, cells in zip(values["cpu_nodes"], values[field], strict=True):
            yield [str(node), *("-" if cell is None else f"{cell['value']:.1f}" for cell in cells)]

    return rows


def idle(values: Json) -> Iterator[Row]:
    latency_ns = values["latency_ns"]["value"]
    clocks = latency_ns * values["core_hz"] / 1e9
    yield f"Each iteration took {clocks:.1f} core clocks ( {latency_ns:.1f} ns)".split()  # type: ignore[misc]


def loaded(values: Json) -> Iterator[Row]:
    for point in values["points"]:
        latency_ns, bandwidth_mb_s = point["latency_ns"]["value"], point["bandwidth_mb_s"]["value"]
        yield [f"{point['inject_delay']:05d}", f"{latency_ns:.2f}", f"{bandwidth_mb_s:.1f}"]


def scaling(values: Json) -> Iterator[Row]:
    for point in values["points"]:
        threads, total = point["threads"], point["bandwidth_mb_s"]["value"]
        counts = [str(threads), str(point["cores"]), str(len(point["nodes"]))]
        yield [*counts, f"{total:.1f}", f"{total / threads:.1f}"]


def ladder(values: Json) -> Iterator[Row]:
    by_size: dict[int, Json] = {}
    for point in values["points"]:
        by_size.setdefault(point["size_bytes"], {})[point["mix"]] = point
    for size, points in by_size.items():
        names = " = ".join(next(iter(points.values()))["names"]).split()
        yield [str(size), *names, *(f"{point['program_mb_s']['value']:.1f}" for point in points.values())]


def shapes(values: Json) -> Iterator[Row]:
    rows: dict[tuple[int, int], list[str]] = {}
    for item in values["tried"]:
        setting = item["setting"]
        if Setting.model_validate(setting).shape.extras:
            continue  # a table of its own
        figure = f"{item['bandwidth_mb_s']['value']:.1f}"
        rows.setdefault((setting["streams"], setting["prefetch_bytes"]), []).append(figure)
    for (streams, prefetch), figures in rows.items():
        yield [str(streams), str(prefetch), *figures]
    for item in values["cached"]:
        setting, figure = item["setting"], f"{item['bandwidth_mb_s']['value']:.1f}"
        yield [item["threads"], f"L{item['level']}", str(setting["buffer_bytes"]), str(setting["streams"]), figure]


def regulated(values: Json) -> Iterator[Row]:
    for point in values["points"]:
        counted, chase = point["counted_mb_s"], point["chase_ns"]
        yield [
            str(point["nops"]),
            f"{point['bandwidth_mb_s']['value']:.1f}",
            "-" if counted is None else f"{counted['value']:.1f}",
            "-" if chase is None else f"{chase['value']:.1f}",
            *[None] * 3,
        ]


def volume(values: Json) -> Iterator[Row]:
    known = values["known"]
    for words, part in ((["initialisation"], known["init"]), ([str(values["passes"]), "triads"], known["triad"])):
        of = ("program_read_bytes", "allocate_read_bytes", "program_written_bytes")
        yield [*words, *(f"{part[field] / 1e9:.3f}" for field in of)]
    parts = (known["init"], known["triad"])
    read = sum(part["program_read_bytes"] + part["allocate_read_bytes"] for part in parts)
    written = sum(part["program_written_bytes"] for part in parts)
    yield ["together", f"{read / 1e9:.3f}", "included", f"{written / 1e9:.3f}"]


def strides(values: Json) -> Iterator[Row]:
    for point in values["points"]:
        latency_ns = point["latency_ns"]["value"]
        share = "-" if point["of_random"] is None else f"{point['of_random']:.3f}"
        clocks = f"{latency_ns * point['core_hz'] / 1e9:.1f}"
        touched = size(point["touched_bytes"])
        yield [str(point["stride_bytes"]), *touched, point["order"], ns(latency_ns), None, clocks, share]


def size(count: int) -> list[str]:
    """Return what is a whole number of a binary unit everywhere here."""
    scale = next(scale for scale in (1 << 30, 1 << 20, 1 << 10, 1) if count % scale == 0)
    return [str(count // scale), {1: "B", 1 << 10: "KiB", 1 << 20: "MiB", 1 << 30: "GiB"}[scale]]


def curve(values: Json) -> Iterator[Row]:
    for point in values["points"]:
        latency_ns = point["latency_ns"]["value"]
        clocks = f"{latency_ns * point['core_hz'] / 1e9:.1f}"
        yield [str(point["size_bytes"]), str(point["stride_bytes"]), point["order"], ns(latency_ns), None, clocks]


def transfers(values: Json) -> Iterator[Row]:
    for state, field in (("HIT", "local_hit_ns"), ("HITM", "local_hitm_ns")):
        figure = "-" if values[field] is None else f"{values[field]['value']:.1f}"
        yield ["Local", "Socket", "L2->L2", state, "latency", figure]
    for homed in ("writer", "reader"):
        if values["nodes"]:
            yield f"Remote Socket L2->L2 HITM latency (data address homed in {homed} socket)".split()  # type: ignore[misc]
        for node, cells in zip(values["nodes"], values[f"remote_hitm_{homed}_homed_ns"], strict=True):
            yield [str(node), *("-" if cell is None else f"{cell['value']:.1f}" for cell in cells)]


def seconds(values: Json) -> Iterator[Row]:
    for number in range(len(values["windows_mb_s"]) // 10):
        yield [str(number + 1), f"{median(values['windows_mb_s'][10 * number : 10 * number + 10]):.1f}"]


def pairs(values: Json) -> Iterator[Row]:
    for class_name in values["classes"]:
        figures = (class_name["median_ns"], class_name["minimum_ns"], class_name["maximum_ns"])
        words = {"smt_siblings": ["threads", "of", "one", "core"]}[class_name["name"]]
        yield [*words, str(class_name["pairs"]), str(class_name["measured"]), *(f"{figure:.1f}" for figure in figures)]


def clocks(values: Json) -> Iterator[Row]:
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for point in values["points"]:
        mhz = f"{point['frequency_hz']['value'] / 1e6:.0f}"
        rows.setdefault((point["work"], point["active"]), {})[point["cpu"]] = mhz
    order = sorted(rows, key=lambda row: (row[0] != "scalar", row[0], row[1] != "alone"))
    yield ["CPU", *(word for work, active in order for word in (f"{work},", active))]
    for cpu in sorted(rows[order[0]]):
        yield [str(cpu), *(rows[row][cpu] for row in order)]


def executions(values: Json) -> Iterator[Row]:
    for interval in values["intervals"]:
        fields = ("inst_min", "inst_max", "inst_jitter", "last_exec", "abs_min", "abs_max")
        cycles = [str(interval[f"{field}_cycles"]) for field in fields]
        yield [*cycles, str(interval["tmp"]), str(interval["interval_cycles"]), str(interval["sample"])]


def floor(values: Json) -> Iterator[Row]:
    longest = max(cpu["max_gap_ns"] for cpu in values["cpus"])
    rate = f"{values['rate_per_hour']['value']:.0f}"
    yield ["firmware:", f"{longest / 1e3:.0f}", "µs", "at", "most,", rate, "per", "hour"]


def cores(values: Json) -> Iterator[Row]:
    for node in sorted({point["node"] for point in values["points"]}):
        found = sorted(
            (point["latency_ns"]["value"], point["cpu"]) for point in values["points"] if point["node"] == node
        )
        middle = f"{median(latency_ns for latency_ns, _ in found):.1f}"
        (low, low_cpu), (high, high_cpu) = found[0], found[-1]
        ends = [f"{low:.1f}", f"({low_cpu})", middle, f"{high:.1f}", f"({high_cpu})"]
        yield [str(node), str(len(found)), *ends]


def tail(values: Json) -> Iterator[Row]:
    for found in values["percentiles"]:
        figure = found["value_ns"]
        yield [f"{found['percent']:g}", "-" if figure is None else f"{figure:.1f}"]
    yield ["longest", f"{values['longest_ns']:.1f}"]


def chains(values: Json) -> Iterator[Row]:
    for curve in values["curves"]:
        for point in curve["points"]:
            in_flight = point["in_flight"]
            yield [
                str(point["chains"]),
                f"{point['load_ns']['value']:.2f}",
                "-" if in_flight is None else f"{in_flight['value']:.1f}",
                f"{point['loop_overhead_ns']:.2f}",
            ]


def page_kinds(values: Json) -> Iterator[Row]:
    for row in values["pages"]:
        decimals = {"memory_ns": 1, "spread_ns": 2, "dense_ns": 2, "added_ns": 2}
        yield [None, None, row["pages"], *(f"{row[name]['value']:.{digits}f}" for name, digits in decimals.items())]


def random_reads(values: Json) -> Iterator[Row]:
    mb_s = values["reads"]["bandwidth_mb_s"]["value"]
    yield f"Lines of 64 bytes : {mb_s:.1f}".split()  # type: ignore[misc]
    yield f"Million lines per second: {mb_s / 64:.1f}".split()  # type: ignore[misc]


def wakes(values: Json) -> Iterator[Row]:
    yield f"Earliest {values['min_ns'] / 1e3:.3f} us, latest {values['max_ns'] / 1e3:.3f} us".split()  # type: ignore[misc]


ROWS: dict[str, Callable[[Json], Iterator[Row]]] = {
    "bandwidth_ladder": ladder,
    "bandwidth_matrix": matrix("bandwidth_mb_s"),
    "bandwidth_scaling": scaling,
    "c2c_latency": transfers,
    "c2c_matrix": pairs,
    "core_frequency": clocks,
    "core_latency": cores,
    "counted_volume": volume,
    "firmware": floor,
    "idle_latency": idle,
    "jitter": executions,
    "latency_ladder": curve,
    "latency_matrix": matrix("latency_ns"),
    "load_tail": tail,
    "loaded_latency": loaded,
    "max_bandwidth": mixes(2),
    "memory_parallelism": chains,
    "page_sizes": page_kinds,
    "peak_injection_bandwidth": mixes(1),
    "prefetcher_effect": strides,
    "random_bandwidth": random_reads,
    "sustained_bandwidth": seconds,
    "regulation": regulated,
    "traffic_shape": shapes,
    "wakeup": wakes,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_has_the_rows_of_its_measurement_in_order(name: str) -> None:
    document, tree = page(name)
    blocks: dict[str, list[list[list[str]]]] = {}
    for block in tree.findall(nodes.literal_block):
        first, *lines = block.astext().split("\n")
        blocks.setdefault(first, []).append([line.split() for line in lines])
    for measurement in json.loads(as_bytes(document))["measurements"]:
        expected = list(ROWS[measurement["kind"]](measurement["values"]))
        assert any(follow(block, expected) for block in blocks["$ " + shlex.join(measurement["argv"])]), expected


def test_a_chosen_delay_is_named_by_its_share() -> None:
    document, tree = page("chosen-delays")
    (values,) = (measurement["values"] for measurement in json.loads(as_bytes(document))["measurements"])
    named = [
        str(point["inject_delay"]) + ("" if point["share"] is None else f" ({100 * point['share']:.0f} % of peak)")
        for point in values["points"]
    ]
    assert len([text for text in named if text.endswith("% of peak)")]) == 4
    first_cells = [[row[0] for row in rows[1:]] for _, rows in tables(tree)]
    assert named in first_cells


def follow(lines: list[list[str]], expected: list[Row]) -> bool:
    """Tell whether *lines* hold the *expected* rows in their order."""
    rest = iter(lines)
    return all(any(fits(line, row) for line in rest) for row in expected)


def fits(line: list[str], row: Row) -> bool:
    return len(line) == len(row) and all(word in (None, shown) for shown, word in zip(line, row, strict=True))


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
        return all(cells) and (row["Half-width"], interval) == ("-", "-")
    bounds, coverage = re.fullmatch(r"(.*) \(([\d.]+) %\)", interval).groups()  # type: ignore[union-attr]
    ends = [end / scale for end in estimate["interval"]]
    cells += [is_range(bounds, ends), is_close(coverage, 100 * estimate["coverage"])]
    return all(cells) and is_close(row["Half-width"], (ends[1] - ends[0]) / 2)


def is_range(text: str, ends: Sequence[float] | None) -> bool:
    """Tell whether *text* is the range between *ends*, or the mark for a missing one."""
    if ends is None:
        return text == "-"
    return all(is_close(shown, end) for shown, end in zip(text.split(" to "), ends, strict=True))


def named(measurement: Json) -> dict[str, Json]:
    """Return the estimates of some kinds by the names that their rows must have."""
    values, kind = measurement["values"], measurement["kind"]
    if kind in {"latency_matrix", "bandwidth_matrix"}:
        cells = values["latency_ns" if kind == "latency_matrix" else "bandwidth_mb_s"]
        return {
            f"CPUs of node {row}, memory of node {column}": cell
            for row, line in zip(values["cpu_nodes"], cells, strict=True)
            for column, cell in zip(values["memory_nodes"], line, strict=True)
            if cell is not None
        }
    if kind in {"max_bandwidth", "peak_injection_bandwidth"}:
        return {name: mix["bandwidth_mb_s"] for name, mix in values["mixes"].items()}
    if kind == "bandwidth_scaling":
        return {
            f"{point['threads']} thread{'s' * (point['threads'] > 1)} on {point['group']}": point["bandwidth_mb_s"]
            for point in values["points"]
        }
    if kind == "c2c_latency":
        return {"local HIT": values["local_hit_ns"], "local HITM": values["local_hitm_ns"]}
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
    document, tree = page("in-rounds")
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
