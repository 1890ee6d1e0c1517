# SPDX-License-Identifier: Apache-2.0
"""Threads balanced over last-level caches, one per core; what the last of them add; and the search over shapes."""

import json
from pathlib import Path

import pytest

from calibration.context.loader import load
from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.bandwidth_scaling import (
    SATURATED_GAIN,
    cpus_by_count,
    cpus_in_order,
    fewer_threads,
    saturation,
    whole_counts,
)
from calibration.measurements.base import Step
from calibration.measurements.platform import ChosenShape, Setting, Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import all_cores, all_cpus, shape_rows
from calibration.measurements.traffic_shape import ShapeSettings, extra_looks, extra_options
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import read_document, read_result
from tests.captures import captured
from tests.unit.machines import machine as made
from tests.unit.test_measurements import one, read

FIXTURES = Path(__file__).parent.parent / "fixtures"
GIB, MIB = 1 << 30, 1 << 20


def with_complexes(cores: int, complexes: int) -> Context:
    """Return a node of *cores* cores with two threads each, in *complexes* with a last-level cache of their own."""
    context = made(packages=1, nodes=1, cores=cores, threads=2, node_bytes=64 * GIB, llc_bytes=32 * MIB)
    share = cores // complexes
    by_core = [core.cpus for core in context.topology.cores]
    domains = tuple(
        tuple(sorted(cpu for core in by_core[share * number : share * (number + 1)] for cpu in core))
        for number in range(complexes)
    )
    topology = context.topology.model_copy(update={"last_level_cache_domains": domains})
    return context.model_copy(update={"topology": topology})


@pytest.mark.parametrize(("cores", "complexes"), [(8, 2), (16, 8), (64, 8), (12, 3), (4, 1)])
def test_threads_are_balanced_over_core_complexes(cores: int, complexes: int) -> None:
    context = with_complexes(cores, complexes)
    sut = Sut(context)
    order = cpus_in_order(sut, "fill")
    assert sorted(order[:cores]) == sut.one_per_core(sut.cpus), "one thread of every core comes first"
    assert sorted(order) == sorted(sut.cpus)
    for count in range(1, len(order) + 1):
        held = [len(set(domain) & set(order[:count])) for domain in context.topology.last_level_cache_domains]
        assert max(held) - min(held) <= 1, (count, held)


@pytest.mark.parametrize("path", sorted((FIXTURES / "context").glob("*.tar.gz")), ids=lambda path: path.name)
def test_every_captured_machine_has_each_cpu_once_and_cores_first(path: Path) -> None:
    sut = Sut(load(path))
    for order in ("fill", "spread"):
        cpus = cpus_in_order(sut, order)
        assert sorted(cpus) == sorted(sut.cpus)
        cores = [sut.siblings(cpu) for cpu in cpus[: len(sut.one_per_core(sut.cpus))]]
        assert len(cores) == len(set(cores))


def test_one_thread_runs_on_each_core() -> None:
    sut = Sut(with_complexes(4, 2))
    (alone,), (both,) = all_cores(sut), all_cpus(sut)
    assert len(both.cpus) == 8
    assert list(alone.cpus) == sut.one_per_core(both.cpus)
    assert len({sut.siblings(cpu) for cpu in alone.cpus}) == len(alone.cpus) == 4


def test_the_count_before_the_last_threads_is_measured() -> None:
    for cores, fewer in ((2, 1), (4, 3), (8, 7), (64, 56), (252, 221)):
        assert fewer_threads(cores) == fewer
    assert fewer_threads(1) == 0
    sut = Sut(made(packages=2, nodes=2, cores=8, threads=2, node_bytes=16 * GIB, llc_bytes=32 * MIB))
    assert whole_counts(sut, "fill") == {"node": 8, "machine": 16}
    assert whole_counts(sut, "spread") == {"machine": 16}
    assert {7, 8, 14, 16, 32} <= {len(cpus) for cpus in cpus_by_count(sut, "fill")}


def points(last_add: float, noise: float = 0.001) -> list[BandwidthPoint]:
    """Return points of one and two threads, of which the second adds the share *last_add*, in six rounds."""
    path = FIXTURES / "sutprobe" / "bandwidth_scaling.json"
    recorded = read_result(read_document(json.loads(path.read_text(encoding="utf-8"))), BandwidthResult).points[0]
    assert recorded.placements
    one = recorded.placements[0]

    def point(threads: int, mb_s: float) -> BandwidthPoint:
        rounds = [
            one.model_copy(
                update={"round": number, "seed": 7, "windows_mb_s": (mb_s * drift * (1 + noise * number * threads),)}
            )
            for number, drift in enumerate((1.0, 1.1, 0.9, 1.05, 0.8, 1.2))
        ]
        return recorded.model_copy(update={"threads": threads, "placements": tuple(rounds)})

    return [point(1, 10_000.0), point(2, 10_000.0 * (1 + last_add))]


