# SPDX-License-Identifier: Apache-2.0
"""Curves of Mess: what its plotters and simulators read from ours, and what is read of theirs."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.base.errors import InputError
from calibration.cli import calibration
from calibration.formats.csit_page import read_published
from calibration.formats.readings import ReadCurve, ReadCurvePoint, Reading, ReadMemoryCurves
from calibration.report.curves import reading_family
from tests.readings import MESS, hold, invented


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, [*map(str, words)])


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


def test_line_ends_and_marks_do_not_matter() -> None:
    text = MESS.read_text(encoding="utf-8")
    assert curves_in("\ufeff" + text.replace("\n", "\r\n")) == curves_in(text)


HEAD = "read_pct_rounded,bandwidth_mean,latency_mean\n"


@pytest.mark.parametrize(("text", "fault"), [
    (f"{HEAD}100,1,90\n100,50,nan\n", "row 3: latency_mean is 'nan', not a number from 0 on"),
    (f"{HEAD}100,1,90\n100,-50,120\n", "row 3: bandwidth_mean is '-50', not a number from 0 on"),
    (f"{HEAD}100,inf,90\n", "row 2: bandwidth_mean is 'inf', not a number from 0 on"),
    (f"{HEAD}100,,90\n", "row 2: bandwidth_mean is '', not a number from 0 on"),
    (f"{HEAD}100,1,0\n", "row 2: latency_mean is 0"),
    (f"{HEAD}101,1,90\n", "row 2: read_pct_rounded is '101', not a percentage"),
    (f"{HEAD}66.7,1,90\n", "row 2: read_pct_rounded is '66.7', not a percentage"),
    (f"{HEAD}100,50,120\n100,1,90\n", "the bandwidths of the curve of 100 % reads do not increase"),
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


def test_curves_of_a_simulator_are_refused_because_ns_and_cycles_look_alike() -> None:
    with pytest.raises(InputError, match="nor curves of Mess"):
        read_published("105000.0\t368.0\n0.0\t89.0\n")


def test_curves_are_imported_from_the_command_line(tmp_path: Path) -> None:
    done = called("import", MESS, "--results", tmp_path, "--testbed", "t1", "--sut", "s1")
    lines: list[Any] = done.output.splitlines()
    assert lines[:2] == [f"{MESS.name}: mess, no title", "  memory_curves: 4 metrics by Mess"]
    assert "curves of Mess" in called("show", "t1/s1", "--results", tmp_path).output


def test_many_read_curves_are_as_many_as_there_are_colours() -> None:
    point = ReadCurvePoint(bandwidth_mb_s=1e3, latency_ns=90.0)
    curves = tuple(ReadCurve(reads_percent=reads, points=(point,)) for reads in range(100, 49, -1))
    reading = Reading(
        instrument="Mess", command=None, missing=(), notes=(), values=ReadMemoryCurves(curves=curves)
    )  # fmt: skip
    family = reading_family(reading, ReadMemoryCurves(curves=curves))
    assert list(family.curves) == ["reads", *(f"{written} % written" for written in (10, 20, 30, 40, 50))]
