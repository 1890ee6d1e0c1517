# SPDX-License-Identifier: Apache-2.0
"""Single loads with a planted distribution: its percentiles, what is left out of them, and when there are none."""

import copy
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.base.percentiles import beyond_longest
from calibration.base.statistics import Estimate
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.measurements.chase import KEEP_AWAKE_MB_S_MIN
from calibration.measurements.load_tail import INTERRUPTION_NS, LOAD_NS, LoadTailSettings, LoadTailValues
from calibration.measurements.sut import Sut
from calibration.results.cross_checks import cross_checks
from tests.unit.test_measurements import MACHINE, one, points, read

TICK_NS = 0.5
LOADS = {200: 9_100, 300: 870, 600: 29, 1200: 1}
"""Loads of each round by their ticks: 100, 150, 300 and 600 ns."""


def histogram(counts: dict[int, int]) -> dict[str, Any]:
    starts = sorted(counts)
    return {
        "longest": max(starts),
        "starts": starts,
        "widths": [1] * len(starts),
        "counts": [counts[start] for start in starts],
    }


def planted(
    memory: dict[int, int] | None = None,
    reference: dict[int, int] | None = None,
    *,
    resolution_ns: float = TICK_NS,
    windows_ns: float = 86.0,
) -> Any:
    """Return the recorded document with loads of *memory* and *reference* in each placement, by their ticks."""
    raw = copy.deepcopy(read("load_tail"))
    raw["clock"]["resolution_ns"] = resolution_ns
    points(raw)[0]["loop_overhead_ns"] = 1.0
    for number, placement in enumerate(points(raw)[0]["placements"]):
        placement["dirty_windows"] = []
        placement["windows_ns"] = [windows_ns + 0.01 * number] * 3
        placement["single_loads"] = {
            "tick_ns": TICK_NS,
            "memory": histogram(memory or LOADS),
            "reference": histogram(reference or {40: 10_000}),
            "involuntary_switches": 1,
            "page_faults": 0,
        }
    return raw


def tail(raw: Any) -> LoadTailValues:
    values = one("load_tail", raw, target_half_width=0.05).values
    assert isinstance(values, LoadTailValues)
    return values


def test_percentiles_are_those_planted() -> None:
    values = tail(planted())
    found = {item.percent: item for item in values.percentiles}
    for percent, expected in ((50.0, 100), (90.0, 100), (99.0, 150), (99.9, 300), (99.99, 300)):
        item = found[percent]
        assert item.value_ns == pytest.approx(expected, abs=TICK_NS)
        assert item.interval is not None
        assert item.interval[0] <= expected <= item.interval[1]
    assert values.loads == 6 * sum(LOADS.values())
    assert values.longest_ns == 600
    assert values.involuntary_switches == 6


def test_percentiles_are_by_rounds_only_if_each_round_has_loads_enough() -> None:
    values = tail(planted())
    by_rounds = {item.percent: item.by_rounds for item in values.percentiles}
    for percent, expected in ((50.0, 100.0), (99.0, 150.0), (99.9, 300.0)):
        estimate = by_rounds[percent]
        assert estimate is not None
        assert estimate.placements == 6
        assert estimate.value == pytest.approx(expected, abs=TICK_NS)
    assert by_rounds[99.99] is None, "10,000 loads in a round, 60,000 in all: it takes 36,888"
    metrics = {metric.name: metric for metric in declaration("load_tail").metrics(values)}
    assert metrics["load_tail.p99_9.latency_ns"].estimator == "derived"
    assert metrics["load_tail.p99_99.latency_ns"].estimator is None
    assert metrics["load_tail.p99_99.latency_ns"].interval is not None
    assert metrics["load_tail.p99_99.latency_ns"].value == pytest.approx(300.0, abs=TICK_NS)
    assert metrics["load_tail.p99_9.latency_ns"].value == pytest.approx(300.0, abs=TICK_NS)
    assert "load_tail.p99_999.latency_ns" not in metrics


def test_too_few_loads_are_missing_with_the_reason() -> None:
    parsed = one("load_tail", planted(), target_half_width=0.05)
    (missing,) = parsed.missing
    assert missing.what == "99.999 % of loads"
    assert missing.reason == "60000 loads are too few"


def test_interrupted_loads_are_counted_apart() -> None:
    long = int(INTERRUPTION_NS / TICK_NS)
    values = tail(planted({**LOADS, long - 1: 1, long: 50, 10 * long: 7}, {40: 9_990, long: 10}))
    assert values.interrupted == 6 * 57
    assert values.interrupted_reference == 60
    assert values.longest_ns < INTERRUPTION_NS
    assert values.memory.longest == 10 * long
    found = {item.percent: item.value_ns for item in values.percentiles}
    assert [found[50.0], found[99.0], found[99.9]] == pytest.approx([100, 150, 300], abs=TICK_NS)


