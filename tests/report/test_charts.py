# SPDX-License-Identifier: Apache-2.0
"""Charts: valid and reproducible specifications, limits for large machines, and their contents."""

import ctypes
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import vl_convert

from calibration.base import units
from calibration.base.statistics import estimate
from calibration.charts import base
from calibration.charts.alternative import MAX_CHARACTERS, Value, alternative, extremes
from calibration.charts.base import DARK, HALF, WIDE, Chart
from calibration.charts.cores import MAX_PLACES
from calibration.charts.cpus import in_blocks
from calibration.charts.dumbbells import Dumbbell, dumbbells
from calibration.charts.gaps import MAX_ROWS
from calibration.charts.load import KNEE
from calibration.charts.matrices import MIN_INTERVAL_PX, Matrix, heat_map
from calibration.charts.trends import Panel, trend
from calibration.context.population import ChannelPeak, Population
from calibration.measurements import registry
from calibration.measurements.base import Declaration, MeasuredRun
from calibration.measurements.c2c_matrix import C2cClass
from calibration.measurements.core_frequency import CoreFrequencyValues
from calibration.measurements.jitter import exceedance
from calibration.measurements.loaded_latency import RECORD_SHARE
from calibration.measurements.neighbourhood import Class
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.measurements.table import TableRow
from calibration.report import pictures
from calibration.report.page_charts import Charts
from calibration.report.pictures import VERSION, keep, picture
from calibration.results.model import Measurement
from tests.harmless import check_figure
from tests.machines import Machine
from tests.report.made_counts import counted_document
from tests.report.made_lab import SMALL as SERVER
from tests.report.made_lab import server_document
from tests.report.report_documents import grown, run_document, scaled, with_cpus, with_nodes, with_rows

DOCUMENT = run_document()
MAX_SPEC_BYTES = 100_000
MAX_ELEMENTS = 3_000
IN_OPEN = 0x20  # of inotify(7)
WIDE_PX = 660.0  # least width of a wide chart, in calibration.css
MATRICES = ("latency_matrix", "bandwidth_matrix")
NEARNESS: tuple[Class, ...] = ("same_llc", "same_node", "other_package")


def run_of(measurements: Sequence[Measurement], domains: Sequence[range] | None = None) -> MeasuredRun:
    """Return a run of *measurements* on the recorded machine, whose last-level caches are *domains* where given."""
    context = DOCUMENT.context.parsed  # type: ignore[union-attr] # it has one
    if domains is not None:
        caches = tuple(tuple(domain) for domain in domains)
        topology = context.topology.model_copy(update={"last_level_cache_domains": caches})
        context = context.model_copy(update={"topology": topology})
    kinds = dict.fromkeys(measurement.kind for measurement in measurements)
    return MeasuredRun(
        {kind: [measurement for measurement in measurements if measurement.kind == kind] for kind in kinds}, context
    )


def main_chart(*measurements: Measurement, width: int = WIDE) -> Chart | None:
    """Return the main chart of the kind of the first of *measurements*."""
    return registry()[measurements[0].kind].main_chart(run_of(measurements), width)


def other_chart(*measurements: Measurement, domains: Sequence[range] | None = None, named: str = "") -> Chart | None:
    """Return the first chart beside the main one, of those whose name begins like *named*."""
    found = registry()[measurements[0].kind].charts(run_of(measurements, domains))
    return next((item for item in found if item is None or item.name.startswith(named)), None)


def core_to_core(measurement: Measurement, domains: Sequence[range]) -> Chart | None:
    return other_chart(measurement, domains=domains)


def of(kind: str) -> Any:
    """Return the first recorded measurement of *kind*."""
    return next(measurement for measurement in DOCUMENT.measurements if measurement.kind == kind)


def with_values(measurement: Measurement, **fields: Any) -> Measurement:
    return measurement.model_copy(update={"values": measurement.values.model_copy(update=fields)})


def jitter(count: int) -> list[Measurement]:
    """Return jitter of *count* CPUs; the third last has gaps eight times as long."""
    found = of("jitter")
    one = found.values.gaps
    measurements = []
    for cpu in range(count):
        factor = 8.0 if cpu == count - 3 else 1.0 + cpu % 5 / 10
        bins = tuple(
            item.model_copy(update={"from_ns": item.from_ns * factor, "to_ns": item.to_ns * factor})
            for item in one.histogram
        )
        own = one.model_copy(update={"histogram": bins, "max_ns": one.max_ns * factor})
        measurements.append(with_values(found, cpu=cpu, isolated=cpu > 3, gaps=own))
    return measurements


