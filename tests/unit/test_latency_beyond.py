# SPDX-License-Identifier: Apache-2.0
"""Outstanding loads, latency of every core and random bandwidth: planted truths, false alarms, and cross-checks."""

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.statistics import estimate
from calibration.counters.volume import moved_per_step
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.measurements.core_latency import FALSE_ALARMS, MIN_SLOWDOWN, CoreLatencyValues, slow_cores
from calibration.measurements.memory_parallelism import MIN_GAIN, MemoryParallelismValues
from calibration.measurements.random_bandwidth import RANDOM_BYTES_MIN, RandomBandwidthValues, random_bytes
from calibration.measurements.sut import Sut
from calibration.measurements.table import TableRow
from calibration.results.consistency import RULES, ConsistencyCheck
from calibration.results.cross_checks import cross_checks
from tests.report.report_documents import index_of, replace, run_document, scaled
from tests.unit.test_measurements import MACHINE, codes, one, read

ROUNDS = 6
CPUS, NODES = 504, 16
RUNS = {CPUS: 8, 8: 300, 3: 300}
"""Simulated runs of machines with so many cores."""

Latency = Callable[[random.Random, int, int], float]
"""The latency of a core in a round, in ns."""


def cores(seed: int, latency_ns: Latency, *, count: int = CPUS, nodes: int = NODES) -> tuple[TableRow, ...]:
    """Return *count* cores in *nodes* whose rounds are drawn from *latency_ns*."""
    stream = random.Random(seed)
    return tuple(
        TableRow(
            cpu=cpu,
            node=cpu * nodes // count,
            latency_ns=estimate(
                [[latency_ns(stream, cpu, number)] for number in range(ROUNDS)], "ns", rounds=range(ROUNDS)
            ),
        )
        for cpu in range(count)
    )