@pytest.mark.parametrize(
    ("last_add", "saturated"), [(0.0, True), (0.01, True), (0.06, False), (1.0, False), (-0.05, True)]
)
def test_saturation_is_what_the_last_threads_add(last_add: float, saturated: bool) -> None:
    found = saturation(points(last_add), "machine", 2, 0.02)
    assert found is not None
    assert found.fewer_share.value == pytest.approx(1 / (1 + last_add), rel=0.005)
    assert found.saturated is saturated
    assert (found.threads, found.fewer_threads) == (2, 1)


def test_the_share_is_a_metric_of_its_scope() -> None:
    found = saturation(points(0.06), "machine", 2, 0.02)
    assert found is not None
    measured = one("bandwidth_scaling", read("bandwidth_scaling")).values.model_copy(update={"saturation": (found,)})
    metrics = {metric.name: metric.value for metric in declaration("bandwidth_scaling").metrics(measured)}
    assert metrics["bandwidth_scaling.fill.machine.fewer_share"] == found.fewer_share.value
    for point in measured.points:
        assert metrics[f"bandwidth_scaling.fill.{point.threads}.bandwidth_mb_s"] == point.bandwidth_mb_s.value


def test_what_drifts_in_both_counts_is_no_doubt_and_noise_is() -> None:
    drifting = saturation(points(0.0), "machine", 2, 0.02)
    assert drifting is not None
    assert drifting.fewer_share.half_width is not None
    assert drifting.fewer_share.half_width < 0.02, "rounds differ by 40 %, their ratios do not"
    noisy = saturation(points(SATURATED_GAIN, noise=0.05), "machine", 2, 0.02)
    assert noisy is not None
    assert noisy.saturated is None
    assert saturation(points(0.0)[:1], "machine", 2, 0.02) is None
    assert saturation(points(0.0), "machine", 3, 0.02) is None


def test_instructions_are_searched_where_the_processor_has_them() -> None:
    context = captured("x86_64-two-nodes-smt")
    settings = ShapeSettings()
    for flags, expected, hints in (
        ((), "vector", "t0,t1,nta"),
        (("clzero", "erms"), "vector,clzero,rep_stosb", "t0,t1,nta"),
        (("movdir64b", "3dnowprefetch"), "vector,movdir64b", "t0,t1,nta,w"),
        (("asimd",), "vector,dc_zva,ldnp", "t0,t1,nta"),
    ):
        machine = context.model_copy(update={"processor": context.processor.model_copy(update={"flags": flags})})
        extras = extra_options(machine, settings)
        assert extras["instruction"] == expected
        assert extras["hint"] == hints, "PREFETCHW is not tried where it is a no-op"
        assert extra_looks("write_nt", extras) >= extra_looks("1:1", extras)
    assert extra_looks("reads", {}) == 0
    planned = declaration("traffic_shape").steps(Sut(context), settings)
    steps = [item for item in planned if isinstance(item, Step) and item.part_of is None]
    assert ["--visit-lines" in step.argv for step in steps] == [True] + [False] * (len(steps) - 1)


def test_a_setting_is_the_shape_that_asks_for_it() -> None:
    given = {"threads": 2, "width": "avx2", "delay": 0, "buffer_bytes": 4096, "instruction": "vector"}
    plain = Setting.model_validate({**given, "streams": 4, "prefetch_bytes": 0, "hint": "none", "visit_lines": 1})
    assert plain.shape == Shape(streams=4, prefetch_bytes=0)
    own = Setting.model_validate({**given, "streams": 2, "prefetch_bytes": 512, "hint": "nta", "visit_lines": 4})
    assert own.shape.text == "2/512/nta/4/vector"
    assert own.shape.extras == 2
    rows = shape_rows({"reads": [own.shape, plain.shape, own.shape]})
    assert rows == [f"reads={own.shape.text}", f"reads={plain.shape.text}"]
    phrase = ChosenShape(**own.shape.model_dump(), width="avx2").phrase
    assert phrase == "2 streams, 4 lines at a turn, prefetch 512 bytes ahead (nta)"
