# SPDX-License-Identifier: Apache-2.0
"""A run that is ended early ends with all its threads, and says how."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import Probe
from tests.suts import wait_until
from tests.tools import require, require_two

LONG = {
    "latency": ("--at", "{cpu}@0", "--size-bytes", "4194304", "--pages", "base", "--hops", "64000000000"),
    "bandwidth": ("--group", "{cpu}@0", "--mix", "reads", "--buffer-bytes", "1048576", "--window-s", "60"),
    "jitter": ("--cpus", "{cpu}", "--view", "gaps", "--gap-s", "600"),
    "wakeup": ("--cpus", "{cpu}", "--seconds", "600"),
}
PATIENCE_S = 20
"""How long an ended process may take to be gone: no measure of speed, only short of for ever."""
SETUP_S = 0.3
"""Processor time after which a buffer of 4 MiB is mapped and linked several times over."""


def arguments(subcommand: str, cpu: int) -> list[str]:
    return [subcommand, *(word.format(cpu=cpu) for word in LONG[subcommand])]


MANY = ("--placements", "31")
ENDLESS = {
    "latency": ("--at", "{cpu}@0", "--size-bytes", "1048576,2097152", "--windows", "3", "--hops", "1000000", *MANY),
    "bandwidth": ("--group", "{cpu}@0", "--mix", "reads,copy", "--buffer-bytes", "4194304", "--window-s", "0.05",
                  *MANY),
    "loaded": ("--probe", "{cpu}@0", "--load", "{other}@0", "--mix", "reads", "--delay", "0,1000",
               "--probe-size-bytes", "1048576", "--buffer-bytes", "4194304", *MANY),
    "c2c": ("--pair", "{cpu}@{other}:0:hitm", "--pair", "{other}@{cpu}:0:hitm", "--pair", "{cpu}@{other}:0:hit",
            "--pair", "{other}@{cpu}:0:hit", "--windows", "{windows}", *MANY),
    "frequency": ("--cpus", "{cpu},{other}", "--windows", "1000", "--window-s", "0.1"),
}  # fmt: skip
"""Work that is told to end between two of its steps: each takes a moment, all of them longer than a test."""
SINGLE = ("latency", "bandwidth")
"""Those that one CPU is enough for."""


def begin(native: Path, words: list[str], through: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([*through, native, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_threads(process, 3)
    return process


WINDOWS = (400, 120, 40, 1200)
"""A hand-over takes from 4 to 300 ns, as the host places the CPUs, so no count of windows suits c2c: the first
with which one placement is complete when the end comes, and not all are."""


def endless(subcommand: str, cpus: list[int], windows: int = WINDOWS[0]) -> list[str]:
    if subcommand not in SINGLE:
        require_two(cpus)
    return [subcommand, *(word.format(cpu=cpus[0], other=cpus[-1], windows=windows) for word in ENDLESS[subcommand])]


def wait_for_threads(process: subprocess.Popen[bytes], count: int) -> None:
    """Return when the measuring thread is there."""
    for _ in range(1000):
        if len(list(Path(f"/proc/{process.pid}/task").iterdir())) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"fewer than {count} threads")


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time in s that *process*, which runs, has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def begin_window(native: Path, cpu: int) -> subprocess.Popen[bytes]:
    """Return a process in a window of latency that takes minutes: until it is over nothing can be handed over."""
    process = begin(native, arguments("latency", cpu))
    for _ in range(3000):
        if cpu_s(process) >= SETUP_S:
            return process
        time.sleep(0.01)
    pytest.fail(f"less than {SETUP_S} s of processor time within 30 s")


@pytest.mark.parametrize(
    ("subcommand", "number"),
    [(subcommand, signal.SIGTERM) for subcommand in LONG] + [("jitter", signal.SIGINT), ("jitter", signal.SIGHUP)],
)
def test_a_signal_ends_a_measurement(native: Path, cpus: list[int], subcommand: str, number: signal.Signals) -> None:
    process = begin(native, arguments(subcommand, cpus[0]))
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    document = json.loads(out)
    assert document["status"] == "failed"
    assert document["error"]["code"] == "interrupted"
    if subcommand == "jitter" and document["result"] is not None:
        # Gaps that were watched for a moment are something complete: no thread tells when that moment is over.
        assert [cpu["gaps"]["stopped"] for cpu in document["result"]["cpus"]] == ["interrupted"]
    else:
        assert document["result"] is None
    assert b"interrupted" in err
    assert not Path(f"/proc/{process.pid}/task").exists()


ONLINE = "/sys/devices/system/cpu/online"


@pytest.fixture
def listed(native: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start jitter where the file that lists the CPUs online is one of this test, with *on* as all that it may use."""
    require("util-linux", "unshare")
    file = tmp_path / "online"

    def start(online: str, *words: str, on: int | None = None) -> subprocess.Popen[bytes]:
        file.write_text(f"{online}\n", encoding="ascii")
        pinned = "" if on is None else f"taskset --cpu-list {on}"
        shell = f'mount --bind {file} {ONLINE} && exec {pinned} "$0" "$@"'
        command = ["unshare", "--mount", "--map-root-user", "/bin/sh", "-c", shell]
        if subprocess.run([*command, "/bin/true"], capture_output=True, check=False, timeout=20).returncode != 0:
            pytest.skip("no permission: unshare and mount")
        return begin(native, ["jitter", "--view", "gaps", *words], command)

    return start


