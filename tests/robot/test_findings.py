# SPDX-License-Identifier: Apache-2.0
"""The rules behind the gates, on figures of machines that no recording is of."""

from collections.abc import Sequence

import numpy as np
import pytest
from nights import MET
from report_documents import attempt, run_document

from calibration.acceptance.findings import curve_rises, mixes_in_order, own_memory_first, promises
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.measurements.loaded_latency import LoadedLatencyValues, LoadedPointValues, ProbeLatency
from calibration.measurements.traffic import MixBandwidth, Setting
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import Accounting


def test_a_start_that_was_refused_counts_where_no_other_did() -> None:
    refused = attempt(checks=(MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met"}),))
    document = run_document(names=())
    resumed = promises(document.model_copy(update={"attempts": (refused, attempt(checks=(MET,)))}))
    assert (len(resumed.shown), resumed.faults) == (1, ())
    alone = promises(document.model_copy(update={"attempts": (refused,)}))
    assert alone.faults == ("Kernel release: expected 6.1.*, found 5.4.0-1",)
    flagged = attempt(checks=(MET.model_copy(update={"outcome": "unknown", "effect": "flag"}),))
    both = promises(document.model_copy(update={"attempts": (flagged, attempt(checks=(MET,)))}))
    assert len(both.faults) == 1


LINES = {"reads": (1, 0), "3:1": (3, 1), "2:1": (2, 1), "1:1": (1, 1), "stream_triad": (2, 1)}


def figure(value: float, unit: str, placements: int = 6, spread: float = 0.01) -> Estimate:
    offsets = np.linspace(-spread, spread, placements)
    return estimate([[value * (1 + each)] * 3 for each in offsets], unit)


def mixes(spread: float = 0.01, **gb_s: float) -> dict[str, MixBandwidth]:
    """Return bandwidths in GB/s by mix."""
    found = {}
    for name, value in gb_s.items():
        mix = {"three": "3:1", "two": "2:1", "one": "1:1"}.get(name, name)
        reads, writes = LINES[mix]
        moved = figure(1000 * value, "MB/s", spread=spread)
        found[mix] = MixBandwidth(
            bandwidth_mb_s=moved,
            program_mb_s=moved,
            per_thread_mb_s=(),
            accounting=Accounting(
                reads_per_step=reads,
                writes_per_step=writes,
                write_allocate_reads_per_step=0,
                program_bytes_per_step=64 * (reads + writes),
                model_dram_bytes_per_step=64 * (reads + writes),
            ),
            setting=Setting(threads=2, streams=4, prefetch_bytes=0, width="avx2", delay=0, buffer_bytes=1 << 28),
        )
    return found


@pytest.mark.parametrize(
    "gb_s",
    [
        {"reads": 115.8, "three": 106.4, "two": 103.5, "one": 94.1, "stream_triad": 104.9},
        {"reads": 25.3, "three": 33.7, "two": 37.9, "one": 50.5, "stream_triad": 37.1},
        {"reads": 40.0, "three": 50.0, "two": 49.0, "one": 44.0},
    ],
    ids=["memory is the limit", "the way of the reads is", "first one, then the other"],
)
def test_mixes_may_rise_and_fall(gb_s: dict[str, float]) -> None:
    found = mixes_in_order(mixes(**gb_s))
    assert found.faults == found.untold == ()
    assert len(found.shown) >= 6


@pytest.mark.parametrize(
    ("gb_s", "wanted"),
    [
        ({"reads": 50.0, "one": 110.0}, "expected 1:1 to read no more than reads"),
        ({"reads": 100.0, "two": 90.0, "one": 50.0}, "expected 1:1 to write no less than 2:1"),
        ({"reads": 50.0, "stream_triad": 90.0}, "expected stream_triad to read no more than reads"),
    ],
)
def test_what_one_machine_cannot_do_is_a_fault(gb_s: dict[str, float], wanted: str) -> None:
    (fault,) = mixes_in_order(mixes(**gb_s)).faults
    assert fault.startswith(wanted)
    assert mixes_in_order(mixes(spread=0.3, **gb_s)).faults == (), "noise as wide as that says nothing"


def matrix(columns: Sequence[int], *rows: Sequence[Estimate]) -> LatencyMatrixValues:
    nodes = tuple(range(len(rows)))
    sizes = (1 << 28,) * len(columns)
    cells = tuple(map(tuple, rows))
    return LatencyMatrixValues(
        cpu_nodes=nodes, memory_nodes=tuple(columns), cpus=nodes, sizes_bytes=sizes, latency_ns=cells
    )


def test_a_node_with_memory_alone_may_be_faster() -> None:
    near, far, other = (figure(value, "ns") for value in (90.0, 140.0, 60.0))
    found = own_memory_first(matrix((0, 1, 2), (near, far, other), (far, near, other)))
    assert found.faults == found.untold == ()
    assert len(found.shown) == 2


def test_a_figure_of_few_placements_decides_nothing() -> None:
    near, far = figure(140.0, "ns", placements=3), figure(90.0, "ns", placements=3)
    found = own_memory_first(matrix((0, 1), (near, far), (far, near)))
    assert found.faults == found.shown == ()
    assert "memory of node 0 has no figure with a sure interval" in found.untold[0]


def curve(latency: Sequence[Estimate]) -> LoadedLatencyValues:
    """Return a sweep with these latencies from no delay to the longest, and a bandwidth that falls with the delay."""
    points = tuple(
        LoadedPointValues(
            inject_delay=100 * number,
            delay_ns=50.0 * number,
            latency_ns=each,
            bandwidth_mb_s=figure(10_000 / (1 + number), "MB/s"),
            probes=(ProbeLatency(cpu=0, node=0, latency_ns=each),),
        )
        for number, each in enumerate(latency)
    )
    return LoadedLatencyValues(mix="reads", load="1@0", points=points, zero_load=())


def test_a_flat_curve_with_noise_is_rarely_a_fault() -> None:
    random = np.random.default_rng(20260102)
    faults = 0
    for _ in range(300):
        seen = np.exp(0.03 * random.standard_normal((19, 6)))
        faults += bool(curve_rises(curve([estimate([[each] for each in 100 * row], "ns") for row in seen])).faults)
    assert faults <= 3


def test_a_curve_that_falls_by_more_than_the_tolerance_is_a_fault() -> None:
    (fault,) = curve_rises(curve([figure(value, "ns") for value in (90.0, 100.0, 98.0)])).faults
    assert fault.startswith(
        "latency of CPU 0: expected at least that of delay 100, 100 ns (99 to 101), at delay 0, found 90"
    )
    assert curve_rises(curve([figure(value, "ns") for value in (98.0, 100.0, 98.0)])).faults == ()


def test_a_curve_of_few_placements_cannot_be_told() -> None:
    found = curve_rises(curve([figure(value, "ns", placements=3) for value in (90.0, 100.0)]))
    assert found.faults == ()
    assert "latency of CPU 0 at delay 0 has no sure interval" in found.untold