def test_what_lies_beyond_the_longest_is_of_the_loads_that_were_not_interrupted() -> None:
    whole, interrupted = 9_000, 1_000
    values = tail(planted({200: whole, int(INTERRUPTION_NS / TICK_NS): interrupted}))
    assert values.beyond_longest == pytest.approx(beyond_longest(6 * whole), rel=1e-9)


@pytest.mark.parametrize("keep_awake", [True, False])
def test_loads_beside_a_keep_awake_thread_are_planned_too(monkeypatch: pytest.MonkeyPatch, keep_awake: bool) -> None:
    if not keep_awake:
        monkeypatch.setattr("calibration.measurements.chase.keep_awake_for", lambda *_: ())
    few_s, many_s = (
        step.expected_duration_s
        for loads in (100_000, 1_100_000)
        for step in declaration("load_tail").steps(Sut(MACHINE), LoadTailSettings(single_loads=loads))
        if isinstance(step, Step)
    )
    assert many_s - few_s == pytest.approx((1 + keep_awake) * 1_000_000 * LOAD_NS * 1e-9)


def test_only_interrupted_loads_are_no_distribution() -> None:
    with pytest.raises(InputError, match="took 2000 ns or more"):
        tail(planted({int(INTERRUPTION_NS / TICK_NS): 10_000}))


@pytest.mark.parametrize(("resolution_ns", "given"), [(10.0, [50.0, 90.0, 99.0, 99.9, 99.99]), (40.0, [99.9, 99.99])])
def test_percentiles_below_five_steps_of_the_clock_are_missing(resolution_ns: float, given: list[float]) -> None:
    parsed = one("load_tail", planted(resolution_ns=resolution_ns))
    values = parsed.values
    assert [item.percent for item in values.percentiles if item.value_ns is not None] == given
    for item in values.percentiles:
        assert (item.reason is None) == (item.percent in given)
    if resolution_ns == 40.0:
        assert "102 ns is too short for a clock that advances in steps of 40 ns" in {
            item.reason for item in values.percentiles
        }
    found = next(item for item in values.percentiles if item.percent == 99.9)
    assert found.interval is not None
    assert found.interval[0] <= 300 - resolution_ns
    assert found.interval[1] >= 300 + resolution_ns


def test_the_mean_less_the_clock_is_a_load_of_the_chain() -> None:
    """The planted mean is 104.98 ns, the reference 20 ns, a load from L1 1 ns."""
    values = tail(planted())
    mean = sum(ticks * count for ticks, count in LOADS.items()) / sum(LOADS.values()) * TICK_NS
    assert values.reference_ns.value == pytest.approx(20)
    assert values.single_ns.value == pytest.approx(mean - 20 + 1)
    assert values.chase_ns.value == pytest.approx(86.0, rel=0.001)


class Stored:
    """What the cross-checks read of a measurement."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.validity: Any = type("Validity", (), {"valid": True, "flags": ()})()


@pytest.mark.parametrize(("windows_ns", "outcome"), [(86.0, "pass"), (86.0 * 1.3, "fail"), (86.0 / 1.3, "fail")])
def test_a_difference_from_the_chain_fails_the_run(windows_ns: float, outcome: str) -> None:
    stored: Any = Stored(tail(planted(windows_ns=windows_ns)))
    checks = [item for item in cross_checks([stored]) if item.rule == "single_loads"]
    assert [item.outcome for item in checks] == [outcome]
    assert isinstance(stored.values.single_ns, Estimate)


def package_active(mb_s: float) -> Any:
    """Return the planted document with loads twice as fast beside a keep-awake thread that reads *mb_s*."""
    raw = planted()
    for placement in points(raw)[0]["placements"]:
        faster = copy.deepcopy(placement["single_loads"])
        faster["memory"] = histogram({ticks // 2: count for ticks, count in LOADS.items()})
        same = (
            "dirty_windows", "cpu_verified", "interference", "counters", "samples", "core_hz_before", "core_hz_after",
        )  # fmt: skip
        walk = {name: placement[name] for name in same}
        placement["package_active"] = {
            **walk,
            "first": False,
            "windows_ns": [ns / 2 for ns in placement["windows_ns"]],
            "single_loads": faster,
            "keep_awake": [{"cpu": 3, "node": 0, "mb_s": mb_s}],
        }
    return raw


def test_the_loads_of_the_condition_of_record_are_shown() -> None:
    values = tail(package_active(300.0))
    assert values.condition == "package_active"
    assert values.percentiles[0].value_ns == pytest.approx(50, abs=TICK_NS)


@pytest.mark.parametrize("mb_s", [KEEP_AWAKE_MB_S_MIN - 1, KEEP_AWAKE_MB_S_MIN])
def test_a_keep_awake_thread_that_reads_too_little_is_flagged(mb_s: float) -> None:
    flags = {flag.code for flag in one("load_tail", package_active(mb_s), target_half_width=0.05).flags}
    assert ("KEEP_AWAKE_SLOW" in flags) == (mb_s < KEEP_AWAKE_MB_S_MIN)
