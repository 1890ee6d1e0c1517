# SPDX-License-Identifier: Apache-2.0
"""Curves of Mess: what its plotters and simulators read from ours, and what is read of theirs."""

import csv
import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.base.errors import InputError
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import flag, validity
from calibration.charts.base import Chart
from calibration.charts.curves import Published
from calibration.cli import calibration
from calibration.exports.curves import SIMULATED, files_of
from calibration.formats.csit_page import read_published
from calibration.formats.readings import ReadCurve, ReadCurvePoint, Reading, ReadMemoryCurves
from calibration.judge.comparison import compare
from calibration.measurements.memory_curves import MemoryCurvesValues
from calibration.references.library import published
from calibration.references.matching import normal
from calibration.report.alone import page_alone
from calibration.report.comparison import comparison_page
from calibration.report.curves import compared_curves, reading_family
from calibration.report.normal import published_curves
from calibration.report.page_charts import Charts
from calibration.results.model import RunDocument
from tests.hardware import on_metal
from tests.readings import MESS, hold, invented
from tests.report.report_documents import imported, page_of, run_document, store

READS = {"write_nt": 0, "1:1": 50, "2:1": 66, "3:1": 76, "reads": 100}
"""Percentages of reads under which a simulator looks for the traffic of a mix: it rounds them to even ones."""

WRITTEN = {"reads": 0.0, "3:1": 1 / 4, "2:1": 1 / 3, "1:1": 1 / 2, "write_nt": 1.0}
FULL_MB_S = {"reads": 120_000.3, "3:1": 110_000.7, "2:1": 105_000.1, "1:1": 95_000.9, "write_nt": 80_000.0}
UNLOADED_NS = 89.37
SHARES = (100, 90, 75, 50)


def one(value: float, unit: str) -> Estimate:
    return estimate([[value]], unit)


def values(mixes: tuple[str, ...] = tuple(WRITTEN), node: int = 0) -> MemoryCurvesValues:
    """Return curves to the memory of *node*, of known bandwidths and of latencies that tell the mix and the share."""
    rows = [
        {
            "mix": mix,
            "share": share,
            "write_share": WRITTEN[mix],
            "inject_delay": 0,
            "delay_ns": 0.0,
            "share_reached": share / 100,
            "bandwidth_mb_s": one(FULL_MB_S[mix] * share / 100, "MB/s"),
            "latency_ns": one(100.0 * (1 + WRITTEN[mix]) + share, "ns"),
        }
        for mix in mixes
        for share in SHARES
    ]
    return MemoryCurvesValues(
        table=MemoryCurvesValues.table_of(rows), cpu_node=0, memory_node=node, relation="local", probe_cpu=0,
        load="1@0", unloaded_ns=one(UNLOADED_NS, "ns"), curves=(), doubling_write_share=None,
    )  # fmt: skip


class Simulator:
    """The rules by which Mess's simulators read and use curves, as their controllers state them.

    They open the file of each even percentage and pass over a missing one, so that a curve is found by its place among
    those found. In it they take the first bandwidth below that wanted, and draw a line to the one before it.
    """

    def __init__(self, directory: Path) -> None:
        self.curves: list[list[tuple[float, float]]] = []
        for percent in range(0, 101, 2):
            path = directory / f"bwlat_{percent}.txt"
            if path.exists():
                numbers = [float(word) for word in path.read_text().split()]
                self.curves.append(list(zip(numbers[::2], numbers[1::2], strict=True)))

    def latency_ns(self, bandwidth_mb_s: float, reads: float) -> float:
        curve = self.curves[int(100 * reads * 0.5 + 0.5)]
        place = next((at for at, (mb_s, _) in enumerate(curve) if mb_s < bandwidth_mb_s), len(curve) - 1)
        (x1, y1), (x2, y2) = curve[place], curve[max(0, place - 1)]
        return y1 if place == 0 else y1 + (bandwidth_mb_s - x1) / (x2 - x1) * (y2 - y1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("curves")
    for name, text in files_of(values()).items():
        (path / name).write_text(text)
    return path


def interpolated(mix: str, bandwidth_mb_s: float) -> float:
    """Return the latency of *mix* between the measured points."""
    points = [(0.0, UNLOADED_NS)]
    points += sorted((row.bandwidth_mb_s.value, row.latency_ns.value) for row in values().points if row.mix == mix)
    place = bisect_left(points, (bandwidth_mb_s, 0.0))
    (x1, y1), (x2, y2) = points[place - 1 : place + 1]
    return y1 + (bandwidth_mb_s - x1) / (x2 - x1) * (y2 - y1)


@pytest.mark.parametrize("mix", WRITTEN)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.8, 0.95, 0.99])
def test_a_simulator_gets_the_measured_latency_of_its_traffic(directory: Path, mix: str, share: float) -> None:
    """Its traffic of regular stores reads each line that it writes, as ours does."""
    wanted = FULL_MB_S[mix] * share
    assert Simulator(directory).latency_ns(wanted, 1 - WRITTEN[mix]) == pytest.approx(interpolated(mix, wanted))


