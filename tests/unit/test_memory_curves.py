# SPDX-License-Identifier: Apache-2.0
"""Memory curves: figures of known curves, pairs of nodes, and what a page says of them."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from statistics import median

import pytest

from calibration.base.errors import InputError
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.memory_curves import (
    CurveFigures,
    MemoryCurvesSettings,
    MemoryCurvesValues,
    bandwidth_at,
    latency_at,
    pairs_of,
)
from calibration.measurements.platform import ChosenShape, ShapeReference
from calibration.measurements.sut import Sut
from calibration.profiles import load_profile
from calibration.results.cross_checks import cross_checks
from calibration.sutprobe.document import read_document
from tests.recorded import read, read_whole
from tests.report.made_counts import context, memory
from tests.report.made_curves import Model, made_rounds, queue
from tests.report.report_documents import MACHINE, context_of, parsed_measurements
from tests.unit.machines import MACHINES

CURVE = [(0.0, 100.0), (40.0, 100.0), (80.0, 180.0), (100.0, 300.0)]


def values_of(
    full_mb_s: dict[str, float], latency_ns: Model, noise: float = 0.0, shares: Sequence[int] = (50, 75, 90)
) -> MemoryCurvesValues:
    document = made_rounds((1, 0, 0), full_mb_s, latency_ns, noise=noise, shares=shares)
    (found,) = parsed_measurements("memory_curves", document, context_of(MACHINE))
    assert isinstance(found.values, MemoryCurvesValues)
    return found.values


def curve_of(values: MemoryCurvesValues, mix: str) -> CurveFigures:
    return next(curve for curve in values.curves if curve.mix == mix)


@pytest.mark.parametrize(
    ("bandwidth", "latency"), [(20.0, 100.0), (60.0, 140.0), (78.0, 176.0), (90.0, 240.0), (100.0, 300.0)]
)
def test_latency_is_on_the_line_between_two_points(bandwidth: float, latency: float) -> None:
    assert latency_at(CURVE, bandwidth) == latency
    assert latency == 100.0 or bandwidth_at(CURVE, latency) == bandwidth


def test_a_curve_that_turns_back_counts_where_it_first_gets_to() -> None:
    turning = [(0.0, 100.0), (80.0, 150.0), (100.0, 200.0), (90.0, 400.0)]
    assert latency_at(turning, 95.0) == 187.5
    assert bandwidth_at(turning, 300.0) == 95.0


def test_what_a_curve_does_not_reach_is_at_its_end() -> None:
    assert latency_at(CURVE, 120.0) == 300.0
    assert bandwidth_at(CURVE, 500.0) == 100.0


def test_figures_are_those_of_the_model() -> None:
    reads = curve_of(values_of({"reads": 200e3, "1:1": 150e3}, partial(queue, 100.0)), "reads")
    assert reads.full_mb_s.value == pytest.approx(200e3)
    assert {share: round(found.value, 3) for share, found in reads.latency_ns.items()} == {
        50: round(queue(100.0, "reads", 0.5), 3), 75: round(queue(100.0, "reads", 0.75), 3),
        90: round(queue(100.0, "reads", 0.9), 3),
    }  # fmt: skip
    assert reads.doubled_mb_s is not None
    assert 0.9 * 200e3 < reads.doubled_mb_s.value < 200e3


def test_rounds_that_scale_together_have_the_interval_of_their_ratio() -> None:
    values = values_of({"reads": 200e3}, partial(queue, 100.0), noise=0.02)
    reads = curve_of(values, "reads")
    assert reads.full_mb_s.estimator == "median_of_rounds"
    assert reads.latency_ns[75].estimator == "derived"
    assert len(reads.latency_ns[75].rounds) == 6
    low, high = reads.latency_ns[75].interval or (0.0, 0.0)
    assert low < reads.latency_ns[75].value < high
    assert len(values.unloaded_ns.rounds) == 6
    assert {len(windows) for windows in values.unloaded_ns.samples} == {6}, "before, during and after the sweep"


def test_points_are_in_order_and_say_what_share_they_reached() -> None:
    values = values_of({"reads": 200e3, "1:1": 150e3}, partial(queue, 100.0))
    assert [(row.mix, row.share) for row in values.points] == [
        (mix, share) for mix in ("reads", "1:1") for share in (50, 75, 90, 100)
    ]
    assert all(row.share_reached == pytest.approx(row.share / 100) for row in values.points)


def test_latency_that_moves_without_load_is_flagged() -> None:
    raw = read("memory_curves")
    (zero,) = raw["result"]["zero_load"]
    zero["windows_ns_end"] = [1.1 * window for window in zero["windows_ns_start"]]
    (found,) = parsed_measurements("memory_curves", read_whole("memory_curves", raw), context_of(MACHINE))
    assert "DRIFT" in found.validity.codes


def flat(doubling: dict[str, float], mix: str, share: float) -> float:
    """Return a latency that is flat until close before a share, where it doubles, and rises on."""
    begin = doubling[mix] - 0.05
    return 100.0 if share <= begin else 100.0 + 2000.0 * (share - begin)


def test_the_share_of_writes_that_doubles_latency_is_between_two_mixes() -> None:
    # of 100 GB/s, reads double the latency at 90 %, 3:1 at 80 %, 1:1 at 60 %: 75 GB/s lies a quarter of the way between
    model = partial(flat, {"reads": 0.9, "3:1": 0.8, "1:1": 0.6})
    values = values_of(dict.fromkeys(("reads", "3:1", "1:1"), 100e3), model, shares=range(5, 100, 5))
    assert [curve.write_share for curve in values.curves] == [0.0, 0.25, 0.5]
    assert [curve.doubled_mb_s and round(curve.doubled_mb_s.value) for curve in values.curves] == [90000, 80000, 60000]
    assert values.doubling_write_share is not None
    assert values.doubling_write_share.value == pytest.approx(0.25 + 0.25 * 0.25)


@pytest.mark.parametrize("doubling", [{"reads": 0.9, "1:1": 0.8}, {"reads": 0.6, "1:1": 0.5}])
def test_a_share_of_writes_that_no_mix_shows_is_not_made_up(doubling: dict[str, float]) -> None:
    values = values_of(dict.fromkeys(doubling, 100e3), partial(flat, doubling), shares=range(5, 100, 5))
    assert values.doubling_write_share is None
    assert len(list(declaration("memory_curves").summary([values]))) == 1


def test_a_load_that_leaves_the_latency_alone_doubles_nothing() -> None:
    values = values_of({"reads": 20e3, "1:1": 20e3}, lambda _mix, share: 100.0 + 5 * share)
    assert [curve.doubled_mb_s for curve in values.curves] == [None, None]
    assert values.doubling_write_share is None


def test_counted_bytes_stand_beside_those_of_the_rule() -> None:
    raw = read("memory_curves")
    for point in raw["result"]["points"]:
        rule = point["accounting"]
        for placement in point["placements"]:
            steps = median(placement["windows_mb_s"]) * 1e6 * 0.03 / rule["model_dram_bytes_per_step"]
            chased = placement["probes"][0]["probe_mb_s"] * 1e6 * 0.03 / 64
            reads = rule["reads_per_step"] * steps * (1.5 if point["mix"] == "1:1" else 1.0) + chased
            events = memory("dram.reads", reads, 0.03, steps)
            events += memory("dram.writes", rule["writes_per_step"] * steps, 0.03, steps)
            placement["counters"] = {"background_s": 1.0, "events": events, "refused": []}
    (found,) = parsed_measurements("memory_curves", read_whole("memory_curves", raw), context())
    assert isinstance(found.values, MemoryCurvesValues)
    volumes = [row.counted for row in found.values.points]
    assert all(volumes)
    (reason,) = [item.reason for item in found.validity.flags if item.code == "COUNTED_DIFFERS"]
    assert "in 4 of 12 measurements, most in 1:1, " in reason


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "pass"), (2.5, "fail")])
def test_the_loaded_latency_is_on_the_curve_of_reads(factor: float, outcome: str) -> None:
    name = "chosen-delays/loaded_latency"
    (loaded,) = parsed_measurements("loaded_latency", read_whole(name, read(name)), context_of(MACHINE))
    assert isinstance(loaded.values, LoadedLatencyValues)
    (point,) = (point for point in loaded.values.points if point.share == 0.9)
    (probe,) = point.probes
    document = made_rounds((1, 0, 0), {"reads": 20e3}, lambda _mix, _share: factor * probe.latency_ns.value, noise=0.01)
    (curves,) = parsed_measurements("memory_curves", document, context_of(MACHINE))
    (check,) = (check for check in cross_checks([loaded, curves]) if check.rule == "same_curve")
    assert (check.figure.name, check.other.name) == (
        "memory_curves.0.0.reads.90pct.latency_ns", "loaded_latency.90pct.latency_ns",
    )  # fmt: skip
    assert check.outcome == outcome


def test_a_sweep_without_its_search_has_no_shares() -> None:
    with pytest.raises(InputError, match="4 points of reads, and a search for 0 shares"):
        parsed_measurements("memory_curves", read_document(read("memory_curves")), context_of(MACHINE))


def planned(machine: str, profile: str) -> tuple[list[Step], list[NotPlanned]]:
    found = list(
        declaration("memory_curves").steps(Sut(MACHINES[machine]), load_profile(profile).measurements["memory_curves"])
    )
    return [item for item in found if isinstance(item, Step)], [item for item in found if isinstance(item, NotPlanned)]


@pytest.mark.parametrize(("profile", "most_s"), [("nightly", 45), ("full", 240)])
@pytest.mark.parametrize("machine", MACHINES)
def test_curves_end_in_time(machine: str, profile: str, most_s: float) -> None:
    steps, _ = planned(machine, profile)
    rounds = load_profile(profile).rounds
    assert sum(step.longest_duration_s * (1 if step.part_of else rounds) for step in steps) <= most_s


def test_every_distance_has_a_pair_and_the_rest_is_named() -> None:
    sut = Sut(MACHINES["2x64-smt-8-nodes"])
    pairs = pairs_of(sut, MemoryCurvesSettings(pairs="all"))
    assert len(pairs) == 64
    first = [sut.distance(pair.cpu_node, pair.memory_node) for pair in pairs[:3]]
    assert first == [10, 12, 32]
    steps, left_out = planned("2x64-smt-8-nodes", "full")
    measured = len(steps) // 2
    assert 3 <= measured < 64
    assert [item.what for item in left_out] == [f"Memory curves of {64 - measured} of 64 pairs of nodes"]


def test_memory_without_cpus_is_an_end_of_every_node() -> None:
    sut = Sut(MACHINES["2x96-smt-2-nodes-2-memory-only"])
    pairs = pairs_of(sut, MemoryCurvesSettings())
    assert sorted((pair.cpu_node, pair.memory_node) for pair in pairs) == [
        (0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    assert {sut.context.relation(pair.cpu_node, pair.memory_node) for pair in pairs[:3]} == {
        "local", "remote", "memory_only",
    }  # fmt: skip


def test_a_probe_shares_no_core_with_the_load() -> None:
    sut = Sut(MACHINES["2x32-smt-2-nodes"])
    for pair in pairs_of(sut, MemoryCurvesSettings()):
        assert not set(sut.siblings(pair.probe.cpu)) & set(pair.load.cpus)
        assert len(pair.load.cpus) == 31
        assert {sut.node_of(cpu) for cpu in pair.load.cpus} == {pair.cpu_node}


def test_a_mix_that_another_instruction_moves_best_is_moved_by_vectors() -> None:
    def chosen(streams: int, instruction: str = "vector") -> ChosenShape:
        return ChosenShape(streams=streams, prefetch_bytes=0, instruction=instruction, width="avx2")

    kept = ShapeReference.model_construct(
        all_mixes=chosen(4), mixes={"reads": chosen(8), "write_nt": chosen(1, "clzero")}
    )
    settings = MemoryCurvesSettings(mixes=("reads", "write_nt"))
    steps = declaration("memory_curves").steps(Sut(MACHINES["2x32-smt-2-nodes"], kept), settings)
    for step in (step for step in steps if isinstance(step, Step)):
        assert [after for word, after in pairwise(step.argv) if word == "--shape"] == ["reads=8/0/t0/0/vector"]
        assert "clzero" not in " ".join(step.argv)


def test_a_round_without_points_is_left_out_of_the_latency_without_load() -> None:
    document = made_rounds((1, 0, 0), {"reads": 20e3}, partial(queue, 100.0), lost=frozenset({3}))
    (found,) = parsed_measurements("memory_curves", document, context_of(MACHINE))
    assert isinstance(found.values, MemoryCurvesValues)
    assert found.values.unloaded_ns.rounds == (1, 2, 4, 5, 6)
    assert found.values.curves[0].latency_ns[75].rounds == (1, 2, 4, 5, 6)
    assert "PARTIAL" in found.validity.codes


def test_one_core_alone_has_nothing_to_load_with() -> None:
    machine = MACHINES["2x32-smt-2-nodes"]
    one = machine.model_copy(update={"cpus": machine.cpus.model_copy(update={"online": (0, 64), "allowed": (0, 64)})})
    (gone,) = declaration("memory_curves").steps(Sut(one), load_profile("nightly").measurements["memory_curves"])
    assert isinstance(gone, NotPlanned)
    assert "one core" in gone.reason
