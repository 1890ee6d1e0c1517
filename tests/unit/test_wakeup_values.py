# SPDX-License-Identifier: Apache-2.0
"""Wake-up latency: percentiles as far as samples support them, rounds as one, and what is planned."""

import copy
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.percentiles import Histogram
from calibration.base.validity import validity
from calibration.context.model import Context, IdleState
from calibration.measurements.base import NotPlanned, Parsed, Planned, Step
from calibration.measurements.sut import Sut
from calibration.measurements.wakeup import (
    CURVE_POINTS,
    WORST,
    ByCpu,
    LateWake,
    Percentile,
    Wakeup,
    WakeupResult,
    WakeupSettings,
    WakeupValues,
    curve,
    percentile_of,
)
from calibration.sutprobe.document import Part, ProbeDocument, read_document, read_result
from tests.captures import captured
from tests.recorded import read
from tests.unit.machines import GIB, MIB
from tests.unit.machines import machine as made

FIXTURES = Path(__file__).parent.parent / "fixtures"
RAW = json.loads((FIXTURES / "sutprobe" / "wakeup.json").read_text(encoding="utf-8"))
MEASUREMENT = Wakeup()


def histogram(samples: list[int]) -> Histogram:
    """Return *samples* in buckets of 1 ns."""
    counts = sorted(Counter(samples).items())
    return Histogram(
        longest=max(samples),
        starts=tuple(sample for sample, _ in counts),
        widths=(1,) * len(counts),
        counts=tuple(count for _, count in counts),
    )


def test_percentiles_are_claimed_only_as_far_as_samples_support_them() -> None:
    def found(count: int, percent: float) -> Percentile:
        return percentile_of(percent, histogram(list(range(2000, 2000 + count))), ())

    assert found(2994, 99.9).reason == "2994 wake-ups, 2995 needed for a bound"
    assert found(2994, 99.9).bound_ns is found(2994, 99.9).value_ns is None
    assert found(2995, 99.9).bound_ns == 2000 + 2994
    assert found(3687, 99.9).value_ns is None
    assert found(3688, 99.9).interval is not None
    assert found(3688, 99.9).bound_ns is None


def result(raw: dict[str, Any]) -> WakeupResult:
    return read_result(read_document(raw), WakeupResult)


def shifted(by_ns: int, wakes: int) -> dict[str, Any]:
    """Return the recorded document with *wakes* wake-ups, all *by_ns* late."""
    raw: dict[str, Any] = copy.deepcopy(RAW)
    for condition in raw["result"]["conditions"]:
        (cpu,) = condition["cpus"]
        late_ns = {"longest": by_ns, "starts": [by_ns], "widths": [1], "counts": [wakes]}
        cpu |= {"wakes": wakes, "late_ns": late_ns, "min_ns": by_ns}
        cpu["above"] = [wakes * (by_ns >= threshold_ns) for threshold_ns in raw["result"]["thresholds_ns"]]
    return raw


def document(raws: list[dict[str, Any]]) -> ProbeDocument:
    return ProbeDocument.merged([(number, read_document(raw), None) for number, raw in enumerate(raws)])


def parsed_of(
    raws: list[dict[str, Any]], context: Context | None = None, beside: list[ProbeDocument] | None = None
) -> list[Parsed]:
    context = context or captured("x86_64-two-nodes-smt")
    (step, *_) = [item for item in MEASUREMENT.steps(Sut(context), WakeupSettings()) if isinstance(item, Step)]
    return list(MEASUREMENT.parse(document(raws).with_parts(beside or []), step, Sut(context)))


def values_of(raws: list[dict[str, Any]]) -> list[WakeupValues]:
    return [parsed.values for parsed in parsed_of(raws)]  # type: ignore[misc]


