# SPDX-License-Identifier: Apache-2.0
"""Published calibration pages: all their values, and their known faults."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.base.errors import InputError
from calibration.commands.imports import import_command
from calibration.formats.csit_page import Published, read_published
from calibration.formats.readings import INCONSISTENCIES, Read, inconsistency
from calibration.results.imports import shared_figures
from calibration.results.store import read_run
from tests.readings import PAGES, figures, invented

ROOT = Path(__file__).resolve().parents[3]
ALL = [
    "jitter", "bandwidth_matrix", "peak_injection_bandwidth", "max_bandwidth", "latency_matrix", "idle_latency",
    "loaded_latency", "c2c_latency",
]  # fmt: skip

FAULTS = {
    "arm": {"NOT_GIVEN": 1, "UNPROVED": 1, "HOST_CONTRADICTS": 1, "ARCHITECTURE": 2, "COMMAND_CONTRADICTS": 2},
    "complete": {"UNPROVED": 1, "ORDER": 2},
    "fused_cmdline": {"NOT_GIVEN": 2, "UNPROVED": 1, "HOST_CONTRADICTS": 1, "CMDLINE_DAMAGED": 1, "ORDER": 1},
    "jitter_only": {"HOST_CONTRADICTS": 1, "COMMAND_CONTRADICTS": 2},
    "other_host": {"UNPROVED": 1, "HOST_CONTRADICTS": 1, "ORDER": 1},
    "placeholders": {"STRAY_TEXT": 1, "PLACEHOLDER": 7, "NOT_GIVEN": 2, "HOST_CONTRADICTS": 1,
                     "COMMAND_CONTRADICTS": 2},
}  # fmt: skip
"""How many inconsistencies of each code each page was composed with."""

MENDED = {code: count for code, count in FAULTS["fused_cmdline"].items() if code != "CMDLINE_DAMAGED"}
"""Those of the page with a fused command line, mended."""

PUBLISHED = Path(os.environ.get("CALIBRATION_PUBLISHED_PAGES", ROOT.parent / "shared" / "reference" / "csit-pages"))
"""Pages that FD.io CSIT published, if somebody has them; they are not in this repository."""

PUBLISHED_FAULTS = {
    "env_icx__95d52a55b8": FAULTS["jitter_only"], "hsw__0fc7d0b8fb": FAULTS["complete"],
    "hsw__12c3608c34": FAULTS["fused_cmdline"], "hsw__25a40550e9": FAULTS["other_host"], "hsw__935bc3285b": MENDED,
    "tsh__2072a56eec": FAULTS["arm"], "zn2__2072a56eec": FAULTS["placeholders"],
}  # fmt: skip
"""The composed page with the same kinds of faults."""


def page(name: str) -> Published:
    """Return what the page *name* says."""
    return read_published(text_of(name))


def text_of(name: str) -> str:
    return next(path for path in PAGES if path.stem == name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_has_exactly_its_known_faults(path: Path) -> None:
    found = page(path.stem).read
    assert Counter(item.code for item in found.inconsistencies) == FAULTS[path.stem]
    assert all(reading.complete for reading in found.readings)


def test_a_mended_command_line_is_not_damaged() -> None:
    found = read_published(text_of("fused_cmdline").replace("tty0console", "tty0 console")).read
    assert Counter(item.code for item in found.inconsistencies) == MENDED


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published pages are not on this machine")
@pytest.mark.parametrize("name", PUBLISHED_FAULTS)
def test_published_page_has_the_faults_of_the_composed_one(name: str) -> None:
    text = (PUBLISHED / f"{name}.rst").read_text(encoding="utf-8")
    found = read_published(text).read
    assert Counter(item.code for item in found.inconsistencies) == PUBLISHED_FAULTS[name]
    assert all(reading.complete for reading in found.readings)
    assert_all_cells(text, found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_table_cell_is_read(path: Path) -> None:
    assert_all_cells(path.read_text(encoding="utf-8"), page(path.stem).read)


def assert_all_cells(text: str, found: Read) -> None:
    """Check that *found* has all cells of the tables in *text*, and nothing else."""
    assert invented(found, text) == {}
    values = set(figures(found).values())
    plain = text.replace(",", " ").replace('"', " ")
    rows = [line.split() for line in plain.splitlines() if re.fullmatch(r"    [ \d.-]*\d+ +[ \d.-]+", line)]
    cells = [float(item) for row in rows for item in row[1:] if item != "-"]
    assert len(cells) > 100
    assert [cell for cell in cells if cell not in values] == []


def test_reads_all_values_of_the_complete_page() -> None:
    found = page("complete")
    assert (found.format, found.title, found.testbed, found.sut) == (
        "csit_page",
        "Calibration Data - Broadwell",
        "t7",
        "t7-sut2",
    )
    assert found.context.isolcpus == "2-13,16-27"
    assert found.context.uname is not None
    assert found.context.uname.startswith("Linux t7-sut2 4.19.0-21-generic #1-Lab")
    assert [reading.id for reading in found.read.readings] == ALL
    assert found.read.not_read == ()
    by_id = {reading.id: reading.values.fields() for reading in found.read.readings}
    assert by_id["jitter"]["cpu"] == 11
    assert len(by_id["jitter"]["intervals"]) == by_id["jitter"]["iterations"] == 20
    assert by_id["jitter"]["intervals"][1]["inst_jitter_cycles"] == 28020
    assert by_id["bandwidth_matrix"]["bandwidth_mb_s"] == ((41873.4, 19642.7), (19588.2, 41790.1))
    assert by_id["peak_injection_bandwidth"]["bandwidth_mb_s"] == {
        "reads": 83614.2,
        "3:1": 79105.8,
        "2:1": 76344.1,
        "1:1": 70218.9,
        "stream_triad": 73406.3,
    }
    assert by_id["max_bandwidth"]["bandwidth_mb_s"]["stream_triad"] == 75120.66
    assert by_id["latency_matrix"]["latency_ns"] == ((91.7, 148.3), (147.2, 92.4))
    assert (by_id["idle_latency"]["latency_ns"], by_id["idle_latency"]["clocks"]) == (90.6, 238.1)
    points = by_id["loaded_latency"]["points"]
    assert len(points) == 19
    assert points[-1] == {"inject_delay": 20000, "latency_ns": 92.12, "bandwidth_mb_s": 900.0}
    assert by_id["c2c_latency"] == {
        "kind": "c2c_latency",
        "local_hit_ns": 39.6,
        "local_hitm_ns": 44.3,
        "nodes": (0, 1),
        "remote_hitm_writer_homed_ns": ((None, 119.4), (118.7, None)),
        "remote_hitm_reader_homed_ns": ((None, 121.9), (122.3, None)),
    }


def test_placeholders_are_not_read_as_values() -> None:
    found = page("placeholders").read
    assert [reading.id for reading in found.readings] == ["jitter"]
    assert [item.kind for item in found.not_read] == ALL[1:]
    assert {item.reason for item in found.not_read} == {"the page says TBC in place of its output"}


def test_reports_pages_with_the_same_digits() -> None:
    pages = [(path.stem, page(path.stem)) for path in PAGES]
    found = dict(zip([path.stem for path in PAGES], shared_figures(pages), strict=True))
    same = {name: [fault.code for fault in faults] for name, faults in found.items() if faults}
    assert same == {name: ["SAME_FIGURES"] for name in ("fused_cmdline", "other_host")}


@pytest.mark.parametrize(("name", "old", "new", "code", "reason"), [
    ("complete", "0        41873.4", "0       141873.4", "ORDER", "node 0 reads of node 0 141873 MB/s"),
    ("complete", "0           91.7   148.3", "0          191.7   148.3", "ORDER", "node 1 reaches node 0"),
    ("complete", "00500   92.16    30804.6", "00500   92.16    90804.6", "ORDER", "bandwidth rises"),
    ("complete", "81602.37", "41807.1", "ORDER", "41807.1 MB/s, 50.00 % below the peak"),
    ("complete", "16288", "16289", "COLUMNS_CONTRADICT", "sample 1: 16289, not 16288"),
    ("complete", "-c 11", "-c 14", "CORE_NOT_ISOLATED", "CPU 14 is not among"),
    ("complete", "-i 20", "-i 30", "COMMAND_CONTRADICTS", "iterations 30, the output says 20"),
    ("complete", "x86_64 x86_64 x86_64", "aarch64 aarch64 aarch64", "ARCHITECTURE", "aarch64, but"),
    ("complete", "t7-sut2 4.19.0-21", "t7-sut2 4.19.0-22", "KERNEL_CONTRADICTS", "booted 4.19.0-21"),
    ("complete", "    ALL Reads        :  83614.2\n", "", "TRUNCATED", "no value for reads"),
    ("complete", "0       1\n        0        41873.4   19642.7\n        1        19588.2   41790.1\n",
     "0\n        0        41873.4\n", "SIZES_CONTRADICT", "nodes 0, 1, but bandwidth_matrix has 0"),
    ("jitter_only", "core_id:9", "core_id:91", "COMMAND_CONTRADICTS", "CPU 5, the output says 91"),
])  # fmt: skip
def test_finds_contradictions(name: str, old: str, new: str, code: str, reason: str) -> None:
    text = text_of(name)
    assert text.count(old) == 1
    before = {(item.code, item.reason) for item in page(name).read.inconsistencies}
    found = {(item.code, item.reason) for item in read_published(text.replace(old, new)).read.inconsistencies}
    assert [item for item in found - before if item[0] == code and reason in item[1]]


@pytest.mark.parametrize(("written", "fault"), [
    ("isolcpus=2-N", None),
    ("isolcpus=domain,2-13,16-27 isolcpus=managed_irq,2-3", None),
    ("isolcpus=managed_irq,2-N", "CORE_NOT_ISOLATED"),
    ("isolcpus=all", "CMDLINE_DAMAGED"),
])  # fmt: skip
def test_isolcpus_of_a_page_is_read_as_the_kernel_reads_it(written: str, fault: str | None) -> None:
    text = text_of("complete").replace("isolcpus=2-13,16-27", written)
    codes = {item.code for item in read_published(text).read.inconsistencies}
    assert codes & {"CORE_NOT_ISOLATED", "CMDLINE_DAMAGED"} == ({fault} if fault else set())


@pytest.mark.parametrize("stride", [61, pytest.param(11, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_truncated_page_has_only_values_of_the_whole(path: Path, stride: int) -> None:
    text = path.read_text(encoding="utf-8")
    whole = figures(read_published(text).read)
    for end in range(0, len(text), stride):
        try:
            part = read_published(text[:end])
        except InputError:
            continue
        assert figures(part.read).items() <= whole.items(), text[:end][-200:]


def test_names_a_command_without_output() -> None:
    text = text_of("complete")
    found = read_published(text[: text.index("    Intel(R) Memory Latency Checker")] + "\nText\n").read
    assert ("bandwidth_matrix", "the page has the command and no output") in [
        (item.kind, item.reason) for item in found.not_read
    ]


def test_rejects_unknown_codes() -> None:
    with pytest.raises(KeyError):
        inconsistency("NO_SUCH_CODE", "", "")
    assert all(meaning for meaning in INCONSISTENCIES.values())


def test_command_prints_the_documented_json() -> None:
    done = CliRunner().invoke(import_command, [str(PAGES[1]), "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert set(printed["context"]) == {"cmdline", "uname", "isolcpus"}
    by_kind = {measurement["kind"]: measurement for measurement in printed["measurements"]}
    assert list(by_kind) == ALL
    assert by_kind["idle_latency"]["latency_ns"] == 90.6
    assert by_kind["idle_latency"]["latency_ns_interval"] is None
    assert by_kind["idle_latency"]["latency_ns_prediction"] is None
    assert by_kind["latency_matrix"]["latency_ns"] == [[91.7, 148.3], [147.2, 92.4]]
    assert by_kind["loaded_latency"]["points"][0]["bandwidth_mb_s_interval"] is None
    assert printed["not_measured"] == []
    assert {item["code"] for item in printed["inconsistencies"]} == {"UNPROVED", "ORDER"}


def test_imports_are_stored_once_and_verbatim(tmp_path: Path) -> None:
    arguments = [*map(str, PAGES), "--results", str(tmp_path), "--measured-on", "2021-02-03"]
    first = CliRunner().invoke(import_command, arguments)
    assert first.exit_code == 0, first.output
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert CliRunner().invoke(import_command, arguments).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == kept
    runs = sorted(tmp_path.glob("*/*/*/run.json"))
    assert len(runs) == len(PAGES)
    texts = {(run.parent / "imported.rst").read_bytes() for run in runs}
    assert texts == {path.read_bytes() for path in PAGES}
    document = read_run(next(run for run in runs if run.parent.parent.name == "t7-sut2"))
    assert document.run.status == "imported"
    assert document.imported is not None
    assert (str(document.imported.measured_on), document.imported.source) == ("2021-02-03", "complete.rst")


def test_anonymous_results_need_a_testbed(tmp_path: Path) -> None:
    raw = tmp_path / "mlc.txt"
    raw.write_text("Each iteration took 231.5 core clocks ( 93.4    ns)\n", encoding="utf-8")
    results = tmp_path / "results"
    refused = CliRunner().invoke(import_command, [str(raw), "--results", str(results)])
    assert isinstance(refused.exception, InputError)
    assert "--testbed" in str(refused.exception)
    assert not results.exists()
    arguments = [str(raw), "--results", str(results), "--testbed", "lab", "--sut", "sut1"]
    assert CliRunner().invoke(import_command, arguments).exit_code == 0
    (kept,) = results.glob("lab/sut1/imported-*/imported.txt")
    imported = read_run(kept.parent).imported
    assert imported is not None
    assert not imported.publish
    assert CliRunner().invoke(import_command, [*arguments, "--publish"]).exit_code == 0
    imported = read_run(kept.parent).imported
    assert imported is not None
    assert imported.publish


def test_names_a_missing_file(tmp_path: Path) -> None:
    refused = CliRunner().invoke(import_command, [str(tmp_path / "none.rst")])
    assert isinstance(refused.exception, InputError)
    assert "none.rst" in str(refused.exception)
