# SPDX-License-Identifier: Apache-2.0
"""Plans, values and pages of machines with unusual nodes: emulated, behind memory-side caches, of fast memory alone."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.base.cpulists import parse_cpulist
from calibration.base.errors import EnvironmentLacksError
from calibration.base.grouping import grouped
from calibration.context.loader import load
from calibration.context.model import Cache, Context, MemorySideCache
from calibration.finish import finish
from calibration.measurements.bandwidth_ladder import LEVELS, ladder
from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.base import Step
from calibration.measurements.neighbourhood import Neighbourhood
from calibration.measurements.plan import Plan
from calibration.measurements.platform import platform_of
from calibration.measurements.sut import Sut, machine_flags, memory_bound_bytes, side_cache_flags
from calibration.measurements.traffic import Part, all_cores, all_cpus, buffer_bytes, on_memory_only, read_group
from calibration.profiles import load_profile
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import open_run, read_run
from calibration.run.lifecycle import begin
from calibration.run.plan import make_plan, plan_text
from calibration.run.records import StepRecord, append_record
from tests.machines import NODE, Machine, answer, options
from tests.rounds import all_rounds
from tests.unit.machines import GIB, MIB, machine
from tests.unit.test_large_machines import captured
from tests.unit.test_measurements import MEMORY_ONLY_STEPS

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROFILES = ("quick", "nightly", "full")


@dataclass(frozen=True)
class Emulating(Machine):
    """A machine whose kernel makes *parts* nodes of each, in turn, as ``numa=fake=`` does."""

    parts: int = 2

    @property
    def nodes(self) -> int:
        return self.cpu_nodes * self.parts

    def node_files(self, node: int) -> Iterator[tuple[str, str]]:
        real = node % self.cpu_nodes
        for path, text in super().node_files(real):
            if path.endswith("/distance"):
                distances = ["10" if other % self.cpu_nodes == real else "21" for other in range(self.nodes)]
                yield f"{NODE}/node{node}/distance", " ".join(distances) + "\n"
            elif node == real or path.startswith(f"{NODE}/node{real}/"):
                yield path.replace(f"/node{real}/", f"/node{node}/"), text.replace(f"Node {real} ", f"Node {node} ")


FAKE_4 = Emulating(cpus=4, cpu_nodes=1, memory_only_nodes=0, lines=4, isolated=False, threads=1, daemons=4, parts=4)
FAKE_2U = Emulating(cpus=8, cpu_nodes=2, memory_only_nodes=0, lines=4, isolated=False, daemons=4, parts=2)


def with_cpus(context: Context, *cpus: tuple[int, ...]) -> Context:
    """Return the *context* with those CPUs of its nodes."""
    nodes = (node.model_copy(update={"cpus": own}) for node, own in zip(context.nodes, cpus, strict=True))
    return context.model_copy(update={"nodes": tuple(nodes)})


FOUR_NODES = machine(packages=1, nodes=4, cores=2, node_bytes=8 * GIB, llc_bytes=16 * MIB)
UNUSUAL = {
    "all share all": with_cpus(FOUR_NODES, *[tuple(range(8))] * 4),
    "two of four share": with_cpus(FOUR_NODES, (0, 1), (2, 3), (0, 1), (4, 5, 6, 7)),
    "overlapping": with_cpus(FOUR_NODES, (0, 1, 2, 3), (2, 3, 4), (4, 5, 6), (6, 7)),
    "a CPU of no node": with_cpus(FOUR_NODES, (0, 1), (2, 3), (4, 5), (6,)),
    "the first CPUs of no node": with_cpus(FOUR_NODES, (), (2, 3), (4, 5), (6, 7)),
    "all CPUs of no node": with_cpus(FOUR_NODES, (), (), (), ()),
}


@pytest.fixture(scope="module", params=[FAKE_4, FAKE_2U], ids=["numa=fake=4", "numa=fake=2U"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an emulating machine, with its files below ``root``."""
    directory = tmp_path_factory.mktemp("emulating")
    request.param.write(directory / "root")
    return directory