@pytest.mark.parametrize("case", [
    ("{cpu},4000-4095", "{cpu},4000,4002-4095", "CPU 4001 went offline"),
    ("{cpu},4000-4095", "{cpu},4000", "CPU 4001, 4002, 4003"),
    ("{cpu},4000", "{cpu},4000", "raise --deadline-s"),
    ("{cpu},4000", "{cpu},4000-4095", "raise --deadline-s"),
])  # fmt: skip
def test_a_cpu_that_went_offline_is_the_reason_of_a_deadline(
    listed: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, cpus: list[int], case: tuple[str, str, str]
) -> None:
    before, after, said = case
    process = listed(before.format(cpu=cpus[0]), "--cpus", str(cpus[0]), "--gap-s", "600", "--deadline-s", "1.5")
    (tmp_path / "online").write_text(after.format(cpu=cpus[0]) + "\n", encoding="ascii")
    document = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert document["error"]["code"] == "deadline"
    assert said in document["error"]["message"]
    assert ("--deadline-s" in document["error"]["message"]) == ("--deadline-s" in said)


@pytest.mark.parametrize("offline", [True, False])
def test_a_thread_that_left_its_cpu_says_whether_that_went_offline(
    listed: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, cpus: list[int], *, offline: bool
) -> None:
    """Where no CPU is spared, nobody looks until the end."""
    require_two(cpus)
    cpu, other = cpus[0], cpus[-1]
    process = listed(f"{cpu},{other}", "--cpus", str(cpu), "--gap-s", "600", on=cpu)
    thread = measuring(process, cpu)
    if offline:
        (tmp_path / "online").write_text(f"{other}\n", encoding="ascii")
    os.sched_setaffinity(thread, {other})
    process.send_signal(signal.SIGTERM)
    warnings = json.loads(process.communicate(timeout=PATIENCE_S)[0])["warnings"]
    (said,) = [warning["message"] for warning in warnings if warning["code"] == "FAILED_BEFORE_STOP"]
    expected = f"CPU {cpu} went offline" if offline else f"the thread of CPU {cpu} was moved"
    assert said.startswith(f"cpu_left: {expected}")


