# SPDX-License-Identifier: Apache-2.0
"""Events are counted and compared with what is known otherwise, or are refused with the cause."""

import platform
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

import pytest

from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.counters import Counted, Counters
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from calibration.sutprobe.loaded import LoadedResult
from tests.probe.conftest import Finished, Probe
from tests.probe_results import CountersResult
from tests.tools import require, require_root, require_two

SOURCES: Final = Path("/sys/bus/event_source/devices")
PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
NOBODY: Final = ("--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")

# Of the PMU "software", by linux/perf_event.h.
CPU_CLOCK, TASK_CLOCK, PAGE_FAULTS, CONTEXT_SWITCHES = "0x0", "0x1", "0x2", "0x3"
CORE_CYCLES: Final = "core.cycles=hardware/config=0x0,user/"

ATTEMPTS: Final = 3
"""Runs of a test whose counters of CPUs were taken off each time before that is a fault."""


def events(asked: Iterable[str]) -> list[str]:
    return [word for event in asked for word in ("--event", event)]


def off_s(event: Counted) -> float:
    """Return how far ``wall_s`` may be from the time counted: what its readings took, and the clock's error."""
    assert event.wall_uncertainty_s is not None
    assert 0 < event.wall_uncertainty_s < event.wall_s / 4
    return event.wall_uncertainty_s + 1e-4 * event.wall_s


class CounterTakenOffError(AssertionError):
    """A counter missed part of its time."""


def again_if_taken_off(test: Callable[..., None]) -> Callable[..., None]:
    """Run *test* up to three times until its counters of CPUs have counted all of their time.

    The kernel takes them off for a moment as other processes' counters come and go; what that takes is missing from the
    count, though not from the time they say they ran. A fault of sutprobe is there every time.
    """

    @wraps(test)
    def attempts(*arguments: Any, **named: Any) -> None:
        for _ in range(ATTEMPTS - 1):
            with suppress(CounterTakenOffError):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return attempts


def assert_counted(event: Counted, per_ns: float = 1) -> None:
    """Require that *event* counted *per_ns* in all of ``wall_s``."""
    expected, off = event.wall_s * 1e9 * per_ns, off_s(event) * 1e9 * per_ns
    assert event.count <= expected + off
    if event.count < expected - off:
        raise CounterTakenOffError(f"{event.name}: {event.count}, not {expected:.0f} ± {off:.0f}")


def most_ns(event: Counted) -> float:
    """Return the longest that threads can have run."""
    assert event.threads is not None
    return event.threads * (event.wall_s + off_s(event)) * 1e9


def counted_by(done: Finished) -> CountersResult:
    return read_result(read_document(done.document), CountersResult)


def counters_of(done: Finished) -> Counters:
    found = counted_by(done).counters
    assert found is not None
    return found


def only(counters: Counters, name: str) -> Counted:
    (found,) = [event for event in counters.events if event.name == name]
    return found


@pytest.fixture(scope="session")
def of_cpus(probe: Probe, cpus: list[int]) -> None:
    """Skip if this login may not count what runs on a CPU."""
    done = probe("counters", "--duration-s", "0.01", "--event", f"a=software/config={CPU_CLOCK}/@{cpus[0]}")
    if done.code != 0:
        pytest.skip(f"this machine refuses events of a CPU: {done.stderr}")


@pytest.fixture(scope="session")
def of_threads(probe: Probe) -> None:
    """Skip if this login may not even count its own work."""
    done = probe("counters", "--duration-s", "0.01", "--event", f"a=software/config={TASK_CLOCK},user/")
    if done.code != 0:
        pytest.skip(f"this machine refuses events of threads: {done.stderr}")


@pytest.fixture
def unprivileged(public: Path) -> Probe:
    """The program of a user that may do nothing."""
    require_root()
    setpriv = require("util-linux", "setpriv")
    return Probe(setpriv, *NOBODY, str(public))


