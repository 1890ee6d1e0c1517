# SPDX-License-Identifier: Apache-2.0
"""Raw outputs of Intel MLC and PMA jitter: every known layout, cut off anywhere, damaged, and nothing at all.

``CALIBRATION_BLESS=1`` writes the expected documents again, to be reviewed before they are committed.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.model import json_text
from calibration.formats.csit_page import Published, read_published
from calibration.formats.lines import MAX_CHARACTERS
from calibration.formats.readings import Reading, ReadTable
from calibration.measurements.table import Table, TableRow
from tests.readings import FIXTURES, RAW, figures, invented

HEADINGS = """\
Measuring Memory Bandwidths between nodes within system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
                Numa node
Numa node            0       1
"""


NOT_READ = {
    "v3.13-microseconds-and-extra-column": {6963.2, 1243.3},
    "v3.9-cut-off": {432.0},
    "v3.9-unit-not-said": {0.0, 1.0, 47577.4, 44116.4, 44155.7, 47721.1},
}
"""Numbers in tables that are no figures: a column that is not known, one cut short, figures without a unit."""


def read(name: str) -> Published:
    """Return what the fixture *name* says."""
    return read_published((FIXTURES / name).read_bytes().decode())


def test_fixtures_exist() -> None:
    assert len(RAW) >= 17


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_output_gives_the_expected_document(path: Path) -> None:
    expected = path.with_suffix(".expected.json")
    document = read_published(path.read_bytes().decode()).model_dump(mode="json")
    if os.environ.get("CALIBRATION_BLESS") == "1":
        expected.write_text(json_text(document) + "\n", encoding="utf-8")
    assert document == json.loads(expected.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_every_number_of_a_table_is_read(path: Path) -> None:
    text = path.read_bytes().decode()
    rows = [line.replace(",", " ").split() for line in text.splitlines()]
    tables = [row for row in rows if len(row) > 1 and all(re.fullmatch(r"\d+(?:\.\d+)?", item) for item in row)]
    numbers = {float(item) for row in tables for item in row}
    document = json.dumps([reading.model_dump(mode="json") for reading in read_published(text).read.readings])
    found = {float(text) for text in re.findall(r"\d+(?:\.\d+)?", document)}
    assert numbers - found == NOT_READ.get(path.stem, set())


NODES = """\
Measuring Memory Bandwidths between nodes within system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
                Numa node
Numa node            0
       0        150000.9
"""
DELAYED = """\
Measuring Loaded Latencies for the system
Inject	Latency	Bandwidth
Delay	(ns)	MB/sec
==========================
 00000	350.00	 200000.0
