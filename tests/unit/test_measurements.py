# SPDX-License-Identifier: Apache-2.0
"""The contract that every measurement declaration fulfils, run over recorded documents of sutprobe."""

import copy
import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.statistics import Estimate, estimate
from calibration.context.model import Cache, Context, Virtualization
from calibration.measurements import declaration, registry, row_of
from calibration.measurements.bandwidth_scaling import ScalingSettings, cpus_by_count
from calibration.measurements.base import Choice, Parsed, Step
from calibration.measurements.core_frequency import median_without
from calibration.measurements.latency_ladder import ladder_sizes
from calibration.measurements.levels import Comparison, Level, compare_levels, recognise_levels
from calibration.measurements.loaded_latency import MLC_DELAYS
from calibration.measurements.metric_rows import UNDECLARED
from calibration.measurements.node_matrix import told_apart
from calibration.measurements.sut import Sut
from calibration.measurements.table import Table
from calibration.measurements.traffic import group_text, read_group
from calibration.results.plain import metrics_of
from tests.captures import captured
from tests.recorded import MEASURED, read, read_whole
from tests.report.report_documents import imported, prefetchers_document, run_document, with_nodes
from tests.walk import estimates, places

FIXTURES = Path(__file__).parent.parent / "fixtures"
VALUES = {
    "placements", "windows_hz", "share", "windows_share", "dirty_windows", "lost_windows", "chain_ratio",
    "interference",
}  # fmt: skip
"""What a point that could not be measured has none of."""
RECORDED = sorted(MEASURED)

MACHINE = captured("x86_64-two-nodes-smt")
"""A machine with the CPUs and nodes of the recorded documents."""


def parse(name: str, raw: dict[str, Any], machine: Context = MACHINE, **changes: Any) -> list[Any]:
    """Return what *raw* says as the document of the step *name*, with *changes* to the step."""
    kind = Path(name).name.partition("-")[0]
    step = Step(
        id=name, kind=kind, title="recorded", argv=("sutprobe",), cpus=(1,), memory_bytes={}, tasks=1,
        expected_duration_s=1.0, setup_s=0.0, longest_duration_s=2.0, deadline_s=30.0, **changes,
    )  # fmt: skip
    return list(declaration(kind).parse(read_whole(name, raw), step, Sut(machine)))


def one(name: str, raw: dict[str, Any], machine: Context = MACHINE, **changes: Any) -> Any:
    """Return the only measurement of ``parse``."""
    (parsed,) = parse(name, raw, machine, **changes)
    return parsed