def test_lists_pmus_and_permissions(probe: Probe) -> None:
    result = counted_by(probe("counters"))
    there = {path.name: int((path / "type").read_text()) for path in SOURCES.iterdir()} if SOURCES.is_dir() else {}
    assert {item.name: item.type for item in result.pmus} == there
    assert result.paranoid == (int(PARANOID.read_text()) if PARANOID.exists() else None)
    effective = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    held = int(effective.split()[1], 16)
    assert result.cap_perfmon == bool(held >> 38 & 1)
    assert result.cap_sys_admin == bool(held >> 21 & 1)
    assert result.counters is None, "nothing was asked for"


@pytest.mark.usefixtures("of_threads")
def test_a_thread_that_works_is_counted_and_one_that_sleeps_is_not(probe: Probe, cpus: list[int]) -> None:
    task = f"task=software/config={TASK_CLOCK},user/"
    works = only(
        counters_of(probe("counters", "--duration-s", "0.3", "--event", task, "--work", str(cpus[-1]))), "task"
    )
    assert (works.cpu, works.threads, works.pmus) == (None, 1, ("software",))
    assert 0 < works.count <= most_ns(works)
    assert works.scaled == works.count
    assert works.running_fraction == 1
    assert works.wall_s >= 0.3
    sleeps = only(counters_of(probe("counters", "--duration-s", "0.1", "--event", task)), "task")
    assert sleeps.count == 0
    assert sleeps.scaled is None, "what never ran says nothing"
    assert sleeps.running_fraction == 0


@pytest.mark.usefixtures("of_cpus")
@again_if_taken_off
def test_cpus_are_counted_each_by_itself_and_equal_names_together(probe: Probe, cpus: list[int]) -> None:
    one, other = cpus[0], cpus[-1]
    both = ",".join(map(str, sorted({one, other})))
    asked = [
        f"clock=software/config={CPU_CLOCK}/@{both}",
        f"twice=software/config={CPU_CLOCK}/@{one}",
        f"twice=software/config={CPU_CLOCK}/@{one}",
        f"switches=software/config={CONTEXT_SWITCHES},group=3/@{one}",
        f"faults=software/config={PAGE_FAULTS},group=3/@{one}",
        f"cpu.clock=software/config={CPU_CLOCK},group=3/@{one}",
    ]
    counters = counters_of(probe("counters", "--duration-s", "0.3", *events(asked)))
    assert counters.refused == ()
    found = [(event.name, event.cpu) for event in counters.events]
    clocks = [("clock", cpu) for cpu in sorted({one, other})]
    assert found == [*clocks, ("twice", one), ("switches", one), ("faults", one), ("cpu.clock", one)]
    for event in counters.events:
        assert event.threads is None
        assert event.running_fraction == 1
        assert event.background_count is None
        if event.name in ("clock", "cpu.clock"):
            assert_counted(event)
    twice = only(counters, "twice")
    assert_counted(twice, per_ns=2)
    assert only(counters, "switches").count > 0, "the command itself slept and woke"
    assert only(counters, "switches").wall_s == only(counters, "faults").wall_s, "a group is read at once"


@pytest.mark.usefixtures("of_cpus")
@again_if_taken_off
def test_a_hardware_counter_whose_truth_is_known_counts_it(probe: Probe, cpus: list[int]) -> None:
    """The PMU ``msr`` counts the time stamp counter, whose frequency sutprobe measures by other means."""
    if not (SOURCES / "msr" / "events" / "tsc").exists():
        pytest.skip("this machine has no PMU msr with the time stamp counter")
    done = probe("counters", "--duration-s", "0.5", "--event", f"tsc=msr/config=0x0/@{cpus[0]}")
    tsc = only(counters_of(done), "tsc")
    clock = read_document(done.document).clock
    assert clock is not None
    if clock.source != "tsc":
        pytest.skip(f"this machine is timed by {clock.source}, and nothing tells the rate of its time stamp counter")
    assert_counted(tsc, per_ns=clock.hz / 1e9)


def refusal(done: Finished, name: str) -> tuple[str | None, str]:
    (found,) = {(event.errno, event.reason) for event in counters_of(done).refused if event.name == name}
    return found


