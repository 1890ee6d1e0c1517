# SPDX-License-Identifier: Apache-2.0
"""Bytes counted against bytes moved, worked out from made counts."""

from typing import Any

import pytest

from calibration.counters.volume import (
    CountedBytes,
    CounterReading,
    DirectionBytes,
    Moved,
    Unit,
    counted_bytes,
    counted_flags,
    moved_per_step,
    triad_bytes,
)
from calibration.sutprobe.bandwidth import Accounting
from calibration.sutprobe.counters import Counted, Counters, Refused

READS_AND_WRITES = {"dram.reads": Unit(64.0), "dram.writes": Unit(64.0)}
SOCKETS = {0: (0,), 16: (1,)}
WRITE = Accounting(
    reads_per_step=0, writes_per_step=1, write_allocate_reads_per_step=1, program_bytes_per_step=64,
    model_dram_bytes_per_step=128,
)  # fmt: skip


def counted(name: str, count: float | None, **changes: Any) -> Counted:
    fields: dict[str, Any] = {
        "name": name, "pmus": ("uncore_imc_0",), "cpu": 0, "threads": None, "count": round(count or 0), "scaled": count,
        "running_fraction": 1.0, "wall_s": 2.0, "wall_uncertainty_s": 1e-5, "steps": 1000.0, "hops": None,
        "background_count": 0.0, "background_wall_s": 1.0,
    }  # fmt: skip
    return Counted(**{**fields, **changes})


def reading(*events: Counted, refused: tuple[Refused, ...] = (), **changes: Any) -> CounterReading:
    fields: dict[str, Any] = {
        "counters": Counters(background_s=1.0, events=events, refused=refused),
        "moved": moved_per_step(WRITE),
        "per_step": True,
        "shares": {0: 1.0},
    }
    return CounterReading(**{**fields, **changes})


def of(readings: list[CounterReading], units: dict[str, Unit] | None = None) -> CountedBytes:
    found = counted_bytes(readings, units or READS_AND_WRITES, lambda cpu: SOCKETS[cpu])
    assert found is not None
    return found


def direction(found: CountedBytes, name: Any) -> DirectionBytes:
    chosen = found.of(name)
    assert chosen is not None
    return chosen


def codes(found: CountedBytes) -> dict[str, str]:
    return {flag.code: flag.reason for flag in counted_flags([("write", found)])}


def test_written_lines_count_twice_and_background_is_subtracted() -> None:
    events = (
        counted("dram.reads", 1030.0, background_count=10.0),  # 20 in the two seconds
        counted("dram.writes", 1005.0, background_count=None, background_wall_s=None),
    )
    found = of([reading(*events), reading(*events)])
    reads, writes = direction(found, "reads"), direction(found, "writes")
    assert (reads.moved_bytes, reads.allocate_bytes, reads.counted_bytes) == (128_000, 128_000, 2 * 1010 * 64)
    assert reads.background_bytes == 2 * 20 * 64
    assert reads.ratio is not None
    assert reads.ratio.value == pytest.approx(1.01)
    assert [len(sample) for sample in reads.ratio.samples] == [1, 1]
    assert (writes.moved_bytes, writes.allocate_bytes, writes.counted_bytes) == (128_000, 0, 2 * 1005 * 64)
    assert writes.background_bytes is None
    assert (found.wall_s, found.running_fraction, found.not_counted) == (4.0, 1.0, ())


def test_each_package_has_its_own_ratio() -> None:
    events = (counted("dram.reads", 760.0), counted("dram.reads", 240.0, cpu=16))
    (volume,) = of([reading(*events, shares={0: 0.75, 1: 0.25})], {"dram.reads": Unit(64.0)}).directions
    assert [(socket.cpu, socket.nodes, socket.moved_bytes) for socket in volume.sockets] == [
        (0, (0,), 48_000),
        (16, (1,), 16_000),
    ]
    assert [socket.ratio for socket in volume.sockets] == [pytest.approx(760 / 750), pytest.approx(240 / 250)]
    assert volume.ratio is not None
    assert volume.ratio.value == pytest.approx(1.0)


def test_probe_reads_count_as_moved() -> None:
    event = counted("dram.reads", 1000.0)
    (volume,) = of([reading(event, probe_bytes_per_s=320.0)], {"dram.reads": Unit(64.0)}).directions
    assert volume.moved_bytes == 64_000 + 2 * 320


def test_flags_a_difference_above_five_percent() -> None:
    near = of([reading(counted("dram.reads", 1049.0), counted("dram.writes", 951.0))])
    assert codes(near) == {}
    off = of([reading(counted("dram.reads", 1051.0), counted("dram.writes", 900.0))])
    assert list(codes(off)) == ["COUNTED_DIFFERS"]
    assert codes(off)["COUNTED_DIFFERS"].endswith("in 1 of 1 measurements, most in write, bytes written: -10.0 %")