def test_rounds_add_up_and_their_medians_make_the_interval() -> None:
    lates = [20_000, 30_000, 25_000, 40_000, 22_000, 35_000]
    for values in values_of([shifted(late, 1000) for late in lates]):
        assert values.wakes == 6000
        assert values.late_ns.counts == (1000,) * 6
        assert values.max_ns == 40_000
        middle = values.percentile(50.0)
        assert middle.in_rounds is not None
        assert middle.in_rounds.centres == pytest.approx(lates, abs=1)
        assert middle.best is middle.in_rounds
        assert middle.in_rounds.value == pytest.approx(median(lates), abs=1)
        # Each round is too short for it, all of them are not.
        assert values.percentile(99.9).in_rounds is None
        assert values.percentile(99.9).value_ns == pytest.approx(40_000, abs=1)
        assert {count.threshold_ns: count.count for count in values.above}[20_000] == 6000
        assert {count.threshold_ns: count.count for count in values.above}[50_000] == 0
        assert values.missed == 6 * next(
            cpu["missed"]
            for condition in RAW["result"]["conditions"]
            for cpu in condition["cpus"]
            if {"none": "idle"}.get(condition["load"], condition["load"]) == values.condition
        )


def changed(result: dict[str, Any] | None = None, **condition: Any) -> dict[str, Any]:
    """Return the recorded document with other fields of its *result* and of each *condition* that has them."""
    raw: dict[str, Any] = copy.deepcopy(RAW)
    raw["result"].update(result or {})
    for found in raw["result"]["conditions"]:
        found.update({name: value for name, value in condition.items() if found[name] is not None})
    return raw


def test_rates_of_loads_are_medians_of_the_rounds() -> None:
    rounds = [changed(load_mb_s=rate, forks_per_s=2 * rate) for rate in (900.0, 100.0, 200.0)]
    idle, memory, housekeeping = values_of(rounds)
    assert (idle.load_mb_s, memory.load_mb_s, housekeeping.load_mb_s) == (None, 200, None)
    assert (memory.forks_per_s, housekeeping.forks_per_s) == (None, 400)


def test_the_latest_of_all_rounds_and_cpus_are_listed_the_latest_first() -> None:
    early, late = (copy.deepcopy(RAW) for _ in range(2))
    for raw, most_ns in ((early, 2000), (late, 3000)):
        for condition in raw["result"]["conditions"]:
            (cpu,) = condition["cpus"]
            assert len(cpu["worst"]) == WORST
            listed = [{**wake, "late_ns": most_ns - 10 * place} for place, wake in enumerate(cpu["worst"])]
            other = [{**wake, "late_ns": wake["late_ns"] + 5} for wake in listed]
            condition["cpus"] = [{**cpu, "worst": listed}, {**cpu, "cpu": cpu["cpu"] + 1, "worst": other}]
    for values in values_of([early, late]):
        found = [(wake.late_ns, wake.cpu) for wake in values.worst]
        assert found == sorted(found, reverse=True)
        assert len(found) == WORST
        assert [late_ns for late_ns, _ in found[:3]] == [3005, 3000, 2995]


def test_the_time_of_a_wake_up_is_utc_wherever_the_controller_is(time_zone: Callable[[str], None]) -> None:
    wake = LateWake(cpu=0, late_ns=1, at_unix_ns=10**18 + 123_456_789, ran=None)
    time_zone("JST-9")
    assert wake.at == "2001-09-09 01:46:40.123"


def test_a_round_with_too_few_wake_ups_leaves_no_estimate_over_rounds() -> None:
    for values in values_of([shifted(20_000, 1000), shifted(30_000, 1000), shifted(25_000, 3)]):
        assert values.percentile(50.0).in_rounds is None
        assert values.percentile(50.0).value_ns is not None


def test_memory_is_locked_if_it_was_in_each_round() -> None:
    for locked in ([True, True], [True, False]):
        for values in values_of([changed({"memory_locked": one}) for one in locked]):
            assert values.memory_locked is all(locked)


def test_traced_wake_ups_are_in_no_other_value() -> None:
    traced = read("wakeup-traced")
    idle, memory, housekeeping = (item.values for item in parsed_of([RAW], beside=[read_document(traced)]))
    assert isinstance(idle, WakeupValues)
    assert isinstance(memory, WakeupValues)
    assert isinstance(housekeeping, WakeupValues)
    assert [idle.condition, memory.condition, housekeeping.condition] == ["idle", "memory", "housekeeping"]
    (plain,) = (condition for condition in RAW["result"]["conditions"] if condition["load"] == "none")
    (late,) = traced["result"]["conditions"]
    assert idle.wakes == sum(cpu["wakes"] for cpu in plain["cpus"])
    assert idle.traced is not None
    assert idle.traced.wakes == sum(cpu["wakes"] for cpu in late["cpus"])
    assert any(wake.ran for wake in idle.traced.worst)
    assert memory.traced is housekeeping.traced is None
    assert memory.asked_mb_s == 500
    assert idle.asked_mb_s is None