def test_a_gap_loop_that_is_moved_costs_its_own_views_and_no_other(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    moved, other = cpus[0], cpus[-1]
    words = ["--loops", "1000", "--executions", "100", "--intervals", "2", "--gap-s", "3"]
    process = begin(native, ["jitter", "--cpus", f"{moved},{other}", *words])
    os.sched_setaffinity(measuring(process, moved), {other})
    document = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    gone, stayed = document["result"]["cpus"]
    assert (gone["cpu"], gone["cpu_verified"], gone["error"]["code"]) == (moved, False, "cpu_left")
    assert (stayed["cpu"], stayed["cpu_verified"], stayed["error"]) == (other, True, None)
    assert stayed["gaps"]["count"] > 0
    assert gone["pma"] is gone["gaps"] is None
    assert gone["pma_missing"] == gone["gaps_missing"] == gone["error"]["message"]


def test_a_gap_loop_that_is_found_elsewhere_stops(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    process = begin(native, arguments("jitter", cpus[0]))
    os.sched_setaffinity(measuring(process, cpus[0]), {cpus[-1]})
    document = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert (document["error"]["code"], document["result"]) == ("cpu_left", None)


def test_fixed_work_that_is_found_elsewhere_stops_and_no_other(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    moved, other = cpus[0], cpus[-1]
    words = ["--view", "pma", "--loops", "1000", "--executions", "1000", "--intervals", "100000"]
    process = begin(native, ["jitter", "--cpus", f"{moved},{other}", *words])
    thread, stays = (measuring(process, cpu, SETTLED_TICKS) for cpu in (moved, other))
    os.sched_setaffinity(thread, {other})
    wait_until(lambda: state(process, thread) == "S")
    assert state(process, stays) == "R"
    process.send_signal(signal.SIGTERM)
    gone, stayed = json.loads(process.communicate(timeout=PATIENCE_S)[0])["result"]["cpus"]
    assert (gone["error"]["code"], gone["pma"]) == ("cpu_left", None)
    assert (stayed["error"], stayed["pma"]["stopped"]) == (None, "interrupted")


def state(process: subprocess.Popen[bytes], thread: int) -> str:
    """Return the letter of what *thread* does."""
    return Path(f"/proc/{process.pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("subcommand", ["jitter", "firmware"])
def test_a_cpu_that_is_offline_costs_its_own_views_and_no_other(probe: Probe, cpus: list[int], subcommand: str) -> None:
    offline, words = (
        cpus[-1] + 1000,
        {"jitter": ("--gap-s", "0.1", "--executions", "100", "--intervals", "2"), "firmware": ("--seconds", "0.3")},
    )
    done = probe(subcommand, "--cpus", f"{cpus[0]},{cpus[-1]},{offline}", *words[subcommand])
    assert done.code == 0, done.stderr
    *stayed, gone = done.document["result"]["cpus"]
    assert [cpu["error"] for cpu in stayed] == [None] * len({cpus[0], cpus[-1]})
    assert (gone["cpu"], gone["error"]["code"]) == (offline, "cpu_offline")
    if subcommand == "jitter":
        assert all(cpu["cpu_verified"] and cpu["pma"] and cpu["gaps"] for cpu in stayed)
        assert gone["pma"] is gone["gaps"] is None
        assert f"CPU {offline} is offline" in gone["pma_missing"]
    done = probe(subcommand, "--cpus", str(offline), *words[subcommand])
    assert (done.document["error"]["code"], done.document["result"]) == ("cpu_offline", None)


def test_a_cpu_that_is_offline_costs_the_bandwidth_of_its_groups_and_no_other(probe: Probe, cpus: list[int]) -> None:
    offline = cpus[-1] + 1000
    words = ("--mix", "reads", "--buffer-bytes", "65536", "--window-s", "0.002", "--windows", "1", "--streams", "1")
    groups = [f"{offline}@0", f"{cpus[0]}@0+{offline}@0", f"{cpus[-1]}@0"]
    done = probe("bandwidth", *(word for group in groups for word in ("--group", group)), *words, "--placements", "2")
    assert done.code == 0, done.stderr
    *gone, stayed = done.document["result"]["points"]
    assert [(point["group"], point["error"]["code"], point["placements"]) for point in gone] == [
        (group, "cpu_offline", None) for group in groups[:2]
    ]
    assert (stayed["error"], stayed["checked"], len(stayed["placements"])) == (None, True, 2)
    done = probe("bandwidth", "--group", groups[1], *words)
    assert (done.code, done.document["error"]["code"]) == (3, "cpu_offline")


SETTLED_TICKS = 20
"""Of processor time: longer than a thread of jitter settles before its first view."""


def measuring(process: subprocess.Popen[bytes], cpu: int, worked_ticks: int = 2) -> int:
    """Return the thread that is pinned to *cpu*, once it has worked there."""
    for _ in range(3000):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            ticks = int((task / "stat").read_text().rpartition(")")[2].split()[11])
            if os.sched_getaffinity(int(task.name)) == {cpu} and ticks > worked_ticks:
                return int(task.name)
        time.sleep(0.01)
    pytest.fail(f"no thread on CPU {cpu}")


@pytest.mark.parametrize("subcommand", LONG)
def test_a_deadline_ends_a_measurement(probe: Probe, cpus: list[int], subcommand: str) -> None:
    done = probe(*arguments(subcommand, cpus[0]), "--deadline-s", "0.5", timeout=PATIENCE_S)
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"
    assert "--deadline-s" in done.document["error"]["message"]
    assert done.document["duration_s"] >= 0.5


def assert_partial(document: dict[str, Any], code: str) -> None:
    """What was complete is there and is called interrupted; what was not begun says why."""
    assert document["status"] == "failed"
    assert document["error"]["code"] == code
    assert "what was measured" in document["error"]["message"]
    points = document["result"].get("points") or document["result"]["pairs"]
    measured = [point for point in points if point["error"] is None]
    assert "interrupted" in {point["stopped"] for point in measured}
    assert all(point.get("placements") or point.get("windows_hz") for point in measured)
    assert all(point.get("checked", True) and point.get("chain_proved", True) for point in measured)
    left = [point for point in points if point["error"] is not None]
    assert {point["error"]["code"] for point in left} <= {code}
    assert not any(point.get("placements") or point.get("windows_hz") for point in left)
    assert document["clock"]["hz"] > 0


ENOUGH_S = (0.8, 3.0, 12.0)
"""How long a run may take before it is ended, in turn until something is complete: a busy machine takes longer."""


def test_a_signal_keeps_measured_points(native: Path, cpus: list[int]) -> None:
    for enough_s in ENOUGH_S:
        process = begin(native, endless("latency", cpus))
        time.sleep(enough_s)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4
        document = json.loads(out)
        if document["result"] is not None:
            break
    assert_partial(document, "interrupted")


@pytest.mark.parametrize("subcommand", ENDLESS)
def test_a_deadline_keeps_measured_points(probe: Probe, cpus: list[int], subcommand: str) -> None:
    windows = WINDOWS if subcommand == "c2c" else WINDOWS[:1]
    for deadline_s, count in product(ENOUGH_S, windows):
        done = probe(*endless(subcommand, cpus, count), "--deadline-s", str(deadline_s), timeout=PATIENCE_S)
        if done.code == 3 and done.document["result"] is not None:
            break
    assert done.code == 3
    assert_partial(done.document, "deadline")


def test_a_second_signal_ends_without_a_result(native: Path, cpus: list[int]) -> None:
    process = begin_window(native, cpus[0])
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)  # one window of it takes minutes: it cannot hand over anything now
    assert process.poll() is None
    before_s = cpu_s(process)
    others_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate()
    used_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - others_s - before_s
    # Its work goes on until it ends: without the second signal for 3 s, the time that it is given to stop.
    assert used_s < 1
    assert process.returncode == 4
    assert json.loads(out)["result"] is None


def test_a_signal_sent_twice_at_once_is_one_request(native: Path, cpus: list[int]) -> None:
    for after_s in ("1", "4", "16"):
        command = ["timeout", "-s", "INT", after_s, native, *endless("latency", cpus)]
        done = subprocess.run(command, capture_output=True, check=False)
        document = json.loads(done.stdout)
        if document["result"] is not None:
            break
    assert_partial(document, "interrupted")


def test_the_reader_may_go_while_it_is_told_to_end(native: Path, cpus: list[int]) -> None:
    process = begin_window(native, cpus[0])
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 4
    assert b"reader" in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("deadline_s", [0.05, 0.7, 1.2])
def test_selftest_names_the_cases_it_did_not_finish(selftest: Probe, deadline_s: float) -> None:
    """Whatever case it is told to end in, those before it have passed and those after it say why they have not."""
    for _ in range(3):  # a busy machine may keep a thread from seeing within the grace that it is to end
        done = selftest("selftest", "--deadline-s", str(deadline_s), timeout=PATIENCE_S)
        if done.document["result"] is not None:
            break
    cases = done.document["result"]["cases"]
    passed = [case["passed"] for case in cases]
    assert passed[0] or deadline_s < 1, "the first case takes some tenths of a second"
    assert passed == sorted(passed, reverse=True)
    assert {case["error"]["code"] for case in cases if not case["passed"]} <= {"deadline"}
    if done.code == 0:
        assert all(passed), "a fast machine is done before"
        return
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"


def test_ends_when_the_reader_goes(native: Path, cpus: list[int]) -> None:
    process = subprocess.Popen(
        [native, *arguments("jitter", cpus[0])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    wait_for_threads(process, 3)
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 4


def test_ends_when_its_parent_dies(native: Path, cpus: list[int]) -> None:
    words = [str(native), *arguments("jitter", cpus[0])]
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({words!r}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout
    child = int(parent.stdout.readline())
    for _ in range(1000):  # the child has asked to be told of its parent's death before it starts threads
        if len(list(Path(f"/proc/{child}/task").iterdir())) >= 3:
            break
        time.sleep(0.01)
    watch = os.pidfd_open(child)
    try:
        parent.kill()
        parent.wait(timeout=PATIENCE_S)
        assert select.select([watch], [], [], PATIENCE_S)[0], "the child outlives its parent"
    finally:
        os.close(watch)
        parent.stdout.close()


def test_stdout_that_is_closed_from_the_start(native: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" info >&-', native], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 3
    assert b"stdout" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["latency", "--help"], ["jitter", "--help"]])
def test_help_is_readable(native: Path, words: list[str]) -> None:
    done = subprocess.run([native, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "usage: sutprobe" in done.stderr


def test_document_larger_than_a_pipe_arrives_whole(native: Path, cpus: list[int]) -> None:
    process = subprocess.Popen(
        [native, "latency", "--at", f"{cpus[0]}@0", "--size-bytes", "8388608", "--windows", "10000", "--hops",
         "64", "--placements", "2"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    select.select([process.stdout], [], [], PATIENCE_S)
    time.sleep(0.2)  # the pipe is full now, and the process waits for room
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert len(out) > 70000
    assert len(json.loads(out)["result"]["points"][0]["placements"][1]["windows_ns"]) == 10000