def node_matrix(kind: str, count: int, factor: Callable[[int, int], float]) -> Measurement:
    found: Measurement = of(kind)
    assert isinstance(found.values, NodeMatrixValues)
    return found.model_copy(update={"values": with_rows(found.values, grown(found.values, count, factor))})


def distance(row: int, column: int) -> float:
    return 1.0 + 0.5 * (row != column)


def loaded(probes: int) -> Measurement:
    """Return a curve with a knee, of as many probes, each a little slower than the one before."""
    found = of("loaded_latency")
    point = found.values.points[0]
    latency, bandwidth = point.probes[0].latency_ns, point.bandwidth_mb_s
    points = tuple(
        point.model_copy(
            update={
                "bandwidth_mb_s": scaled(bandwidth, 380e3 * share / bandwidth.value),
                "probes": tuple(
                    point.probes[0].model_copy(
                        update={
                            "cpu": 32 * probe,
                            "node": probe,
                            "latency_ns": scaled(latency, (100 + 60 * share**8 + probe) / latency.value),
                        }
                    )
                    for probe in range(probes)
                ),
            }
        )
        for share in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    )
    return with_values(found, points=points)


def cores(count: int, per_cache: int, per_node: int, chosen: int | None = None) -> tuple[Measurement, list[range]]:
    """Return the latency between *count* CPUs (of *chosen* pairs) and the CPUs behind each last-level cache."""
    found = of("c2c_matrix")
    recorded = found.values.table.rows[0]
    pairs = [(one, two) for one in range(count) for two in range(count) if one != two]
    made = []
    for one, two in pairs if chosen is None else Random(1).sample(pairs, chosen):
        ns = 25.0 if one // per_cache == two // per_cache else 90.0 if one // per_node == two // per_node else 180.0
        nodes = {"writer": one, "reader": two, "writer_node": one // per_node, "reader_node": two // per_node}
        latency = scaled(recorded.latency_ns, ns / recorded.latency_ns.value)
        made.append(TableRow({**nodes, "latency_ns": latency}))
    classes = [
        C2cClass(
            name=name, pairs=100, measured=16, median_ns=ns, minimum_ns=ns * 0.9, minimum_pair=(0, 1),
            maximum_ns=ns * 1.2, maximum_pair=(2, 3),
        )
        for name, ns in zip(NEARNESS, (25.0, 90.0, 180.0), strict=True)
    ]  # fmt: skip
    caches = [range(first, first + per_cache) for first in range(0, count, per_cache)]
    return with_values(found, table=with_rows(found.values, made).table, classes=tuple(classes)), caches


def frequencies(count: int, *, steps: bool = False) -> Measurement:
    """Return clocks of *count* CPUs, of which CPU 1 is 3 % slower, with *steps* also of some of them."""
    found = of("core_frequency")
    point = next(point for point in found.values.points if point.active == "all")
    powers = range(1, (count - 1).bit_length()) if steps else ()
    some = [(str(1 << power), 1 << power, 1.2 - 0.02 * power) for power in powers]
    clocks = [
        TableRow(
            point
            | {"active": who, "active_cpus": active, "cpu": cpu}
            | {"frequency_hz": scaled(point.frequency_hz, (0.97 if cpu == 1 else 1.0) * speed)}
        )
        for who, active, speed in (*some, ("all", count, 1.0))
        for cpu in range(active)
    ]
    return with_values(found, table=with_rows(found.values, clocks).table)


def trends(nights: int, suts: int, **fields: Any) -> Chart | None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(nights)]
    values = np.array([98.0 + number % 3 / 10 for number in range(nights)])
    panels = [
        Panel(f"sut{number}", "as accepted", number == suts - 1, values, values - 0.2, values + 0.2, **fields)
        for number in range(suts)
    ]
    return trend(days, panels, "ns", name="idle_latency", title="Idle latency")


def all_of(kind: str) -> list[Measurement]:
    return [measurement for measurement in DOCUMENT.measurements if measurement.kind == kind]


COUNTED = next(measurement for measurement in counted_document().measurements if measurement.kind == "counted_volume")