def codes(parsed: Parsed, *severities: str) -> set[str]:
    """Return the codes of the flags, of *severities* if given."""
    return {flag.code for flag in parsed.flags if not severities or flag.severity in severities}


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def points(raw: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(
        part
        for name in ("points", "pairs", "cells", "repeats", "cpus", "conditions")
        if (part := raw["result"].get(name))
    )
    return found


MEMORY_ONLY = captured("x86_64-memory-only-node")
"""A machine whose node 2 has no CPUs."""

MEMORY_ONLY_STEPS = {
    "bandwidth_scaling-node2": "bandwidth_scaling.node2.1.bandwidth_mb_s",
    "latency_ladder-node2": "latency_ladder.node2.latency_ns",
    "load_tail-node2": "load_tail.node2.p50.latency_ns",
    "peak_injection_bandwidth-memory-only": "peak_injection_bandwidth.memory_only.reads.bandwidth_mb_s",
    "random_bandwidth-memory-only": "random_bandwidth.memory_only.bandwidth_mb_s",
}
"""Steps on memory-only nodes, and one of their metrics."""


def on_memory_only(name: str) -> Any:
    """Return the measurement of the step *name* on node 2: the recorded one of its kind, as if it was made there."""
    raw = read(name.partition("-")[0])
    for point in points(raw):
        point["nodes"] = [2 for _ in point["nodes"]]
        if "group" in point:
            point["group"] = re.sub(r"@\d+", "@2", point["group"])
    return one(name, raw, MEMORY_ONLY).values


def fail(point: dict[str, Any]) -> None:
    if "evidence" in point:
        point["evidence"] = None
    point["error"] = {"code": "no_memory", "message": "expected 128 MiB on node 0, found 4"}
    for name in VALUES & point.keys():
        point[name] = None


def test_every_kind_has_a_recorded_document() -> None:
    assert {name.partition("-")[0] for name in RECORDED} == registry().keys()


@pytest.mark.parametrize(
    "kind", [kind for kind, item in registry().items() if "target_half_width" in item.settings.model_fields]
)
def test_half_width_rejected_by_sutprobe_is_refused(kind: str) -> None:
    settings = declaration(kind).settings
    assert settings.model_validate({"target_half_width": 1})
    for wrong in (0, 1.5, 1000):
        with pytest.raises(ValidationError, match="target_half_width"):
            settings.model_validate({"target_half_width": wrong})


@pytest.mark.parametrize("name", RECORDED)
def test_values_survive_storage_and_metrics_are_sound(name: str) -> None:
    parsed = parse(name, read(name))
    assert parsed
    names = []
    for measurement in parsed:
        model = declaration(measurement.values.kind).values
        assert model.model_validate_json(measurement.values.model_dump_json()) == measurement.values
        for metric in declaration(measurement.values.kind).metrics(measurement.values):
            names.append(metric.name)
            assert metric.name.startswith(measurement.values.kind)
            assert math.isfinite(metric.value)
            assert metric.value >= 0
            row = row_of(metric.name)
            assert row is not UNDECLARED
            assert (metric.unit, metric.better) == (row.unit, row.better)
            assert metric.interval is None or metric.interval[0] <= metric.value <= metric.interval[1]
    assert names or name == "traffic_shape-avx2-caches", "that search serves a choice only"
    assert len(set(names)) == len(names)


ELSEWHERE = (
    "memory_tiers.0.machine_share",
    *(f"jitter.housekeeping.cpu1.{name}" for name in ("inst_jitter_ns", "work_max_ns")),
    *(f"jitter.housekeeping.cpu1.gaps.{name}" for name in ("max_ns", "lost_fraction")),
    *(
        f"jitter.{load}isolated.gaps.{name}"
        for load in ("", "housekeeping.")
        for name in ("max_ns", "p99_of_cpus_max_ns")
    ),
    *("wakeup.idle.p99_of_cpus_max_ns", "wakeup.shallow_housekeeping.max_ns"),
    *("bandwidth_ladder.one_CPU.reads.L4.program_mb_s", "latency_ladder.L4.latency_ns", "latency_ladder.L3.latency_ns"),
    *("c2c_matrix.transfer.same_llc_ns", "c2c_matrix.transfer.other_package_ns", "counted_volume.reads.difference"),
    *("loaded_latency.90pct.latency_ns", "loaded_latency.90pct.cpu3.latency_ns", "loaded_latency.90pct.bandwidth_mb_s"),
    *("memory_curves.0.1.doubling_write_share", "memory_curves.50pct.bandwidth_mb_s", "memory_curves.50pct.latency_ns"),
    *("peak_injection_bandwidth.copy.bandwidth_mb_s", "idle_latency.cpu3.latency_ns"),
    *("core_frequency.avx2.4.median_hz", "burn_in.highest_c"),
)
"""Metrics of machines, settings and texts of which there is no recording."""


def test_every_row_has_a_metric() -> None:
    folders = ("pages/*.rst", "mlc/*.txt", "pma_jitter/*.txt")
    texts = [path.read_bytes() for folder in folders for path in FIXTURES.glob(folder)]
    runs = [with_nodes(run_document(), 4), prefetchers_document(), *(imported(text, publish=False) for text in texts)]
    names = [item.metric.name for run in runs for item in metrics_of(run)]
    for name in RECORDED:
        for measurement in parse(name, read(name)):
            names += [metric.name for metric in declaration(measurement.values.kind).metrics(measurement.values)]
    peak, random = (on_memory_only(name) for name in list(MEMORY_ONLY_STEPS)[-2:])
    random = declaration("random_bandwidth").completed(random, {"peak": peak})
    for values in (on_memory_only("load_tail-node2"), on_memory_only("bandwidth_scaling-node2"), peak, random):
        names += [metric.name for metric in declaration(values.kind).metrics(values)]
    made = {row_of(name) for name in names}
    assert UNDECLARED not in made
    rest = {row_of(name) for name in ELSEWHERE}
    assert not made & rest
    assert made | rest == {row for item in registry().values() for row in item.metric_rows}


@pytest.mark.parametrize(("name", "metric"), MEMORY_ONLY_STEPS.items())
def test_metrics_of_memory_only_nodes_have_names_of_their_own(name: str, metric: str) -> None:
    kind = name.partition("-")[0]
    own = {item.name for item in declaration(kind).metrics(one(kind, read(kind)).values)}
    there = {item.name for item in declaration(kind).metrics(on_memory_only(name))}
    assert metric in there
    assert not own & there


def test_random_reads_of_memory_only_nodes_are_compared_with_sequential_ones_there() -> None:
    kind = declaration("random_bandwidth")
    near, there = (
        one("peak_injection_bandwidth", read("peak_injection_bandwidth")).values,
        on_memory_only("peak_injection_bandwidth-memory-only"),
    )
    random = on_memory_only("random_bandwidth-memory-only")
    assert kind.completed(random, {"peak": near}).sequential_share is None
    assert kind.completed(random, {"peak": near, "peak-memory-only": there}).sequential_share is not None
    assert "from memory-only nodes" in next(kind.summary([random]))


def test_the_maximum_is_not_that_of_memory_only_nodes() -> None:
    kind = declaration("max_bandwidth")
    values = one("max_bandwidth", read("max_bandwidth")).values
    peak = on_memory_only("peak_injection_bandwidth-memory-only")
    for name, mix in peak.mixes.items():
        faster = estimate([[10 * mix.bandwidth_mb_s.value]], "MB/s")
        peak.mixes[name] = mix.model_copy(update={"bandwidth_mb_s": faster})
    assert kind.completed(values, {"peak": peak}) == values
    assert kind.completed(values, {"peak": peak.model_copy(update={"memory_only": False})}) != values


def test_a_metric_without_a_row_cannot_be_made() -> None:
    with pytest.raises(LookupError, match=r"no row of idle_latency declares idle_latency\.furlongs"):
        declaration("idle_latency").metric("furlongs", "Length", 1.0)


@pytest.mark.parametrize("name", RECORDED)
def test_every_sample_was_printed_by_sutprobe(name: str) -> None:
    raw = read(name)
    printed = {number for part in read_whole(name, raw).beside for number in numbers(json.loads(part.result or b""))}
    printed |= set(numbers(raw["result"]))
    for measurement in parse(name, raw):
        for figure in estimates(measurement.values):
            samples = {sample for placement in figure.samples for sample in placement}
            if measurement.values.kind == "bandwidth_scaling" and figure.unit == "fraction":
                continue  # of two windows each: test_saturation_is_what_the_last_threads_add
            if measurement.values.kind == "sustained_bandwidth" and figure.unit == "fraction":
                continue  # of two windows each: test_loss_is_relative_to_the_first_second
            if figure.estimator == "derived":
                continue  # medians over pairs: test_core_matrix_summarizes_classes_and_names_extremes
            if measurement.values.kind == "jitter":
                samples = {round(sample * measurement.values.tick_hz / 1e9) for sample in samples}
            assert samples <= printed


@pytest.mark.parametrize("name", RECORDED)
def test_rejects_another_document(name: str) -> None:
    raw = read(name)
    for change in ({"duration_s": "1.0"}, {"result": None}, {"schema": "sutprobe/2"}):
        with pytest.raises(InputError):
            parse(name, {**raw, **change})


SHAPES = ("burn_in", "core_frequency", "counted_volume", "c2c_latency", "c2c_matrix", "firmware", "jitter", "load_tail",
          "loaded_latency", "sustained_bandwidth", "wakeup")  # fmt: skip
"""A recorded document of each shape that sutprobe prints."""

OPTIONAL = {"accounting", "package_active", "counters", "telemetry", "samples", "single_loads"}
"""What a document has only if it was asked for."""

COUNTED = {"interrupts", "softirqs"}
"""Tables with any names."""


@pytest.mark.parametrize("name", SHAPES)
def test_every_field_is_required_and_of_its_type_and_none_is_unknown(name: str) -> None:
    raw = read(name)
    for way, last in ((place[:-1], place[-1]) for place in places(raw["result"]) if COUNTED.isdisjoint(place[:-1])):
        value = reduce(operator.getitem, (*way, last), raw["result"])
        wrong: list[dict[str, Any]] = []
        if isinstance(value, dict) and last not in COUNTED:
            wrong.append({last: {**value, "unknown": 1}})
        elif isinstance(value, str | int | float):
            wrong.append({last: 7.5 if isinstance(value, str) else str(value)})
        if isinstance(last, str) and last not in OPTIONAL:
            wrong.append({})
        for changed in wrong:
            document = copy.deepcopy(raw)
            inside = reduce(operator.getitem, way, document["result"])
            inside[last] = changed.get(last)
            if not changed:
                del inside[last]
            with pytest.raises(InputError):
                parse(name, document)


@pytest.mark.parametrize(
    ("field", "code"), [("smi", "SMI"), ("core_throttle", "THROTTLED"), ("package_throttle", "THROTTLED")]
)
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "firmware"])  # which counts them for themselves
def test_what_interferes_with_a_measurement_is_flagged(name: str, field: str, code: str) -> None:
    raw = read(name)
    assert code not in {found for parsed in parse(name, raw) for found in codes(parsed)}
    for place in places(raw["result"]):
        if place[-1] == "interference" and (counted := reduce(operator.getitem, place, raw["result"])):
            counted[field] = 3
    assert code in {found for parsed in parse(name, raw) for found in codes(parsed)}


OF_CPUS = ("jitter", "wakeup", "firmware")
"""Kinds without points of memory."""


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in (*OF_CPUS, "counted_volume", "burn_in")])
def test_missing_values_keep_their_reason(name: str) -> None:
    raw = read(name)
    for point in points(raw):
        fail(point)
    with pytest.raises(InputError, match="expected 128 MiB on node 0, found 4"):
        parse(name, raw)
    raw = read(name)
    if len(points(raw)) > 1:
        fail(points(raw)[-1])
        parsed = one(name, raw)
        assert [item.reason for item in parsed.missing] == ["no_memory: expected 128 MiB on node 0, found 4"]


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in (*OF_CPUS, "core_frequency")])
def test_wrong_page_placement_is_invalid(name: str) -> None:
    raw = read(name)
    point = points(raw)[-1]
    pages = raw["result"].get("pages") or (point.get("evidence") or point["placements"][0])["pages"]
    pages["elsewhere"] += 1
    pages["on_node"] -= 1
    flags = [flag for parsed in parse(name, raw) for flag in parsed.flags]
    assert {flag.code for flag in flags if flag.severity == "invalid"} == {"PLACEMENT_WRONG"}


def test_clock_change_is_distinguished_from_jitter() -> None:
    raw = read("jitter")
    gaps = points(raw)[0]["gaps"]
    gaps["core_hz_after"] = gaps["core_hz_before"]
    steady = one("jitter", raw)
    gaps["core_hz_after"] = 0.9 * gaps["core_hz_before"]
    slower = one("jitter", raw)
    assert codes(slower) - codes(steady) == {"FREQ_CHANGED"}