"""
IDLE = "Each iteration took 31.0 base frequency clocks (\t12.4\tns)\n"


@pytest.mark.parametrize(("options", "output", "reason"), [
    ("--bandwidth_matrix -W2", NODES, "-W2: traffic of reads and writes, not of reads alone"),
    ("--bandwidth_matrix -R", NODES, None),
    ("--loaded_latency -d0 -W10", DELAYED, "-W10: traffic of reads and writes, not of reads alone"),
    ("--loaded_latency -d0 -b2g", DELAYED, None),
    ("--idle_latency -b20480", IDLE, "-b20480: caches may hold a buffer of 20 MiB"),
    ("--idle_latency -b10m -L", IDLE, "-b10m: caches may hold a buffer of 10 MiB"),
    ("--idle_latency -b1g", IDLE, None),
])  # fmt: skip
@pytest.mark.parametrize("shown", ["Command line parameters: {}\n\n{}", "$ ./mlc {}\n{}"])
def test_options_that_measure_something_else_are_not_read_as_it(
    options: str, output: str, reason: str | None, shown: str
) -> None:
    banner = "Intel(R) Memory Latency Checker - v3.11\n"
    text = shown.format(options, output)
    found = read_published(banner + text if shown.startswith("C") else text.replace("\n", "\n" + banner, 1)).read
    assert [item.reason.startswith(reason or "") for item in found.not_read] == ([True] if reason else [])
    assert bool(found.readings) is (reason is None)
    assert not found.inconsistencies
    for reading in found.readings:
        assert options in " ".join([reading.command or "", *reading.notes])


@pytest.mark.parametrize(("banner", "version"), [
    ("Intel(R) Memory Latency Checker - v3.11a", "3.11a"),
    ("Intel(R) Memory Latency Checker v3.1", "3.1"),
    ("Intel(R) Memory Latency Checker - v3.9-internal", "3.9-internal"),
    ("Intel(R) Memory Latency Checker - v3.11b (internal)", "3.11b"),
    ("Intel(R) Memory Latency Checker (for Internal Use Only) - v3.6-internal", "3.6-internal"),
    ("Intel(R) Memory Latency Checker (for Internal Use Only) - v3.12-rc01-private-internal",
     "3.12-rc01-private-internal"),
    ("Intel(R) Memory Latency Checker (Intel(R) MLC) \u2013 v3.10", "3.10"),
    ("Intel(R) Memory Latency Checker [internal build] \u2014 v3.12", "3.12"),
    ("Intel(R) Memory Latency Checker, v3.11", "3.11"),
    ("Memory Latency Checker: Version 3.9a", "3.9a"),
    ("Memory Latency Checker, a tool", None),
])  # fmt: skip
def test_versions_of_banners(banner: str, version: str | None) -> None:
    (reading,) = read_published(f"{banner}\n{HEADINGS}       0        41873.4   19642.7\n").read.readings
    assert reading.instrument == ("Intel MLC" if version is None else f"Intel MLC {version}")


@pytest.mark.parametrize(("what", "rows", "found"), [
    ("latency", ("0 91.7 148.3", "1 147.2 92.4"), []),
    ("latency", ("0 130.1 220.4 120.9", "1 221.0 131.2 241.7"), []),  # node 2 is HBM without CPUs
    ("latency", ("0 91.7 148.3 95.1", "1 147.2 92.4 160.2", "2 - - -"), []),
    ("latency", ("0 260.3 148.3", "1 330.8 92.4"), []),  # node 0 has slower memory of its own
    ("latency", ("0 101.2 99.8", "1 99.9 100.7"), []),  # clusters of one socket, within noise
    ("latency", ("0 191.7 148.3", "1 147.2 92.4"), ["node 1 reaches node 0 with 147.2 ns, node 0 itself"]),
    ("bandwidth", ("0 230000.1 120000.4 510000.9", "1 120001.0 230001.2 121001.7"), []),
    ("bandwidth", ("0 230000.1 380000.4", "- - -"), []),  # Arm: node 1 is the memory of a GPU
    ("bandwidth", ("0 19873.4 59642.7", "1 18588.2 141790.1"), []),  # node 0 has one module
    ("bandwidth", ("0 141873.4 79642.7", "1 19588.2 24790.1"), []),  # node 1 has few CPUs
    ("bandwidth", ("0 41873.4 41990.7", "1 41588.2 41790.1"), []),
    ("bandwidth", ("0 41873.4 119642.7", "1 19588.2 41790.1"), ["node 0 reaches node 1 with 119643 MB/s, node 1"]),
])  # fmt: skip
def test_memory_is_not_nearer_to_other_nodes(what: str, rows: tuple[str, ...], found: list[str]) -> None:
    heading = {
        "latency": "Measuring idle latencies (in ns)...",
        "bandwidth": "Measuring Memory Bandwidths between nodes within system\nBandwidths are in MB/sec",
    }[what]
    columns = " ".join(map(str, range(len(rows[0].split()) - 1)))
    read = read_published("\n".join([heading, "Numa node", f"Numa node {columns}", *rows]) + "\n").read
    assert [reading.id for reading in read.readings] == [f"{what}_matrix"]
    order = [item.reason for item in read.inconsistencies if item.code == "ORDER"]
    assert len(order) == len(found)
    assert all(reason.startswith(start) for reason, start in zip(order, found, strict=True))


CUTS = (pytest.param(41, id="often"), pytest.param(1, id="anywhere", marks=pytest.mark.thorough))
"""Characters between one place where an output is cut off and the next."""


@pytest.mark.parametrize("step", CUTS)
@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_truncated_output_has_only_values_of_the_whole(path: Path, step: int) -> None:
    text = path.read_bytes().decode()
    whole = figures(read_published(text).read)
    seen = 0
    for end in range(len(text) - 1, 0, -step):
        try:
            part = read_published(text[:end]).read
        except InputError:
            continue
        found = figures(part)
        assert found.items() <= whole.items(), text[:end][-200:]
        seen = max(seen, len(found))
    assert seen or not whole


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_line_ends_do_not_matter(path: Path) -> None:
    text = path.read_bytes().decode().replace("\r\n", "\n")
    expected = read_published(text).read.readings
    assert read_published(text.replace("\n", "\r\n")).read.readings == expected
    assert read_published(text.replace("\n", "   \t\n")).read.readings == expected


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_no_value_is_invented(path: Path) -> None:
    text = path.read_bytes().decode()
    assert invented(read_published(text).read, text) == {}


def test_output_without_final_newline_is_complete() -> None:
    text = (FIXTURES / "mlc" / "v3.9-memory-only-node.txt").read_text(encoding="utf-8")
    (reading,) = read_published(text.rstrip("\n")).read.readings
    assert reading.complete
    assert reading.values == read_published(text).read.readings[0].values


@pytest.mark.parametrize(("rows", "cells", "missing"), [
    ("       0  61013.5 28804.4\n       1  28790.3 60998.2\n", ((61013.5, 28804.4), (28790.3, 60998.2)), ()),
    ("       0  61013.5 28804.4\n       1        -       -\n", ((61013.5, 28804.4),), ()),
    ("       0  61013.5 28804.4\n       1  28790.3\n", ((61013.5, 28804.4), (28790.3, None)),
     ("row 1: cut off after 1 of 2 numbers",)),
    ("       0  61013.5\n       1  28790.3 60998.2\n", ((28790.3, 60998.2),), ("row 0: not 2 numbers: '0  61013.5'",)),
    ("       0  61013.5 2b804.4\n       1  28790.3 60998.2\n", ((28790.3, 60998.2),),
     ("row 0: not 2 numbers: '0  61013.5 2b804.4'",)),
    ("       0  61013.5 28804.4 1.0\n       1  28790.3 60998.2\n", ((28790.3, 60998.2),),
     ("row 0: not 2 numbers: '0  61013.5 28804.4 1.0'",)),
    ("       0  61013.5 28804.4\n       0  11111.1 22222.2\n       1  28790.3 60998.2\n", ((28790.3, 60998.2),),
     ("row 0: printed twice",)),
    ("       0  61013.5 28804.4\n    8192  28790.3 60998.2\n", ((61013.5, 28804.4),),
     ("row 8192: CPUs and nodes up to 8191 are read",)),
    ("       0  61013.5 nan\n       1  28790.3 60998.2\n", ((28790.3, 60998.2),),
     ("row 0: not 2 numbers: '0  61013.5 nan'",)),
    ("       0  -1.0 2.0\n       1  1e99 60998.2\n", None, None),
])  # fmt: skip
def test_only_complete_rows_are_read(
    rows: str, cells: tuple[tuple[float | None, ...], ...] | None, missing: tuple[str, ...] | None
) -> None:
    found = read_published(HEADINGS + rows).read
    if cells is None:
        assert found.readings == ()
        assert [item.kind for item in found.not_read] == ["bandwidth_matrix"]
        return
    (reading,) = found.readings
    assert reading.values.fields()["bandwidth_mb_s"] == cells
    assert reading.missing == missing
    assert reading.complete is not bool(missing)
    assert [inconsistency.code for inconsistency in found.inconsistencies if inconsistency.code == "TRUNCATED"] == [
        "TRUNCATED"
    ] * bool(missing)


@pytest.mark.parametrize(("unit", "value"), [
    ("Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)", 1000.5),
    ("Bandwidths are in MB/sec (1 MB/sec = 1,048,576 Bytes/sec)", 1000.5 * 1.048576),
    ("Bandwidths are in MiB/sec", 1000.5 * 1.048576),
    ("Bandwidths are in GB/sec", 1000500.0),
    ("Bandwidths are in KB/sec", 1.0005),
])  # fmt: skip
def test_bandwidth_units(unit: str, value: float) -> None:
    text = HEADINGS.replace("Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)", unit)
    (reading,) = read_published(text + "       0  1000.5 -\n").read.readings
    assert reading.values.fields()["bandwidth_mb_s"][0][0] == pytest.approx(value)


@pytest.mark.parametrize("row", [
    {"cpu_node": 0, "memory_node": 0, "latency_ns": 91.5},
    {"cpu_node": "0", "memory_node": 0, "bandwidth_mb_s": 1000.5},
    {"cpu_node": 0, "memory_node": 0, "bandwidth_mb_s": "1000.5"},
    {"cpu_node": 0, "bandwidth_mb_s": 1000.5},
])  # fmt: skip
def test_a_stored_table_of_another_form_is_refused(row: dict[str, Any]) -> None:
    (reading,) = read_published(f"{HEADINGS}       0  1000.5\n").read.readings
    raw = reading.model_dump(mode="json")
    raw["values"]["table"]["rows"] = [row]
    with pytest.raises(ValidationError, match=r"values\.bandwidth_matrix"):
        Reading.model_validate_json(json.dumps(raw))


def test_a_stored_transfer_between_unknown_nodes_is_refused() -> None:
    row = TableRow(transfer="remote_hitm_writer_homed", writer_node=0, reader_node=None, latency_ns=93.4)
    with pytest.raises(ValidationError, match="between nodes without its nodes"):
        ReadTable(kind="c2c_latency", table=Table(axes=("transfer", "writer_node", "reader_node"), rows=(row,)))


@pytest.mark.parametrize(("unit", "value"), [("ns", 93.4), ("us", 93400.0), ("ms", 93.4e6)])
def test_latency_units(unit: str, value: float) -> None:
    (reading,) = read_published(f"Each iteration took 231.5 core clocks ( 93.4    {unit})\n").read.readings
    assert reading.values.fields()["latency_ns"] == pytest.approx(value)


def test_numbers_without_a_unit_are_not_values() -> None:
    found = read("mlc/v3.9-unit-not-said.txt").read
    assert found.readings == ()
    assert [(item.kind, item.reason) for item in found.not_read] == [("bandwidth_matrix", "no unit given")]
    assert [inconsistency.code for inconsistency in found.inconsistencies] == ["UNIT_NOT_SAID"]


def test_default_sweep_that_ends_early_is_incomplete() -> None:
    text = (FIXTURES / "mlc" / "v3.1-sockets.txt").read_text(encoding="utf-8")
    found = read_published(text[: text.index(" 00700")]).read
    (reading,) = [reading for reading in found.readings if reading.id == "loaded_latency"]
    assert not reading.complete
    assert reading.missing == ("10 of the 19 delays of a sweep",)


def test_statistics_may_be_reset_and_headings_repeated() -> None:
    found = read("pma_jitter/v1.8-reset-and-repeated-headings.txt").read
    (reading,) = found.readings
    assert reading.complete
    assert len(reading.values.fields()["intervals"]) == 20
    assert found.inconsistencies == ()
    assert "Statistics have been reset" in reading.notes


def test_reports_statistics_that_jump_without_a_reset() -> None:
    text = (FIXTURES / "pma_jitter" / "v1.8-reset-and-repeated-headings.txt").read_text(encoding="utf-8")
    found = read_published(text.replace("Statistics have been reset", "")).read
    assert {inconsistency.where for inconsistency in found.inconsistencies} == {
        "Abs_Max is not the largest Inst_Max so far"
    }


def test_reports_contradicting_jitter_columns() -> None:
    found = read("pma_jitter/v1.9-columns-contradict.txt").read
    assert [(inconsistency.code, inconsistency.where) for inconsistency in found.inconsistencies] == [
        ("COLUMNS_CONTRADICT", "Inst_jitter is not Inst_Max - Inst_Min"),
        ("COLUMNS_CONTRADICT", "last_Exec lies outside Inst_Min and Inst_Max"),
        ("TRUNCATED", "Linux Jitter testing program version 1.9"),
    ]


JITTER = """\
Display is updated every 10 displayUpdate intervals
   Inst_Min   Inst_Max   Inst_jitter last_Exec  Abs_min    Abs_max      tmp       Interval     Sample No
        100        120         20        110        100        120        {tmp}     {interval}          1
        100        120         20        110        100        120          0         1200         {sample}
