# SPDX-License-Identifier: Apache-2.0
"""Wake-up latency: planted delays, what is refused, and what runs beside it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from calibration.base.cpulists import parse_cpulist
from calibration.measurements.wakeup import LateWake, WakeupCondition, WakeupResult
from calibration.sutprobe.document import read_document, read_result
from tests.probe.conftest import Finished, Probe, abandoned
from tests.suts import wait_until
from tests.tools import require, require_root, require_two

MS = 1_000_000
PERIOD_NS = MS
BUSY_NS = 5 * MS
"""How long the rival takes the CPU each time: longer than most of what a noisy host does by itself."""

EVERY_NS = 53 * MS
"""Not a multiple of the period, so that it begins anywhere in one."""

SLACK_NS = MS // 2
"""Of two clock readings around a system call, on a busy host."""

TRACEFS = Path("/sys/kernel/tracing")

pytestmark = pytest.mark.xdist_group("wakeup")  # rivals of two tests would delay each other

RIVAL = f"""
import json, os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(90))
open("/proc/self/comm", "w").write("planted-rival")
print("ready", flush=True)
taken, at = [], time.monotonic_ns()
while len(taken) < int(sys.argv[2]):
    at += {EVERY_NS}
    time.sleep(max(0, at - time.monotonic_ns()) / 1e9)
    begin, end = time.time_ns(), time.monotonic_ns() + {BUSY_NS}
    while time.monotonic_ns() < end:
        pass
    taken.append((begin, time.time_ns()))