def late(number: int, *at: int) -> dict[str, Any]:
    """Return *number* late wake-ups, of which those *at* these times are kept."""
    first = [{"cpu": 1, "late_ns": 200_000, "at_unix_ns": ns, "ran": None} for ns in at]
    return {"threshold_ns": 100_000, "count": number, "first": first}


def with_late(number: int, *at: int) -> dict[str, Any]:
    raw: dict[str, Any] = copy.deepcopy(RAW)
    raw["result"]["tracing_refused"] = "no tracefs"
    for condition in raw["result"]["conditions"]:
        condition["late"] = late(number, *at)
    return raw


def test_the_first_late_wake_ups_of_all_rounds_are_kept() -> None:
    for values in values_of([with_late(2, 10, 20), with_late(0), with_late(40, *range(30, 45))]):
        assert values.late is not None
        assert (values.late.count, values.late.threshold_ns, values.late.refused) == (42, 100_000, "no tracefs")
        assert [wake.at_unix_ns for wake in values.late.first] == [10, 20, *range(30, 38)]
    assert [values.late for values in values_of([RAW])] == [None, None, None]


def test_a_threshold_keeps_late_wake_ups_under_all_loads_and_stops_nothing() -> None:
    (step, traced), _ = planned(captured("x86_64-isolated"), threshold_us=100, attribute=True)
    words = dict(zip(step.argv, step.argv[1:], strict=False))
    assert (words["--threshold-us"], words["--keep-late"]) == ("100", str(WORST))
    assert "--command" not in words
    assert "--threshold-us" not in traced.argv


def test_a_command_needs_a_threshold_and_an_absolute_path() -> None:
    (step,), _ = planned(captured("x86_64-isolated"), threshold_us=100, command="/usr/local/bin/dump")
    assert dict(zip(step.argv, step.argv[1:], strict=False))["--command"] == "/usr/local/bin/dump"
    for settings in (
        {"command": "/bin/dump"},
        {"threshold_us": 9, "command": "dump"},
        {"threshold_us": 9, "command": "/a\nb"},
    ):
        with pytest.raises(ValidationError):
            WakeupSettings.model_validate(settings)


def test_what_hit_one_load_in_one_round_flags_that_load() -> None:
    hit: dict[str, Any] = copy.deepcopy(RAW)
    (memory,) = (condition for condition in hit["result"]["conditions"] if condition["load"] == "memory")
    memory["interference"]["smi"] = 3
    codes = [{flag.code for flag in item.flags} for item in parsed_of([RAW, hit])]
    assert ["SMI" in found for found in codes] == [False, True, False]


LEFT = {"code": "cpu_left", "message": "the thread of CPU 9 was moved to another CPU during the measurement"}
OFFLINE = {"code": "cpu_offline", "message": "CPU 9 is offline, online are 0-3; choose another CPU"}


def of_two(error: dict[str, str] | None = None) -> dict[str, Any]:
    """Return 1000 wake-ups of the recorded CPU and as many of CPU 9, later ones, which fails under the memory load."""
    raw, late = shifted(20_000, 1000), shifted(90_000, 1000)
    for condition, other in zip(raw["result"]["conditions"], late["result"]["conditions"], strict=True):
        (cpu,) = other["cpus"]
        worst = [{"late_ns": 90_000, "at_unix_ns": 10**18, "ran": None}]
        failed = error is not None and condition["load"] == "memory"
        condition["cpus"][0]["worst"] = [{"late_ns": 20_000, "at_unix_ns": 10**18, "ran": None}]
        condition["cpus"].append(
            cpu | {"cpu": 9, "worst": worst, "cpu_verified": not failed, "error": error if failed else None}
        )
    return raw