The end
"""
"""Two intervals of ten executions."""


@pytest.mark.parametrize("sample", [0, 3, 4])
def test_reports_a_missing_sample(sample: int) -> None:
    found = read_published(JITTER.format(tmp=0, interval=1200, sample=sample)).read
    assert [(inconsistency.where, inconsistency.reason) for inconsistency in found.inconsistencies] == [
        (f"sample {sample}", "sample 2 is missing before it")
    ]


@pytest.mark.parametrize("sample", [1, 2])
def test_sample_continues_or_restarts(sample: int) -> None:
    assert read_published(JITTER.format(tmp=0, interval=1200, sample=sample)).read.inconsistencies == ()


def test_extremes_begin_anew_with_sample_1() -> None:
    rows = [(100, 120, 100, 120, 1), (150, 160, 150, 160, 1), (140, 150, 140, 160, 2)]
    (heading, columns, *_), end = JITTER.splitlines(), "The end\n"
    table = [f"{low} {high} {high - low} {high} {least} {most} 0 2000 {n}" for low, high, least, most, n in rows]
    assert read_published("\n".join((heading, columns, *table, end))).read.inconsistencies == ()


@pytest.mark.parametrize("tmp", [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_ticks_are_kept_in_64_bits(tmp: int) -> None:
    (reading,) = read_published(JITTER.format(tmp=tmp, interval=1200, sample=2)).read.readings
    assert reading.complete
    assert [interval["tmp"] for interval in reading.values.fields()["intervals"]] == [tmp, 0]


def test_ignores_ticks_beyond_64_bits() -> None:
    (reading,) = read_published(JITTER.format(tmp=1 << 64, interval=1200, sample=2)).read.readings
    assert len(reading.values.fields()["intervals"]) == 1
    assert "not a row of 9 whole numbers" in reading.missing[0]


@pytest.mark.parametrize(("interval", "where"), [(999, ["Interval is shorter than its executions"]), (1000, [])])
def test_an_interval_lasts_as_long_as_its_executions(interval: int, where: list[str]) -> None:
    found = read_published(JITTER.format(tmp=0, interval=interval, sample=2)).read
    assert [inconsistency.where for inconsistency in found.inconsistencies] == where


@pytest.mark.parametrize("text", [
    "", "\n\n", "\x00\xff", "nothing of interest\n", "0 1 2 3\n",
    "Intel(R) Memory Latency Checker - v3.9\nCommand line parameters: --help\n",
    "Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy:          45231.2     0.03\n", ":: " * 1000,
    "x" * (MAX_CHARACTERS + 1),
], ids=range(9))  # fmt: skip
def test_rejects_other_texts(text: str) -> None:
    with pytest.raises(InputError, match=r"^not a published calibration page|^at most 8388608 characters"):
        read_published(text)


@pytest.mark.parametrize(
    "line",
    ["9 " * 99_999, "mlc " * 99_999, ":" * 99_999, " " * 99_999 + "x", "=" * 99_999, "0 -" * 99_999],
    ids=range(6),
)
def test_ignores_an_endless_line(line: str) -> None:
    found = read_published(f"{HEADINGS}       0  61013.5 28804.4\n{line}\n       1  28790.3 60998.2\n").read
    assert found.readings[0].values.fields()["bandwidth_mb_s"] == ((61013.5, 28804.4), (28790.3, 60998.2))
