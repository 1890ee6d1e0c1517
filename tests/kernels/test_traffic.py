# SPDX-License-Identifier: Apache-2.0
"""What ``bandwidth`` and ``loaded`` hand over when they are told to stop, rows for other tools, and delays in ns."""

import csv
import subprocess
from pathlib import Path

import pytest

from calibration import sutprobe
from tests.kernels.conftest import Probe
from tests.tools import require_two

MIB = 1 << 20


def test_bandwidth_keeps_what_was_complete(probe: Probe, cpus: list[int]) -> None:
    # 31 placements of more than a second each never fit; one does.
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads,copy", "--buffer-bytes", str(MIB), "--placements", "31",
        "--windows", "2", "--window-s", "0.5", "--deadline-s", "6",
    )  # fmt: skip
    assert done.code == 3
    assert done.document["status"] == "failed"
    assert done.document["error"]["code"] == "deadline"
    result = sutprobe.read_result(sutprobe.read_document(done.document), sutprobe.BandwidthResult)
    reads, copy = result.points
    assert reads.stopped == "interrupted"
    assert reads.error is None
    assert reads.checked
    assert reads.placements is not None
    assert 1 <= len(reads.placements) < 31
    assert all(len(placement.windows_mb_s) == 2 for placement in reads.placements)
    assert copy.placements is None
    assert copy.error is not None
    assert copy.error.code == "deadline"


def test_a_search_keeps_what_it_looked_at(probe: Probe, cpus: list[int]) -> None:
    delays = ",".join(map(str, range(400)))
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads", "--buffer-bytes", str(MIB), "--delay", delays,
        "--keep-best", "1", "--placements", "1", "--deadline-s", "5",
    )  # fmt: skip
    assert done.code == 3
    result = sutprobe.read_result(sutprobe.read_document(done.document), sutprobe.BandwidthResult)
    assert len(result.points) == 400, "a search that was cut short must choose nothing to measure in full"
    looked_at = [point for point in result.points if point.placements]
    assert looked_at
    assert looked_at == list(result.points[: len(looked_at)])
    assert all(point.checked for point in looked_at)
    assert all(point.error and point.error.code == "deadline" for point in result.points[len(looked_at) :])


def test_loaded_keeps_what_was_complete(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--windows", "4", "--window-s", "0.25", "--deadline-s", "8",
    )  # fmt: skip
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"
    result = sutprobe.read_result(sutprobe.read_document(done.document), sutprobe.LoadedResult)
    assert len(result.points) == 19
    complete = [point for point in result.points if point.placements]
    assert complete
    assert all(point.stopped == "interrupted" and point.error is None for point in complete)
    never = [point for point in result.points if not point.placements]
    assert all(point.error and point.error.code == "deadline" for point in never)
    assert len(complete) + len(never) == 19
    assert never
    (zero,) = result.zero_load
    assert len(zero.windows_ns_start) == 4
    assert zero.windows_ns_end == ()


@pytest.mark.parametrize("mix", ["reads", "line_reads"])
def test_delays_in_ns_are_turned_into_instructions(probe: Probe, cpus: list[int], mix: str) -> None:
    require_two(cpus)
    arguments = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--placements", "1", "--windows", "1", "--window-s", "0.02",
        "--mix", mix, "--streams", "1",
    )  # fmt: skip
    done = probe(*arguments, "--delay-ns", "0,1000,5000")
    assert done.code == 0, done.stderr
    result = sutprobe.read_result(sutprobe.read_document(done.document), sutprobe.LoadedResult)
    none, short, long = result.points
    assert none.inject_delay == none.delay_ns == 0
    assert long.inject_delay == pytest.approx(5 * short.inject_delay, abs=5)
    assert 0 < short.delay_ns < long.delay_ns
    both = probe(*arguments, "--delay-ns", "100", "--delay", "100")
    assert both.code == 2
    assert "--delay-ns" in both.document["error"]["message"]
    # Above 1 GHz a millisecond is more than the million additions that one delay may have.
    too_long = probe(*arguments, "--delay-ns", "1000000")
    assert too_long.code == 2
    assert "--delay-ns" in too_long.document["error"]["message"]


def bandwidth_rows(native: Path, cpu: int, *arguments: str) -> list[dict[str, str]]:
    done = subprocess.run(
        [native, "bandwidth", "--group", f"{cpu}@0", "--mix", "reads,write,copy,copy_nt", "--placements", "1",
         "--windows", "1", "--csv", *arguments],
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    return list(csv.DictReader(done.stdout.splitlines()))


OPERATIONS = ("read", "write", "copy", "copy_nt")


def test_bandwidth_rows_for_other_tools(native: Path, cpus: list[int]) -> None:
    rows = bandwidth_rows(native, cpus[0], "--buffer-bytes", "8192,65536", "--window-s", "0.05")
    expected = [(operation, size) for operation in OPERATIONS for size in ("8", "64")]
    assert [(row["operation"], row["size_kb"]) for row in rows] == expected
    for row in rows:
        assert float(row["bandwidth_mb_s"]) > 0
        assert float(row["latency_ns"]) == 0
        assert row["threads"] == "1"
        assert float(row["elapsed_s"]) == pytest.approx(0.05)
        passes = float(row["bandwidth_mb_s"]) * 1e6 * float(row["elapsed_s"]) / (int(row["size_kb"]) * 1024)
        assert int(row["iterations"]) == pytest.approx(passes, rel=1e-3, abs=1)