@pytest.mark.parametrize(
    ("reads", "mix"), [(0.2, "write_nt"), (0.3, "1:1"), (0.57, "1:1"), (0.7, "2:1"), (0.9, "reads")]
)
def test_traffic_between_two_mixes_gets_the_nearer_curve(directory: Path, reads: float, mix: str) -> None:
    assert Simulator(directory).latency_ns(4e4, reads) == pytest.approx(interpolated(mix, 4e4))


def test_simulators_find_every_file_with_falling_bandwidths(directory: Path) -> None:
    simulator = Simulator(directory)
    assert len(simulator.curves) == len(SIMULATED) == len(list(directory.glob("bwlat_*.txt")))
    for curve in simulator.curves:
        assert [mb_s for mb_s, _ in curve] == sorted({mb_s for mb_s, _ in curve}, reverse=True)
        assert curve[-1] == (0.0, UNLOADED_NS)
    assert [simulator.curves[percent // 2][0][0] for percent in READS.values()] == [FULL_MB_S[mix] for mix in READS]


def test_plotters_find_their_columns_in_gb_s_by_whole_percent(directory: Path) -> None:
    with (directory / "memory_curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["read_pct_rounded"]) for row in rows} == {0, 50, 67, 75, 100}
    assert {row["bandwidth_mean"] == row["bandwidth_smooth"] for row in rows} == {True}
    assert {row["latency_mean"] == row["latency_smooth"] for row in rows} == {True}
    assert max(float(row["bandwidth_smooth"]) for row in rows) == pytest.approx(120.0003)


def test_curves_come_back_as_they_were(directory: Path) -> None:
    found = curves_in((directory / "memory_curves.csv").read_text())
    assert [curve.reads_percent for curve in found.curves] == [100, 75, 67, 50, 0]
    for curve, mix in zip(found.curves, WRITTEN, strict=True):
        points = {point.bandwidth_mb_s: point.latency_ns for point in curve.points}
        own = {row.bandwidth_mb_s.value: row.latency_ns.value for row in values().points if row.mix == mix}
        assert points == pytest.approx({0.0: UNLOADED_NS} | own)
        assert list(points) == pytest.approx([0.0, *sorted(own)])


def test_a_load_without_effect_on_the_bandwidth_is_one_point() -> None:
    """Two equal bandwidths would have a simulator divide by their difference."""
    flat = values(("reads",))
    rows = [row | {"bandwidth_mb_s": one(7e4, "MB/s")} for row in flat.points]
    text = files_of(flat.model_copy(update={"table": MemoryCurvesValues.table_of(rows)}))["bwlat_0.txt"]
    assert text == f"70000.0\t200.0\n0.0\t{UNLOADED_NS}\n"


# The command


FIRST = datetime(2026, 1, 30, 1, 2, 3, tzinfo=UTC)


def with_curves(sut: str, night: int, *nodes: int, invalid: bool = False) -> RunDocument:
    """Return a run of *sut* with curves to the memory of *nodes*."""
    when = FIRST + timedelta(days=night)
    document = run_document(names=("loaded_latency",), id=f"{when:%Y%m%dT%H%M%SZ}-0a1b", testbed="t1", sut=sut)
    (like,) = document.measurements
    flags = (flag("PLACEMENT_WRONG", "the pages lie in node 1"),) if invalid else ()
    measured = tuple(
        like.model_copy(
            update={
                "id": f"memory_curves-0-{node}",
                "kind": "memory_curves",
                "values": values(node=node),
                "validity": validity(flags),
            }
        )
        for node in nodes
    )
    return document.model_copy(update={"measurements": (*document.measurements, *measured)})


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, [*map(str, words)])


def written(path: Path) -> Iterator[tuple[str, str]]:
    yield from ((str(file.relative_to(path)), file.read_text()) for file in sorted(path.rglob("*.*")))


def test_the_newest_run_of_each_sut_is_exported_for_each_pair_of_nodes(tmp_path: Path) -> None:
    results, output = tmp_path / "results", tmp_path / "curves"
    for document in (
        with_curves("s1", 0, 0, 1, 2),
        with_curves("s1", 1, 0, 1),
        with_curves("s2", 1, 0, invalid=True),
        with_curves("s3", 1),
    ):
        store(document, results)
    done = called("export", "curves", "--results", results, "-o", output)
    assert done.output.splitlines() == [
        "t1/s2/20260131T010203Z-0a1b: memory_curves-0-0 left out: the pages lie in node 1",
        f"{output}: curves of 1 SUT written, 2 node pairs",
    ]
    found = dict(written(output))
    assert len(found) == 2 * (1 + len(SIMULATED))
    assert found["t1/s1/0-1/bwlat_100.txt"] == files_of(values(node=1))["bwlat_100.txt"]
    assert called("export", "curves", "--results", results, "-o", output).exit_code == 0
    assert dict(written(output)) == found


def test_an_unreadable_run_does_not_cost_the_others_their_curves(tmp_path: Path) -> None:
    results, output = tmp_path / "results", tmp_path / "curves"
    store(with_curves("s1", 0, 0), results)
    (store(with_curves("s2", 0, 0), results) / "run.json").write_text("{")
    done = called("export", "curves", "--results", results, "-o", output)
    assert done.output.startswith("t1/s2 left out: ")
    assert done.output.endswith("curves of 1 SUT written, 1 node pair\n")


def test_results_without_curves_are_said_so(tmp_path: Path) -> None:
    store(with_curves("s1", 0), tmp_path / "results")
    ended = called("export", "curves", "--results", tmp_path / "results", "-o", tmp_path / "curves")
    assert str(ended.exception) == f"no memory curves in the newest runs of {tmp_path / 'results'}"
    assert not (tmp_path / "curves").exists()


# What is read of theirs


def curves_in(text: str) -> ReadMemoryCurves:
    published = read_published(text)
    assert published.format == "mess"
    (reading,) = published.read.readings
    assert isinstance(reading.values, ReadMemoryCurves)
    return reading.values


def test_curves_of_mess_are_read() -> None:
    """Of the columns of a mean and of a smoothed curve, the mean counts."""
    text = MESS.read_text(encoding="utf-8")
    found = curves_in(text.replace("106.21167402666667,157.86226247829862,100", "1,2,100"))
    assert [(curve.reads_percent, len(curve.points)) for curve in found.curves] == [(100, 10), (67, 11), (50, 9)]
    first, last = found.curves[0].points[0], found.curves[0].points[-1]
    assert (first.bandwidth_mb_s, first.latency_ns) == pytest.approx((0.0, 90.1754))
    assert (last.bandwidth_mb_s, last.latency_ns) == pytest.approx((106_211.674, 157.8623))
    read = hold(text.encode())
    assert read is not None
    assert invented(read, text) == {}
    named = {metric.name: metric.value for metric in found.metrics()}
    assert named == {
        "memory_curves.100pct.bandwidth_mb_s": last.bandwidth_mb_s,
        "memory_curves.100pct.latency_ns": last.latency_ns,
        "memory_curves.50pct.bandwidth_mb_s": pytest.approx(86_515.429),
        "memory_curves.50pct.latency_ns": pytest.approx(271.9308),
    }


def test_line_ends_and_the_direction_of_the_load_do_not_matter() -> None:
    text = MESS.read_text(encoding="utf-8")
    assert curves_in("\ufeff" + text.replace("\n", "\r\n")) == curves_in(text)
    header, *rows = text.splitlines()
    assert curves_in("\n".join([header, *reversed(rows), ""])) == curves_in(text)


HEAD = "read_pct_rounded,bandwidth_mean,latency_mean\n"


@pytest.mark.parametrize(("text", "fault"), [
    (f"{HEAD}100,1,90\n100,50,nan\n", "row 3: latency_mean is 'nan', not a number from 0 on"),
    (f"{HEAD}100,1,90\n100,-50,120\n", "row 3: bandwidth_mean is '-50', not a number from 0 on"),
    (f"{HEAD}100,inf,90\n", "row 2: bandwidth_mean is 'inf', not a number from 0 on"),
    (f"{HEAD}100,,90\n", "row 2: bandwidth_mean is '', not a number from 0 on"),
    (f"{HEAD}100,1,0\n", "row 2: latency_mean is 0"),
    (f"{HEAD}101,1,90\n", "row 2: read_pct_rounded is '101', not a percentage"),
    (f"{HEAD}66.7,1,90\n", "row 2: read_pct_rounded is '66.7', not a percentage"),
    (f"{HEAD}100,1,90\n100,50,120\n100,40,99\n", "the bandwidths of the curve of 100 % reads are in no order"),
    (f"{HEAD}100,1,90\n100,50\n", "row 3 has 2 columns, not 3: '100,50'"),
    (f"{HEAD}100,1,90\n100,50,120", "the last row of these curves is cut off"),
    (HEAD, "curves without a point"),
    ("read_pct_rounded,latency_mean\n100,90\n", "curves of Mess without a column bandwidth_mean or bandwidth_smooth"),
    ("read_pct_rounded,bandwidth_mean\n100,1\n", "curves of Mess without a column latency_mean or latency_smooth"),
    ("rd_percentage,bandwidth_mean,latency_mean,read_pct_rounded\n50,1,90,50\n",
     "the ratios of these curves are of instructions, not of traffic: column rd_percentage"),
])  # fmt: skip
def test_wrong_curves_are_refused_in_a_line(text: str, fault: str) -> None:
    with pytest.raises(InputError) as refused:
        read_published(text)
    assert str(refused.value) == fault


def test_curves_of_a_simulator_are_refused_because_ns_and_cycles_look_alike(directory: Path) -> None:
    with pytest.raises(InputError, match="nor curves of Mess"):
        read_published((directory / "bwlat_100.txt").read_text())


def test_curves_are_imported_from_the_command_line(tmp_path: Path) -> None:
    done = called("import", MESS, "--results", tmp_path, "--testbed", "t1", "--sut", "s1")
    lines: list[Any] = done.output.splitlines()
    assert lines[:2] == [f"{MESS.name}: mess, no title", "  memory_curves: 4 metrics by Mess"]
    assert "curves of Mess" in called("show", "t1/s1", "--results", tmp_path).output


# Beside those of others


PROCESSOR = "Intel(R) Xeon(R) Gold 5218 CPU @ 2.30GHz"


def known(processor: str) -> Published:
    """Return the published curves of a run on *processor*."""
    return published_curves(normal(on_metal(with_curves("s1", 0, 0), processor), published()))


def test_only_curves_of_the_same_processor_are_beside_a_run() -> None:
    found = known(PROCESSOR)
    assert list(found.curves) == ["Mess, EPEEC4, 0 % written", "Mess, EPEEC4, 50 % written"]
    assert found.curves["Mess, EPEEC4, 50 % written"][-1] == (86515, 271.9)
    assert found.source.startswith(" Grey, of the same processor: Mess, EPEEC4, 0 and 50 % written (2 sockets, ")
    assert "https://github.com/bsc-mem/Mess-Results, 2026-02-24)" in found.source
    for other in ("Intel(R) Xeon(R) Gold 5218R CPU @ 2.10GHz", "Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz"):
        assert known(other) == Published()
    guest = with_curves("s1", 0, 0)
    assert published_curves(normal(guest, published())) == Published()


def series(chart: Chart) -> set[str]:
    """Return the names of the curves in *chart*."""
    return set(re.findall(r'"s": "([^"]*)"', json.dumps(chart.spec)))


def test_the_chart_of_a_run_has_the_published_curves_and_their_source() -> None:
    document = on_metal(with_curves("s1", 0, 0), PROCESSOR)
    (chart,) = Charts(document, known(PROCESSOR)).drawn("memory_curves")
    (alone,) = Charts(document).drawn("memory_curves")
    assert series(chart) - series(alone) == set(known(PROCESSOR).curves)
    assert chart.caption == alone.caption + known(PROCESSOR).source
    assert "Mess-Results" in page_of(document).text


def test_memory_of_others_has_no_published_curves_beside_it() -> None:
    """They are of own memory."""
    document = on_metal(with_curves("s1", 0, 0), PROCESSOR)
    *_, curves = document.measurements
    remote = curves.model_copy(update={"values": curves.values.model_copy(update={"relation": "remote"})})
    (chart,) = Charts(document.model_copy(update={"measurements": (remote,)}), known(PROCESSOR)).drawn("memory_curves")
    assert not series(chart) & set(known(PROCESSOR).curves)
    assert "Grey" not in chart.caption


def test_curves_of_two_runs_are_compared_beside_those_published() -> None:
    first, second = on_metal(with_curves("s1", 0, 0), PROCESSOR), imported(MESS.read_bytes(), MESS.name)
    chart = compared_curves(first, second)
    assert chart is not None
    assert series(chart) >= {"3:1, 25 % written", "33 % written", "Mess, EPEEC4, 0 % written"}
    assert chart.caption.endswith(known(PROCESSOR).source)
    compared = compare(first, second, public=True)
    html, without = (page_alone(comparison_page(compared, drawn)) for drawn in (chart, None))
    assert "Mess-Results" in html[html.index('id="memory-curves"') :], "in a section of its own, which is wide"
    assert 'id="memory-curves"' not in without
    assert compared_curves(first, with_curves("s2", 0)) is None
    assert compared_curves(first, with_curves("s2", 0, 0, invalid=True)) is None


def test_many_read_curves_are_as_many_as_there_are_colours() -> None:
    point = ReadCurvePoint(bandwidth_mb_s=1e3, latency_ns=90.0)
    curves = tuple(ReadCurve(reads_percent=reads, points=(point,)) for reads in range(100, 49, -1))
    reading = Reading(
        instrument="Mess", command=None, missing=(), notes=(), values=ReadMemoryCurves(curves=curves)
    )  # fmt: skip
    family = reading_family(reading, ReadMemoryCurves(curves=curves))
    assert list(family.curves) == ["reads", *(f"{written} % written" for written in (10, 20, 30, 40, 50))]