def noisy(sigma: float, *, slow: dict[int, float] | None = None, drift: float = 0.0) -> Latency:
    """Return a latency of 100 ns and 5 ns more for each node, with relative noise *sigma* in each round."""
    factors = slow or {}

    def latency_ns(stream: random.Random, cpu: int, number: int) -> float:
        place = (100 + 5 * (cpu * NODES // CPUS)) * (1 + drift * number) * factors.get(cpu, 1.0)
        return place * (1 + stream.gauss(0, sigma))

    return latency_ns


def on_a_mesh(stream: random.Random, cpu: int, _number: int) -> float:
    """Cores that are unequally far from memory, always, by 6 % of standard deviation."""
    return 100 * (1 + random.Random(cpu).gauss(0, 0.06)) * (1 + stream.gauss(0, 0.01))


def heavy_tailed(stream: random.Random, _cpu: int, _number: int) -> float:
    """One round in ten is disturbed by up to half the latency."""
    return 100 * (1 + stream.gauss(0, 0.02) + (stream.random() < 0.1) * stream.random() / 2)


@pytest.mark.parametrize(("latency_ns", "count"), [
    (noisy(0.05), CPUS),
    (noisy(0.2), CPUS),
    (noisy(0.01, drift=0.1), CPUS),
    (on_a_mesh, CPUS),
    (heavy_tailed, CPUS),
    (noisy(0.05), 3),
    (noisy(0.2), 3),
    (noisy(0.05), 8),
    (noisy(0.2), 8),
])  # fmt: skip
def test_equal_cores_raise_no_alarm(latency_ns: Latency, count: int) -> None:
    runs = RUNS[count]
    nodes = NODES if count == CPUS else 1
    alarms = sum(bool(slow_cores(cores(seed, latency_ns, count=count, nodes=nodes))[1]) for seed in range(runs))
    # at the declared rate, more than this in one test of 300
    assert alarms <= (1 if count == CPUS else 8), f"{alarms} of {runs} runs at {FALSE_ALARMS:.0%}"


@pytest.mark.parametrize("factor", [1.1, 1.5, 20.0])
def test_the_slow_cores_are_found_and_no_others(factor: float) -> None:
    planted = {7: factor, 300: factor * 1.3}
    found = slow_cores(cores(1, noisy(0.01, slow=planted, drift=0.1)))[1]
    assert [core.cpu for core in found] == [300, 7], "slowest first"
    assert [core.slowdown.value + 1 for core in found] == pytest.approx([factor * 1.3, factor], rel=0.02)


def test_a_core_within_the_limit_is_not_slow_nor_is_a_fast_one() -> None:
    planted = {7: 1 + MIN_SLOWDOWN / 2, 9: 0.5}
    limit, found = slow_cores(cores(2, noisy(0.002, slow=planted)))
    assert (limit, found) == (MIN_SLOWDOWN, ())


def test_a_core_that_was_slow_in_most_rounds_is_not_known_to_be() -> None:
    def sometimes(stream: random.Random, cpu: int, number: int) -> float:
        return 100 * (1 + stream.gauss(0, 0.005)) * (1.5 if cpu == 7 and number else 1.0)

    assert slow_cores(cores(3, sometimes))[1] == ()


def test_two_cores_are_not_told_apart_and_one_in_three_is() -> None:
    assert slow_cores(cores(4, noisy(0.001, slow={1: 2.0}), count=2, nodes=1))[1] == ()
    assert [core.cpu for core in slow_cores(cores(4, noisy(0.001, slow={1: 2.0}), count=3, nodes=1))[1]] == [1]


def test_a_core_without_all_rounds_takes_none_from_the_others() -> None:
    """The first round is twice as slow, and core 3 lacks it: its second would be compared with their first."""
    found = cores(6, noisy(0.002, slow={7: 1.3}, drift=1.0), count=16, nodes=1)
    for lost in (1, ROUNDS - 1):
        (short,) = (point for point in found if point.cpu == 3)
        kept = [[value] for value in short.latency_ns.centres[lost:]]
        short = TableRow(short | {"latency_ns": estimate(kept, "ns", rounds=range(len(kept)))})
        points = tuple(short if point.cpu == 3 else point for point in found)
        assert [core.cpu for core in slow_cores(points)[1]] == [7]
        values = CoreLatencyValues(table=CoreLatencyValues.table_of(points), slow_limit=0.05, slow=())
        (middle,) = (
            metric for metric in declaration("core_latency").metrics(values) if metric.name.endswith("median_ns")
        )
        assert middle.placements == ROUNDS


def test_the_document_of_a_large_machine_stays_small() -> None:
    points = cores(5, noisy(0.01, slow={7: 2.0}))
    limit, slow = slow_cores(points)
    values = CoreLatencyValues(table=CoreLatencyValues.table_of(points), slow_limit=limit, slow=slow)
    assert len(values.model_dump_json()) < 1_000_000


def planted_cores(slow: float) -> dict[str, Any]:
    """Return the recorded document with 16 cores, of which CPU 5 has *slow* times the latency of all others."""
    raw = read("core_latency")
    first = raw["result"]["points"][0]
    made = []
    for cpu in range(16):
        point = copy.deepcopy(first)
        point["cpu"], point["nodes"] = cpu, [cpu // 8]
        for number, placement in enumerate(point["placements"]):
            placement["windows_ns"] = [100.0 * (slow if cpu == 5 else 1) * (1 + 0.001 * (cpu % 3 + number))] * 3
        made.append(point)
    raw["result"]["points"] = made
    return raw


def test_a_slow_core_is_named_in_flag_summary_and_metrics() -> None:
    good, bad = one("core_latency", planted_cores(1.0)), one("core_latency", planted_cores(1.2))
    assert "SLOW_CORE" not in codes(good)
    (reason,) = (flag.reason for flag in bad.flags if flag.code == "SLOW_CORE")
    assert "CPU 5" in reason
    assert "20 %" in reason
    kind = declaration("core_latency")
    assert "CPU 5" in next(iter(kind.summary([bad.values])))
    metrics = {metric.name.partition(".")[2]: metric.value for metric in kind.metrics(bad.values)}
    assert metrics["highest_ns"] == pytest.approx(1.2 * metrics["median_ns"], rel=0.01)
    assert metrics["lowest_ns"] == pytest.approx(metrics["median_ns"], rel=0.01)
    assert metrics["spread"] == pytest.approx(0.2, rel=0.05)
    assert [(row.node, len(row.points)) for row in bad.values.rows] == [(0, 8), (1, 8)]


def planted_chains(most: float, latency_ns: float = 100.0) -> dict[str, Any]:
    """Return the recorded document as of a core that has at most *most* loads in flight."""
    raw = read("memory_parallelism")
    for point in raw["result"]["points"]:
        for number, placement in enumerate(point["placements"]):
            ns = latency_ns / min(point["chains"], most) * (1 + 0.001 * number)
            placement["windows_ns"] = [ns] * len(placement["windows_ns"])
            placement["dirty_windows"] = []
    return raw


@pytest.mark.parametrize(("most", "enough"), [(1.0, 1), (5.0, 8), (10.0, 12), (13.0, 16), (24.0, 24), (100.0, None)])
def test_loads_in_flight_and_the_chains_that_suffice(most: float, enough: int | None) -> None:
    values = one("memory_parallelism", planted_chains(most)).values
    assert isinstance(values, MemoryParallelismValues)
    (curve,) = values.curves
    assert curve.enough_chains == enough
    assert curve.best.in_flight is not None
    assert curve.best.in_flight.value == pytest.approx(min(most, 32))
    assert curve.best.load_ns.value == pytest.approx(100 / min(most, 32), rel=0.01)
    metrics = {metric.name: metric.value for metric in declaration("memory_parallelism").metrics(values)}
    assert metrics == {
        "memory_parallelism.0.load_ns": curve.best.load_ns.value,
        "memory_parallelism.0.in_flight": curve.best.in_flight.value,
    }
    (sentence,) = declaration("memory_parallelism").summary([values])
    assert ("at least" in sentence) == (enough is None)


def test_a_gain_that_is_not_sure_is_none() -> None:
    """From 16 chains on, medians fall by more than the limit, but not in all rounds."""
    raw = planted_chains(16)
    for point in raw["result"]["points"]:
        if point["chains"] > 16:
            for number, placement in enumerate(point["placements"]):
                change = 1.2 if number == 0 else 1 - 2 * MIN_GAIN
                placement["windows_ns"] = [ns * change for ns in placement["windows_ns"]]
    assert one("memory_parallelism", raw).values.curves[0].enough_chains == 16


@pytest.mark.parametrize("kind", ["memory_parallelism", "load_tail"])
def test_a_point_without_overhead_is_refused_not_zero(kind: str) -> None:
    raw = read(kind)
    for point in raw["result"]["points"]:
        point["loop_overhead_ns"] = None
    with pytest.raises(InputError, match="no overhead of its loop"):
        one(kind, raw)


def test_no_chains_are_no_settings() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        declaration("memory_parallelism").settings(chains=())


def test_without_one_chain_nothing_is_known_to_be_in_flight() -> None:
    raw = planted_chains(10)
    first = raw["result"]["points"][0]
    first["placements"], first["error"] = None, {"code": "no_memory", "message": "expected 128 MiB, found 4"}
    first["stopped"] = first["order_check"] = first["loop_overhead_ns"] = None
    parsed = one("memory_parallelism", raw)
    (curve,) = parsed.values.curves
    assert all(point.in_flight is None for point in curve.points)
    assert [missing.what for missing in parsed.missing] == ["1 chain, 1@0"]
    names = [metric.name for metric in declaration("memory_parallelism").metrics(parsed.values)]
    assert names == ["memory_parallelism.0.load_ns"]


def step_of(kind: str, **settings: Any) -> Step:
    declared = declaration(kind)
    (step,) = (item for item in declared.steps(Sut(MACHINE), declared.settings(**settings)) if isinstance(item, Step))
    return step


def option(step: Step, name: str) -> list[str]:
    return [value for word, value in zip(step.argv, step.argv[1:], strict=False) if word == f"--{name}"]


def test_the_nearest_and_the_farthest_memory_are_walked() -> None:
    assert [place.split("@")[1].split(":")[0] for place in option(step_of("memory_parallelism"), "at")] == ["0", "1"]
    assert len(option(step_of("memory_parallelism", far=False), "at")) == 1


def test_each_core_is_measured_once_in_its_own_memory() -> None:
    sut = Sut(MACHINE)
    places = [place.split(":")[0] for place in option(step_of("core_latency"), "at")]
    assert places == [f"{cpu}@{sut.node_of(cpu)}" for cpu in sut.one_per_core(sut.cpus)]
    assert len(places) < len(sut.cpus), "siblings share a core"


@pytest.mark.parametrize(("wanted", "size"), [(1, RANDOM_BYTES_MIN), (5 << 20, 8 << 20), (8 << 20, 8 << 20)])
def test_buffers_of_random_reads_are_powers_of_two(wanted: int, size: int) -> None:
    sut = Sut(MACHINE)
    assert random_bytes(sut, {0: 1}, wanted) == size
    usable = sut.usable_bytes(0)
    assert usable is not None
    many = random_bytes(sut, {0: 4}, 1 << 45)
    assert many & (many - 1) == 0
    assert many * 4 <= usable < many * 8


def checks_of(
    rule: str, *factors: float, line_bytes: int = 64, chains: float = 10, **estimate: Any
) -> Sequence[ConsistencyCheck]:
    """Return the checks of *rule* in the recorded run, with random reads of such lines, times *factors*.

    The core has at most *chains* loads in flight; *estimate* replaces fields of the bandwidth of the random reads.
    """
    document = run_document(
        names=("memory_parallelism", "random_bandwidth", "idle_latency", "peak_injection_bandwidth")
    )
    index = index_of(document, "memory_parallelism")
    values = one("memory_parallelism", planted_chains(chains, 15 * chains)).values
    document = replace(document, index, values=values)
    index = index_of(document, "random_bandwidth")
    random_values = document.measurements[index].values
    assert isinstance(random_values, RandomBandwidthValues)
    reads = random_values.reads
    accounting = reads.accounting.model_copy(update={"model_dram_bytes_per_step": line_bytes})
    reads = reads.model_copy(update={"accounting": accounting})
    for factor in factors:
        reads = reads.model_copy(update={"bandwidth_mb_s": scaled(reads.bandwidth_mb_s, factor)})
    reads = reads.model_copy(update={"bandwidth_mb_s": reads.bandwidth_mb_s.model_copy(update=estimate)})
    document = replace(document, index, values=random_values.model_copy(update={"reads": reads}))
    return [check for check in cross_checks(document.measurements) if check.rule == rule]


def test_random_reads_stay_below_the_loads_in_flight() -> None:
    (check,) = checks_of("parallelism")
    assert check.other.value == pytest.approx(64e3 / 15, rel=0.01), "a line of 64 bytes in 15 ns"
    assert check.other.interval is not None
    assert check.other.interval[0] < check.other.value < check.other.interval[1]
    threads = 2
    low = check.figure.interval[0] if check.figure.interval else check.figure.value
    limit = (check.bound or (None, 0.0))[1]
    assert limit == pytest.approx(check.other.high * (1 + RULES["parallelism"].tolerance))
    for factor, outcome in ((0.99 * limit / low, "pass"), (1.01 * limit / low, "fail")):
        (changed,) = checks_of("parallelism", factor)
        assert changed.outcome == outcome
    document = run_document(names=("random_bandwidth",))
    reads = document.measurements[index_of(document, "random_bandwidth")].values
    assert isinstance(reads, RandomBandwidthValues)
    assert check.figure.value == pytest.approx(reads.reads.bandwidth_mb_s.value / threads)


def test_parallelism_is_judged_with_an_interval_and_a_known_limit_of_loads() -> None:
    (check,) = checks_of("parallelism", interval=None, coverage=None)
    assert (check.outcome, check.figure.interval) == ("skipped", None)
    assert checks_of("parallelism", chains=100) == []


def test_lines_are_those_of_the_machine() -> None:
    """POWER's are twice as long: each load moves as much, and as many loads are twice the bandwidth."""
    (usual,), (long,) = checks_of("parallelism"), checks_of("parallelism", line_bytes=128)
    assert long.other.value == pytest.approx(2 * usual.other.value)
    assert long.other.interval == pytest.approx(tuple(2 * end for end in usual.other.interval or ()))
    raw = read("random_bandwidth")
    before = one("random_bandwidth", raw).values
    for point in raw["result"]["points"]:
        point["accounting"]["model_dram_bytes_per_step"] = 128
    values = one("random_bandwidth", raw).values
    assert (before.line_bytes, values.line_bytes) == (64, 128)
    assert values.loads_per_s == pytest.approx(values.reads.bandwidth_mb_s.value * 1e6 / 128)
    moved = moved_per_step(values.reads.accounting)
    assert (moved.read_bytes, moved.allocate_bytes, moved.written_bytes) == (128, 0, 0)


def test_one_chain_repeats_the_idle_latency() -> None:
    names = {(check.figure.name, check.other.name) for check in checks_of("same_latency")}
    assert ("memory_parallelism.0.1.load_ns", "idle_latency.latency_ns") in names


def test_the_share_of_sequential_reads_is_that_of_the_same_cpus() -> None:
    document = run_document(names=("random_bandwidth", "peak_injection_bandwidth"))
    values = document.measurements[index_of(document, "random_bandwidth")].values
    peak = document.measurements[index_of(document, "peak_injection_bandwidth")].values
    assert isinstance(values, RandomBandwidthValues)
    values = values.model_copy(update={"sequential_share": None})
    kind = declaration("random_bandwidth")
    share = kind.completed(values, {"peak": peak}).sequential_share
    assert share is not None
    expected = values.reads.bandwidth_mb_s.value / peak.mixes["reads"].bandwidth_mb_s.value
    assert share.value == pytest.approx(expected, rel=0.2), "of medians, and the median of ratios"
    metrics = {metric.name: metric.value for metric in kind.metrics(kind.completed(values, {"peak": peak}))}
    assert metrics == {
        "random_bandwidth.bandwidth_mb_s": values.reads.bandwidth_mb_s.value,
        "random_bandwidth.sequential_share": share.value,
    }
    for other in ({"plain": True}, {"group": "0@0"}, {"mixes": {}}):
        assert kind.completed(values, {"peak": peak.model_copy(update=other)}).sequential_share is None