@pytest.mark.usefixtures("of_cpus")
def test_missing_events_are_refused_and_the_others_counted(probe: Probe, cpus: list[int]) -> None:
    cpu = cpus[0]
    asked = [
        f"here=software/config={CPU_CLOCK}/@{cpu}",
        f"dram.reads=uncore_none_7/config=0x304/@{cpu}",
        f"part=software/config={CPU_CLOCK}/@{cpu}",
        f"part=uncore_none_7/config=0x304/@{cpu}",
        f"far=software/config={CPU_CLOCK}/@4095",
        "wrong=software/config=0x7777/",
    ]
    done = probe("counters", "--duration-s", "0.05", *events(asked))
    assert done.code == 0
    counters = counters_of(done)
    assert [event.name for event in counters.events] == ["here", "part"]
    assert only(counters, "part").scaled is None, "a sum without one of its parts is no value"
    errno, reason = refusal(done, "dram.reads")
    assert errno is None
    assert reason.startswith("this machine has no PMU uncore_none_7: ")
    assert refusal(done, "far") == ("EINVAL", "CPU 4095 is not online")
    errno, reason = refusal(done, "wrong")
    assert errno == "ENOENT"
    assert "no event config=0x7777" in reason


def test_missing_core_pmu_is_distinguished_from_a_missing_event(probe: Probe) -> None:
    if (SOURCES / "cpu").exists() or list(SOURCES.glob("armv*")):
        pytest.skip("this machine has a core PMU")
    done = probe("counters", "--duration-s", "0.05", "--event", CORE_CYCLES)
    assert done.code == 3
    assert done.document["error"]["code"] == "unsupported"
    errno, reason = refusal(done, "core.cycles")
    assert errno == "ENOENT"
    assert "this machine has no core PMU" in reason
    assert reason in done.document["error"]["message"]
    if done.document["host"]["hypervisor"]:
        assert done.document["host"]["hypervisor"] in reason


def test_a_pmu_of_cpus_is_not_for_threads(probe: Probe) -> None:
    if not (SOURCES / "power" / "cpumask").exists():
        pytest.skip("this machine has no PMU power")
    done = probe("counters", "--duration-s", "0.05", "--event", "energy=power/config=0x2,user/")
    assert done.code == 3
    errno, reason = refusal(done, "energy")
    assert errno == "EINVAL"
    assert "counts on CPUs and not in threads" in reason


def test_missing_permission_names_the_setting_and_its_value(unprivileged: Probe, cpus: list[int]) -> None:
    paranoid = int(PARANOID.read_text())
    if paranoid < 2:
        pytest.skip(f"this machine lets anybody count: perf_event_paranoid is {paranoid}")
    asked = [
        f"cpu=software/config={CPU_CLOCK}/@{cpus[0]}",
        f"whole=software/config={TASK_CLOCK}/",
        f"own=software/config={TASK_CLOCK},user/",
    ]
    done = unprivileged("counters", "--duration-s", "0.05", *events(asked))
    result = counted_by(done)
    assert (result.cap_perfmon, result.cap_sys_admin) == (False, False)
    found = f"found perf_event_paranoid {paranoid} and neither capability"
    errno, reason = refusal(done, "cpu")
    assert errno in ("EACCES", "EPERM")
    assert "perf_event_paranoid of 0 at most, or CAP_PERFMON" in reason
    assert found in reason
    errno, reason = refusal(done, "whole")
    assert errno in ("EACCES", "EPERM")
    assert "perf_event_paranoid of 1 at most" in reason
    assert found in reason
    if paranoid == 2:
        assert [event.name for event in counters_of(done).events] == ["own"]


@pytest.mark.usefixtures("of_cpus")
def test_running_out_of_descriptors_is_reported(native: Path, cpus: list[int]) -> None:
    limiter = require("util-linux", "prlimit")
    asked = [f"a=software/config={CPU_CLOCK}/@{cpus[0]}"] * 40
    done = Probe(limiter, "--nofile=90:90", str(native))("counters", "--duration-s", "0.05", *events(asked))
    assert done.code == 0
    counters = counters_of(done)
    assert only(counters, "a").scaled is None
    assert {(event.errno, "of the 90 that are allowed" in event.reason) for event in counters.refused} == {
        ("EMFILE", True)
    }
    # The limit that may be raised is raised: a server has hundreds of counters.
    done = Probe(limiter, "--nofile=90:200", str(native))("counters", "--duration-s", "0.05", *events(asked))
    assert counters_of(done).refused == ()