def test_flags_low_coverage() -> None:
    raw = read("jitter")
    for coverage, flagged in ((0.9989, True), (0.9991, False)):
        points(raw)[0]["gaps"]["coverage_fraction"] = coverage
        parsed = one("jitter", raw)
        assert ("COVERAGE_LOW" in codes(parsed)) == flagged


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("name", ["idle_latency", "load_tail", "random_bandwidth"])
def test_a_document_of_one_point_has_no_other_number(name: str, count: int) -> None:
    raw = read(name)
    raw["result"]["points"] *= count
    with pytest.raises(InputError, match=f"{count} points"):
        one(name, raw)


def test_unproved_work_is_invalid() -> None:
    for name, proof in (
        ("idle_latency", "chain_proved"),
        ("peak_injection_bandwidth", "checked"),
        ("c2c_latency", "checked"),
        ("c2c_matrix", "checked"),
        ("counted_volume", "checked"),
        ("regulation", "checked"),
    ):
        raw = read(name)
        points(raw)[0][proof] = False
        parsed = one(name, raw)
        assert "WORK_UNPROVED" in codes(parsed, "invalid")


@pytest.mark.parametrize(("mib", "small"), [(32, False), (31, True)])
def test_buffers_of_threads_that_share_a_cache_count_together(mib: int, *, small: bool) -> None:
    raw = read("peak_injection_bandwidth")
    for point in points(raw):
        point["buffer_bytes"] = mib << 20  # of two threads, beside 16 MiB of last-level cache
    assert ("BUFFER_TOO_SMALL" in codes(one("peak_injection_bandwidth", raw))) is small
    (group,) = {point["group"] for point in points(raw)}
    for point in points(raw):
        point["buffer_bytes"] = 64 << 20
    raw["parameters"]["group"] = [group_text(read_group(group), mib << 20)]
    assert ("BUFFER_TOO_SMALL" in codes(one("peak_injection_bandwidth", raw))) is small