def test_a_cpu_that_left_costs_its_own_view_and_no_other() -> None:
    for rounds in (1, 3):
        idle, memory, housekeeping = parsed_of([of_two()] * (rounds - 1) + [of_two(LEFT)])
        for other in (idle.values, housekeeping.values):
            assert isinstance(other, WakeupValues)
            assert (other.wakes, other.max_ns, other.cpus) == (2000 * rounds, 90_000, (1, 9))
        values = memory.values
        assert isinstance(values, WakeupValues)
        assert (values.wakes, values.max_ns, values.cpus, values.by_cpu.cpus) == (1000 * rounds, 20_000, (1,), (1,))
        assert {wake.cpu for wake in values.worst} == {1}
        assert {count.threshold_ns: count.count for count in values.above}[50_000] == 0
        if rounds > 1:
            middle = values.percentile(50.0).in_rounds
            assert middle is not None
            assert middle.centres == pytest.approx([20_000] * rounds, abs=1)
        (gone,) = memory.missing
        assert (gone.what, gone.reason) == ("CPU 9", f"cpu_left: {LEFT['message']}")
        assert gone.flag is not None
        assert gone.flag.code == "CPU_UNVERIFIED"
        assert {flag.severity for flag in memory.flags if flag.code == "CPU_UNVERIFIED"} == {"info"}
        assert validity(memory.flags).valid
        assert not idle.missing


def test_a_cpu_that_was_offline_in_one_round_has_the_others() -> None:
    _, memory, _ = parsed_of([of_two(), of_two(OFFLINE), of_two()])
    assert isinstance(memory.values, WakeupValues)
    assert (memory.values.wakes, memory.values.cpus, memory.missing) == (5000, (1, 9), ())
    (flagged,) = (flag for flag in memory.flags if flag.code == "PARTIAL")
    assert "1 CPUs lack rounds, first: cpu_offline: CPU 9 is offline" in flagged.reason


def without_memory(error: dict[str, str]) -> dict[str, Any]:
    raw: dict[str, Any] = copy.deepcopy(RAW)
    conditions = raw["result"]["conditions"]
    raw["result"]["conditions"] = [condition for condition in conditions if condition["load"] != "memory"]
    raw["result"]["failed"] = [{"load": "memory", "traced": False, "error": error}]
    return raw


def test_a_load_that_failed_costs_its_own_condition_and_no_other() -> None:
    idle, housekeeping = parsed_of([without_memory(OFFLINE)])
    assert [idle.values.condition, housekeeping.values.condition] == ["idle", "housekeeping"]  # type: ignore[attr-defined]
    assert [(gone.what, gone.reason) for gone in idle.missing] == [
        ("Wake-up latency, memory load", f"cpu_offline: {OFFLINE['message']}")
    ]
    assert not housekeeping.missing
    idle, memory, _ = parsed_of([RAW, without_memory(OFFLINE)])
    assert not idle.missing
    assert any("1 rounds have no load: cpu_offline" in flag.reason for flag in memory.flags if flag.code == "PARTIAL")


def test_a_document_of_a_cpu_that_left_has_its_reason() -> None:
    raw = copy.deepcopy(RAW)
    for condition in raw["result"]["conditions"]:
        condition["cpus"][0] |= {"cpu_verified": False, "error": LEFT}
    with pytest.raises(InputError, match="cpu_left: the thread of CPU 9 was moved"):
        parsed_of([raw])


@pytest.mark.parametrize(("resolution_ns", "coarse"), [(1, False), (4_000_000, True)])
def test_timers_without_high_resolution_are_flagged(resolution_ns: int, coarse: bool) -> None:
    raw = copy.deepcopy(RAW)
    raw["result"]["timer_resolution_ns"] = resolution_ns
    for item in parsed_of([raw]):
        assert [flag.reason for flag in item.flags if flag.code == "TIMER_COARSE"] == coarse * [
            "timers expire at ticks only, 4.00 ms apart: the kernel has no high-resolution timers"
        ]


@pytest.mark.parametrize("isolated", [False, True])
def test_cpus_that_are_not_isolated_are_flagged(isolated: bool) -> None:
    raw: dict[str, Any] = copy.deepcopy(RAW)
    context = captured("x86_64-isolated")
    for condition in raw["result"]["conditions"]:
        (cpu,) = condition["cpus"]
        cpu["cpu"] = min(context.isolated_cpus) if isolated else min(Sut(context).cpus - set(context.isolated_cpus))
    for item in parsed_of([raw], context):
        assert any(flag.code == "NOT_ISOLATED" for flag in item.flags) is not isolated
        assert item.values.isolated is isolated