print(json.dumps(taken))
"""


class Taken(NamedTuple):
    """When the rival had the CPU, Unix time in ns."""

    begin_ns: int
    end_ns: int


def sleepers(process: subprocess.Popen[Any]) -> dict[int, int]:
    """Return the measuring threads of *process* by their CPUs."""
    found = {}
    for task in (int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()):
        with suppress(OSError):
            if Path(f"/proc/{task}/timerslack_ns").read_text(encoding="ascii").strip() == "1":
                (cpu,) = os.sched_getaffinity(task)
                found[cpu] = task
    return found


FIRST_WAKES = 2000
"""More wake-ups than a thread has before those that count, unless the supervising thread waits a second for its CPU."""


def first_wakes(process: subprocess.Popen[Any]) -> bool:
    """Return whether each measuring thread of *process* has wake-ups that count."""
    states = [Path(f"/proc/{task}/status").read_text(encoding="utf-8") for task in sleepers(process).values()]
    waits = [int(state.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for state in states]
    return bool(waits) and min(waits) >= FIRST_WAKES


def conditions(done: Finished) -> tuple[WakeupCondition, ...]:
    assert done.code == 0, done.stderr
    return read_result(read_document(done.document), WakeupResult).conditions


@contextmanager
def rival(cpu: int, times: int) -> Iterator[subprocess.Popen[str]]:
    require_root()
    command = [sys.executable, "-c", RIVAL, str(cpu), str(times)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_planted_delays_are_found_with_their_number_and_length(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    with rival(cpus[-1], 60) as process:
        done = probe("wakeup", "--cpus", str(cpus[-1]), "--seconds", "3", "--fifo", "50", "--worst", "1000")
        stdout, _ = process.communicate(timeout=60)
    (condition,) = conditions(done)
    (cpu,) = condition.cpus
    begin_ns = min(wake.at_unix_ns for wake in cpu.worst) + 10 * MS
    end_ns = max(wake.at_unix_ns for wake in cpu.worst) - 10 * MS
    planted = [Taken(*pair) for pair in json.loads(stdout) if begin_ns < pair[0] and pair[1] < end_ns]
    assert len(planted) > 20
    # The first deadline after the rival began; the thread ran when it had ended. The host only adds to a delay.
    found = [
        (taken, wake)
        for taken in planted
        for wake in cpu.worst
        if wake.at_unix_ns - wake.late_ns <= taken.begin_ns + PERIOD_NS + SLACK_NS
        and taken.end_ns - SLACK_NS <= wake.at_unix_ns < taken.begin_ns + EVERY_NS
    ]
    assert len(found) >= 0.9 * len(planted)
    for _, wake in found:
        assert wake.late_ns >= BUSY_NS - PERIOD_NS - SLACK_NS
    assert median(taken.begin_ns - wake.at_unix_ns + wake.late_ns for taken, wake in found) <= SLACK_NS
    assert median(wake.at_unix_ns - taken.end_ns for taken, wake in found) <= 2 * SLACK_NS
    above = dict(zip(done.document["result"]["thresholds_ns"], cpu.above, strict=True))
    assert above[MS] >= 0.9 * len(planted)
    assert cpu.missed >= 3 * len(found)


@pytest.mark.parametrize("period_us", [1000, 100, 700])
def test_every_deadline_is_a_wake_up_or_missed(probe: Probe, cpus: list[int], period_us: int) -> None:
    asked = cpus if len(cpus) < 3 else cpus[:3]
    done = probe("wakeup", "--cpus", ",".join(map(str, asked)), "--seconds", "0.5", "--period-us", str(period_us))
    (condition,) = conditions(done)
    assert condition.stopped == "time"
    for place, cpu in enumerate(condition.cpus):
        left_ns = 500 * MS - period_us * 1000 * place // len(asked)
        assert cpu.wakes + cpu.missed == -(-left_ns // (period_us * 1000))
        assert cpu.late_ns.total == cpu.wakes
        assert cpu.early == 0
        assert list(cpu.above) == sorted(cpu.above, reverse=True)
        assert cpu.worst[0].late_ns == cpu.late_ns.longest


def test_histogram_and_counts_agree(probe: Probe, cpus: list[int]) -> None:
    done = probe("wakeup", "--cpus", str(cpus[-1]), "--seconds", "1", "--period-us", "200")
    (condition,) = conditions(done)
    (cpu,) = condition.cpus
    for threshold_ns, count in zip(done.document["result"]["thresholds_ns"], cpu.above, strict=True):
        buckets = list(zip(cpu.late_ns.starts, cpu.late_ns.widths, cpu.late_ns.counts, strict=True))
        surely = sum(number for start, _, number in buckets if start >= threshold_ns)
        possibly = sum(number for start, width, number in buckets if start + width > threshold_ns)
        assert surely <= count <= possibly


def test_real_time_threads_on_all_cpus_are_refused(probe: Probe, cpus: list[int]) -> None:
    done = probe("wakeup", "--cpus", ",".join(map(str, cpus)), "--seconds", "0.1", "--fifo", "1")
    assert done.document["error"]["code"] == "unsupported"
    assert "leave one out of --cpus" in done.document["error"]["message"]
    assert done.document["result"] is None


@pytest.mark.parametrize(("words", "named"), [
    (("--loads", "memory"), "--load-group"),
    (("--loads", "none", "--load-group", "1@0"), "--load-group"),
    (("--loads", "memory", "--load-group", "0@0"), "CPU 0 is measured"),
    (("--loads", "memory", "--load-group", "1@0", "--load-group", "1@0"), "given twice"),
    (("--loads", "housekeeping"), "--housekeeping-cpus"),
    (("--loads", "housekeeping", "--housekeeping-cpus", "0"), "CPU 0 is measured"),
    (("--idle-latency-us", "deep"), "--idle-latency-us"),
    (("--keep-late", "3"), "--threshold-us"),
    (("--threshold-us", "1", "--command", "/bin/true"), "--keep-late"),
    (("--threshold-us", "1", "--keep-late", "1", "--command", "true"), "an absolute path"),
    (("--threshold-us", "1", "--keep-late", "1", "--command", "/nowhere/dump"), "/nowhere/dump: No such file"),
    (("--threshold-us", "1", "--keep-late", "1", "--command", "/etc/passwd"), "/etc/passwd: Permission denied"),
    (("--seconds", "0.0001"), "--seconds"),
])  # fmt: skip
def test_contradictions_are_refused(probe: Probe, words: tuple[str, ...], named: str) -> None:
    done = probe("wakeup", "--cpus", "0", *words)
    assert done.document["error"]["code"] == "usage"
    assert named in done.document["error"]["message"]


def loads(measured: int, other: int) -> list[str]:
    words = ["--loads", "none,memory,housekeeping", "--load-group", f"{other}@0", "--load-mb-s", "50"]
    return ["wakeup", "--cpus", str(measured), *words, "--housekeeping-cpus", str(other)]


def test_loads_are_measured_and_end(probe: Probe, cpus: list[int], forkers: Callable[[], list[int]]) -> None:
    require_two(cpus)
    done = probe(*loads(cpus[-1], cpus[0]), "--seconds", "0.5")
    none, memory, housekeeping = conditions(done)
    assert [none.load, memory.load, housekeeping.load] == ["none", "memory", "housekeeping"]
    assert none.load_mb_s is none.forks_per_s is memory.forks_per_s is housekeeping.load_mb_s is None
    assert memory.load_mb_s is not None
    assert 5 < memory.load_mb_s <= 50.5  # what an interruption took is not caught up with
    assert housekeeping.forks_per_s is not None
    assert housekeeping.forks_per_s > 1
    assert not forkers()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_load(
    native: Path, cpus: list[int], forkers: Callable[[], list[int]], by: signal.Signals
) -> None:
    require_two(cpus)
    words = [*loads(cpus[-1], cpus[0]), "--seconds", "600", "--period-us", "100"]
    words[words.index("none,memory,housekeeping")] = "housekeeping,memory"
    with subprocess.Popen([native, *words], stdout=subprocess.PIPE) as process:
        wait_until(forkers)
        wait_until(lambda: first_wakes(process))
        process.send_signal(by)
        stdout, _ = process.communicate(timeout=60)
    wait_until(lambda: not forkers())
    if by == signal.SIGTERM:
        (condition,) = json.loads(stdout)["result"]["conditions"]
        assert condition["stopped"] == "interrupted"


def test_the_threshold_stops_all_and_names_what_ran(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    before = abandoned(TRACEFS)
    names = set()
    with rival(cpus[-1], 1000):
        words = ("--seconds", "60", "--fifo", "50", "--threshold-us", "3500", "--loads", "none")
        for _ in range(10):  # the host of a virtual machine may be the first to hold the CPU for so long
            done = probe("wakeup", "--cpus", str(cpus[-1]), *words)
            (condition,) = conditions(done)
            (cpu,) = condition.cpus
            assert condition.stopped == "threshold"
            assert condition.wall_s < 60
            late = cpu.worst[0]
            assert late.late_ns >= 3_500_000
            refused = done.document["result"]["tracing_refused"]
            assert (late.ran is None) == (refused is not None)
            if late.ran is not None:
                longest = max(late.ran.causes, key=lambda cause: cause.total_ns)
                names.add(longest.name)
                assert longest.name != "planted-rival" or longest.total_ns >= 0.5 * late.late_ns
            if late.ran is None or "planted-rival" in names:
                break
    assert not names or "planted-rival" in names
    assert abandoned(TRACEFS) <= before


def test_the_first_wake_ups_beyond_the_threshold_are_kept_with_what_ran(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    before = abandoned(TRACEFS)
    names = set()
    words = ("--seconds", "1", "--fifo", "50", "--threshold-us", "3500", "--keep-late", "4", "--loads", "none")
    with rival(cpus[-1], 1000):
        for _ in range(10):  # the host of a virtual machine may hold the CPU each time
            done = probe("wakeup", "--cpus", str(cpus[-1]), *words)
            (condition,) = conditions(done)
            late = condition.late
            assert late is not None
            assert (condition.stopped, late.threshold_ns) == ("time", 3_500_000)
            assert condition.wall_s > 0.99
            assert len(late.first) == 4 < late.count <= condition.cpus[0].wakes
            assert [wake.at_unix_ns for wake in late.first] == sorted(wake.at_unix_ns for wake in late.first)
            assert all(wake.late_ns >= 3_500_000 and wake.cpu == cpus[-1] for wake in late.first)
            found = [wake.ran for wake in late.first if wake.ran is not None]
            assert not (found and done.document["result"]["tracing_refused"])
            names |= {max(ran.causes, key=lambda cause: cause.total_ns).name for ran in found if ran.causes}
            if not found or "planted-rival" in names:
                break
    assert not names or "planted-rival" in names
    assert abandoned(TRACEFS) <= before


def commanded(tmp_path: Path, cpu: int, script: str, seconds: str = "0.5") -> list[str]:
    """Return a measurement that keeps three late wake-ups, with the program *script* for each."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    words = ["--seconds", seconds, "--threshold-us", "1", "--keep-late", "3", "--loads", "none"]
    return ["wakeup", "--cpus", str(cpu), *words, "--command", str(program)]