SMALL: dict[str, Callable[[], Chart | None]] = {
    "latency_ladder": lambda: main_chart(*all_of("latency_ladder")),
    "ladder_half": lambda: main_chart(all_of("latency_ladder")[0], width=HALF),
    "ladder_series": lambda: other_chart(*all_of("latency_ladder")),
    "loaded_latency": lambda: main_chart(of("loaded_latency")),
    "loaded_two": lambda: main_chart(loaded(2)),
    "gaps": lambda: main_chart(*jitter(8)),
    "numa": lambda: main_chart(*(node_matrix(kind, 2, distance) for kind in MATRICES)),
    "numa_bandwidth": lambda: main_chart(node_matrix("bandwidth_matrix", 2, distance)),
    "core_to_core": lambda: core_to_core(*cores(8, 4, 8)),
    "core_frequency": lambda: other_chart(frequencies(8)),
    "core_frequency turbo": lambda: other_chart(frequencies(8, steps=True), named="core_frequency-turbo"),
    "bandwidth_by_mix": lambda: main_chart(*all_of("peak_injection_bandwidth")),
    "bandwidth_ladder": lambda: other_chart(of("bandwidth_ladder")),
    "sustained_bandwidth": lambda: other_chart(*all_of("sustained_bandwidth")),
    "prefetcher_effect": lambda: other_chart(*all_of("prefetcher_effect")),
    "regulation": lambda: other_chart(*all_of("regulation")),
    "latency_by": lambda: other_chart(*all_of("regulation"), named="regulation_as_found_chase"),
    "variation": lambda: other_chart(*all_of("regulation"), named="regulation_variation"),
    "counted_volume": lambda: other_chart(COUNTED),
    "dumbbells": lambda: dumbbells("headlines", [Dumbbell(f"Metric {n}", n / 50, None, 0.02, "worse", f"{2 * n:+} %")
                                                 for n in range(12)]),
    "trend": lambda: trends(9, 2, band=(97.0, None), levels=((0, 8, 98.1),), changes=((5, "+1 %"),),
                            flips=(3, 98.0, 98.2), context=((5, 1),)),
}  # fmt: skip

BIG: dict[str, Callable[[], Chart | None]] = {
    "loaded_latency": lambda: main_chart(loaded(16)),
    "gaps": lambda: main_chart(*jitter(504)),
    "numa": lambda: main_chart(*(node_matrix(kind, 16, distance) for kind in MATRICES)),
    "core_to_core": lambda: core_to_core(*cores(512, 8, 32, 574)),
    "core_to_core_caches": lambda: core_to_core(*cores(160, 8, 80)),
    "core_frequency": lambda: other_chart(frequencies(504)),
    "core_frequency turbo": lambda: other_chart(frequencies(504, steps=True), named="core_frequency-turbo"),
    "trend": lambda: trends(1000, 4),
}


@cache
def drawn(made: Callable[[], Chart | None]) -> Chart:
    chart = made()
    assert chart is not None
    return chart