def test_metrics_are_the_percentiles_and_the_latest() -> None:
    (values, *_) = values_of([shifted(late, 5000) for late in (20_000, 90_000, 30_000)])
    found = {metric.name: metric for metric in MEASUREMENT.metrics(values)}
    assert {name: metric.unit for name, metric in found.items()} == dict.fromkeys(
        [f"wakeup.idle.{name}_ns" for name in ("p50", "p99", "p99_9", "max")], "ns"
    )
    assert found["wakeup.idle.p50_ns"].value == pytest.approx(30_000, abs=1)
    assert found["wakeup.idle.p50_ns"].placements == 3
    assert found["wakeup.idle.max_ns"].value == 90_000
    (values, *_) = values_of([{**RAW, "result": spread_out()}])
    found = {metric.name: metric for metric in MEASUREMENT.metrics(values)}
    for percent, name in ((50, "p50"), (99, "p99"), (99.9, "p99_9")):
        assert found[f"wakeup.idle.{name}_ns"].value == pytest.approx(1000 + 100 * percent, abs=1)


def spread_out() -> dict[str, Any]:
    """Return the recorded result with wake-ups that are 1000 to 10,999 ns late, each once."""
    raw: dict[str, Any] = copy.deepcopy(RAW["result"])
    for condition in raw["conditions"]:
        late_ns = histogram(list(range(1000, 11_000))).model_dump(mode="json")
        condition["cpus"][0] |= {"wakes": 10_000, "late_ns": late_ns, "min_ns": 1000}
    return raw


def test_a_curve_of_many_buckets_ends_at_the_latest() -> None:
    (values, *_) = values_of([{**RAW, "result": spread_out()}])
    points = curve(values.late_ns)
    assert len(points) <= CURVE_POINTS
    assert points[-1] == (10_999, pytest.approx(1 / 10_000))
    assert points == sorted(points)


def test_a_histogram_that_lost_a_sample_is_refused() -> None:
    raw = copy.deepcopy(RAW)
    raw["result"]["conditions"][0]["cpus"][0]["late_ns"]["counts"][0] += 1
    with pytest.raises(InputError, match="samples in the histogram of CPU"):
        result(raw)


def test_rounds_of_one_result_are_that_result() -> None:
    one = result(RAW)
    part = Part(round=0, result=None, around=None)
    merged = WakeupResult.merged([(part, one)])
    for before, after in zip(one.conditions, merged.conditions, strict=True):
        assert after.model_copy(update={"rounds": ()}) == before


def planned(context: Context, **settings: Any) -> tuple[list[Step], list[NotPlanned]]:
    items: list[Planned] = list(MEASUREMENT.steps(Sut(context), WakeupSettings(**settings)))
    return [item for item in items if isinstance(item, Step)], [item for item in items if isinstance(item, NotPlanned)]


def test_one_cpu_has_no_loads_and_no_real_time_threads() -> None:
    context = captured("x86_64-one-cpu-no-numa")
    (step,), omitted = planned(context)
    assert step.argv[step.argv.index("--loads") + 1] == "none"
    assert {item.what for item in omitted} >= {
        "Wake-up latency under the load memory",
        "Wake-up latency under the load housekeeping",
    }
    steps, omitted = planned(context, fifo=1)
    assert steps == []
    assert "real-time threads" in omitted[-1].reason


def test_isolated_cpus_are_measured_and_others_load() -> None:
    context = captured("x86_64-isolated")
    (step, traced, shallow), _ = planned(context, fifo=80, idle_latency_us=0, attribute=True, seconds=3)
    assert set(step.cpus) <= set(context.isolated_cpus)
    assert "--attribute" not in step.argv
    assert (traced.id, traced.part_of) == ("wakeup-traced", step.id)
    words = dict(zip(traced.argv, traced.argv[1:], strict=False))
    assert (words["--loads"], words["--seconds"], words["--fifo"]) == ("none", "1.5", "80")
    assert "--attribute" in traced.argv
    assert "--load-group" not in traced.argv
    words = dict(zip(step.argv, step.argv[1:], strict=False))
    assert words["--fifo"] == "80"
    assert words["--load-group"].partition("@")[0] != words["--cpus"]
    assert "--idle-latency-us" not in step.argv
    assert shallow.id == "wakeup-shallow-idle"
    assert shallow.argv[shallow.argv.index("--idle-latency-us") + 1] == "0"
    assert "--load-group" not in shallow.argv
    assert "--attribute" not in shallow.argv