def groups_of(step: Step) -> Iterator[list[int]]:
    """Yield the CPUs of each set of threads of *step* that run together, with repetitions."""
    for name in ("group", "load"):
        for text in options(step, name):
            yield [cpu for part in read_group(text) for cpu in part.cpus]
    yield [int(probe.partition("@")[0]) for probe in options(step, "probe")]
    yield [int(at.partition("@")[0]) for at in options(step, "keep-awake")]
    for text in options(step, "all-pairs"):
        yield [*parse_cpulist(text.partition("@")[0])]
    yield [*(cpu for text in options(step, "cpus") for cpu in parse_cpulist(text))]


def plans(context: Context) -> Iterator[Plan]:
    for name in PROFILES:
        with suppress(EnvironmentLacksError):  # nothing of the profile can be measured
            yield make_plan(context, load_profile(name), prefetchers_ok=True)


def assert_each_cpu_once(context: Context) -> None:
    for plan in plans(context):
        for step in plan.steps:
            assert len(step.cpus) == len(set(step.cpus)), step.title
            for cpus in groups_of(step):
                assert len(cpus) == len(set(cpus)), (step.title, step.argv)
                assert set(cpus) <= set(context.online_cpus), step.title
            blocks = options(step, "all-pairs")
            assert len(blocks) == len(set(blocks)), step.title
            assert set(step.memory_bytes) <= set(context.usable_nodes), step.title


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_plan_has_each_cpu_once(name: str) -> None:
    assert_each_cpu_once(UNUSUAL[name])


def test_a_plan_of_an_emulating_machine_counts_its_cpus_once(made: Path) -> None:
    context = load(made / "root")
    cpus = len(context.online_cpus)
    assert context.unreadable == ()
    assert_each_cpu_once(context)
    for plan in plans(context):
        text = plan_text(plan, verbose=True)
        assert {int(number) for number in re.findall(r"(?:of|all) (\d+) CPUs", text)} <= {cpus}
        assert {int(number) for number in re.findall(r"of (\d+) pairs(?! of nodes)", text)} <= {cpus * (cpus - 1)}


def test_matrices_have_a_row_for_distinct_cpus_and_a_column_for_each_memory(made: Path) -> None:
    context = load(made / "root")
    sut = Sut(context)
    rows = 1 if len(context.online_cpus) == 4 else 2
    assert sut.cpu_nodes == list(range(rows))
    assert sut.memory_nodes == [0, 1, 2, 3]
    assert sum(len(part.cpus) for part in all_cpus(sut)) == len(context.online_cpus)
    steps = {step.kind: step for step in make_plan(context, load_profile("quick")).steps}
    assert steps["latency_matrix"].title.endswith(f"{rows} x 4 nodes")
    assert steps["bandwidth_matrix"].title.endswith(f"{rows} x 4 nodes")


def hmat(root: Path) -> None:
    """Add what the firmware says of node 0: a memory-side cache, and what accesses by its own CPUs take."""
    node = root / NODE[1:] / "node0"
    cache, access = node / "memory_side_cache" / "index1", node / "access1" / "initiators"
    files = {cache / "size": 64 * GIB, cache / "indexing": 0, access / "read_latency": 90, access / "read_bandwidth": 9}
    for path, value in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n", encoding="ascii")
    (access / "node0").symlink_to("../../../node0")


def run_of(directory: Path, machine: Machine = FAKE_4, profile: str = "quick") -> RunDocument:
    """Return the document of a run of which each step got an answer."""
    archive = captured(machine, directory / "root")
    run = begin(directory, testbed="t", sut="s", run_id="r", profile=profile, capture=archive, now=NOW)
    for step, number, found in all_rounds(run.plan.steps, answer):
        record = StepRecord(
            step=step, round=number, outcome="ok", reason=None, rc=0, started_at=NOW, duration_s=1.0, stderr="",
            document=found,
        )  # fmt: skip
        append_record(run.directory, record)
    finish(run.directory, now=NOW)
    return read_run(run.directory)