def late_of(done: Finished) -> tuple[LateWake, ...]:
    (condition,) = conditions(done)
    assert condition.late is not None
    return condition.late.first


@pytest.mark.parametrize(("script", "ended"), [
    ("exit 3", (3, None, 0, "")),
    ("kill -TERM $$", (None, signal.SIGTERM, 0, "")),
    ("yes 0123456 | head -c 100000", (0, None, 100_000, "0123456\n" * 512)),
    (r"printf 'a\0b'; echo c >&2", (0, None, 5, "a?bc\n")),
    ("cat", (0, None, 0, "")),
])  # fmt: skip
def test_a_command_is_started_for_a_late_wake_up(
    probe: Probe, cpus: list[int], tmp_path: Path, script: str, ended: tuple[int | None, int | None, int, str]
) -> None:
    require_two(cpus)
    first, *_ = late_of(probe(*commanded(tmp_path, cpus[-1], script)))
    command = first.command
    assert command is not None
    assert (command.error, command.killed) == (None, False)
    assert (command.exit_code, command.signal, command.printed_bytes, command.text) == ended


def test_a_command_is_told_what_was_late_and_runs_elsewhere(probe: Probe, cpus: list[int], tmp_path: Path) -> None:
    require_two(cpus)
    script = "grep Cpus_allowed_list: /proc/self/status; echo $*"
    first, *_ = late_of(probe(*commanded(tmp_path, cpus[-1], script)))
    assert first.command is not None
    allowed, arguments = first.command.text.splitlines()
    assert cpus[-1] not in parse_cpulist(allowed.partition(":")[2].strip())
    assert arguments == f"{cpus[-1]} {first.late_ns}"