def test_an_emulator_without_counters_is_reported(emulated_aarch64: Probe) -> None:
    done = emulated_aarch64("counters", "--duration-s", "0.05", "--event", f"task=software/config={TASK_CLOCK}/")
    assert done.code == 3
    errno, reason = refusal(done, "task")
    assert errno == "ENOSYS"
    assert "an emulator or a sandbox" in reason


@pytest.mark.usefixtures("of_threads")
def test_an_older_kernel_refuses_config3_with_the_reason(probe: Probe) -> None:
    """Older kernels refuse words behind those they know; newer ones count."""
    done = probe(
        "counters", "--duration-s", "0.05", "--event", f"a=software/config={TASK_CLOCK},config3=0x1,user/",
    )  # fmt: skip
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release >= (6, 3):
        assert only(counters_of(done), "a").pmus == ("software",)
    else:
        errno, reason = refusal(done, "a")
        assert errno == "E2BIG"
        assert "config3 came with Linux 6.3" in reason


@pytest.mark.usefixtures("of_cpus")
@pytest.mark.parametrize("arguments", [
    ("counters", "--duration-s", "500"),
    ("latency", "--at", "{0}@0", "--size-bytes", "4096", "--background-s", "500"),
    ("bandwidth", "--group", "{0}@0", "--mix", "reads", "--buffer-bytes", "65536", "--background-s", "500"),
], ids=["counters", "latency", "bandwidth"])  # fmt: skip
def test_counting_stops_on_request(probe: Probe, cpus: list[int], arguments: tuple[str, ...]) -> None:
    asked = f"a=software/config={CPU_CLOCK}/@{cpus[0]}"
    words = (word.format(cpus[0]) for word in arguments)
    done = probe(*words, "--event", asked, "--deadline-s", "0.5")
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"


BACKGROUND_S: Final = "0.05"


def beside(cpu: int) -> list[str]:
    """Ask for an event of each kind: of a CPU, of threads, and one of each that is refused."""
    asked = [
        f"clock=software/config={CPU_CLOCK}/@{cpu}",
        f"task=software/config={TASK_CLOCK}/",
        f"dram.reads=uncore_none_7/config=0x304/@{cpu}",
        "wrong=software/config=0x7777/",
    ]
    return [*events(asked), "--background-s", BACKGROUND_S]


def checked(counters: Counters | None) -> tuple[Counted, Counted]:
    """Return what a CPU and what the threads counted, after looking at what is the same for all."""
    assert counters is not None
    assert counters.background_s == float(BACKGROUND_S)
    refused = [(event.name, event.cpu is None, event.errno) for event in counters.refused]
    assert refused == [("dram.reads", False, None), ("wrong", True, "ENOENT")], "said once, however many threads"
    clock, task = only(counters, "clock"), only(counters, "task")
    assert clock.threads is None
    assert_counted(clock)
    assert clock.background_count is not None
    assert clock.background_wall_s is not None
    assert clock.background_wall_s >= float(BACKGROUND_S)
    assert clock.background_count == pytest.approx(clock.background_wall_s * 1e9, rel=0.05)
    assert task.cpu is None
    assert task.background_count is None
    assert task.background_wall_s is None
    assert task.threads is not None
    assert 0 < task.count <= most_ns(task)
    return clock, task


@pytest.mark.usefixtures("of_cpus")
@again_if_taken_off
def test_bandwidth_counts_while_all_threads_run_and_says_how_much_they_did(probe: Probe, cpus: list[int]) -> None:
    done = probe(
        "bandwidth", "--group", f"{cpus[0]},{cpus[-1]}@0" if len(cpus) > 1 else f"{cpus[0]}@0", "--mix", "copy",
        "--buffer-bytes", "4194304", "--placements", "2", "--windows", "3", "--window-s", "0.05", *beside(cpus[0]),
    )  # fmt: skip
    (point,) = read_result(read_document(done.document), BandwidthResult).points
    assert point.placements is not None
    assert len(point.placements) == 2
    for placement in point.placements:
        for event in checked(placement.counters):
            assert event.hops is None
            assert event.wall_s >= 3 * 0.05
            assert event.steps is not None
            # The same threads' steps by their windows: the readings lie a little further apart, in the same traffic.
            within = sum(placement.windows_mb_s) * 0.05 * 1e6 / point.accounting.model_dram_bytes_per_step
            assert event.steps >= within * 0.999
            assert event.threads in (None, point.threads)