def test_without_idle_all_loads_are_measured_with_deep_states_held_away() -> None:
    context = captured("x86_64-isolated")
    loads = ("memory", "housekeeping")
    (step, traced), _ = planned(context, loads=loads, idle_latency_us=0, attribute=True)
    assert (step.id, traced.part_of) == ("wakeup", "wakeup")
    for found in (step, traced):
        assert found.argv[found.argv.index("--idle-latency-us") + 1] == "0"
    assert step.argv[step.argv.index("--loads") + 1] == "memory,housekeeping"
    found = values_of([changed({"idle_latency_us": 0})])
    assert [values.condition for values in found] == ["shallow_idle", "shallow_memory", "shallow_housekeeping"]
    names = [metric.name for values in found for metric in MEASUREMENT.metrics(values)]
    assert "wakeup.shallow_housekeeping.max_ns" in names
    assert not [name for name in names if name.startswith(("wakeup.memory.", "wakeup.housekeeping."))]


@pytest.mark.parametrize(("cpus", "expected"), [(99, None), (100, 98), (504, 498)])
def test_a_percentile_of_the_cpus_needs_as_many_as_leave_one_beyond_it(cpus: int, expected: int | None) -> None:
    (values, *_) = values_of([RAW])
    by_cpu = ByCpu(
        cpus=tuple(range(cpus)), p50_ns=(None,) * cpus, p99_9_ns=(None,) * cpus, max_ns=tuple(map(float, range(cpus)))
    )
    found = {metric.name: metric for metric in MEASUREMENT.metrics(values.model_copy(update={"by_cpu": by_cpu}))}
    metric = found.get("wakeup.idle.p99_of_cpus_max_ns")
    assert (metric and metric.value) == expected


def test_an_idle_state_as_slow_as_the_limit_can_be_reached() -> None:
    states = [
        IdleState(name=f"C{us}", description=None, latency_us=us, residency_us=us, disabled_cpus=())
        for us in (1, 10, 100)
    ]
    machine = captured("x86_64-two-nodes-smt")
    context = machine.model_copy(update={"idle": machine.idle.model_copy(update={"states": tuple(states)})})
    (step, _), _ = planned(context, idle_latency_us=10)
    raw = changed({"idle_latency_us": 10})
    for parsed in MEASUREMENT.parse(read_document(raw), step, Sut(context)):
        assert [state.name for state in parsed.values.idle_states or ()] == ["C1", "C10"]  # type: ignore[attr-defined]


def loads_of(context: Context) -> dict[str, str]:
    (step,), _ = planned(context)
    return dict(zip(step.argv, step.argv[1:], strict=False))


def test_no_load_runs_on_the_other_thread_of_a_measured_core() -> None:
    machine = captured("x86_64-two-nodes-smt")
    isolation = machine.isolation.model_copy(update={"isolated": (2, 6)})
    words = loads_of(machine.model_copy(update={"isolation": isolation}))
    assert words["--cpus"] == "2,6"
    assert words["--housekeeping-cpus"] == "0,4"


def test_a_load_takes_one_thread_of_each_core() -> None:
    words = loads_of(captured("ppc64le-smt8"))
    assert words["--cpus"] == "8"
    assert words["--housekeeping-cpus"] == "0,16,24"


def test_a_load_on_a_node_without_memory_reads_that_of_the_nearest() -> None:
    machine = captured("x86_64-cpu-only-node")
    isolation = machine.isolation.model_copy(update={"isolated": (1,)})
    (step,), _ = planned(machine.model_copy(update={"isolation": isolation}))
    assert [word for word in step.argv if "@" in word] == ["0@0", "2-3@0"]


def test_the_only_core_is_loaded_by_its_other_thread() -> None:
    core = made(packages=1, nodes=1, cores=1, threads=2, node_bytes=GIB, llc_bytes=8 * MIB)
    words = loads_of(core)
    assert (words["--cpus"], words["--housekeeping-cpus"]) == ("1", "0")