def test_one_command_runs_at_a_time_and_is_waited_for(probe: Probe, cpus: list[int], tmp_path: Path) -> None:
    require_two(cpus)
    first, *others = late_of(probe(*commanded(tmp_path, cpus[-1], "sleep 1.5; echo done")))
    assert first.command is not None
    assert (first.command.exit_code, first.command.text) == (0, "done\n")
    assert first.command.took_s > 1.4
    assert [wake.command for wake in others] == [None, None]


def test_a_command_that_cannot_be_executed_is_said(probe: Probe, cpus: list[int], tmp_path: Path) -> None:
    require_two(cpus)
    words = commanded(tmp_path, cpus[-1], "")
    Path(words[-1]).write_text("#!/nowhere/shell\n")
    first, *_ = late_of(probe(*words))
    assert first.command is not None
    assert first.command.error == "No such file or directory"
    assert first.command.exit_code is first.command.signal is None


def test_a_command_ends_with_the_measurement(native: Path, cpus: list[int], tmp_path: Path) -> None:
    require_two(cpus)
    began = tmp_path / "began"
    words = commanded(tmp_path, cpus[-1], f"touch {began}; exec sleep 77", seconds="60")
    with subprocess.Popen([native, *words], stdout=subprocess.PIPE, text=True) as process:
        wait_until(began.exists)
        process.terminate()
        out, _ = process.communicate(timeout=20)
    (condition,) = read_result(read_document(json.loads(out)), WakeupResult).conditions
    assert condition.late is not None
    command = condition.late.first[0].command
    assert command is not None
    assert (command.killed, command.signal, command.exit_code) == (True, signal.SIGKILL, None)


