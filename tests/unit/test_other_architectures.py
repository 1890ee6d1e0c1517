# SPDX-License-Identifier: Apache-2.0
"""Plans, flags and checks of machines that are neither x86_64 nor aarch64."""

import json
from pathlib import Path

import pytest

from calibration.context.model import Context
from calibration.measurements.bandwidth_ladder import shares
from calibration.measurements.chase import WARM_HOPS, lap_flags
from calibration.measurements.evidence import resolution_flags
from calibration.measurements.instructions import NON_TEMPORAL, possible_mixes
from calibration.measurements.max_bandwidth import MaxSettings
from calibration.measurements.plan import Plan
from calibration.measurements.regulation import RegulationSettings
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import all_cpus
from calibration.measurements.traffic_shape import ShapeSettings
from calibration.preflight.clock import check_clock_source
from calibration.profiles import load_profile
from calibration.run.plan import make_plan
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from tests.captures import captured

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROFILES = ("quick", "nightly", "full")


def power() -> Context:
    """Four cores of eight threads, with nodes 0 and 8, as firmware numbers them, and base pages, which it lacks."""
    context = captured("ppc64le-smt8")
    return context.model_copy(
        update={
            "nodes": tuple(node.model_copy(update={"id": 8 * node.id}) for node in context.nodes),
            "memory": context.memory.model_copy(update={"base_page_bytes": 65536}),
        }
    )


POWER, RISCV = power(), captured("riscv64-two-nodes")
MACHINES = {"ppc64le": captured("ppc64le-two-nodes"), "ppc64le-smt8": POWER, "riscv64": RISCV}


def plan(context: Context, profile: str) -> Plan:
    return make_plan(context, load_profile(profile), prefetchers_ok=True)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", MACHINES)
def test_a_plan_asks_for_nothing_that_sutprobe_refuses(name: str, profile: str) -> None:
    context = MACHINES[name]
    planned = plan(context, profile)
    mixes = {mix for step in planned.steps for mix in values_of(step.argv, "--mix")}
    assert mixes
    assert not mixes & NON_TEMPORAL
    nodes = {node for step in planned.steps for node in step.memory_bytes}
    assert nodes <= {node.id for node in context.nodes}
    flushes = context.processor.architecture != "riscv64"
    words = [word for step in planned.steps for word in step.argv]
    assert ("--keep-awake" in words) == flushes or len(context.cpus.online) == 4
    assert any(word.endswith(":hit") for word in words) == flushes
    assert planned.expected_duration_s < {"quick": 200, "nightly": 500, "full": 1200}[profile]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", MACHINES)
def test_what_is_left_out_is_said_with_the_reason(name: str, profile: str) -> None:
    architecture = MACHINES[name].processor.architecture
    left = plan(MACHINES[name], profile).not_planned
    mixes = {item.kind for item in left if "non-temporal stores" in item.reason}
    assert {"max_bandwidth", "peak_injection_bandwidth"} <= mixes
    flushed = {item.kind for item in left if "takes a line out of the caches" in item.reason}
    expected = {"c2c_latency", "idle_latency", "latency_matrix"}
    if profile != "quick":
        expected.add("wakeup")  # under memory load
    assert flushed == (expected if architecture == "riscv64" else set())


def test_every_kind_of_the_profile_is_planned_on_power() -> None:
    """Nothing but events of the processor's own counters is missing: no kind at all is without a step."""
    profile = load_profile("full")
    planned = plan(POWER, "full")
    missing = set(profile.measurements) - {step.kind for step in planned.steps}
    explained = {item.kind for item in planned.not_planned}
    assert missing <= explained
    assert {"jitter", "core_frequency", "c2c_latency", "loaded_latency", "prefetcher_effect"}.isdisjoint(missing)


def test_a_random_chase_visits_each_line_once() -> None:
    random = [step for step in plan(POWER, "full").steps if values_of(step.argv, "--order") == ["random"]]
    kinds = {"idle_latency", "latency_ladder", "latency_matrix", "load_tail", "memory_parallelism", "page_sizes"}
    assert {step.kind for step in random} == kinds | {"core_latency"}
    assert {min(map(int, values_of(step.argv, "--stride-bytes"))) for step in random} == {128}
    assert Sut(RISCV).line_bytes == 64


