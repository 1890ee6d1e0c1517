# SPDX-License-Identifier: Apache-2.0
"""Plans, flags and checks of machines that are neither x86_64 nor aarch64."""

import json
from pathlib import Path

import pytest

from calibration.context import load
from calibration.context.model import Context
from calibration.measurements.evidence import resolution_flags
from calibration.measurements.instructions import NON_TEMPORAL, possible_mixes
from calibration.measurements.max_bandwidth import MaxSettings
from calibration.measurements.regulation import RegulationSettings
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import Sut
from calibration.measurements.traffic_shape import ShapeSettings
from calibration.plan import Plan, make_plan
from calibration.preflight.clock import check_clock_source
from calibration.profiles import load_profile
from calibration.sutprobe.document import read_document
from tests.unit.machines import GIB, MIB, machine

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURED = load(FIXTURES / "context" / "ppc64le-two-nodes.tar.gz")
PROFILES = ("quick", "nightly", "full")


def with_lines(context: Context, line_bytes: int) -> Context:
    caches = tuple(cache.model_copy(update={"line_bytes": line_bytes}) for cache in context.caches)
    return context.model_copy(update={"caches": caches})


def power() -> Context:
    """Two sockets of POWER9, eight threads a core, an L3 for two cores; nodes 0 and 8, as firmware numbers them."""
    made = machine(
        packages=2, nodes=2, cores=12, threads=8, node_bytes=128 * GIB, llc_bytes=10 * MIB, llc_cores=2,
        l2_bytes=MIB // 2, architecture="ppc64le",
    )  # fmt: skip
    nodes = tuple(node.model_copy(update={"id": 8 * node.id}) for node in made.nodes)
    processor = made.processor.model_copy(update={"flags": ()})
    return with_lines(made.model_copy(update={"nodes": nodes, "processor": processor}), 128)


def riscv() -> Context:
    """64 cores in four nodes, with a system-level cache that the kernel does not report."""
    made = machine(
        packages=1, nodes=4, cores=16, node_bytes=32 * GIB, llc_bytes=None, l2_bytes=MIB, architecture="riscv64"
    )
    return made.model_copy(update={"processor": made.processor.model_copy(update={"flags": ()})})


MACHINES = {"ppc64le-captured": CAPTURED, "ppc64le-smt8": power(), "riscv64": riscv()}


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
    nodes = {node for step in planned.steps for node in step.nodes}
    assert nodes <= {node.id for node in context.nodes}
    flushes = context.processor.architecture != "riscv64"
    words = [word for step in planned.steps for word in step.argv]
    assert ("--companion" in words) == flushes or len(context.cpus.online) == 4
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
    planned = plan(power(), "full")
    missing = set(profile.measurements) - {step.kind for step in planned.steps}
    explained = {item.kind for item in planned.not_planned}
    assert missing <= explained
    assert {"jitter", "core_frequency", "c2c_latency", "loaded_latency", "prefetcher_effect"}.isdisjoint(missing)


@pytest.mark.parametrize("kind", ["idle_latency", "latency_matrix", "latency_ladder"])
def test_a_random_chase_visits_each_line_once(kind: str) -> None:
    strides = {
        int(stride)
        for step in plan(power(), "full").steps
        if step.id == kind
        for text in values_of(step.argv, "--stride-bytes")
        for stride in [text]
    }
    assert strides
    assert min(strides) == 128
    assert Sut(riscv()).line_bytes == 64
    assert Sut(with_lines(riscv(), 64).model_copy(update={"caches": ()})).line_bytes == 64


def test_settings_that_list_only_streamed_mixes_are_left_out() -> None:
    settings = ShapeSettings(mixes=("stream_triad",))
    assert possible_mixes(power(), settings) == (None, "stream_triad: ppc64le has no non-temporal stores")
    both = MaxSettings(mixes=("reads", "stream_triad"))
    possible, reason = possible_mixes(power(), both)
    assert possible is not None
    assert possible.mixes == ("reads",)
    assert reason.startswith("stream_triad: ")
    assert possible_mixes(MACHINES["riscv64"], RegulationSettings())[1] == ""
    elsewhere = load(FIXTURES / "context" / "aarch64-four-nodes.tar.gz")
    assert possible_mixes(elsewhere, both) == (both, "")


def test_stores_of_a_riscv_core_are_an_assumption() -> None:
    (found,) = stores_flags(riscv(), ["write"], counted=False)
    assert "RISC-V" in found.reason
    assert not list(stores_flags(power(), ["write", "copy"], counted=False))


@pytest.mark.parametrize(
    ("context", "source"), [(power(), "timebase"), (riscv(), "riscv_clocksource")], ids=["ppc64le", "riscv64"]
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