@pytest.mark.slow
def test_a_command_that_does_not_end_is_killed(probe: Probe, cpus: list[int], tmp_path: Path) -> None:
    require_two(cpus)
    first, *_ = late_of(probe(*commanded(tmp_path, cpus[-1], "exec sleep 77")))
    assert first.command is not None
    assert (first.command.killed, first.command.signal) == (True, signal.SIGKILL)
    assert 29 < first.command.took_s < 40


def test_what_ran_is_looked_up_before_other_events_take_its_place(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    words = ("--seconds", "6", "--period-us", "10", "--threshold-us", "1", "--keep-late", "1", "--loads", "none")
    done = probe("wakeup", "--cpus", str(cpus[-1]), *words)
    (condition,) = conditions(done)
    assert condition.late is not None
    (first,) = condition.late.first
    assert (first.ran is None) == (done.document["result"]["tracing_refused"] is not None)


def test_all_loads_are_traced_for_the_whole_time(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    words = ("--seconds", "0.2", "--loads", "none,housekeeping", "--housekeeping-cpus", str(cpus[0]))
    for traced, more in ((False, ()), (True, ("--attribute",))):
        found = conditions(probe("wakeup", "--cpus", str(cpus[-1]), *words, *more))
        assert [(condition.load, condition.traced) for condition in found] == [
            ("none", traced),
            ("housekeeping", traced),
        ]
        assert all(0.1 < condition.wall_s < 0.21 for condition in found), "not half as long"


def test_a_threshold_reached_at_once_is_reported(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    words = ("--seconds", "60", "--period-us", "500000", "--threshold-us", "1", "--loads", "none,none")
    for condition in conditions(probe("wakeup", "--cpus", f"{cpus[0]},{cpus[-1]}", *words)):
        first, second = condition.cpus
        assert condition.stopped == "threshold"
        assert first.wakes == 1
        assert first.worst[0].late_ns >= 1000
        assert second.wakes == 0


def test_without_permission_the_reason_is_told(public: Path, cpus: list[int]) -> None:
    require_root()
    nobody = Probe(require("util-linux", "setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", str(public))
    done = nobody("wakeup", "--cpus", str(cpus[-1]), "--seconds", "0.2", "--threshold-us", "1")
    (condition,) = conditions(done)
    assert condition.stopped == "threshold"
    assert condition.cpus[0].worst[0].ran is None
    assert "root" in done.document["result"]["tracing_refused"]
    for words in (("--fifo", "1"), ("--idle-latency-us", "0")):
        if words[0] == "--fifo" and len(cpus) < 2:
            continue
        done = nobody("wakeup", "--cpus", str(cpus[-1]), "--seconds", "0.1", *words)
        assert done.document["error"]["code"] in {"no_permission", "unsupported"}
        assert words[0] in done.document["error"]["message"]


def test_idle_states_are_kept_away_only_while_it_runs(native: Path, cpus: list[int]) -> None:
    require_root()
    device = Path("/dev/cpu_dma_latency")
    if not device.exists():
        pytest.skip("this kernel has no /dev/cpu_dma_latency")

    def limit_us() -> int:
        return int.from_bytes(device.read_bytes()[:4], sys.byteorder, signed=True)

    before = limit_us()
    words: list[Any] = [native, "wakeup", "--cpus", str(cpus[-1]), "--seconds", "600", "--period-us", "100"]
    with subprocess.Popen([*words, "--idle-latency-us", "7"], stdout=subprocess.PIPE) as process:
        wait_until(lambda: limit_us() == min(7, before))
        wait_until(lambda: first_wakes(process))
        process.terminate()
        stdout, _ = process.communicate(timeout=60)
    assert json.loads(stdout)["result"]["idle_latency_us"] == 7
    assert limit_us() == before


def test_the_wait_is_not_lengthened_by_timer_slack(native: Path, cpus: list[int]) -> None:
    words = [str(native), "wakeup", "--cpus", str(cpus[-1]), "--seconds", "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_until(lambda: sleepers(process))
        process.terminate()
        process.communicate(timeout=60)


def test_the_resolution_of_timers_is_the_kernels(probe: Probe, cpus: list[int]) -> None:
    done = probe("wakeup", "--cpus", str(cpus[-1]), "--seconds", "0.05")
    assert done.document["result"]["timer_resolution_ns"] == round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9)


def test_a_thread_that_is_moved_costs_its_own_views_and_no_other(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    moved, other = cpus[0], cpus[-1]
    words = ["wakeup", "--cpus", f"{moved},{other}", "--seconds", "4", "--loads", "none,none"]
    with subprocess.Popen([native, *words], stdout=subprocess.PIPE) as process:
        wait_until(lambda: len(sleepers(process)) == 2)
        os.sched_setaffinity(sleepers(process)[moved], {other})
        stdout, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    found = read_result(read_document(json.loads(stdout)), WakeupResult).conditions
    assert len(found) == 2
    for condition in found:
        gone, stayed = condition.cpus
        assert (gone.cpu, gone.cpu_verified, stayed.cpu, stayed.cpu_verified) == (moved, False, other, True)
        assert gone.error is not None
        assert (gone.error.code, stayed.error) == ("cpu_left", None)
        assert f"the thread of CPU {moved} was moved" in gone.error.message
        assert stayed.wakes > 0
    assert found[1].cpus[0].wakes == 0


def test_a_cpu_that_is_offline_costs_its_own_views_and_no_other(probe: Probe, cpus: list[int]) -> None:
    offline = cpus[-1] + 1000
    (condition,) = conditions(probe("wakeup", "--cpus", f"{cpus[-1]},{offline}", "--seconds", "0.2"))
    stayed, gone = condition.cpus
    assert (stayed.cpu_verified, gone.cpu, gone.cpu_verified, gone.wakes) == (True, offline, False, 0)
    assert gone.error is not None
    assert gone.error.code == "cpu_offline"
    done = probe("wakeup", "--cpus", str(offline), "--seconds", "0.2")
    assert (done.document["error"]["code"], done.document["result"]) == ("cpu_offline", None)


@pytest.mark.parametrize("load", ["memory", "housekeeping"])
def test_a_load_that_cannot_be_made_costs_its_own_condition_and_no_other(
    probe: Probe, cpus: list[int], load: str
) -> None:
    offline = cpus[-1] + 1000
    words = {"memory": ("--load-group", f"{offline}@0"), "housekeeping": ("--housekeeping-cpus", str(offline))}[load]
    asked = ("wakeup", "--cpus", str(cpus[-1]), "--seconds", "0.2", *words, "--loads")
    done = probe(*asked, f"{load},none")
    (condition,) = conditions(done)
    assert condition.load == "none"
    assert condition.cpus[0].wakes > 0
    (failed,) = read_result(read_document(done.document), WakeupResult).failed
    assert (failed.load, failed.error.code) == (load, "cpu_offline")
    assert probe(*asked, load).document["error"]["code"] == "cpu_offline"