def test_text_is_measured_without_the_fonts_of_the_machine(tmp_path: Path) -> None:
    fonts = tmp_path / "fonts"
    fonts.mkdir()
    (fonts / "font.ttf").write_bytes(b"")
    machine = tmp_path / "fonts.conf"
    machine.write_text(f"<fontconfig><dir>{fonts}</dir></fontconfig>", encoding="utf-8")
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, bytes(fonts), IN_OPEN) > 0
    spec = json.dumps(drawn(SMALL["gaps"]).spec)
    code = "import os, sys; from calibration.report.pictures import _drawn; print(_drawn(sys.stdin.read()))"
    svg = subprocess.run(
        [sys.executable, "-c", f"{code}; print(os.environ['FONTCONFIG_FILE'])"],
        env={**os.environ, "FONTCONFIG_FILE": str(machine)},
        input=spec,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert svg.endswith(f"</svg>\n{machine}\n")
    with pytest.raises(BlockingIOError):  # nothing was opened
        os.read(watch, 4096)
    os.close(watch)


@pytest.mark.parametrize("made", [*SMALL.values(), *BIG.values()], ids=[*SMALL, *(f"big-{name}" for name in BIG)])
def test_a_chart_is_valid_small_and_has_a_dark_version(
    made: Callable[[], Chart | None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = drawn(made)
    svg = vl_convert.vegalite_to_svg(json.dumps(chart.spec), vl_version=VERSION, show_warnings=True)
    printed = capfd.readouterr()
    assert not printed.out + printed.err
    monkeypatch.setattr(pictures, "_svg", lambda _spec: svg)
    files: dict[str, str] = {}
    stem = keep(files, chart).path.removesuffix(".svg")
    light, dark, spec = (files[f"{stem}{end}"] for end in (".svg", "-dark.svg", ".vl.json"))
    check_figure(light)
    root = ET.fromstring(light)  # noqa: S314 - just drawn
    assert root.findtext("{http://www.w3.org/2000/svg}title") == chart.alt
    assert chart.caption.endswith(".")
    assert len(spec.encode()) < MAX_SPEC_BYTES
    assert len(list(root.iter())) < MAX_ELEMENTS
    colour = re.compile(r"#[0-9A-Fa-f]{6}")
    assert light != dark
    assert colour.sub("", light) == colour.sub("", dark)
    assert not set(colour.findall(dark)) & (set(DARK) - set(DARK.values())), "a light colour is left"


UNITS = {"ns", "GB/s", "GB", "%", "s"}
"""What titles of axes end with, if they have a unit."""


def titles(spec: Any) -> Iterator[str]:
    """Yield the titles of axes and views in *spec*."""
    parts = spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ()
    for name, part in parts:
        if name == "title" and isinstance(part, str):
            yield part
        elif name != "tooltip":
            yield from titles(part)


def check_alternative(chart: Chart) -> None:
    """Check that the text alternative is short, and has a value in the unit of an axis if one has a unit."""
    values = chart.alt.partition(": ")[2]
    units = {title.rpartition(", ")[2].removesuffix(" per load") for title in titles(chart.spec)} & UNITS
    assert len(chart.alt) <= MAX_CHARACTERS, chart.alt
    assert re.search(rf"\d ({'|'.join(units)})\b|\d %" if units else r"\d", values), chart.alt


@pytest.mark.parametrize("made", [*SMALL.values(), *BIG.values()], ids=[*SMALL, *(f"big-{name}" for name in BIG)])
def test_the_text_alternative_has_values(made: Callable[[], Chart | None]) -> None:
    check_alternative(drawn(made))


def test_every_kind_with_a_chart_has_values_in_its_text_alternative() -> None:
    with_chart = {
        kind
        for kind, item in registry().items()
        if (type(item).main_chart, type(item).charts) != (Declaration.main_chart, Declaration.charts)
    }
    documents = (DOCUMENT, counted_document(), with_nodes(DOCUMENT, 2), with_cpus(DOCUMENT, 3), server_document(SERVER))
    for document in documents:
        for kind in registry():
            for chart in Charts(document).drawn(kind):
                check_alternative(chart)
                with_chart.discard(kind)
    assert with_chart == {"bandwidth_matrix"}, "which is drawn beside the latencies"


def test_the_greatest_changes_come_first() -> None:
    assert "second: Metric 11 +22 %; Metric 10 +20 %; " in drawn(SMALL["dumbbells"]).alt


def test_values_without_room_are_counted() -> None:
    values = [f"{number} ns (CPU {number})" for number in range(100)]
    text = alternative("Latency", values)
    assert text.startswith("Latency: 0 ns (CPU 0); 1 ns (CPU 1); ")
    assert MAX_CHARACTERS - 20 < len(text) <= MAX_CHARACTERS
    assert text.endswith(f"; {100 - text.count('CPU')} more.")


@pytest.mark.parametrize(("values", "text"), [
    ([1.0], "1 ns (CPU 0)"), ([2.0, 1.0, 3.0], "lowest 1 ns (CPU 1), highest 3 ns (CPU 2)"), ([1.0, 1.0], "all 1 ns"),
])  # fmt: skip
def test_the_lowest_and_the_highest_value_are_named(values: list[float], text: str) -> None:
    assert extremes(Value(value, f"{value:g} ns", f"CPU {cpu}") for cpu, value in enumerate(values)) == text


def test_colours_can_be_exchanged_both_ways() -> None:
    assert len(set(DARK.values())) == len(DARK)
    assert not set(DARK) & set(DARK.values())


def test_the_same_values_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_svg", pictures._drawn)
    make = SMALL["latency_ladder"]
    assert picture(drawn(make)) == picture(drawn.__wrapped__(make))


NOTHING: dict[str, Callable[[], Chart | None]] = {
    "one node": lambda: main_chart(*(node_matrix(kind, 1, distance) for kind in MATRICES)),
    "shown with the latencies": lambda: registry()["bandwidth_matrix"].main_chart(
        run_of([node_matrix(kind, 2, distance) for kind in MATRICES]), WIDE
    ),
    "two CPUs": lambda: core_to_core(*cores(2, 2, 2)),
    "two clocks": lambda: other_chart(frequencies(2)),
    "two threads": lambda: other_chart(*all_of("bandwidth_scaling")),
    "two nights": lambda: trends(2, 3),
    "nothing counted": lambda: other_chart(of("counted_volume")),
}


@pytest.mark.parametrize("name", NOTHING)
def test_too_little_data_has_no_chart(name: str) -> None:
    assert NOTHING[name]() is None


# What each says


def rows(chart: Chart) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart.spec["data"]["values"]
    return found


def cell_fills(matrix: Measurement) -> list[str]:
    chart = main_chart(matrix)
    assert chart is not None
    return re.findall(r'fill="(rgb\([^)]*\))"', picture(chart))


def test_noise_is_not_drawn_as_structure() -> None:
    def shade(fill: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", fill)]

    noise = cell_fills(node_matrix("latency_matrix", 2, lambda row, column: 1.0 + 0.0046 * (row != column)))
    real = cell_fills(node_matrix("latency_matrix", 2, distance))
    near, far = (max(abs(a - b) for a, b in zip(*map(shade, item[:2]), strict=True)) for item in (noise, real))
    assert near < 20
    assert far > 100


def test_bandwidths_of_nodes_are_in_gb_s() -> None:
    rows = node_matrix("bandwidth_matrix", 2, distance).values.table.rows  # type: ignore[attr-defined] # it has one
    near, far = (units.significant(row.bandwidth_mb_s.value / 1000, 3) for row in rows[:2])
    alt = drawn(SMALL["numa_bandwidth"]).alt
    assert alt.endswith(f"read bandwidth lowest {near} GB/s (node 0 to 0), highest {far} GB/s (node 0 to 1).")


@pytest.mark.parametrize(
    ("values", "ends"), [([64.1, 64.4], (61.0375, 67.4625)), ([50.0, 150.0], (50.0, 150.0)), ([0.0], (-1.0, 1.0))]
)
def test_a_scale_has_a_smallest_span(values: Sequence[float], ends: tuple[float, float]) -> None:
    assert base.spanned(values) == pytest.approx(ends)


def test_levels_and_caches_are_named_on_the_ladder() -> None:
    chart = drawn(SMALL["latency_ladder"])
    text = picture(chart)
    values = next(
        measurement.values for measurement in all_of("latency_ladder") if measurement.values.series == "random"
    )  # type: ignore[attr-defined] # it has one
    *caches, memory = values.levels  # type: ignore[attr-defined] # it has some
    assert memory.name == "memory", "its figure is the idle latency"
    for level in caches:
        assert base.shown(level.latency_ns.value, "ns") in chart.alt
        assert f" {base.shown(level.latency_ns.value, 'ns')}<" in text
    assert ">L1d 32 KiB<" in text


def test_labels_do_not_cover_each_other() -> None:
    scale = base.Scale(0, 100, 400), base.Scale(0, 100, 200, up=True)
    layer = base.labels([(50, 50, "one label"), (51, 50, "another"), (52, 50, "third")], [], scale)
    places = [(scale[0].at(row["x"]), scale[1].at(row["y"])) for row in layer["data"]["values"]]
    for index, (x, y) in enumerate(places):
        for u, v in places[:index]:
            assert abs(x - u) > 55 or abs(y - v) >= 13


def test_a_label_hides_the_fewest_points_that_it_can() -> None:
    scale = base.Scale(0, 100, 100), base.Scale(0, 100, 100, up=True)

    def top(*hidden: float) -> float:
        """Return how far above the point at 50 its label is, among points *hidden* above it."""
        layer = base.labels([(50, 50, "label")], [(50, 50 + down) for down in hidden], scale)
        return float(layer["data"]["values"][0]["y"]) - 50

    assert top() == 14
    assert top(14) == 28
    assert top(14, 28) == -16
    assert top(14, 28, 28, -16, -16, 42, 42, -30, -30) == 14, "one point less than elsewhere"


def test_a_page_makes_each_main_chart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kind = type(registry()["jitter"])
    main = kind.main_chart
    monkeypatch.setattr(kind, "main_chart", lambda *given: made.append(given) or main(*given))
    charts = Charts(DOCUMENT)
    first = charts.first_screen()
    list(charts.of(registry()))
    assert len(made) == 1
    assert {chart.path for chart in first} <= set(charts.files)


def test_the_point_near_the_knee_is_marked() -> None:
    chart = drawn(lambda: main_chart(loaded(1)))
    (probe,) = loaded(1).values.points[4].probes  # type: ignore[attr-defined] # it has some
    near = (
        f"{base.shown(probe.latency_ns.value, 'ns')} at 342 GB/s, which is {100 * KNEE:.0f} % of 380 GB/s at full load"
    )
    assert near in chart.alt


def test_the_point_of_the_metric_of_record_is_marked_wherever_it_is() -> None:
    found = loaded(1)
    points = list(found.values.points)  # type: ignore[attr-defined] # as above
    points[3] = points[3].model_copy(update={"share": RECORD_SHARE})
    chart = drawn(lambda: main_chart(with_values(found, points=tuple(points))))
    ns = points[3].probes[0].latency_ns.value
    assert f"{base.shown(ns, 'ns')} at 285 GB/s, which is 75 % of 380 GB/s at full load" in chart.alt


def test_many_probes_are_drawn_as_worst_and_median() -> None:
    names = {row["s"] for row in rows(drawn(BIG["loaded_latency"]))}
    assert names == {"worst: CPU 480, memory of node 15", "median"}


def test_a_curve_of_gaps_falls_and_ends_at_the_longest() -> None:
    values = of("jitter").values
    found = exceedance(values)
    rates = [rate for _, rate in found.points]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(values.gaps.count / values.gaps.wall_s)
    assert found.points[-1] == (values.gaps.max_ns, 1 / values.gaps.wall_s)
    assert found.at(values.gaps.max_ns * 2) == 0.0


def test_the_cpu_with_the_longest_gap_is_named_among_many() -> None:
    chart = drawn(BIG["gaps"])
    assert "(CPU 501); of any length" in chart.alt
    assert ">CPU 501, the longest interruption<" in picture(chart)


@pytest.mark.parametrize(("made", "size"), [
    (lambda: cores(8, 4, 8), 8),
    (lambda: cores(64, 8, 32), 8),
    (lambda: cores(512, 8, 32, 574), 16),
    (lambda: cores(64, 64, 64), None),
], ids=["cpus", "caches", "nodes", "one-cache"])  # fmt: skip
def test_many_cores_are_grouped_into_blocks(made: Callable[[], Any], size: int | None) -> None:
    chart = core_to_core(*made())
    assert chart is not None
    parts = chart.spec["vconcat"]
    assert len(parts) == 1 + (size is not None)
    if size is not None:
        cells = parts[0]["data"]["values"]
        assert len(cells) == size**2
        assert {cell["v"] for cell in cells if cell["r"] == cells[0]["r"] and cell["v"]} <= {25.0, 90.0, 180.0, 57.5}


def test_the_slowest_core_is_named() -> None:
    assert ": lowest -3.0 % (CPU 1), highest 0 % (CPU " in drawn(SMALL["core_frequency"]).alt


@pytest.mark.parametrize(("made", "names", "ends"), [
    (lambda: cores(8, 4, 4), ["node 0", "node 1"], [0.5]),
    (lambda: cores(160, 8, 80), ["node 0", "node 1"], [0.5]),
    (lambda: cores(320, 8, 16), [*map(str, range(20))], [node / 20 for node in range(1, 20)]),
    (lambda: cores(160, 16, 8), [f"{node}-{node + 1}" for node in range(0, 20, 2)], [n / 10 for n in range(1, 10)]),
    (lambda: cores(512, 8, 32, 574), [], []),
    (lambda: cores(8, 4, 8), [], []),
], ids=["cpus", "caches", "narrow", "cache-of-two-nodes", "blocks-are-nodes", "one-node"])  # fmt: skip
def test_blocks_of_cpus_have_lines_and_names_of_their_nodes(
    made: Callable[[], Any], names: list[str], ends: list[float]
) -> None:
    chart = core_to_core(*made())
    assert chart is not None
    heat = chart.spec["vconcat"][0]
    for channel, size in (("x", "width"), ("y", "height")):
        own = [layer for layer in heat["layer"] if layer["encoding"].get(channel, {}).get("field") == "at"]
        rows = {layer["mark"]["type"]: layer["data"]["values"] for layer in own}
        assert [row["n"] for row in rows.get("text", ())] == names
        assert [row["at"] / heat[size] for row in rows.get("rule", ())] == pytest.approx(ends, rel=1e-3)


def test_a_clock_without_an_interval_is_a_point_alone() -> None:
    found = frequencies(8)
    assert isinstance(found.values, CoreFrequencyValues)
    clocks = found.values.table_of(
        point | {"frequency_hz": point.frequency_hz.model_copy(update={"interval": None})}
        for point in found.values.points
    )
    shown = rows(drawn(lambda: other_chart(with_values(found, table=clocks))))
    assert len(shown) == 8
    assert all(row["l"] == row["y"] == row["h"] for row in shown)


def test_the_theoretical_peak_is_drawn_if_known(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = drawn(SMALL["bandwidth_by_mix"])
    assert "theoretical" not in unknown.alt + unknown.caption
    channels = ChannelPeak(channels=2, populated=2, peak_mb_s=38_400.0, empty_slots=())
    known = Population(machine=channels, packages={}, nodes={})
    monkeypatch.setattr("calibration.measurements.peak_injection_bandwidth.population", lambda _context: known)
    assert "(theoretical peak 38.4 GB/s): lowest" in drawn.__wrapped__(SMALL["bandwidth_by_mix"]).alt


def test_many_windows_are_drawn_as_means() -> None:
    found = of("sustained_bandwidth")
    long = with_values(found, windows_mb_s=tuple(10_000.0 + number % 2 for number in range(100_000)))
    shown = rows(drawn(lambda: other_chart(long)))
    assert len(shown) <= 400
    assert {row["y"] for row in shown} <= {10.0, 10.001}


def test_an_outlier_does_not_set_the_scale() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(100)]
    values = np.array([100.0 + number % 3 for number in range(100)])
    values[50] = 1e9
    chart = trend(days, [Panel("sut", "good", False, values, values, values)], "ns", name="n", title="Latency")
    assert chart is not None
    ends = chart.spec["vconcat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert 90 < ends[0] < ends[1] < 110


def test_the_newest_of_many_nights_is_the_one_marked() -> None:
    days = [date(2020, 1, 1) + timedelta(days=number) for number in range(2000)]
    values = np.array([100.0] * 1999 + [110.0])
    chart = trend(days, [Panel("sut", "fails", True, values, values, values)], "ns", name="n", title="Latency")
    assert chart is not None
    view = chart.spec["vconcat"][0]
    (failing,) = view["layer"][-1]["data"]["values"]
    assert (failing["x"], failing["y"]) == (1999, 110.0)


@pytest.mark.parametrize("values", [[0.0] * 3, [5.0, np.nan, 5.0], [-1.0, -2.0, -3.0]])
def test_zero_missing_and_negative_values_are_drawn(values: list[float]) -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(3)]
    array = np.array(values)
    chart = trend(
        days, [Panel("sut", "good", False, array, array, array, band=(None, 1.0))], "ns", name="n", title="Latency"
    )
    assert chart is not None
    check_figure(picture(chart))


# Frames


def labels_of(chart: Chart) -> list[str]:
    """Return the texts of the picture of *chart*."""
    return re.findall(r">([^<>]+)</text>", picture(chart))


def with_interval(estimate: Any, low: float, high: float) -> Any:
    return estimate.model_copy(update={"interval": (low, high)})


def test_an_interval_beyond_the_frame_ends_in_an_arrow_with_its_number() -> None:
    found = loaded(1)
    points = list(found.values.points)  # type: ignore[attr-defined] # it has some
    (probe,) = points[2].probes
    wide = probe.model_copy(update={"latency_ns": with_interval(probe.latency_ns, 90.0, 5650.0)})
    points[2] = points[2].model_copy(update={"probes": (wide,)})
    assert "5650" not in labels_of(drawn(lambda: main_chart(loaded(1))))
    assert "5650" in labels_of(drawn(lambda: main_chart(with_values(found, points=tuple(points)))))


def test_a_bar_whose_interval_is_cut_says_where_it_ends() -> None:
    found = of("peak_injection_bandwidth")
    name, mix = next(iter(found.values.mixes.items()))
    wide = mix.model_copy(update={"bandwidth_mb_s": with_interval(mix.bandwidth_mb_s, 10.0, 1.533e6)})
    cut = with_values(found, mixes={**found.values.mixes, name: wide})
    others = [measurement for measurement in all_of("peak_injection_bandwidth") if measurement is not found]
    assert any(text.endswith(" (to 1533)") for text in labels_of(drawn(lambda: main_chart(cut, *others))))


def test_a_bar_is_beside_the_name_of_its_group() -> None:
    chart = drawn(SMALL["bandwidth_by_mix"])
    middles: dict[str, list[float]] = {}
    for row in rows(chart):
        middles.setdefault(row["g"], []).append(row["m"])
    (names,) = (layer for layer in chart.spec["layer"] if layer["encoding"].get("text") == {"field": "g"})
    assert {name["g"]: name["y"] for name in names["data"]["values"]} == pytest.approx(
        {group: sum(those) / len(those) for group, those in middles.items()}
    )


@pytest.mark.parametrize(("kind", "best"), [("latency_matrix", "lower"), ("bandwidth_matrix", "higher")])
def test_worse_is_darker_in_every_matrix(kind: str, best: str) -> None:
    chart = drawn(lambda: main_chart(node_matrix(kind, 2, distance)))
    fills = [sum(map(int, re.findall(r"\d+", fill))) for fill in cell_fills(node_matrix(kind, 2, distance))][:4]
    values = [row["v"] for row in chart.spec["vconcat"][0]["data"]["values"]]
    brightest = values[fills.index(max(fills))]
    assert brightest == (min if best == "lower" else max)(values)


@pytest.mark.parametrize("made", ["gaps", "core_frequency"])
def test_cpus_are_in_blocks_of_their_nodes(made: str) -> None:
    machine = Machine(cpus=504, cpu_nodes=16, memory_only_nodes=0, lines=1)
    nodes = {node: [cpu for cpu in range(504) if machine.node_of(cpu) == node] for node in range(16)}
    blocks = in_blocks(range(504), nodes, MAX_ROWS if made == "gaps" else MAX_PLACES)
    assert sorted(cpu for place in blocks.places for cpu in place) == list(range(504))
    assert {len({machine.node_of(cpu) for cpu in place}) for place in blocks.places} == {1}
    assert list(blocks.by_node) == [str(node) for node in range(16)]
    (ends,) = [[row["at"] for row in blocks.boundaries("y")["data"]["values"]]]
    assert ends == blocks.edges[1:-1]
    assert len(ends) == 15


def test_cpus_of_unknown_nodes_are_in_their_order() -> None:
    assert in_blocks([3, 1, 2], {}, 2).places == [[1, 2], [3]]


def test_the_panels_of_a_trend_have_one_scale() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(9)]
    near, far = np.full(9, 100.0), np.full(9, 200.0)
    chart = trend(days, [Panel(name, "", False, own, own, own) for name, own in (("a", near), ("b", far))], "ns",
                  name="n", title="Latency")  # fmt: skip
    assert chart is not None
    (ends,) = {tuple(view["layer"][0]["encoding"]["y"]["scale"]["domain"]) for view in chart.spec["vconcat"]}
    assert ends[0] < 100
    assert ends[1] > 200


@pytest.mark.parametrize("made", [*SMALL.values(), *BIG.values()], ids=[*SMALL, *(f"big-{name}" for name in BIG)])
def test_text_has_nine_px_on_a_phone(made: Callable[[], Chart | None]) -> None:
    chart = drawn(made)
    svg = picture(chart)
    natural = float(re.findall(r'<svg [^>]*?width="([\d.]+)"', svg)[0])
    shown = max(343.0, WIDE_PX) if "wide" in chart.style else min(343.0, natural)
    sizes = [float(size) for size in re.findall(r'<text[^>]* font-size="([\d.]+)px"', svg)]
    assert min(sizes) * min(1.0, shown / natural) >= 9


# Files


def test_hostile_labels_stay_text() -> None:
    hostile = '</title><script>alert(1)</script> class="x" #0072B2 0.12345678 \u202e'
    values = np.array([98.0, 99.0, 100.0])
    panel = Panel(hostile, hostile, False, values, values, values)
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(3)]
    chart = trend(days, [panel], "ns", name="../../etc/x", title=hostile)
    assert chart is not None
    files: dict[str, str] = {}
    path = keep(files, chart).path
    assert re.fullmatch(r"figures/[a-z0-9.-]+\.svg", path)
    for name, content in files.items():
        if name.endswith(".svg"):
            check_figure(content)
            assert "0.12345678" in content
            assert "#0072B2 0" in content
        else:
            assert "\u202e" not in content


def test_a_page_draws_a_chart_once_and_refuses_two_of_one_name() -> None:
    files: dict[str, str] = {}
    chart = drawn(SMALL["gaps"])
    assert keep(files, chart).path == keep(files, chart).path == "figures/jitter.svg"
    assert list(files) == ["figures/jitter.vl.json", "figures/jitter.svg", "figures/jitter-dark.svg"]
    assert json.loads(files["figures/jitter.vl.json"]) == chart.spec
    with pytest.raises(ValueError, match="two different charts"):
        keep(files, drawn(lambda: main_chart(*jitter(2))))


def test_a_cell_shows_its_interval_only_where_it_fits() -> None:
    cell = estimate([[1.0, 1.1, 1.2]] * 3, unit="ns")
    matrix = Matrix("Idle latency", "ns", [0, 1, 2, 3], [0, 1, 2, 3], [[cell] * 4] * 4)
    for room, shown in ((170, False), (4 * MIN_INTERVAL_PX, True)):
        fields = [layer["encoding"].get("text", {}).get("field") for layer in heat_map(matrix, room)["layer"]]
        assert ("h" in fields) == shown