@pytest.mark.usefixtures("of_cpus")
def test_latency_counts_the_timed_windows_and_nothing_else(probe: Probe, cpus: list[int]) -> None:
    done = probe(
        "latency", "--at", f"{cpus[0]}@0", "--size-bytes", "4096,262144", "--hops", "640000", "--placements", "2",
        "--windows", "3", *beside(cpus[0]),
    )  # fmt: skip
    points = read_result(read_document(done.document), LatencyResult).points
    assert len(points) == 2
    for point in points:
        for placement in point.placements or ():
            assert placement.counters is not None
            assert placement.counters.background_s == float(BACKGROUND_S)
            for event in placement.counters.events:
                assert event.steps is None
                assert event.hops == 3 * 640_000
                assert event.wall_s >= sum(placement.windows_ns) * 640_000e-9
            assert only(placement.counters, "task").threads == 1


@pytest.mark.usefixtures("of_cpus")
def test_copies_together_count_each_its_own_thread_and_cpus_for_all(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    hops = 6_400_000  # far longer than other work has a CPU for, so that both copies walk while the CPU is counted
    done = probe(
        "latency", "--at", f"{cpus[0]}@0", "--at", f"{cpus[-1]}@0", "--together", "--size-bytes", "262144",
        "--hops", str(hops), "--placements", "1", "--windows", "3", *beside(cpus[0]),
    )  # fmt: skip
    points = read_result(read_document(done.document), LatencyResult).points
    (one,), (other,) = (point.placements or () for point in points)
    assert one.counters is not None
    assert other.counters is not None
    assert only(one.counters, "clock") == only(other.counters, "clock")
    walked = [only(item.counters, "task").hops for item in (one, other) if item.counters]
    assert all(item is not None and item >= 3 * hops for item in walked)
    together = only(one.counters, "clock").hops
    assert together is not None
    assert max(item for item in walked if item) < together <= sum(item for item in walked if item)


@pytest.mark.usefixtures("of_cpus")
@again_if_taken_off
def test_loaded_counts_the_load_and_the_probes_each_with_its_own_work(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[-1]}@0", "--delay", "0,100",
        "--probe-size-bytes", "262144", "--buffer-bytes", "262144", "--placements", "1", "--windows", "3",
        *beside(cpus[0]), "--event", f"probe.task=software/config={TASK_CLOCK}/",
    )  # fmt: skip
    for point in read_result(read_document(done.document), LoadedResult).points:
        (placement,) = point.placements or ()
        clock, task = checked(placement.counters)
        assert placement.counters is not None
        walks = only(placement.counters, "probe.task")
        assert (task.threads, walks.threads) == (1, 1)
        assert (task.hops, walks.steps) == (None, None)
        assert clock.steps == pytest.approx(task.steps, rel=0.3)  # read one after another, on a busy machine
        assert clock.hops == pytest.approx(walks.hops, rel=0.3)
        assert walks.hops is not None
        assert walks.hops > 0
        assert 0 < walks.count <= most_ns(walks)


@pytest.mark.parametrize("arguments", [
    ("latency", "--at", "{0}@0", "--size-bytes", "4096", "--hops", "640"),
    ("bandwidth", "--group", "{0}@0", "--mix", "reads", "--buffer-bytes", "65536", "--window-s", "0.002"),
], ids=["latency", "bandwidth"])  # fmt: skip
def test_without_events_there_are_no_counters(probe: Probe, cpus: list[int], arguments: tuple[str, ...]) -> None:
    done = probe(*(word.format(cpus[0]) for word in arguments), "--placements", "1", "--windows", "1")
    (placement,) = done.document["result"]["points"][0]["placements"]
    assert placement["counters"] is None