@pytest.mark.parametrize(("stride_bytes", "expected"), [(64, []), (128, ["BUFFER_TOO_SMALL"])])
def test_walks_along_long_lines_reach_what_the_builder_left(stride_bytes: int, expected: list[str]) -> None:
    document = read_document(json.loads((FIXTURES / "sutprobe" / "idle_latency.json").read_text(encoding="utf-8")))
    (point,) = read_result(document, LatencyResult).points
    machine = Sut(captured("x86_64-two-nodes-smt"))
    assert machine.llc_bytes is not None
    hops = 2 * (WARM_HOPS + document.parameters["windows"] * point.hops_per_window)
    touched = hops * 96 + machine.llc_bytes
    points = [
        point.model_copy(update={"cpu": cpu, "stride_bytes": stride_bytes, "touched_bytes": touched}) for cpu in (0, 1)
    ]
    assert [flag.code for flag in lap_flags(machine, document, points)] == expected


def test_a_measuring_cpu_shares_no_core_with_the_lowest_cpu() -> None:
    assert [Sut(POWER).measuring_cpu(node.id) for node in POWER.nodes] == [8, 16]


def test_all_threads_of_a_core_share_its_first_level_cache() -> None:
    sut = Sut(POWER)
    (first,) = shares(sut, all_cpus(sut))
    assert (first.level, first.threads, first.share_bytes) == (1, 8, 4096)


def test_settings_that_list_only_streamed_mixes_are_left_out() -> None:
    settings = ShapeSettings(mixes=("stream_triad",))
    assert possible_mixes(POWER, settings) == (None, "stream_triad: ppc64le has no non-temporal stores")
    both = MaxSettings(mixes=("reads", "stream_triad"))
    possible, reason = possible_mixes(POWER, both)
    assert possible is not None
    assert possible.mixes == ("reads",)
    assert reason.startswith("stream_triad: ")
    assert possible_mixes(RISCV, RegulationSettings())[1] == ""
    elsewhere = captured("aarch64-four-nodes")
    assert possible_mixes(elsewhere, both) == (both, "")


def test_stores_of_a_riscv_core_are_an_assumption() -> None:
    (found,) = stores_flags(RISCV, ["write"], counted=False)
    assert "RISC-V" in found.reason
    assert not list(stores_flags(POWER, ["write", "copy"], counted=False))


def test_a_processor_without_event_table_is_named_by_what_it_says() -> None:
    reasons = {item.reason for item in plan(RISCV, "quick").not_planned if item.kind == "counters"}
    assert reasons == {"no event table for 0x0 model 0x70216"}


@pytest.mark.parametrize(
    ("context", "source"), [(POWER, "timebase"), (RISCV, "riscv_clocksource")], ids=["ppc64le", "riscv64"]
)
def test_the_clock_source_of_each_architecture(context: Context, source: str) -> None:
    for current, outcome in ((source, "met"), ("jiffies", "not_met"), (None, "unknown")):
        clocksource = context.clocksource.model_copy(update={"current": current})
        (found,) = check_clock_source(context.model_copy(update={"clocksource": clocksource}))
        assert (found.expected, found.outcome) == (source, outcome)


@pytest.mark.parametrize(
    ("source", "hz", "flagged"), [("timebase", 512e6, True), ("time", 1e6, True), ("tsc", 2.4e9, False)]
)
def test_a_coarse_clock_is_said(source: str, hz: float, *, flagged: bool) -> None:

    text = json.loads((FIXTURES / "sutprobe" / "jitter.json").read_text(encoding="utf-8"))
    text["clock"] |= {"source": source, "hz": hz, "resolution_ns": 1e9 / hz}
    found = [flag.reason for flag in resolution_flags(read_document(text))]
    assert bool(found) == flagged
    assert all(source in reason and f"{1e9 / hz:.3g} ns" in reason for reason in found)


def values_of(argv: tuple[str, ...], option: str) -> list[str]:
    """Return the words of *option* in *argv*, split at commas."""
    return [word for at, name in enumerate(argv) if name == option for word in argv[at + 1].split(",")]