def test_a_run_of_an_emulating_machine_is_complete_and_says_what_is_emulated(tmp_path: Path) -> None:
    FAKE_4.write(tmp_path / "root")
    hmat(tmp_path / "root")
    document = run_of(tmp_path)
    assert document.run.status == "complete", document.not_measured
    (matrix,) = (found.values for found in document.measurements if isinstance(found.values, BandwidthMatrixValues))
    assert list(matrix.table.cells("bandwidth_mb_s")) == [(0, node) for node in range(4)]
    assert document.context is not None
    (flag,) = (raised for raised in machine_flags(document.context.parsed) if raised.code == "NODES_EMULATED")
    assert flag.reason == "nodes 0-3 are parts of one node, each with CPUs 0-3: measured once, as node 0"
    (idle,) = (found for found in document.measurements if found.kind == "idle_latency")
    assert "MEMORY_SIDE_CACHE" in {raised.code for raised in idle.validity.flags}
    text = to_rst(render(open_run(next(tmp_path.rglob(RUN)))).blocks)
    assert "Emulated nodes" in text
    assert "1 node (emulated: 4)" in text
    assert "contradictory" not in text
    assert "node 0: 64 GiB, direct" in text
    rated = re.findall(r"firmware \(HMAT, class 1\), (\S+ \S+)\n\s+- (\S+ \S+)\n", text)
    assert rated == [("read latency", "90 ns"), ("read bandwidth", "0.009 GB/s")]


def test_pairs_of_an_emulating_machine_are_of_one_node(made: Path) -> None:
    context = load(made / "root")
    cpus = context.online_cpus
    assert sum(Neighbourhood(context, cpus).counts().values()) == len(cpus) * (len(cpus) - 1) // 2
    assert sum(node.cpus for node in platform_of(context).nodes) == len(cpus)


@pytest.mark.parametrize("name", ["a CPU of no node", "the first CPUs of no node", "all CPUs of no node"])
def test_a_cpu_of_no_node_is_not_measured_with_memory(name: str) -> None:
    context = UNUSUAL[name]
    without_node = set(context.online_cpus) - {cpu for node in context.nodes for cpu in node.cpus}
    for plan in plans(context):
        for step in plan.steps:
            if step.kind not in {"jitter", "wakeup", "firmware", "core_frequency"}:
                assert without_node.isdisjoint(step.cpus), step.title


# Caches before memory


def cached(context: Context, size_bytes: int | None, *nodes: int) -> Context:
    """Return the *context* with a memory-side cache of each of *nodes*."""
    cache = MemorySideCache(
        index=1, size_bytes=size_bytes, line_bytes=64, indexing="direct-mapped", write_policy="write-back",
        extended_linear=False,
    )  # fmt: skip
    return context.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"memory_side_caches": (cache,) if node.id in nodes else ()})
                for node in context.nodes
            )
        }
    )


XEON = machine(packages=2, nodes=2, cores=8, node_bytes=128 * GIB, llc_bytes=16 * MIB)


def test_buffers_are_beyond_a_memory_side_cache_where_there_is_room() -> None:
    sut = Sut(cached(XEON, 256 * MIB, 0))
    assert memory_bound_bytes(sut, 0) == GIB
    assert memory_bound_bytes(sut, 1) == 64 * MIB
    assert memory_bound_bytes(sut, 0, largest_bytes=512 * MIB) == 64 * MIB
    parts = [Part(tuple(range(8)), 0)]
    assert 8 * buffer_bytes(sut, parts, ("reads",)) >= GIB
    assert buffer_bytes(sut, [Part(tuple(range(8, 16)), 1)], ("reads",)) < 64 * MIB


def test_a_value_from_a_memory_side_cache_is_flagged() -> None:
    sut = Sut(cached(XEON, 64 * GIB, 0))
    assert memory_bound_bytes(sut, 0) == 64 * MIB  # no longer: it would be in that cache too
    (flag,) = side_cache_flags(sut, {0: 64 * MIB, 1: 64 * MIB})
    assert flag.code == "MEMORY_SIDE_CACHE"
    assert flag.reason == ("64 MiB of node 0, behind a memory-side cache of 64 GiB: all of it may have come from there")
    assert not list(side_cache_flags(Sut(cached(XEON, 16 * MIB, 0)), {0: 64 * MIB}))


def test_a_cache_of_unknown_size_may_hold_anything() -> None:
    sut = Sut(cached(XEON, None, 0))
    assert memory_bound_bytes(sut, 0) == 64 * MIB
    (flag,) = side_cache_flags(sut, {0: 64 * GIB, 1: 64 * MIB})
    assert flag.reason == (
        "64 GiB of node 0, behind a memory-side cache of unknown size: some of it may have come from there"
    )


