# SPDX-License-Identifier: Apache-2.0
"""Captured outputs of the peers, and the values read from them."""

from pathlib import Path

import pytest

from bench import outputs
from bench.outputs import MIB, NotComparedError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "peers"

READERS = [
    ("likwid-bench", outputs.likwid_bench, 20048.32),
    ("bw_mem", outputs.bw_mem, 15926.77),
    ("membench-read", outputs.membench_bandwidth, 15336.62 * MIB),
    ("multiload", outputs.multiload, 14350 * MIB),
    ("mbw", outputs.mbw, 7399.058 * MIB),
    ("multichase", outputs.multichase, 309.0),
    ("core-to-core-latency", outputs.core_to_core, 27.03617),
    ("pingpong", outputs.pingpong, 41.8),
    ("membench-latency", outputs.membench_latency, 582.10),
    ("oslat", outputs.oslat_resolution_ns, 1000.0),
    ("pma-jitter", outputs.pma_block_ticks, 120589),
]


def captured(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "reader", "value"), READERS, ids=[name for name, _reader, _figure in READERS])
def test_captured_outputs_are_read_in_our_units(name: str, reader: outputs.Reader, value: float) -> None:
    assert reader(captured(name)) == pytest.approx(value)


ALL = [
    *[reader for _name, reader, _figure in READERS],
    lambda output: outputs.stress_ng(output, "read64"),
    outputs.mlc_idle,
    lambda output: outputs.oslat_rate(output, 2),
]


@pytest.mark.parametrize("reader", ALL)
@pytest.mark.parametrize(
    "garbage", ["", "Segmentation fault", "nan\nnan", "0 0 0\n-1", "size_kb,operation\n,,,,,,,,,,,\n"]
)
def test_nonsense_is_refused(reader: outputs.Reader, garbage: str) -> None:
    with pytest.raises(NotComparedError):
        reader(garbage)


@pytest.mark.parametrize(
    ("name", "reader", "true", "false"),
    [
        ("likwid-bench", outputs.likwid_bench, "20048.32", "inf"),
        ("bw_mem", outputs.bw_mem, "15926.77", "-1.00"),
        ("membench-read", outputs.membench_bandwidth, "15336.62", "0"),
        ("multiload", outputs.multiload, "14350 ", "nan "),
        ("mbw", outputs.mbw, "7399.058", "0.000"),
        ("multichase", outputs.multichase, "309.0", "nan"),
    ],
)
def test_an_invalid_number_is_refused(name: str, reader: outputs.Reader, true: str, false: str) -> None:
    assert true in captured(name)
    with pytest.raises(NotComparedError, match="is not a positive number"):
        reader(captured(name).replace(true, false))


def test_a_line_without_its_number_is_refused() -> None:
    cut = captured("likwid-bench").replace("MByte/s:", "MFlop/s:")
    with pytest.raises(NotComparedError, match="MByte/s"):
        outputs.likwid_bench(cut)


@pytest.mark.parametrize(("method", "value"), [("read64", 6021.34), ("write64", 1606.72)])
def test_stress_ng_is_one_method_times_instances(method: str, value: float) -> None:
    assert outputs.stress_ng(captured("stress-ng-memrate"), method) == pytest.approx(value * 2 * MIB)


def test_a_method_that_stress_ng_lacks_is_refused() -> None:
    with pytest.raises(NotComparedError, match="write64nt"):
        outputs.stress_ng(captured("stress-ng-memrate"), "write64nt")


@pytest.mark.parametrize("cpus", [(0,), (1, 2), (0, 1, 2)])
def test_likwid_on_other_cpus_is_refused(cpus: tuple[int, ...]) -> None:
    row = r"running on hwthread (\d+)"
    assert outputs.on_cpus(outputs.likwid_bench, row, (0, 1))(captured("likwid-bench")) == pytest.approx(20048.32)
    with pytest.raises(NotComparedError, match=r"ran on CPUs \[0, 1\]"):
        outputs.on_cpus(outputs.likwid_bench, row, cpus)(captured("likwid-bench"))


def test_oslat_counts_from_the_bucket_that_begins_at_the_threshold() -> None:
    output = captured("oslat")
    counts = {
        int(line.split()[0]): int(line.split()[2])
        for line in output.splitlines()
        if "(us):\t" in line and line.split()[0].isdigit()
    }
    assert outputs.oslat_rate(output, 2) == pytest.approx(sum(n for label, n in counts.items() if label >= 3) / 2.0)
    assert outputs.oslat_rate(output, 2) < outputs.oslat_rate(output, 1)


def test_mlc_is_read() -> None:
    assert outputs.mlc_idle("Each iteration took 221.8 core clocks ( 96.7    ns)") == pytest.approx(96.7)


def test_scaled_multiplies_and_passes_refusals_on() -> None:
    doubled = outputs.scaled(outputs.multichase, 2.0)
    assert doubled(captured("multichase")) == pytest.approx(618.0)
    with pytest.raises(NotComparedError):
        doubled("")