def test_drops_interrupted_windows_while_enough_remain() -> None:
    raw = read("idle_latency")
    placement = points(raw)[0]["placements"][0]
    count = len(placement["windows_ns"])
    placement["dirty_windows"] = [0]
    parsed = one("idle_latency", raw)
    assert len(next(estimates(parsed.values)).samples[0]) == count - 1
    for dirty in (count // 2 + 1, count):
        placement["dirty_windows"] = list(range(dirty))
        parsed = one("idle_latency", raw)
        assert len(next(estimates(parsed.values)).samples[0]) == count


def package_active(raw: dict[str, Any], factor: float, mb_s: float = 300.0) -> None:
    """Give each placement of *raw* a second walk that takes *factor* times as long; its clock is twice as fast."""
    for point in points(raw):
        for placement in point["placements"]:
            same = ("dirty_windows", "cpu_verified", "interference", "counters", "samples", "single_loads")
            walk = {name: placement[name] for name in same}
            placement["package_active"] = {
                **walk,
                "first": False,
                "windows_ns": [factor * n for n in placement["windows_ns"]],
                "core_hz_before": 2 * placement["core_hz_before"],
                "core_hz_after": 2 * placement["core_hz_after"],
                "keep_awake": [{"cpu": 3, "node": 0, "mb_s": mb_s}],
            }


@pytest.mark.parametrize(
    ("factor", "condition"),
    [(0.8, "package_active"), (1.3, "package_active"), (1.005, "package_idle"), (1, "package_idle")],
)
def test_awake_latency_is_recorded_if_it_differs(factor: float, condition: str) -> None:
    alone, beside = read("idle_latency"), read("idle_latency")
    for raw in (alone, beside):
        for placement in points(raw)[0]["placements"]:
            placement["windows_ns"] = [100 + 0.1 * index for index, _ in enumerate(placement["windows_ns"])]
    before = one("idle_latency", alone)
    package_active(beside, factor)
    after = one("idle_latency", beside)
    assert (before.values.condition, before.values.package_active_ns, before.values.keep_awake) == (
        "package_idle",
        None,
        (),
    )
    values = after.values
    assert values.condition == condition
    assert values.package_idle_ns == before.values.latency_ns
    assert values.package_active_ns is not None
    assert values.package_active_ns.value == pytest.approx(factor * before.values.latency_ns.value)
    assert values.latency_ns == (values.package_active_ns if condition == "package_active" else values.package_idle_ns)
    assert values.core_hz == pytest.approx(before.values.core_hz * (2 if condition == "package_active" else 1))
    assert [(thread.cpu, thread.node, thread.mb_s) for thread in values.keep_awake] == [(3, 0, 300.0)]
    assert "KEEP_AWAKE_SLOW" not in codes(after)


def test_overlapping_intervals_are_one_latency() -> None:
    raw = read("idle_latency")
    for index, placement in enumerate(points(raw)[0]["placements"]):
        placement["windows_ns"] = [100.0 + 10 * (index % 5) for _ in placement["windows_ns"]]
    package_active(raw, 1.05)
    parsed = one("idle_latency", raw)
    assert parsed.values.condition == "package_idle"


def test_matrix_has_both_conditions_per_cell() -> None:
    raw = read("latency_matrix")
    package_active(raw, 0.5, mb_s=40.0)
    parsed = one("latency_matrix", raw)
    for row in parsed.values.table.rows:
        assert (row.condition, row.latency_ns) == ("package_active", row.package_active_ns)
        assert row.package_active_ns.value == pytest.approx(row.package_idle_ns.value / 2)
    assert "KEEP_AWAKE_SLOW" in codes(parsed)


@pytest.mark.parametrize(("factor", "asymmetric"), [(1.04, False), (1.06, True)])
def test_directions_that_differ_by_five_percent_are_asymmetric(factor: float, *, asymmetric: bool) -> None:
    raw = read("latency_matrix")
    recorded = points(raw)[0]
    cells = {(1, 0): 1.0, (1, 1): 2.0, (4, 0): 2.0 * factor, (4, 1): 1.0}
    raw["result"]["points"] = [copy.deepcopy(recorded) | {"cpu": cpu, "nodes": [node]} for cpu, node in cells]
    for point, slower in zip(points(raw), cells.values(), strict=True):
        for placement in point["placements"]:
            placement["windows_ns"] = [slower * ns for ns in placement["windows_ns"]]
    parsed = one("latency_matrix", raw)
    assert [parsed.values.table.labels(axis) for axis in ("cpu_node", "memory_node")] == [(0, 1), (0, 1)]
    assert ("ASYMMETRIC" in codes(parsed)) is asymmetric


ONE_SOCKET = MACHINE.model_copy(
    update={
        "topology": MACHINE.topology.model_copy(
            update={"cores": tuple(core.model_copy(update={"package_id": 0}) for core in MACHINE.topology.cores)}
        )
    }
)
CELLS = ((1, 0), (1, 1), (4, 0), (4, 1))
"""CPUs and memory of the cells of two nodes: CPU 1 is of node 0, CPU 4 of node 1."""


def between_nodes(name: str, *factors: float) -> dict[str, Any]:
    """Return the recorded matrix *name* grown to two nodes: each of ``CELLS`` the recorded one times its factor."""
    raw = read(name)
    (recorded,) = points(raw)
    windows = "windows_ns" if name == "latency_matrix" else "windows_mb_s"
    raw["result"]["points"] = [copy.deepcopy(recorded) for _ in CELLS]
    for point, (cpu, node), factor in zip(points(raw), CELLS, factors, strict=True):
        place = {"cpus": [cpu, cpu + 1], "group": f"{cpu}-{cpu + 1}@{node}"} if "group" in point else {"cpu": cpu}
        point |= {"nodes": [node], **place}
        for placement in point["placements"]:
            placement[windows] = [factor * window for window in placement[windows]]
    return raw


@pytest.mark.parametrize(("name", "near", "sentence"), [
    ("latency_matrix", 1.1, r"Staying in its own node saves a core [\d.]+ ns \([\d.]+ to [\d.]+ ns\) of .*, 9.1 % .*"),
    ("latency_matrix", 1.0, r"By latency, the other nodes of a socket cannot be told from the own one: 0 ns more .*"),
    ("bandwidth_matrix", 0.8, r"A node's CPUs read 1.25 \(1.25 to 1.25\) times as much from its own memory as .*"),
    ("bandwidth_matrix", 1.0, "By bandwidth, the other nodes of a socket cannot be told from the own one: 1.00 .*"),
])  # fmt: skip
def test_the_gain_of_staying_near_is_of_equal_rounds(name: str, near: float, sentence: str) -> None:
    values = one(name, between_nodes(name, 1.0, near, near, 1.0), ONE_SOCKET).values
    assert values.near == {0: (1,), 1: (0,)}
    found = {metric.name: metric for metric in declaration(name).metrics(values) if "near" in metric.name}
    assert found.keys() == {f"{name}.{node}.near_fraction" for node in (0, 1)}
    for metric in found.values():
        # the ratio is the same in each round, however far rounds are apart
        assert (metric.value, metric.interval) == (pytest.approx(near), pytest.approx((near, near)))
    (text,) = declaration(name).summary([values])
    assert re.fullmatch(sentence, text)


@pytest.mark.parametrize(("added_ns", "apart"), [
    ((1.0, 2.0, 3.0, 1.0, 2.0, 3.0), True),
    ((-3.0, -2.0, -1.0, -3.0, -2.0, -1.0), True),
    ((-1.0, 2.0, 3.0, 1.0, 2.0, 3.0), False),
    ((2.0, 2.1, 2.2), False),  # three rounds promise too little
    ((2.0,), False),
])  # fmt: skip
def test_memory_is_told_apart_by_the_whole_interval(added_ns: tuple[float, ...], *, apart: bool) -> None:
    assert told_apart(estimate([[ns] for ns in added_ns], "ns"), 0.0) is apart


@pytest.mark.parametrize("name", ["latency_matrix", "bandwidth_matrix"])
def test_only_nodes_of_one_socket_with_values_are_near(name: str) -> None:
    raw = between_nodes(name, 1.0, 2.0, 2.0, 1.0)
    cores = tuple(core.model_copy(update={"package_id": None}) for core in MACHINE.topology.cores)
    unknown = MACHINE.model_copy(update={"topology": MACHINE.topology.model_copy(update={"cores": cores})})
    for machine in (MACHINE, unknown):
        values = one(name, raw, machine).values
        assert not values.near
        assert not list(declaration(name).summary([values]))
        assert not any("near" in metric.name for metric in declaration(name).metrics(values))
    fail(points(raw)[0])
    assert one(name, raw, ONE_SOCKET).values.near == {1: (0,)}


def test_near_latencies_are_compared_in_one_condition() -> None:
    raw = between_nodes("latency_matrix", 1.0, 1.2, 1.2, 1.0)
    package_active(raw, 0.5)
    for number, placement in enumerate(points(raw)[1]["placements"]):  # so uneven that idle is of record there
        active = placement["package_active"]
        active["windows_ns"] = [ns * (4 if number in (2, 3) else 1) for ns in active["windows_ns"]]
    values = one("latency_matrix", raw, ONE_SOCKET).values
    assert {row.condition for row in values.table.rows} == {"package_active", "package_idle"}
    assert [values.near_fraction(node).value for node in (0, 1)] == pytest.approx([1.2, 1.2])


@pytest.mark.parametrize(("name", "missing"), [("latency_matrix", "1@1"), ("bandwidth_matrix", "reads on 0-1@1")])
def test_a_cell_without_a_value_is_a_row_with_its_reason(name: str, missing: str) -> None:
    raw = read(name)
    (recorded,) = points(raw)
    group = {"group": "0-1@1"} if "group" in recorded else {}
    points(raw).append(copy.deepcopy(recorded) | {"nodes": [1], **group})
    fail(points(raw)[1])
    parsed = one(name, raw)
    column = parsed.values.drawn[0]
    assert [(row.memory_node, row[column] is None) for row in parsed.values.points] == [(0, False), (1, True)]
    assert list(parsed.values.table.cells(column)) == [(0, 0)]
    assert [item.what for item in parsed.missing] == [missing]


@pytest.mark.parametrize(("change", "message"), [
    (lambda table: table["rows"].append(table["rows"][0]), "two rows have the same"),
    (lambda table: table["rows"].clear(), "at least 1 item"),
    (lambda table: table["axes"].reverse(), "a table by stride_bytes, size_bytes, order"),
    (lambda table: table["rows"][0].pop("core_hz"), "core_hz: Field required"),
    (lambda table: table["rows"][0].update(more=1), "more: Extra inputs are not permitted"),
    (lambda table: table["rows"][0].update(core_hz="fast"), "core_hz: Input should be a valid number"),
    (lambda table: table["rows"][0].update(order="sideways"), "order: String should match pattern"),
    (lambda table: table["rows"][0].update(latency_ns=1.5), "latency_ns: not a mapping"),
    (lambda table: table["rows"][0].update(core_hz={}), "Field required"),
])  # fmt: skip
def test_a_table_of_another_form_is_refused(change: Callable[[Any], None], message: str) -> None:
    values = one("latency_ladder", read("latency_ladder")).values
    raw = json.loads(values.model_dump_json())
    change(raw["table"])
    with pytest.raises(ValidationError, match=message):
        type(values).model_validate_json(json.dumps(raw))


def test_one_wrong_cell_is_enough_to_refuse_a_table() -> None:
    raw = {"axes": [], "rows": [{f"column{number}": {} for number in range(1000)}]}
    with pytest.raises(ValidationError) as caught:
        Table.model_validate_json(json.dumps(raw))
    assert caught.value.error_count() < 100


def frequencies(**changes: Any) -> Any:
    """Return the recorded frequencies with CPU 1 at ``factor`` times the clock of CPU 0, and fields of it changed."""
    raw = read("core_frequency")
    factor = changes.pop("factor", 1.0)
    recorded = {(point["work"], point["active"], point["cpu"]): point for point in points(raw)}
    for (work, active, cpu), point in recorded.items():
        if cpu == 1:
            point["windows_hz"] = [factor * item for item in recorded[work, active, 0]["windows_hz"]]
            point["dirty_windows"] = recorded[work, active, 0]["dirty_windows"]
            point.update(changes)
    return one("core_frequency", raw)


def test_clocks_by_work_and_activity() -> None:
    values: Any = frequencies(factor=1.1).values
    assert [(row.work, row.active) for row in values.rows] == [
        ("scalar", "alone"),
        ("scalar", "all"),
        ("avx2", "alone"),
        ("avx2", "all"),
    ]
    found = {metric.name: metric for metric in declaration("core_frequency").metrics(values)}
    for row in values.rows:
        assert [point.cpu for point in row.points] == [0, 1]
        assert {point.active_cpus for point in row.points} == {1 if row.active == "alone" else 2}
        low, high = (point.frequency_hz.value for point in row.points)
        prefix = f"core_frequency.{row.work}.{row.active}"
        assert found[f"{prefix}.lowest_hz"].value == low
        assert found[f"{prefix}.highest_hz"].value == high
        assert found[f"{prefix}.median_hz"].value == (low + high) / 2
        assert found[f"{prefix}.spread"].value == pytest.approx(2 * (high - low) / (high + low))


def test_some_cores_at_once_have_a_median_between_one_and_all() -> None:
    raw = read("core_frequency")
    alone, every = (next(point for point in points(raw) if point["active"] == who) for who in ("alone", "all"))
    groups = {"alone": [0], "all": range(8), "2": [0, 7], "4": [0, 1, 6, 7]}
    raw["result"]["points"] = [
        {
            **(alone if who == "alone" else every),
            "active": who,
            "cpu": cpu,
            "active_cpus": len(cpus),
            "windows_hz": [3e9 if cpu == 7 else 4e9] * 9,
        }
        for who, cpus in groups.items()
        for cpu in cpus
    ]
    measured = one("core_frequency", raw)
    rows = measured.values.rows
    assert [(row.name, row.partial) for row in rows] == [
        ("scalar, one core alone", False),
        ("scalar, 2 cores at once", True),
        ("scalar, 4 cores at once", True),
        ("scalar, all cores at once", False),
    ]
    found = {metric.name: metric.value for metric in declaration("core_frequency").metrics(measured.values)}
    assert {name: value for name, value in found.items() if ".2." in name or ".4." in name} == {
        "core_frequency.scalar.2.median_hz": 3.5e9,
        "core_frequency.scalar.4.median_hz": 4e9,
    }
    assert [flag.reason.partition(":")[0] for flag in measured.flags if flag.code == "SLOW_CORE"] == [
        "scalar, all cores at once"
    ]


@pytest.mark.parametrize("count", range(2, 7))
def test_core_is_compared_with_the_median_of_the_others(count: int) -> None:
    clocks = [1.0, 2.0, 2.0, 3.5, 7.0, 8.0][:count]
    for index in range(count):
        assert median_without(clocks, index) == median([*clocks[:index], *clocks[index + 1 :]])


def test_flags_a_slow_core() -> None:
    assert "SLOW_CORE" not in codes(frequencies())
    assert "SLOW_CORE" not in codes(frequencies(factor=0.99))
    slow = [flag.reason for flag in frequencies(factor=0.9).flags if flag.code == "SLOW_CORE"]
    assert len(slow) == 4
    assert all("CPU 1" in item for item in slow)
    assert "CPU 0" in next(flag.reason for flag in frequencies(factor=1.2).flags if flag.code == "SLOW_CORE")


@pytest.mark.parametrize(("changes", "code"), [
    ({"chain_ratio": 0.9}, "WORK_UNPROVED"),
    ({"chain_ratio": 1.1}, "WORK_UNPROVED"),
    ({"checked": False}, "WORK_UNPROVED"),
    ({"cpu_verified": False}, "CPU_UNVERIFIED"),
])  # fmt: skip
def test_unreliable_clock_chain_invalidates_the_measurement(changes: dict[str, Any], code: str) -> None:
    assert not [flag for flag in frequencies().flags if flag.severity == "invalid"]
    assert codes(frequencies(**changes), "invalid") == {code}


def flat(value: float) -> Estimate:
    return estimate([[value]] * 6, "ns")


def test_levels_of_a_recorded_curve_are_those_of_the_machine() -> None:
    # the recorded machine reports 32 KiB, 512 KiB and 32 MiB, and its neighbours leave it about a quarter of the last
    raw = read("latency_ladder")
    reported = {1: 32 << 10, 2: 512 << 10, 3: 32 << 20}
    caches = tuple(
        MACHINE.caches[0].model_copy(update={"level": level, "type": "Unified", "size_bytes": size})
        for level, size in reported.items()
    )
    machine = MACHINE.model_copy(update={"caches": caches})
    parsed = one("latency_ladder", raw, machine)
    levels = {level.name: level for level in parsed.values.levels}
    assert list(levels) == ["L1", "L2", "L3", "memory"]
    assert [levels[name].reported_bytes for name in ("L1", "L2", "L3")] == list(reported.values())
    assert levels["L1"].size_bytes == 32 << 10
    assert levels["L3"].size_bytes < 16 << 20
    assert levels["memory"].size_bytes is None
    assert all(a.latency_ns.value * 2 < b.latency_ns.value for a, b in pairwise(levels.values()))


def test_levels_follow_the_curve() -> None:
    sizes = ladder_sizes(1024, 64 << 20, 4)
    two_levels = [(size, flat(1.2 if size <= 48 << 10 else 100.0)) for size in sizes]
    found = recognise_levels(two_levels, {1: 48 << 10, 2: 1 << 20, 3: 8 << 20})
    assert [level.name for level in found] == ["L1", "memory"]
    climb = [(size, flat(1.0 + index * index)) for index, size in enumerate(sizes)]
    assert [level.name for level in recognise_levels(climb[:20], {})] == []
    unexplained = [(size, flat(1.2 if size <= 48 << 10 else 9.0 if size <= 4 << 20 else 100.0)) for size in sizes]
    assert [level.name for level in recognise_levels(unexplained, {1: 48 << 10})][1].startswith("plateau-")
    assert recognise_levels([], {1: 48 << 10}) == ()


def test_one_disturbed_point_does_not_split_a_plateau() -> None:
    sizes = ladder_sizes(1024, 64 << 20, 4)
    curve = [(size, flat(1.2 if size <= 48 << 10 else 100.0)) for size in sizes]
    curve[8] = (curve[8][0], flat(3.0))
    assert [level.name for level in recognise_levels(curve, {1: 48 << 10})] == ["L1", "memory"]


def two_nodes_of_transfers() -> dict[str, Any]:
    """Return the recorded transfers with remote ones beside them: the recorded windows, longer by a known factor."""
    raw = read("c2c_latency")
    recorded = points(raw)[1]
    for number, (writer, reader, home) in enumerate(((1, 4, 0), (1, 4, 1), (4, 1, 1), (4, 1, 0)), 2):
        pair = copy.deepcopy(recorded) | {"writer": writer, "reader": reader, "home": home, "lines": 512 * writer}
        for placement in pair["placements"]:
            placement["windows_ns"] = [n * number for n in placement["windows_ns"]]
        points(raw).append(pair)
    return raw


def test_remote_transfers_by_home_writer_and_reader() -> None:
    alone = one("c2c_latency", read("c2c_latency"))
    parsed = one("c2c_latency", two_nodes_of_transfers())
    values = parsed.values
    assert values.table.rows[:2] == alone.values.table.rows
    columns = ("writer_node", "reader_node", "home_node", "writer", "reader", "lines")
    assert [[getattr(row, name) for name in columns] for row in values.table.rows[1:4]] == [
        [0, 0, 0, 1, 0, 1024],
        [0, 1, 0, 1, 4, 512],
        [1, 0, 1, 4, 1, 2048],
    ]
    printed = values.printed(values.table)
    assert (printed["nodes"], values.cpus) == ((0, 1), [1, 4])
    for homed, there, back in (("writer", 2, 4), ("reader", 3, 5)):
        cells = printed[f"remote_hitm_{homed}_homed_ns"]
        assert cells[0][0] is cells[1][1] is None
        assert cells[0][1].value == pytest.approx(printed["local_hitm_ns"].value * there)
        assert cells[1][0].value == pytest.approx(printed["local_hitm_ns"].value * back)
    assert len([flag for flag in parsed.flags if flag.code == "ASYMMETRIC"]) == 2
    assert "ASYMMETRIC" not in codes(alone)
    assert {metric.name for metric in declaration("c2c_latency").metrics(values)} == {
        "c2c_latency.local_hit_ns",
        "c2c_latency.local_hitm_ns",
        *(
            f"c2c_latency.{pair}.remote_hitm_{homed}_homed_ns"
            for pair in ("0.1", "1.0")
            for homed in ("writer", "reader")
        ),
    }


def test_missing_transfer_leaves_the_others() -> None:
    raw = two_nodes_of_transfers()
    fail(points(raw)[0])
    fail(points(raw)[3])
    parsed = one("c2c_latency", raw)
    gone = [parsed.values.table.labels_of(row) for row in parsed.values.table.rows if row.latency_ns is None]
    assert gone == [("local_hit", 0, 0), ("remote_hitm_reader_homed", 0, 1)]
    assert [omitted.what for omitted in parsed.missing] == [
        "HIT from CPU 1 to CPU 0, homed in node 0",
        "HITM from CPU 1 to CPU 4, homed in node 1",
    ]


@pytest.mark.parametrize(("index", "change", "message"), [
    (2, {"state": "hit"}, "homed with neither"),
    (2, {"home": 7}, "homed with neither"),
    (2, {"writer": 2}, "one node use several CPUs"),
    (2, {"home": 1}, "same transfer, writer_node, reader_node"),
    (2, {"reader": 100000}, "CPU 100000"),
    (1, {"reader": 2}, "one node use several CPUs"),
])  # fmt: skip
def test_rejects_unrequested_transfers(index: int, change: dict[str, Any], message: str) -> None:
    raw = two_nodes_of_transfers()
    points(raw)[index].update(change)
    with pytest.raises(InputError, match=message):
        parse("c2c_latency", raw)


def test_core_matrix_summarizes_classes_and_names_extremes() -> None:
    raw = read("c2c_matrix")
    recorded = points(raw)[0]
    # CPUs 0 and 1 are threads of one core, 2 is on their node, 4 on the other
    factors = {(0, 2): 3, (2, 0): 4, (0, 1): 1, (1, 0): 2, (1, 2): 5, (0, 4): 6}
    raw["result"]["cells"] = [
        copy.deepcopy(recorded) | {"writer": writer, "reader": reader, "placements": [[100.0 * factor] * 3] * 6}
        for (writer, reader), factor in factors.items()
    ]
    raw["result"]["not_measured"] = [{"code": "sampled", "message": "left out", "pairs": ["2@1"]}]
    parsed = one("c2c_matrix", raw)
    values = parsed.values
    assert list(values.node_of.items()) == [(0, 0), (1, 0), (2, 0), (4, 1)]
    cells = values.table.cells("latency_ns")
    assert cells[0, 4].value == 600
    assert cells.keys() == factors.keys()
    found = {class_name.name: class_name for class_name in values.classes}
    near, far = found["smt_siblings"], found["other_package"]
    assert (near.pairs, near.measured, near.median_ns, near.latency_ns.interval) == (2, 2, 150, (150, 150))
    assert (near.minimum_pair, near.maximum_pair) == ((0, 1), (1, 0))
    assert (far.pairs, far.measured, far.median_ns, far.latency_ns.value) == (6, 1, 600, 600)
    assert sum(class_name.pairs for class_name in values.classes) == 4 * 3
    assert [(omitted.what, omitted.reason) for omitted in parsed.missing] == [
        ("Pairs 2@1", "sampled: left out: all would take 0.1 s, more than 10 s")
    ]
    (reason,) = (flag.reason for flag in parsed.flags if flag.code == "ASYMMETRIC")
    assert "2 pairs" in reason
    assert "CPUs 0 and 1: by 100 %" in reason
    first, second, *others = MACHINE.nodes
    exchanged = (first.model_copy(update={"cpus": second.cpus}), second.model_copy(update={"cpus": first.cpus}))
    other = one("c2c_matrix", raw, MACHINE.model_copy(update={"nodes": (*exchanged, *others)})).values
    assert list(other.node_of.items()) == [(4, 0), (0, 1), (1, 1), (2, 1)], "node by node"


def compared(
    found: dict[str, int], *, guest: bool | None = False, largest: int = 256 << 20, l3_cpus: tuple[int, ...] = (0, 1)
) -> dict[str, Comparison]:
    """Compare levels *found* (bytes each) with a machine of 48 KiB, 1 MiB and 32 MiB, the last shared by *l3_cpus*."""
    reported = ((1, "Data", 48 << 10, (0,)), (1, "Instruction", 32 << 10, (0,)), (2, "Unified", 1 << 20, (0,)))
    caches = tuple(
        Cache(level=level, type=kind, size_bytes=size, line_bytes=64, shared_cpus=cpus)
        for level, kind, size, cpus in (*reported, (3, "Unified", 32 << 20, l3_cpus))
    )
    seen = Virtualization(guest=guest, vendor="KVM" if guest else None, type=None, evidence=())
    machine = MACHINE.model_copy(update={"caches": caches, "virtualization": seen})
    latency = estimate([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], "ns")
    levels = [
        Level(name=name, size_bytes=size, reported_bytes=None, latency_ns=latency) for name, size in found.items()
    ]
    return {level.name: level for level in compare_levels(levels, [1024, largest], machine)}


def test_levels_of_the_reported_size_agree() -> None:
    found = compared({"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20})
    assert [(item.name, item.reported_bytes, item.agrees) for item in found.values()] == [
        ("L1", 48 << 10, True),
        ("L2", 1 << 20, True),
        ("L3", 32 << 20, True),
    ]
    assert {item.explanation for item in found.values()} == {"the curve leaves it where the kernel says it ends"}
    assert compared({"L3": 25 << 20})["L3"].agrees  # within the distance of neighbouring sizes
    assert not compared({"L3": 24 << 20})["L3"].agrees


def test_smaller_last_level_is_explained() -> None:
    virtual = compared({"L3": 8 << 20}, guest=True)["L3"]
    assert (virtual.found_bytes, virtual.agrees) == (8 << 20, False)
    assert virtual.explanation.startswith("a virtual machine (KVM)")
    assert "this CPU had 25 % of it" in virtual.explanation
    for guest in (False, None):  # not known to be a guest is no evidence of one
        shared = compared({"L3": 8 << 20}, guest=guest)["L3"]
        assert not shared.agrees
        assert shared.explanation.startswith("shared by CPUs 0-1")
    assert compared({"L3": 8 << 20}, l3_cpus=(0,))["L3"].explanation.startswith("private to its core")
    assert compared({"L2": 256 << 10}, guest=True)["L2"].explanation.startswith("private to its core")


def test_invisible_level_is_reported_missing() -> None:
    found = compared({"L1": 48 << 10})
    assert (found["L2"].found_bytes, found["L2"].agrees) == (None, False)
    assert found["L2"].explanation == "the latency climbs through it without a plateau"
    assert found["L3"].explanation.startswith("shared by CPUs 0-1")
    virtual = compared({"L1": 48 << 10}, guest=True)["L3"]
    assert virtual.explanation.startswith("a virtual machine")
    assert "this CPU had" not in virtual.explanation
    assert (
        compared({}, largest=16 << 20)["L3"].explanation == "the ladder ends at 16777216 bytes, before this cache does"
    )


def test_plateau_without_a_cache_is_not_compared() -> None:
    levels = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
    assert compared({**levels, "plateau-4194304": 4 << 20}) == compared(levels)
    assert not compared({"plateau-33554432": 32 << 20})["L3"].agrees  # by name, never by a size that happens to fit


def test_ladder_sizes_are_whole_lines_and_reach_both_ends() -> None:
    sizes = ladder_sizes(1024, 100 << 20, 4)
    assert sizes[0] == 1024
    assert sizes[-1] == 100 << 20
    assert sizes == sorted(set(sizes))
    assert all(size % 64 == 0 for size in sizes)


def test_interrupted_sweep_keeps_its_points() -> None:
    raw = read("loaded_latency")
    whole = one("loaded_latency", raw)
    for zero in raw["result"]["zero_load"]:
        zero["windows_ns_start"] = [100.0]
        zero["windows_ns_middle"] = [110.0]
        zero["windows_ns_end"] = []
    drifted = one("loaded_latency", raw)
    assert "DRIFT" in codes(drifted)
    for zero in raw["result"]["zero_load"]:
        zero["windows_ns_middle"] = []
    fail(raw["result"]["points"][-1])
    cut = one("loaded_latency", raw)
    assert "DRIFT" not in codes(cut)
    assert len(cut.missing) == 1
    assert cut.values.model_dump()["points"] == whole.values.model_dump()["points"][:-1]


def test_delays_in_ns_replace_delays() -> None:
    loaded = declaration("loaded_latency")
    for shares in ((), (0.5,)):
        search, step = loaded.steps(Sut(MACHINE), loaded.settings(delays_ns=(0, 50, 500), shares=shares))
        assert isinstance(search, Step)
        assert isinstance(step, Step)
        assert search.argv[search.argv.index("--delay-ns") + 1] == "0,50,500"
        assert "--delay" not in search.argv
        assert "3 delays" in step.title
        assert not {"--delay", "--delay-ns"} & {*step.argv}, "they are chosen"
        assert step.choice == Choice(step=search.id, field=("result", "chosen"), option="--delay")
    usual, _ = loaded.steps(Sut(MACHINE), loaded.settings())
    assert isinstance(usual, Step)
    assert "--delay" in usual.argv
    assert "--delay-ns" not in usual.argv


CHOSEN = "chosen-delays/loaded_latency"
"""A sweep with two delays that were asked for and four that were chosen for shares of the full bandwidth."""
SHARES = (25, 50, 75, 90)


def test_searched_delays_keep_stable_names() -> None:
    raw = read(CHOSEN)
    parsed = one(CHOSEN, raw)
    found = parsed.values
    delays = [point.inject_delay for point in found.points]
    assert delays == sorted(delays)
    assert delays[0] == 0
    assert delays[-1] == 20000
    assert [point.share for point in found.points] == [None, 0.9, 0.75, 0.5, 0.25, None]
    full = found.points[0]
    for point in found.points[1:-1]:
        assert point.share_reached == pytest.approx(point.share, abs=0.05)
    assert found.points[-1].share_reached is None
    assert {metric.name: metric.value for metric in declaration("loaded_latency").metrics(found)} == {
        "loaded_latency.0.latency_ns": full.latency_ns.value,
        "loaded_latency.0.bandwidth_mb_s": full.bandwidth_mb_s.value,
        "loaded_latency.20000.latency_ns": found.points[-1].latency_ns.value,
        "loaded_latency.90pct.latency_ns": found.points[1].latency_ns.value,
        "loaded_latency.90pct.bandwidth_mb_s": found.points[1].bandwidth_mb_s.value,
    }


def test_each_probe_has_a_latency_at_the_share_of_record() -> None:
    raw = read(CHOSEN)
    for point in points(raw):
        for placement in point["placements"]:
            (probe,) = placement["probes"]
            placement["probes"].append({**probe, "cpu": 7, "windows_ns": [2 * n for n in probe["windows_ns"]]})
    parsed = one(CHOSEN, raw)
    found = {metric.name: metric.value for metric in declaration("loaded_latency").metrics(parsed.values)}
    first, second = found["loaded_latency.90pct.latency_ns"], found["loaded_latency.90pct.cpu7.latency_ns"]
    assert second == pytest.approx(2 * first)


def test_flags_a_missed_share() -> None:
    raw = read(CHOSEN)
    parsed = one(CHOSEN, raw)
    assert "SHARE_MISSED" not in codes(parsed)
    half = points(raw)[2 + SHARES.index(50)]
    for placement in half["placements"]:
        placement["windows_mb_s"] = [item * 1.2 for item in placement["windows_mb_s"]]
    missed = one(CHOSEN, raw)
    (flagged,) = (flag for flag in missed.flags if flag.code == "SHARE_MISSED")
    assert flagged.reason.startswith("50 % of full load: 6")


def test_unmeasured_share_is_missing() -> None:
    raw = read(CHOSEN)
    for point in (*points(raw)[:2], points(raw)[2 + SHARES.index(90)]):
        fail(point)
    parsed = one(CHOSEN, raw)
    found = parsed.values
    assert [omitted.what for omitted in parsed.missing] == ["inject delay 0", "90 % of full load", "inject delay 20000"]
    assert found.ends == ()
    assert not list(declaration("loaded_latency").metrics(found))
    # Without a point without delay, what the search saw is left.
    seen = {share["share_percent"]: share["share_found"] for share in read("loaded_latency-search")["result"]["shares"]}
    assert [point.share_reached for point in found.points] == [seen[percent] for percent in (75, 50, 25)]


def test_shares_are_requested_and_cost_time() -> None:
    loaded = declaration("loaded_latency")

    def planned(**settings: Any) -> list[Step]:
        return [step for step in loaded.steps(Sut(MACHINE), loaded.settings(**settings)) if isinstance(step, Step)]

    (search, usual), (none,) = planned(), planned(shares=())
    (more,) = planned(shares=(), delays=(*MLC_DELAYS, 1, 3, 4, 5))
    assert search.argv[search.argv.index("--share-percent") + 1] == "25,50,75,90"
    assert "--choose" in search.argv
    assert search.part_of == usual.id
    assert not {"--share-percent", "--choose"} & {*usual.argv, *none.argv}
    assert none.choice is None
    assert "19 delays, 4 shares of full load" in usual.title
    assert usual.expected_duration_s == more.expected_duration_s > none.expected_duration_s
    for wrong in (0.0, 1.01, 0.255):
        with pytest.raises(ValidationError, match="shares"):
            loaded.settings(shares=(wrong,))


def test_strided_latencies_have_ratios() -> None:
    raw = read("prefetcher_effect")
    parsed = one("prefetcher_effect", raw)
    found = parsed.values
    assert (found.prefetchers, found.cpu, found.node, found.effects) == ("as_found", 1, 0, [])
    by = {(point.order, point.stride_bytes): point for point in found.points}
    assert {order for order, _ in by} == {"random", "forward", "backward"}
    for (order, stride), point in by.items():
        assert point.touched_bytes == found.size_bytes * 64 // stride
        share = point.latency_ns.value / by["random", stride].latency_ns.value
        assert point.of_random == (None if order == "random" else pytest.approx(share))
    assert by["forward", 64].of_random is not None
    assert by["forward", 64].of_random < 0.1  # the machine that recorded it has prefetchers
    kind = declaration("prefetcher_effect")
    slower = copy.deepcopy(raw)
    for point in slower["result"]["points"]:
        for placement in point["placements"]:
            placement["windows_ns"] = [2 * n for n in placement["windows_ns"]]
    parsed = one("prefetcher_effect-off", slower, prefetchers="off")
    off = kind.completed(parsed.values, {"prefetcher_effect": found})
    assert {round(point.effect, 6) for point in off.effects} == {2.0}
    assert len(off.effects) == len(found.points)
    assert {metric.name for metric in kind.metrics(off)} >= {"prefetcher_effect.off.forward_64.latency_ns"}
    assert all(".off." not in metric.name for metric in kind.metrics(found))
    assert kind.completed(parsed.values, {}).effects == []
    assert kind.completed(found, {"prefetcher_effect-off": off}) == found


def test_drops_a_point_with_a_failed_copy() -> None:
    raw = read("latency_ladder-copies-2")
    whole = one("latency_ladder-copies-2", raw)
    fail(points(raw)[0])
    parsed = one("latency_ladder-copies-2", raw)
    assert len(parsed.values.points) == len(whole.values.points) - 1


@pytest.mark.parametrize("name", ["latency_ladder-copies-2", "latency_ladder-prefetched"])
def test_other_series_report_their_largest_size(name: str) -> None:
    parsed = one(name, read(name))
    found = parsed.values
    largest = max(point.size_bytes for point in found.points)
    expected = sorted(point.latency_ns.value for point in found.points if point.size_bytes == largest)
    assert sorted(metric.value for metric in declaration("latency_ladder").metrics(parsed.values)) == expected


def test_level_has_the_clock_of_the_nearest_point() -> None:
    parsed = one("latency_ladder", read("latency_ladder"))
    found = parsed.values
    assert found.levels
    for level in found.levels:
        nearest = min(abs(point.latency_ns.value - level.latency_ns.value) for point in found.points)
        assert level.core_hz in {
            point.core_hz for point in found.points if abs(point.latency_ns.value - level.latency_ns.value) == nearest
        }


def test_plateau_latency_excludes_its_edges() -> None:
    values = [1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.0, 1.0, 1.0]
    curve = [(1024 << index, estimate([[value]] * 6, "ns")) for index, value in enumerate(values)]
    (level,) = recognise_levels(curve, {})
    assert level.latency_ns.minimum == level.latency_ns.maximum == 1.2


def test_finds_temporary_drift() -> None:
    raw = read("loaded_latency")
    (zero,) = raw["result"]["zero_load"]
    for middle, flagged in ((100.0, False), (150.0, True)):
        for moment, value in (("start", 100.0), ("middle", middle), ("end", 100.0)):
            zero[f"windows_ns_{moment}"] = [value] * 3
        parsed = one("loaded_latency", raw)
        assert ("DRIFT" in codes(parsed)) == flagged


def test_drift_of_many_probes_is_one_flag() -> None:
    raw = read("loaded_latency")
    (zero,) = raw["result"]["zero_load"]
    moved = {"windows_ns_start": [100.0], "windows_ns_middle": [110.0], "windows_ns_end": [100.0]}
    more = {**zero, **moved, "windows_ns_middle": [105.0]}
    raw["result"]["zero_load"] = [{**zero, **moved, "cpu": 1}, {**more, "cpu": 2}, {**more, "cpu": 3}]
    reasons = [flag.reason for flag in one("loaded_latency", raw).flags if flag.code == "DRIFT"]
    assert reasons == ["CPU 1-3: latency without load moved by 5.0 to 10.0 % during the sweep"]


def test_scaling_by_number_of_threads() -> None:
    raw = read("bandwidth_scaling")
    for point in points(raw):
        for placement in point["placements"]:
            placement["windows_mb_s"] = [1000.0] * len(placement["windows_mb_s"])
    for number, placement in enumerate(points(raw)[1]["placements"]):
        placement["per_thread_mb_s"] = [300.0 + 100 * (number % 2), 600.0]
    parsed = one("bandwidth_scaling", raw)
    found = parsed.values
    assert found.enough_threads == 1
    assert (found.points[1].slowest_mb_s, found.points[1].fastest_mb_s) == (350.0, 600.0)
    kind = declaration("bandwidth_scaling")
    orders = ("fill", "spread", "memory_only")
    metrics = [item for order in orders for item in kind.metrics(found.model_copy(update={"order": order}))]
    assert len({item.title for item in metrics}) == len({item.name for item in metrics}) == len(metrics)


def test_cpus_of_both_orders_run_once_and_are_in_both_curves() -> None:
    sut = Sut(MACHINE)
    fill, spread = ([tuple(sorted(cpus)) for cpus in cpus_by_count(sut, order)] for order in ("fill", "spread"))
    (step,) = declaration("bandwidth_scaling").steps(sut, ScalingSettings())
    assert isinstance(step, Step)
    groups = [group_text(read_group(text)) for word, text in pairwise(step.argv) if word == "--group"]
    run = [tuple(cpu for part in read_group(group) for cpu in part.cpus) for group in groups]
    assert sorted(map(sorted, run)) == sorted(map(list, {*fill, *spread}))
    assert len(run) < len(fill) + len(spread)
    raw = read("bandwidth_scaling")
    (first, *_) = points(raw)
    raw["result"]["points"] = [
        {**first, "cpus": list(cpus), "threads": len(cpus), "group": group}
        for cpus, group in zip(run, groups, strict=True)
    ]
    curves = {parsed.values.order: parsed for parsed in parse("bandwidth_scaling", raw)}
    assert {parsed.suffix: order for order, parsed in curves.items()} == {"": "fill", "-spread": "spread"}
    for order, cpus in (("fill", fill), ("spread", spread)):
        assert [row.threads for row in curves[order].values.table.rows] == [len(some) for some in cpus]
        assert {row.group for row in curves[order].values.table.rows} <= set(groups)
    whole = {order: curves[order].values.table.rows[-1].group for order in curves}
    assert whole["fill"] == whole["spread"]


def test_the_winner_of_the_search_is_the_fastest_measured_in_full() -> None:
    raw = read("max_bandwidth")
    slower = copy.deepcopy(points(raw)[0])
    for placement in slower["placements"]:
        placement["windows_mb_s"] = [value / 2 for value in placement["windows_mb_s"]]
    before = one("max_bandwidth", raw)
    raw["result"]["points"].append(slower)
    parsed = one("max_bandwidth", raw)
    now = parsed.values
    was = before.values
    assert now.mixes == was.mixes
    assert len(now.search) == len(points(read("max_bandwidth-search")))


@pytest.mark.parametrize(
    ("of", "field", "value", "code"),
    [("cpu", "cpu_verified", False, "CPU_UNVERIFIED"), ("clock", "resolution_ns", 1.95, "CLOCK_COARSE")],
)
def test_flags_of_jitter(of: str, field: str, value: object, code: str) -> None:
    raw = read("jitter")
    cpu = points(raw)[0]
    {"cpu": cpu, "clock": raw["clock"]}[of][field] = value
    assert code not in codes(one("jitter", read("jitter")))
    assert code in codes(one("jitter", raw))


def test_jitter_per_interval_is_in_ns() -> None:
    raw = read("jitter")
    pma = points(raw)[0]["pma"]
    pma["tick_hz"] = 2e9
    for number, interval in enumerate(pma["intervals"]):
        interval["inst_jitter_cycles"] = 1000 * (number + 1)
    assert one("jitter", raw).values.inst_jitter_ns.value == pytest.approx(1500)


def test_a_cpu_without_jitter_costs_its_own_views_and_no_other() -> None:
    raw = read("jitter")
    message = "the thread of CPU 9 was moved to another CPU during the measurement"
    moved = points(raw)[0] | {"cpu": 9, "cpu_verified": False, "error": {"code": "cpu_left", "message": message}}
    never = {
        "cpu": 10,
        "cpu_verified": False,
        "error": {"code": "cpu_offline", "message": "CPU 10 is offline"},
        **dict.fromkeys(("pma", "gaps")),
        **dict.fromkeys(("pma_missing", "gaps_missing"), "CPU 10 is offline"),
    }
    alone = parse("jitter", raw)
    raw["result"]["cpus"] += [moved, never]
    *others, last = parse("jitter", raw)
    assert [parsed.values for parsed in others] == [parsed.values for parsed in alone]
    assert [flag for parsed in others for flag in parsed.flags] == [flag for parsed in alone for flag in parsed.flags]
    assert [(gone.what, gone.reason) for gone in others[0].missing] == [("CPU 10", "cpu_offline: CPU 10 is offline")]
    assert not last.missing
    assert last.values.cpu == 9
    assert [flag.reason for flag in last.flags if flag.code == "CPU_UNVERIFIED"] == [message]
    raw["result"]["cpus"] = [points(raw)[0] | {"error": never["error"]}]
    assert any(flag.code == "PARTIAL" and "cpu_offline" in flag.reason for flag in one("jitter", raw).flags)
    raw["result"]["cpus"] = [never]
    with pytest.raises(InputError, match="CPU 10 is offline"):
        parse("jitter", raw)


def sustained(windows: list[float]) -> Any:
    raw = read("sustained_bandwidth")
    raw["result"]["points"][0]["placements"][0]["windows_mb_s"] = windows
    return one("sustained_bandwidth", raw)


def test_loss_is_relative_to_the_first_second() -> None:
    found = sustained([1000.0] * 10 + [950.0] * 10 + [900.0] * 10)
    assert found.values.lost_fraction.value == pytest.approx(0.1)
    assert found.values.bandwidth_mb_s.value == 900.0
    assert found.values.seconds_mb_s == (1000.0, 950.0, 900.0)
    (flagged,) = (flag for flag in found.flags if flag.code == "NOT_SUSTAINED")
    assert "10.0 % less in the last second than in the first" in flagged.reason


@pytest.mark.parametrize(
    "windows",
    [*([1000.0] * 10 + [last] * 10 for last in (985.0, 1000.0, 1100.0)), [1000.0, 900.0] * 5 + [900.0, 1000.0] * 5],
)
def test_no_loss_beyond_two_percent_or_noise(windows: list[float]) -> None:
    assert "NOT_SUSTAINED" not in codes(sustained(windows))


def test_rejects_less_than_two_seconds() -> None:
    with pytest.raises(InputError, match="fewer than 20"):
        sustained([1000.0] * 19)