def test_writes_beside_reads_are_compared_with_the_reads() -> None:
    reads = {"reads_per_step": 1, "model_dram_bytes_per_step": 64}
    accounting = WRITE.model_copy(update={**reads, "writes_per_step": 0, "write_allocate_reads_per_step": 0})
    events = (counted("dram.reads", 1000.0), counted("dram.writes", 40.0))
    few = of([reading(*events, moved=moved_per_step(accounting))])
    assert direction(few, "writes").ratio is None
    assert codes(few) == {}
    events = (counted("dram.reads", 1000.0), counted("dram.writes", 60.0))
    assert "bytes written: +6.0 %" in codes(of([reading(*events, moved=moved_per_step(accounting))]))["COUNTED_DIFFERS"]
    idle = of([reading(*(event.model_copy(update={"steps": 0.0}) for event in events))])
    assert codes(idle) == {}, "nothing moved"


def test_background_and_multiplexing_are_flagged() -> None:
    events = (counted("dram.reads", 1012.0, background_count=6.0), counted("dram.writes", 1000.0))
    assert "read: 1.2 %" in codes(of([reading(*events)]))["BACKGROUND_TRAFFIC"]
    events = (counted("dram.reads", 1000.0, running_fraction=0.5), counted("dram.writes", 1000.0))
    assert "only 50 % of the time" in codes(of([reading(*events)]))["COUNTERS_MULTIPLEXED"]


def test_a_stopped_counter_gives_a_reason() -> None:
    refused = Refused(name="dram.writes", pmu="uncore_imc_1", cpu=0, errno="EACCES", reason="not permitted")
    found = of([reading(counted("dram.reads", None), counted("dram.writes", 10.0), refused=(refused,))])
    assert found.directions == ()
    assert {event.role: event.reason for event in found.not_counted} == {
        "dram.reads": "a counter never ran: no hardware counter was free",
        "dram.writes": "uncore_imc_1 on CPU 0: not permitted",
    }
    assert found.running_fraction == 1.0
    assert codes(found) == {}
    assert counted_bytes([], READS_AND_WRITES, lambda cpu: (cpu,)) is None
    silent = of([reading()])
    assert {event.reason for event in silent.not_counted} == {"sutprobe reported no count of it"}


def test_a_node_without_counters_gives_no_count() -> None:
    found = of([reading(counted("dram.reads", 1000.0), counted("dram.writes", 1000.0), shares={0: 0.5, 1: 0.5})])
    assert [event.reason for event in found.not_counted] == ["no counter of it serves the memory of node 1"] * 2


def test_core_counters_are_shown_with_their_limits() -> None:
    event = counted("core.offcore_reads", 900.0, cpu=None, threads=2, background_count=None, background_wall_s=None)
    found = of([reading(event)], {"core.offcore_reads": Unit(64.0, "prefetched lines may be missing")})
    (other,) = found.others
    assert (other.counted_bytes, other.ratio) == (57_600, pytest.approx(0.9))
    assert (other.background_bytes, other.caution) == (None, "prefetched lines may be missing")
    assert codes(found) == {}


def test_combined_counter_is_compared_with_both_directions() -> None:
    found = of([reading(counted("dram.reads_and_writes", 2000.0))], {"dram.reads_and_writes": Unit(64.0)})
    volume = direction(found, "reads_and_writes")
    assert (volume.moved_bytes, volume.allocate_bytes) == (128_000, 64_000)
    assert volume.ratio is not None
    assert volume.ratio.value == 1.0


def test_triad_bytes_match_the_article() -> None:
    array = 610_400_000
    x86 = triad_bytes(array, 10, allocates=True)
    assert x86 == Moved(read_bytes=33 * array, allocate_bytes=13 * array, written_bytes=13 * array)
    assert triad_bytes(array, 10, allocates=False) == Moved(
        read_bytes=20 * array, allocate_bytes=0, written_bytes=13 * array
    )
    assert x86.of("reads_and_writes") == 46 * array


def test_total_bytes_are_not_multiplied_by_steps() -> None:
    event = counted("dram.reads", 33_000.0, steps=None)
    moved = triad_bytes(64_000, 10, allocates=True)
    (volume,) = of([reading(event, moved=moved, per_step=False)], {"dram.reads": Unit(64.0)}).directions
    assert volume.moved_bytes == 33 * 64_000
    assert volume.ratio is not None
    assert volume.ratio.value == 1.0