def test_an_l4_cache_is_not_memory() -> None:
    caches = (*XEON.caches, Cache(level=4, type="Unified", size_bytes=128 * MIB, line_bytes=64, shared_cpus=None))
    sut = Sut(XEON.model_copy(update={"caches": caches}))
    assert memory_bound_bytes(sut, 0) == 512 * MIB
    names = {name: size for size, found in ladder(sut, [Part((0,), 0)], ("reads",)).items() for name in found}
    assert [name for name in names if LEVELS.get(name) == "memory"] == ["4 x L4"]
    names = {name: size for size, found in ladder(Sut(XEON), [Part((0,), 0)], ("reads",)).items() for name in found}
    assert [name for name in names if LEVELS.get(name) == "memory"] == ["4 x L3"]


TWO: dict[str, Any] = {
    "packages": 2, "nodes": 2, "cores": 8, "threads": 2, "node_bytes": 256 * GIB, "llc_bytes": 32 * MIB,
}  # fmt: skip
SHAPES: dict[str, tuple[dict[str, Any], tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "CXL": (TWO, ((10, 21, 14, 24), (21, 10, 24, 14), (14, 24, 10, 26), (24, 14, 26, 10)), (128 * GIB,) * 2),
    "HBM beside DDR": (TWO, ((10, 21, 13, 23), (21, 10, 23, 13), (13, 23, 10, 23), (23, 13, 23, 10)), (64 * GIB,) * 2),
    "one node for both sockets": (TWO, ((10, 21, 20), (21, 10, 20), (20, 20, 10)), (512 * GIB,)),
    "two kinds": (
        TWO | {"packages": 1, "nodes": 1},
        ((10, 13, 20, 20), (13, 10, 20, 20), (20, 20, 10, 20), (20, 20, 20, 10)),
        (64 * GIB, 256 * GIB, 256 * GIB),
    ),
}
"""Machines with memory-only nodes, their distances, and the sizes of these nodes."""

FLAT = machine(
    packages=2, nodes=4, cores=4, node_bytes=128 * GIB, llc_bytes=16 * MIB, memory_only_bytes=(16 * GIB,) * 4
)


def test_fast_memory_without_cpus_is_a_column_near_its_package() -> None:
    near = tuple(tuple(10 if a == b else 13 if a % 4 == b % 4 else 21 for b in range(8)) for a in range(8))
    context = FLAT.model_copy(update={"distances": near})
    sut = Sut(context)
    assert (sut.cpu_nodes, sut.memory_nodes) == ([0, 1, 2, 3], list(range(8)))
    assert [sut.nearest(node, sut.cpu_nodes) for node in range(4, 8)] == [0, 1, 2, 3]
    assert [part.node for part in all_cpus(sut)] == [0, 1, 2, 3]  # by default of a node's own kind of memory
    assert_each_cpu_once(context)


THERE = {
    "latency_ladder", "load_tail", "memory_parallelism", "latency_matrix", "bandwidth_matrix", "bandwidth_scaling",
    "peak_injection_bandwidth", "random_bandwidth",
}  # fmt: skip
"""Kinds that measure memory-only nodes."""

PAIRS = {"memory_curves", "memory_tiers"}
"""Kinds whose pairs of nodes are chosen among all: those of the same CPUs without memory-only nodes may be others."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
def test_memory_only_nodes_are_measured_beside_the_same_plan(shape: str, profile: str) -> None:
    fields, distances, sizes = SHAPES[shape]
    plain = machine(**fields)
    context = machine(**fields, memory_only_bytes=sizes).model_copy(update={"distances": distances})
    assert context.memory_only_nodes == tuple(range(fields["nodes"], fields["nodes"] + len(sizes)))
    assert_each_cpu_once(context)
    before = {step.id: step for step in make_plan(plain, load_profile(profile)).steps}
    plan = make_plan(context, load_profile(profile))
    others = [step for step in plan.steps if step.kind not in PAIRS]
    there = [step for step in others if set(step.memory_bytes) & set(context.memory_only_nodes)]
    rest = [step for step in others if step not in there]
    assert all(step == before[step.id] for step in rest)
    assert {step.id for step in before.values() if step.kind not in PAIRS} <= {step.id for step in others}
    quick = {"latency_ladder", "load_tail", "memory_parallelism"}
    assert {step.kind for step in there} >= (THERE - quick if profile == "quick" else THERE)
    assert {node for step in there for node in step.memory_bytes} >= set(context.memory_only_nodes)
    assert all(set(step.cpus) <= set(context.nodes[0].cpus) for step in there if step.kind == "bandwidth_scaling")
    before_s = sum(step.expected_duration_s for step in before.values() if step.kind not in PAIRS)
    assert sum(step.expected_duration_s for step in others) < 1.33 * before_s


def test_a_memory_only_node_belongs_to_the_nearest_cpus() -> None:
    beside = {}
    for shape, (fields, distances, sizes) in SHAPES.items():
        context = machine(**fields, memory_only_bytes=sizes).model_copy(update={"distances": distances})
        sut = Sut(context)
        beside[shape] = [sut.memory_only_beside(node) for node in sut.cpu_nodes]
    assert beside == {
        "CXL": [[2], [3]], "HBM beside DDR": [[2], [3]], "one node for both sockets": [[2], []], "two kinds": [[1, 2]]
    }  # fmt: skip
    unknown = context.model_copy(update={"distances": None})
    assert Sut(unknown).memory_only_beside(0) == [1]
    assert Sut(plain_of(unknown)).memory_only_beside(0) == []


def test_cpus_use_the_nearest_memory_only_nodes_in_turn() -> None:
    used = {}
    for shape, (fields, distances, sizes) in SHAPES.items():
        sut = Sut(machine(**fields, memory_only_bytes=sizes).model_copy(update={"distances": distances}))
        used[shape] = [str(part) for part in on_memory_only(sut, all_cores(sut))]
    assert used == {
        "CXL": ["0-7@2", "8-15@3"],
        "HBM beside DDR": ["0-7@2", "8-15@3"],
        "one node for both sockets": ["0-7@2", "8-15@2"],
        "two kinds": ["0-7@1"],
    }
    equal = Sut(sut.context.model_copy(update={"distances": None}))
    assert [str(part) for part in on_memory_only(equal, all_cores(equal))] == ["0,3,6@1", "1,4,7@2", "2,5@3"]
    without = Sut(machine(**TWO))
    assert on_memory_only(without, all_cores(without)) == []
    assert on_memory_only(sut, on_memory_only(sut, all_cores(sut))) == []


def plain_of(context: Context) -> Context:
    """Return *context* whose memory-only nodes the login may not use."""
    confinement = context.confinement.model_copy(update={"memory_nodes": (0,)})
    return context.model_copy(update={"confinement": confinement})


def test_the_page_has_memory_only_nodes_beside_the_others(tmp_path: Path) -> None:
    shape = Machine(cpus=8, cpu_nodes=2, memory_only_nodes=1, lines=4, isolated=False, daemons=4)
    shape.write(tmp_path / "root")
    document = run_of(tmp_path, shape, "nightly")
    assert document.run.status == "complete", document.not_measured
    measured = {found.id for found in document.measurements}
    assert {*MEMORY_ONLY_STEPS} <= measured
    checked = grouped((check.rule, check.figure.name) for check in document.consistency)
    for rule, names in {
        "same_latency": {"load_tail.node2.chase_ns", "memory_parallelism.2.1.load_ns"},
        "same_bandwidth": {"bandwidth_scaling.node2.4.bandwidth_mb_s"},
        "single_loads": {"load_tail.single_ns", "load_tail.node2.single_ns"},
    }.items():
        assert names <= {*checked[rule]}
    pairs = [(check.figure.name, check.other.name) for check in document.consistency if check.rule == "parallelism"]
    assert pairs == [
        ("random_bandwidth.thread_mb_s", "memory_parallelism.0.thread_mb_s"),
        ("random_bandwidth.memory_only.thread_mb_s", "memory_parallelism.2.thread_mb_s"),
    ]
    # another kind of memory is no part of what the others move, nor its maximum
    assert not any("memory_only" in name for rule in ("maximum", "part") for name in checked[rule])
    text = to_rst(render(open_run(next(tmp_path.rglob(RUN)))).blocks)
    for words in (
        "memory-only nodes 1", "The best mix on memory-only nodes", "At random, all CPUs read from memory-only nodes",
        "Single loads, 50 %, node 2", "Bandwidth of 2 threads, reads, memory of node 2",
        "Latency against working-set size in a memory-only node", "memory of node 2 50 %",
    ):  # fmt: skip
        assert words in text
