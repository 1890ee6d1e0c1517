# SPDX-License-Identifier: Apache-2.0
"""The reservation, its guardian and the settings, with real processes and a copy of a machine's files."""

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from calibration.errors import EnvironmentLacksError, InputError
from calibration.reservation import NOT_RESERVED, OUT_OF_MEMORY, RESTARTED, UNGUARDED, Reservation, guarded
from calibration.tuning import read_changes, wanted_settings
from tests.tools import require

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "ansible/plugins/module_utils/sut_guardian.py"
SOURCES = {"guardian.py": SOURCE.read_text(), "sut_files.py": SOURCE.with_name("sut_files.py").read_text()}

PATIENCE_S = 30
"""What takes longer hangs; nothing asserts how long anything takes."""

LONG_S = 3600.0


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tested_guardian", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


guardian = load()

PAGES = "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
POLICY = "/sys/devices/system/cpu/cpufreq/policy%d/"
NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"

CPUINFO = "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: %d\n\n"
ONLINE = "/sys/devices/system/cpu/cpu1/online"
MSR = "/dev/cpu/%d/msr"
REGISTERS = (0x1A4, 0x6D, 0x1320, 0xC0000108)

SYSTEMCTL = """#!/bin/sh
state="${0%/usr/bin/systemctl}/irqbalance"
case "$2" in
  is-active) grep -qx active "$state" ;;
  stop) echo inactive > "$state" ;;
  start) echo active > "$state" ;;
esac
"""


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


@dataclass
class Sut:
    """A machine's files below one directory, and where runs reserve it; the processes are real."""

    directory: Path

    @property
    def path(self) -> str:
        return str(self.directory / "tmp" / "calibration-reservation")

    @property
    def base(self) -> Path:
        return self.directory / "tmp"

    @property
    def machine(self) -> Any:
        return guardian.Machine(str(self.directory / "root"))

    def file(self, where: str) -> Path:
        return Path(self.machine.path(where))

    def put(self, where: str, text: str) -> None:
        self.file(where).parent.mkdir(parents=True, exist_ok=True)
        self.file(where).write_text(text)

    def read(self, where: str) -> str:
        return self.file(where).read_text().strip()

    def hold(self, run_id: str = "run1", lease_s: float = LONG_S, **options: Any) -> tuple[dict[str, Any], Any]:
        wanted = {"run_id": run_id, "sut": "sut1", "controller": "somebody@there", "started_at": "2026-11-21T03:27:12Z"}
        held: tuple[dict[str, Any], Any] = guardian.hold(
            self.path, self.machine, str(self.base), wanted, lease_s=lease_s, sources=SOURCES, **options
        )
        return held

    def tune(self, holder: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
        token = holder["token"]
        changes: list[dict[str, Any]]
        changes, _ = guardian.tune(self.path, self.machine, token, settings, lease_s=LONG_S)
        return changes

    def release(self, run_id: str = "run1", **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = guardian.release(
            self.path, self.machine, str(self.base), run_id, "sut1", **{"changes": [], **options}
        )
        return answer

    def reservation(self, holder: dict[str, Any]) -> Reservation:
        return Reservation(path=self.path, token=holder["token"], boot_id=holder["boot_id"])

    def left(self) -> list[str]:
        """Return what is left in the directory of temporary files, and guardians that live."""
        return [path.name for path in self.base.iterdir()] + guardians(self.base)

    def settings(self) -> dict[str, str]:
        """Return every value that a run may change."""
        machine = self.directory / "root"
        found = {str(path): path.read_text().strip() for path in (machine / "sys").rglob("*") if path.is_file()}
        for path in (machine / "dev").rglob("msr"):
            found |= {f"{path}:{register:#x}": value for register in REGISTERS if (value := peek(path, register))}
        return {**found, "irqbalance": (machine / "irqbalance").read_text()}


def peek(path: Path, register: int) -> str:
    """Return what the register file *path* has at *register*, nothing if it ends before."""
    with path.open("rb") as stream:
        return os.pread(stream.fileno(), 8, register)[::-1].hex().lstrip("0")


def poke(path: Path, values: dict[int, int], size: int = 8) -> None:
    """Make *path* a file of registers, or of CPUID leaves with *size* bytes, with holes in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as stream:
        for register, value in values.items():
            os.pwrite(stream.fileno(), value.to_bytes(size, "little"), register)


def guardians(base: Path) -> list[str]:
    """Return the guardians that live with a program below *base*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if any(word.startswith(str(base)) and word.endswith("/guardian.py") for word in words):
            found.append(path.parent.name)
    return found


def gone(process: int) -> bool:
    """Return whether a process has ended. Here it is this process's child, and must be waited for like one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
    return not Path(f"/proc/{process}").exists()


@pytest.fixture
def sut(tmp_path: Path) -> Iterator[Sut]:
    made = Sut(tmp_path)
    made.base.mkdir()
    for node in (0, 1):
        made.put(PAGES % node, "0\n")
    for policy in (0, 1):
        made.put(POLICY % policy + "scaling_governor", "powersave\n")
        made.put(POLICY % policy + "scaling_available_governors", "performance powersave\n")
        made.put(POLICY % policy + "affected_cpus", f"{policy}\n")
        made.put(POLICY % policy + "energy_performance_preference", "balance_performance\n")
        poke(made.file(MSR % policy), {0x1A4: 0x40})
    made.put(NO_TURBO, "0\n")
    made.put("/irqbalance", "active\n")
    made.put("/usr/bin/systemctl", SYSTEMCTL)
    made.file("/usr/bin/systemctl").chmod(0o755)
    made.put("/proc/cpuinfo", CPUINFO % (0, 0x55) + CPUINFO % (1, 0x55))
    made.put("/proc/sys/kernel/random/boot_id", Path("/proc/sys/kernel/random/boot_id").read_text())
    # Not a copy: the lease is in seconds of this very file.
    made.file("/proc/uptime").symlink_to("/proc/uptime")
    yield made
    for process in guardians(made.base):
        os.kill(int(process), signal.SIGKILL)


EVERYTHING = {
    "hugepages_2m": {"0": 64, "1": 32},
    "governor": "performance",
    "turbo": "off",
    "prefetchers": "off",
    "irqbalance": "stopped",
}


# One run at a time


def test_a_run_holds_and_releases_and_nothing_is_left(sut: Sut) -> None:
    holder, taken_over = sut.hold()
    assert taken_over is None
    directory = Path(holder["directory"])
    assert directory.parent == sut.base
    assert directory.name.startswith("calibration-run1-sut1-")
    assert directory.stat().st_mode & 0o7777 == 0o700
    assert Path(sut.path).stat().st_mode & 0o7777 == 0o755
    assert guardian.look(sut.path, sut.machine)[1]
    answer = sut.release()
    assert answer == {"changes": [], "ended": [], "released": True, "changed": True}
    wait_until(lambda: gone(holder["guardian"]))
    assert sut.left() == []
    assert sut.release()["changed"] is False


def test_the_second_controller_is_refused_with_who_since_when_and_how_to_break_it(sut: Sut) -> None:
    holder, _ = sut.hold()
    with pytest.raises(guardian.Held) as refused:
        sut.hold("run2")
    text = str(refused.value)
    assert "run run1 of somebody@there, begun at 2026-11-21T03:27:12Z" in text
    assert "playbooks/cleanup.yml -e calibration_run_id=run1 --limit sut1" in text
    assert sut.release("run2")["changed"] is False
    assert guardian.look(sut.path, sut.machine) == (holder, True)
    assert [path.name for path in sut.base.iterdir()] == [Path(sut.path).name, Path(holder["directory"]).name] or len(
        list(sut.base.iterdir())
    ) == 2


def test_of_controllers_at_the_same_instant_exactly_one_gets_it(sut: Sut) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(6)

    def reach(number: int) -> None:
        start.wait()
        try:
            sut.hold(f"run{number}")
            outcomes.append("held")
        except guardian.Held:
            outcomes.append("refused")

    threads = [threading.Thread(target=reach, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held"] + ["refused"] * 5
    wait_until(lambda: len(guardians(sut.base)) == 1)
    assert len(list(sut.base.iterdir())) == 2


def test_a_stale_reservation_is_put_right_and_taken_over_by_exactly_one(sut: Sut) -> None:
    before = sut.settings()
    dead, _ = sut.hold()
    sut.tune(dead, EVERYTHING)
    os.kill(dead["guardian"], signal.SIGKILL)
    wait_until(lambda: gone(dead["guardian"]))
    assert sut.settings() != before
    taken: list[Any] = []
    start = threading.Barrier(4)

    def reach(number: int) -> None:
        start.wait()
        try:
            taken.append(sut.hold(f"next{number}"))
        except guardian.Held:
            taken.append(None)

    threads = [threading.Thread(target=reach, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (held,) = [item for item in taken if item is not None]
    assert sut.settings() == before
    assert not Path(dead["directory"]).exists()
    if held[1] is not None:  # the one that put it right may be another than the one that came to hold it
        assert held[1]["holder"]["run_id"] == "run1"
        assert held[1]["why"] == "its guardian is gone"
        assert {change["restored_by"] for change in held[1]["changes"]} == {"cleanup"}


def test_another_boot_makes_it_stale_and_its_settings_are_only_forgotten(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"hugepages_2m": {"0": 64}})
    os.kill(holder["guardian"], signal.SIGKILL)
    wait_until(lambda: gone(holder["guardian"]))
    sut.put("/proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
    sut.put(PAGES % 0, "7\n")  # what the machine came up with
    _, taken_over = sut.hold("run2")
    assert taken_over["why"] == "the SUT was restarted"
    assert sut.read(PAGES % 0) == "7"
    assert not Path(holder["directory"]).exists()


def test_the_same_run_is_resumed_while_its_old_guardian_lives(sut: Sut) -> None:
    before = sut.settings()
    old, _ = sut.hold()
    sut.tune(old, EVERYTHING)
    with pytest.raises(guardian.Held):
        sut.hold()
    new, taken_over = sut.hold(resume=True)
    assert taken_over["why"] == "its run is resumed"
    assert sut.settings() == before
    wait_until(lambda: gone(old["guardian"]))
    assert new["token"] != old["token"]
    assert run_step(sut, old) == NOT_RESERVED
    assert run_step(sut, new) == 0


def test_check_mode_makes_nothing(sut: Sut) -> None:
    holder, _ = sut.hold(check_mode=True)
    assert not Path(holder["directory"]).exists()
    assert guardian.tune(sut.path, sut.machine, None, EVERYTHING, lease_s=1, check_mode=True)
    assert sut.left() == []


# What others may have put there


def test_a_link_is_not_followed(sut: Sut) -> None:
    target = sut.directory / "precious"
    target.mkdir()
    Path(sut.path).symlink_to(target)
    with pytest.raises(guardian.Refused, match="found another kind of file"):
        sut.hold()
    assert list(target.iterdir()) == []
    assert [path.name for path in sut.base.iterdir()] == [Path(sut.path).name]


def test_a_place_that_others_could_exchange_is_refused(sut: Sut) -> None:
    sut.base.chmod(0o777)
    with pytest.raises(guardian.Refused, match=r"everybody may write there; make each directory"):
        sut.hold()
    sut.base.chmod(0o1777)
    sut.hold()


HOSTILE = {
    "escape": json.dumps({"run_id": "\033[2J\nrm -rf /", "sut": "a;b", "controller": "x" * 10_000}),
    "not-json": "{" * 100_000,
    "list": "[1, 2]",
    "numbers": json.dumps({"run_id": 7, "guardian": "1; kill", "boot_id": None}),
    "deep": "[" * 8000,
}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_another_user_wrote_is_shown_harmlessly_and_its_journal_is_not_believed(sut: Sut, text: str) -> None:
    holder, _ = sut.hold()
    os.kill(holder["guardian"], signal.SIGKILL)
    wait_until(lambda: gone(holder["guardian"]))
    sut.put(NO_TURBO, "0\n")
    journal = guardian.Entry("turbo", NO_TURBO, "1", "0").line()
    Path(sut.path, "journal").write_text(journal)
    Path(sut.path, "holder.json").write_text(text)
    with Path(sut.path, "alive").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in (Path(sut.path), *Path(sut.path).iterdir()):
            os.chown(path, 65534, 65534)
        with pytest.raises(guardian.Held) as refused:
            sut.hold("run2")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1500
    sut.hold("run2")
    assert sut.read(NO_TURBO) == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_no_directory_is_removed_because_another_user_names_it(sut: Sut) -> None:
    holder, _ = sut.hold()
    os.kill(holder["guardian"], signal.SIGKILL)
    wait_until(lambda: gone(holder["guardian"]))
    precious = sut.directory / "calibration-precious"
    precious.mkdir(mode=0o700)
    text = json.dumps({**holder, "directory": str(precious)})
    Path(sut.path, "holder.json").write_text(text)
    os.chown(sut.path, 65534, 65534)
    sut.hold("run2")
    assert precious.is_dir()


@pytest.mark.parametrize(
    "line",
    [
        '["turbo", "/etc/passwd", "0", "1"]',
        '["turbo", "/sys/devices/system/cpu/cpufreq/../../../../etc/passwd", "0", "1"]',
        '["governor", "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "x\\ny", "z"]',
        '["shadow", "/etc/shadow", "0", "1"]',
        '{"a": 1}',
        "half a li",
    ],
)
def test_a_journal_touches_what_calibrations_change_and_nothing_else(line: str) -> None:
    with pytest.raises(guardian.Refused, match=r"expected (a setting|four texts)"):
        guardian.Entry.of_line(line)


# However a run ends


def run_step(sut: Sut, holder: dict[str, Any], lease_s: float = LONG_S) -> int:
    return subprocess.run(
        ["/bin/sh", "-c", guarded(["true"], sut.reservation(holder), lease_s=lease_s)], check=False, timeout=PATIENCE_S
    ).returncode


@contextlib.contextmanager
def start_kernel(holder: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    program = Path(holder["directory"], "sutprobe")
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "600"]) as kernel:
        try:
            yield kernel
        finally:
            kernel.kill()


def test_when_nobody_is_heard_of_the_guardian_ends_the_run_and_puts_everything_back(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, EVERYTHING)
    assert sut.settings() != before
    with start_kernel(holder) as kernel:
        assert run_step(sut, holder, lease_s=0) == 0
        assert kernel.wait(PATIENCE_S) == -signal.SIGTERM
    wait_until(lambda: gone(holder["guardian"]))
    assert sut.left() == []
    assert sut.settings() == before
    answer = sut.release(changes=changes)
    assert not answer["released"]
    assert {change["restored_by"] for change in answer["changes"]} == {"guardian"}
    assert [(change["where"], change["restored"]) for change in answer["changes"]] == [
        (change["where"], change["before"]) for change in changes
    ]


def test_what_the_guardian_did_not_put_back_is_not_said_to_be(sut: Sut) -> None:
    holder, _ = sut.hold()
    changes = sut.tune(holder, {"turbo": "off"})
    os.kill(holder["guardian"], signal.SIGTERM)
    wait_until(lambda: gone(holder["guardian"]))
    sut.put(NO_TURBO, "1\n")
    (change,) = sut.release(changes=changes)["changes"]
    assert (change["restored"], change["restored_by"]) == ("1", None)


def test_a_request_to_end_as_at_a_shutdown_is_the_end_of_the_lease(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, EVERYTHING)
    os.kill(holder["guardian"], signal.SIGHUP)
    os.kill(holder["guardian"], signal.SIGINT)
    os.kill(holder["guardian"], signal.SIGTERM)
    wait_until(lambda: gone(holder["guardian"]))
    assert sut.settings() == before
    assert sut.left() == []


def test_a_guardian_that_is_killed_leaves_its_journal_and_cleaning_up_puts_back(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, EVERYTHING)
    with start_kernel(holder) as kernel:
        os.kill(holder["guardian"], signal.SIGKILL)
        wait_until(lambda: gone(holder["guardian"]))
        assert run_step(sut, holder) == UNGUARDED
        answer = sut.release(who="cleanup")
        assert kernel.wait(PATIENCE_S) == -signal.SIGTERM
        assert answer["ended"] == [kernel.pid]
    assert sut.settings() == before
    assert sut.left() == []
    assert [change | {"restored": None, "restored_by": None} for change in answer["changes"]] == changes
    assert {change["restored_by"] for change in answer["changes"]} == {"cleanup"}


def test_a_lease_is_of_the_machines_own_seconds_and_a_step_renews_it(sut: Sut) -> None:
    sut.file("/proc/uptime").unlink()
    sut.put("/proc/uptime", "1000.00 1.0\n")
    until = 1000
    reader, writer = os.pipe()

    def awaited() -> bool:
        answer: bool = guardian.await_end(sut.machine, reader, until)
        return answer

    sut.put("/proc/uptime", "1000.99 1.0\n")
    assert not awaited()
    sut.put("/proc/uptime", "10.00 1.0\n")
    os.write(writer, b"000000000009\n")
    assert not awaited()
    os.write(writer, b"000000005000\nrelease\n")
    assert awaited()
    os.write(writer, b"0000050\nnonsense\n")
    threading.Timer(0.2, os.write, (writer, b"release\n")).start()
    assert awaited()
    os.close(reader)
    os.close(writer)


def test_a_step_that_ended_long_before_its_deadline_leaves_no_long_lease(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, EVERYTHING)
    command = guarded(["true"], sut.reservation(holder), lease_s=LONG_S, idle_s=1)
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0
    wait_until(lambda: gone(holder["guardian"]))
    assert sut.settings() == before
    assert sut.left() == []


def test_a_step_that_runs_keeps_its_lease_and_the_next_one_begins_another() -> None:
    reader, writer = os.pipe()
    machine = guardian.Machine()
    until = int(machine.uptime_s())
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        try:
            os.write(writer, b"%012d %d 0\n" % (until + 3600, first.pid))
            ended: list[bool] = []
            waiting = threading.Thread(target=lambda: ended.append(guardian.await_end(machine, reader, until + 60)))
            waiting.start()
            time.sleep(0.2)
            os.write(writer, b"%012d %d 0\n" % (until + 3600, second.pid))
            time.sleep(0.2)
            first.kill()
            waiting.join(2)
            assert waiting.is_alive()
            second.kill()
            waiting.join(PATIENCE_S)
            assert ended == [False]
        finally:
            first.kill()
            second.kill()
    os.close(reader)
    os.close(writer)


def test_a_step_on_a_sut_that_was_restarted_or_given_to_others_is_refused(sut: Sut) -> None:
    holder, _ = sut.hold()
    assert run_step(sut, holder) == 0
    assert run_step(sut, {**holder, "boot_id": "11111111-2222-3333-4444-555555555555"}) == RESTARTED
    assert run_step(sut, {**holder, "token": "0" * 32}) == NOT_RESERVED
    sut.release()
    assert run_step(sut, holder) == NOT_RESERVED
    assert sut.left() == []


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_shell_of_a_step_starts_only_sutprobe(sut: Sut, shell: str) -> None:
    require(shell, shell)
    require("strace", "strace")
    holder, _ = sut.hold()
    words = [shell, "sh"] if shell == "busybox" else [shell]
    trace = sut.directory / "trace"
    command = guarded(["/bin/true"], sut.reservation(holder), lease_s=LONG_S)
    done = subprocess.run(["strace", "-f", "-o", str(trace), *words, "-c", command], check=False)
    assert done.returncode == 0
    assert sum(trace.read_text().count(call) for call in ("fork(", "clone(", "clone3(")) == 1


def test_sutprobe_killed_by_a_signal_is_not_a_lost_connection(sut: Sut) -> None:
    # ssh ends with the same code for a command that a signal ended as for a connection that is gone.
    holder, _ = sut.hold()
    crashing = guarded(["/bin/sh", "-c", "kill -SEGV $$"], sut.reservation(holder), lease_s=LONG_S)
    assert subprocess.run(["/bin/sh", "-c", crashing], check=False).returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_sutprobe_is_killed_first_when_memory_runs_out(sut: Sut, shell: str) -> None:
    require(shell, shell)
    holder, _ = sut.hold()
    command = guarded(["/bin/cat", "/proc/self/oom_score_adj"], sut.reservation(holder), lease_s=LONG_S)
    words = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*words, "-c", command], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1000\n", "")


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize(("counts", "said"), [("3 4", True), ("3 3", False), ("", False)])
def test_killed_sutprobe_reports_whether_memory_ran_out(sut: Sut, shell: str, counts: str, said: bool) -> None:
    require(shell, shell)
    holder, _ = sut.hold()
    counters = sut.directory / "vmstat"
    before, _, after = counts.partition(" ")
    if before:
        counters.write_text(f"nr_free_pages 5\noom_kill {before}\n")
    kill = f"test -f {counters} && echo oom_kill {after} > {counters}; kill -KILL $$"
    command = guarded(["/bin/sh", "-c", kill], sut.reservation(holder), lease_s=LONG_S)
    words = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run(
        [*words, "-c", command.replace("/proc/vmstat", str(counters))], check=False, capture_output=True, text=True
    )
    assert done.returncode == 128 + signal.SIGKILL
    assert (OUT_OF_MEMORY in done.stderr) is said, done.stderr


def test_the_guardian_sleeps_until_it_is_told_something(sut: Sut) -> None:
    holder, _ = sut.hold()
    process = Path(f"/proc/{holder['guardian']}")

    def switches() -> str:
        status = (process / "status").read_text()
        return next(line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))

    wait_until(lambda: (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S")
    asleep = switches()
    time.sleep(2)
    assert switches() == asleep
    assert run_step(sut, holder) == 0
    wait_until(lambda: switches() != asleep)


# Settings


def test_everything_is_changed_recorded_and_put_back(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    changes = {change["where"]: (change["before"], change["after"]) for change in sut.tune(holder, EVERYTHING)}
    assert changes == {
        PAGES % 0: ("0", "64"),
        PAGES % 1: ("0", "32"),
        (POLICY % 0).replace("policy0", "policy{0-1}") + "scaling_governor": ("powersave", "performance"),
        NO_TURBO: ("0", "1"),
        "/dev/cpu/{0-1}/msr:0x1a4": ("0x40", "0x4f"),
        "irqbalance.service": ("active", "inactive"),
    }
    assert sut.tune(holder, EVERYTHING) == []
    answer = sut.release()
    assert all(
        change["restored"] == change["before"] and change["restored_by"] == "run" for change in answer["changes"]
    )
    assert sut.settings() == before
    assert sut.left() == []


def test_what_a_program_may_change_is_put_back_at_the_end_and_not_told(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, {"prefetchers": "off"})
    tuned = sut.settings()
    entries, unread = guardian.prefetchers(sut.machine)
    assert ([(entry.where, entry.before) for entry in entries], unread) == (
        [("/dev/cpu/0/msr:0x1a4", "0x4f"), ("/dev/cpu/1/msr:0x1a4", "0x4f")],
        None,
    )
    for _ in range(2):
        guardian.note(sut.path, sut.machine, holder["token"], entries)
    assert len((Path(sut.path) / "journal").read_text().splitlines()) == 4
    assert sut.settings() == tuned
    guardian.write_value(sut.machine, entries[1], "0x0")
    (change,) = sut.release()["changes"]
    assert (change["before"], change["restored"]) == ("0x40", "0x40")
    assert sut.settings() == before


def test_registers_that_cannot_be_read_are_named(sut: Sut) -> None:
    sut.file("/dev/cpu/1/msr").unlink()
    entries, unread = guardian.prefetchers(sut.machine)
    assert [entry.where for entry in entries] == ["/dev/cpu/0/msr:0x1a4"]
    assert unread == "MSR 0x1a4 of CPUs 1: No such file or directory"


def test_nothing_is_noted_for_a_run_that_has_no_reservation(sut: Sut) -> None:
    entries, _ = guardian.prefetchers(sut.machine)
    with pytest.raises(guardian.Refused, match="reserved for this run"):
        guardian.note(sut.path, sut.machine, "0" * 32, entries)


def test_a_setting_that_changes_along_is_put_back_with_it(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"governor": "performance"})
    sut.put(POLICY % 0 + "energy_performance_preference", "performance\n")
    (change,) = sut.release()["changes"]
    assert change["where"].endswith("policy{0-1}/scaling_governor")
    assert sut.read(POLICY % 0 + "energy_performance_preference") == "balance_performance"


def test_huge_pages_that_could_be_reserved_in_part_only_are_put_back(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, _ = sut.hold()
    write = guardian.Machine.write

    def scarce(machine: Any, where: str, text: str) -> None:
        write(machine, where, str(min(int(text), 40)) if where == PAGES % 1 else text)

    monkeypatch.setattr(guardian.Machine, "write", scarce)
    with pytest.raises(guardian.Refused, match=r"expected 64 huge pages .* only 40 could .* all was put back"):
        sut.tune(holder, {"hugepages_2m": {"0": 64, "1": 64}})
    assert (sut.read(PAGES % 0), sut.read(PAGES % 1)) == ("0", "0")
    assert sut.release()["changes"] == []


def test_register_that_ignores_writes_is_refused(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, _ = sut.hold()
    monkeypatch.setattr(guardian.os, "pwrite", lambda *_: 8)
    with pytest.raises(guardian.Refused, match=r"to read 0x4f after .*, found 0x40.*take tune_pr.* all was put back"):
        sut.tune(holder, {"prefetchers": "off"})
    assert Path(sut.path, "journal").read_text() == ""


AMD = "processor\t: %d\nvendor_id\t: AuthenticAMD\ncpu family\t: %d\nmodel\t\t: 17\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
POWER = "processor\t: %d\ncpu\t\t: POWER9, altivec supported\n\n"
DSCR = "/sys/devices/system/cpu/cpu%d/dscr"
DSCR_DEFAULT = "/sys/devices/system/cpu/dscr_default"


def amd(sut: Sut, family: int, bits: int = 1 << 13, last: int = 0x80000028) -> None:
    """Make the machine one of AMD's whose CPUID says *bits* in leaf 0x80000021 and has leaves up to *last*."""
    sut.put("/proc/cpuinfo", AMD % (0, family) + AMD % (1, family))
    for cpu in (0, 1):
        poke(sut.file(f"/dev/cpu/{cpu}/cpuid"), {0x80000000: last, 0x80000021: bits}, size=16)
        poke(sut.file(MSR % cpu), {0xC0000108: 0x3C0})


def power(sut: Sut, *values: str) -> None:
    """Make the machine one of POWER's, with *values* of its CPUs' registers, and 0 by default."""
    sut.put("/proc/cpuinfo", "".join(POWER % cpu for cpu in range(len(values))))
    for cpu, value in enumerate(values):
        sut.put(DSCR % cpu, value + "\n")
    sut.put(DSCR_DEFAULT, "0\n")


def to_all_cpus(write: Any) -> Callable[[Any, str, str], None]:
    """Return *write* as the kernel does it: what is written to the default is written to all CPUs."""

    def store(machine: Any, where: str, text: str) -> None:
        for path in (where, *(machine.glob("/sys/devices/system/cpu/cpu[0-9]*/dscr") if where == DSCR_DEFAULT else ())):
            write(machine, path, text)

    return store


PROCESSORS: dict[str, tuple[Callable[[Sut], None], dict[int, tuple[int, int]]]] = {
    "broadwell": (lambda sut: intel(sut, 0x4F), {0x1A4: (0, 0xF)}),
    "skylake": (lambda sut: intel(sut, 0x55), {0x1A4: (0, 0xF)}),
    "emerald-rapids": (lambda sut: intel(sut, 0xCF), {0x1A4: (0, 0x2F), 0x6D: (0x11, 0x40000004011)}),
    "granite-rapids": (lambda sut: intel(sut, 0xAD), {0x1A4: (0, 0xEF), 0x6D: (0x11, 0x40000004011)}),
    "sierra-forest": (lambda sut: intel(sut, 0xAF), {0x1A4: (0, 0x3D), 0x1320: (0x22, 0x80000000022)}),
    "goldmont": (lambda sut: intel(sut, 0x5F), {0x1A4: (0, 0x5)}),
    "knights-landing": (lambda sut: intel(sut, 0x57), {0x1A4: (0, 0x3)}),
    "zen-4": (lambda sut: amd(sut, 0x19), {0xC0000108: (0x3C0, 0x3EF)}),
    "zen-5": (lambda sut: amd(sut, 0x1A), {0xC0000108: (0x3C0, 0x3EF)}),
}


def intel(sut: Sut, model: int) -> None:
    """Make the machine one of Intel's, *model*, with some bits set that are no prefetcher's."""
    sut.put("/proc/cpuinfo", CPUINFO % (0, model) + CPUINFO % (1, model))
    for cpu in (0, 1):
        poke(sut.file(MSR % cpu), {0x1A4: 0, 0x6D: 0x11, 0x1320: 0x22})


@pytest.mark.parametrize(("make", "registers"), PROCESSORS.values(), ids=PROCESSORS)
def test_each_processor_has_its_own_registers_and_bits_and_no_other_is_written(
    sut: Sut, make: Callable[[Sut], None], registers: dict[int, tuple[int, int]]
) -> None:
    make(sut)
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, {"prefetchers": "off"})
    assert {change["where"]: (change["before"], change["after"]) for change in changes} == {
        f"/dev/cpu/{{0-1}}/msr:{register:#x}": (hex(was), hex(now)) for register, (was, now) in registers.items()
    }
    touched = {name.rpartition(":")[2] for name, value in sut.settings().items() if before.get(name) != value}
    assert touched == {hex(register) for register in registers}
    again = {
        prefetcher.where: int(prefetcher.wanted, 16) for prefetcher in guardian.wanted_prefetchers(sut.machine, "on")
    }
    assert again == {MSR % cpu + f":{register:#x}": was for cpu in (0, 1) for register, (was, _) in registers.items()}
    sut.release()
    assert sut.settings() == before


def test_streams_of_power_are_switched_on_all_cpus_and_each_has_its_own_back(
    sut: Sut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian.Machine, "write", to_all_cpus(guardian.Machine.write))
    power(sut, "0", "1", "1d7", "0")
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, {"prefetchers": "off"})
    assert {change["where"]: (change["before"], change["after"]) for change in changes} == {
        "/sys/devices/system/cpu/cpu{0,3}/dscr": ("0", "1"),
        DSCR % 2: ("1d7", "1"),
        DSCR_DEFAULT: ("0", "1"),
    }
    assert [sut.read(DSCR % cpu) for cpu in range(4)] == ["1"] * 4
    assert sut.tune(holder, {"prefetchers": "off"}) == []
    assert all(change["restored"] == change["before"] for change in sut.release()["changes"])
    assert sut.settings() == before


def test_a_default_that_leaves_the_cpus_as_they_are_is_refused(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    power(sut, "0", "0")
    before = sut.settings()
    holder, _ = sut.hold()
    monkeypatch.setattr(guardian.Machine, "write", lambda *_: None)
    with pytest.raises(
        guardian.Refused, match=r"cpu0/dscr to read 1 after that was written, found 0.* all was put back"
    ):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before


def test_a_register_that_takes_a_part_of_the_bits_is_refused_and_all_are_put_back(
    sut: Sut, monkeypatch: pytest.MonkeyPatch
) -> None:
    intel(sut, 0xCF)
    before = sut.settings()
    holder, _ = sut.hold()
    write = guardian.write_value

    def locked(machine: Any, entry: Any, value: str) -> None:
        write(machine, entry, hex(int(value, 16) & 0x4011) if entry.where == "/dev/cpu/1/msr:0x6d" else value)

    monkeypatch.setattr(guardian, "write_value", locked)
    with pytest.raises(guardian.Refused, match=r"cpu/1/msr:0x6d to read 0x40000004011 .* found 0x4011.* put back"):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before
    assert sut.release()["changes"] == []


def test_cpu_offline_before_its_change_is_refused_and_others_restored(
    sut: Sut, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, _ = sut.hold()
    write = guardian.Reservation.write_journal

    def then_offline(self: Any, entries: Any) -> int:
        mark: int = write(self, entries)
        sut.file(MSR % 1).unlink()
        sut.put(ONLINE, "0\n")
        return mark

    monkeypatch.setattr(guardian.Reservation, "write_journal", then_offline)
    with pytest.raises(guardian.Refused, match=r"cpu/1/msr:0x1a4 cannot be set to 0x4f: .* all was put back"):
        sut.tune(holder, {"prefetchers": "off"})
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"
    assert sut.release()["released"]


def test_a_cpu_that_goes_offline_while_it_is_changed_keeps_the_reservation_until_it_is_back(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"prefetchers": "off"})
    register = sut.file(MSR % 1)
    register.rename(register.with_name("away"))
    sut.put(ONLINE, "0\n")
    with pytest.raises(guardian.Refused, match="msr:0x1a4 cannot be put back to 0x40: its CPUs are offline: put them"):
        sut.release()
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"
    register.with_name("away").rename(register)
    sut.put(ONLINE, "1\n")
    sut.release()
    assert peek(register, 0x1A4) == "40"


def test_one_setting_is_put_back_before_the_end_and_the_others_stay(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, {"hugepages_2m": {"0": 64}, "prefetchers": "on", "turbo": "off"})
    tuned = sut.settings()
    known = Path(sut.path, "journal").read_text()
    for _ in range(2):
        changes, mark = guardian.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
        assert [(change["where"], change["after"]) for change in changes] == [("/dev/cpu/{0-1}/msr:0x1a4", "0x4f")]
        assert Path(sut.path, "journal").read_text() != known
        (change,) = guardian.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
        assert (change["after"], change["restored"], change["restored_by"]) == ("0x4f", "0x40", "run")
        assert sut.settings() == tuned
        assert Path(sut.path, "journal").read_text() == known
    assert {change["setting"] for change in sut.release()["changes"]} == {"hugepages_2m", "turbo"}
    assert sut.settings() == before


def test_what_was_off_before_is_not_switched_and_nothing_is_put_back(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"prefetchers": "off"})
    changes, mark = guardian.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
    assert changes == []
    assert guardian.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S) == []
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"
    assert [change["restored"] for change in sut.release()["changes"]] == ["0x40"]


def test_refused_change_keeps_earlier_changes(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, {"hugepages_2m": {"0": 64}})
    with monkeypatch.context() as patched:
        patched.setattr(guardian.os, "pwrite", lambda *_: 8)
        with pytest.raises(guardian.Refused, match="all was put back"):
            sut.tune(holder, {"prefetchers": "off"})
    assert sut.read(PAGES % 0) == "64"
    assert [change["setting"] for change in sut.release()["changes"]] == ["hugepages_2m"]
    assert sut.settings() == before


@pytest.mark.parametrize("mark", [1, 1 << 20])
def test_invalid_mark_undoes_nothing(sut: Sut, mark: int) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"prefetchers": "off"})
    with pytest.raises(guardian.Refused, match=f"a line of the journal to end at {mark}"):
        guardian.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"


def test_what_cannot_be_put_back_early_is_put_back_at_the_end(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    _, mark = guardian.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
    with monkeypatch.context() as patched:
        patched.setattr(guardian, "write_value", lambda *_: None)
        with pytest.raises(guardian.Refused, match="expected /dev/cpu/1/msr:0x1a4 to read 0x40 again, found 0x4f"):
            guardian.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
    assert [change["restored"] for change in sut.release()["changes"]] == ["0x40"]
    assert sut.settings() == before


def test_a_killed_measuring_process_has_the_guardian_switch_the_prefetchers_back(sut: Sut) -> None:
    """SIGKILL to what runs on the SUT, and no more word of the run: the guardian holds the old values."""
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, {"prefetchers": "off"})
    program = Path(holder["directory"], "measuring")
    shutil.copy(shutil.which("sleep") or "", program)
    command = guarded([str(program), "1000"], sut.reservation(holder), lease_s=LONG_S, idle_s=0)
    with subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True) as step:
        wait_until(lambda: guardian.files.PrivateDirectory(holder["directory"], os.geteuid()).processes() != [])
        assert sut.settings() != before
        os.killpg(step.pid, signal.SIGKILL)
    wait_until(lambda: sut.settings() == before)
    wait_until(lambda: gone(holder["guardian"]))
    assert sut.left() == []


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str | None], str]] = {
    "another-processor": ({"prefetchers": "off"}, {"/proc/cpuinfo": CPUINFO % (0, 0x01)}, "family 6 model 1; take"),
    "no-register": ({"prefetchers": "off"}, {"/dev/cpu/1/msr": None}, "of CPU 1 to be readable .*kernel module msr"),
    "arm": ({"prefetchers": "off"}, {"/proc/cpuinfo": ARM}, "Arm's architecture.* CPUECTLR_EL1.* the firmware's menu"),
    "mixed": (
        {"prefetchers": "off"},
        {"/proc/cpuinfo": CPUINFO % (0, 0x55) + CPUINFO % (1, 0x97)},
        "6 model 151; take",
    ),
    "zen-2": ({"prefetchers": "off"}, {"/proc/cpuinfo": AMD % (0, 0x17)}, "AuthenticAMD family 23 model 17; take"),
    "zen-3-unasked": ({"prefetchers": "off"}, {"/proc/cpuinfo": AMD % (0, 0x19)}, "to say at .* kernel module cpuid"),
    "no-such-governor": ({"governor": "ondemand"}, {}, "one of performance, powersave, which .* found ondemand"),
    "no-node": ({"hugepages_2m": {"7": 1}}, {}, "on node 7, found no /sys"),
    "fewer-pages": ({"hugepages_2m": {"0": 1}}, {PAGES % 0: "5"}, "found 5 reserved"),
    "no-turbo": ({"turbo": "off"}, {NO_TURBO: None}, "expected a switch for turbo"),
}


@pytest.mark.parametrize(("settings", "files", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_changed_is_refused_with_nothing_changed(
    sut: Sut, settings: dict[str, Any], files: dict[str, str | None], message: str
) -> None:
    holder, _ = sut.hold()
    for where, text in files.items():
        sut.file(where).unlink(missing_ok=True)
        if text is not None:
            sut.put(where, text)
    before = sut.settings()
    with pytest.raises(guardian.Refused, match=message):
        sut.tune(holder, {"irqbalance": "stopped", **settings})
    assert sut.settings() == before
    assert not Path(sut.path, "journal").exists()


@pytest.mark.parametrize(("bits", "last"), [(0xFFFFDFFF, 0x80000028), (0xFFFFFFFF, 0x8000001F)])
def test_a_processor_that_says_it_has_no_register_for_prefetchers_is_refused(sut: Sut, bits: int, last: int) -> None:
    amd(sut, 0x19, bits, last)
    before = sut.settings()
    holder, _ = sut.hold()
    with pytest.raises(guardian.Refused, match=r"PrefetchCtlMsr.* says it has none"):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before


def test_what_every_cpu_of_the_table_is_switched_by_may_be_put_back() -> None:
    places = {f"/dev/cpu/0/msr:{register:#x}" for table in guardian.PREFETCH_TABLES for register in table.registers} | {
        DSCR % 3,
        DSCR_DEFAULT,
    }
    for where in places:
        line = guardian.Entry("prefetchers", where, "0x1" if "msr" in where else "1", None).line()
        assert guardian.Entry.of_line(line).where == where
    for where in ("/dev/cpu/0/msr:0x10", "/dev/cpu/0/msr", "/sys/devices/system/cpu/cpu3/online"):
        with pytest.raises(guardian.Refused, match="a setting that calibrations change"):
            guardian.Entry.of_line(guardian.Entry("prefetchers", where, "0x1", None).line())


def test_a_journal_that_cannot_be_written_changes_nothing(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    holder, _ = sut.hold()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(guardian.os, "fsync", full)
        with pytest.raises(guardian.Refused, match="No space left on device; nothing was changed"):
            sut.tune(holder, EVERYTHING)
    assert sut.settings() == before
    assert Path(sut.path, "journal").read_text() == ""
    sut.release()
    assert sut.left() == []


@pytest.mark.parametrize(
    ("program", "said"),
    [("import sys; sys.exit('first\\nno luck')", "no luck"), ("raise OSError('no\\x1b luck')", "OSError: no? luck")],
)
def test_a_guardian_that_does_not_start_says_why_and_leaves_nothing(sut: Sut, program: str, said: str) -> None:
    wanted = {"run_id": "run1", "sut": "sut1"}
    with pytest.raises(guardian.Refused, match=rf"does not start with .*: {re.escape(said)}; nothing was changed"):
        guardian.hold(
            sut.path, sut.machine, str(sut.base), wanted, lease_s=LONG_S, sources={**SOURCES, "guardian.py": program}
        )
    assert sut.left() == []


def test_a_guardian_that_may_not_choose_its_cpus_stays_where_it_is(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def refuse(_process: int, cpus: set[int]) -> None:
        asked.append(cpus)
        raise PermissionError

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    guardian.keep_off_measured_cpus(sut.machine)
    assert asked == []
    sut.put("/sys/devices/system/cpu/isolated", "1\n")
    sut.put("/sys/devices/system/cpu/nohz_full", "2-3\n")
    guardian.keep_off_measured_cpus(sut.machine)
    assert asked == [{0}]


def test_a_full_disk_leaves_no_half_a_reservation(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(guardian, "write_whole", full)
    with pytest.raises(guardian.Refused, match="No space left on device"):
        sut.hold()
    wait_until(lambda: guardians(sut.base) == [])
    assert sut.left() == []


def test_the_governor_of_cpus_that_went_offline_keeps_the_reservation_until_it_is_put_back(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"governor": "performance", "turbo": "off"})
    policy = sut.file(POLICY % 1)
    policy.rename(policy.with_name("away"))
    with pytest.raises(guardian.Refused, match="its CPUs are offline: put them online"):
        sut.release()
    assert (sut.read(NO_TURBO), sut.read(POLICY % 0 + "scaling_governor")) == ("0", "powersave")
    os.kill(holder["guardian"], signal.SIGKILL)
    wait_until(lambda: gone(holder["guardian"]))
    with pytest.raises(guardian.Refused, match=r"what run run1 .* left on the SUT cannot be put right"):
        sut.hold("run2")
    policy.with_name("away").rename(policy)
    _, taken_over = sut.hold("run2")
    assert taken_over["holder"]["run_id"] == "run1"
    assert sut.read(POLICY % 1 + "scaling_governor") == "powersave"


@pytest.mark.parametrize("state", ["inactive", None], ids=["not-running", "no-systemd"])
def test_stopped_irqbalance_needs_no_change(sut: Sut, state: str | None) -> None:
    if state is None:
        sut.file("/usr/bin/systemctl").unlink()
    sut.put("/irqbalance", f"{state}\n")
    holder, _ = sut.hold()
    assert sut.tune(holder, {"irqbalance": "stopped"}) == []


def test_irqbalance_that_cannot_be_restarted_is_refused(sut: Sut) -> None:
    sut.put("/irqbalance", "inactive\n")
    sut.put("/proc/4711/comm", "irqbalance\n")
    holder, _ = sut.hold()
    with pytest.raises(guardian.Refused, match="found it as process 4711"):
        sut.tune(holder, {"irqbalance": "stopped"})


@pytest.mark.parametrize(
    ("places", "shown"),
    [(["/dev/cpu/3/msr"], "/dev/cpu/3/msr"), ([f"/dev/cpu/{n}/msr" for n in (0, 1, 2, 5)], "/dev/cpu/{0-2,5}/msr")],
)
def test_places_that_differ_in_a_number_are_one_and_back(places: list[str], shown: str) -> None:
    changes = [{"where": where, "before": "0x0", "restored": None} for where in places]
    (change,) = guardian.grouped(changes)
    assert change["where"] == shown
    assert guardian.ungrouped(shown) == places


# Traffic generators


def test_a_traffic_generator_is_shared_by_the_suts_of_a_run_and_left_by_the_last(tmp_path: Path) -> None:
    path = str(tmp_path / "reservation_dir")
    assert guardian.tg_hold(path, "run1", "sut1", "x", False)
    assert guardian.tg_hold(path, "run1", "sut2", "x", False)
    assert not guardian.tg_hold(path, "run1", "sut2", "x", False)
    assert guardian.tg_release(path, "run1", "sut1", False)
    assert [item.name for item in Path(path).iterdir()] == ["calibration-run1-sut2"]
    assert guardian.tg_release(path, "run1", "sut2", False)
    assert not Path(path).exists()
    assert not guardian.tg_release(path, "run1", "sut2", False)


@pytest.mark.parametrize("name", ["csit-vpp-perf-verify-42", "calibration-run2-sut1", "\033[31m\n" + "x" * 200])
def test_a_traffic_generator_of_others_is_refused_with_its_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "reservation_dir"
    path.mkdir()
    (path / name).touch()
    with pytest.raises(guardian.Held) as refused:
        guardian.tg_hold(str(path), "run1", "sut1", "x", False)
    assert str(refused.value).isprintable()
    assert guardian.printable(name, 128) in str(refused.value)
    assert "rm -r" in str(refused.value)
    assert [item.name for item in Path(path).iterdir()] == [name]


def test_an_empty_or_linked_reservation_of_a_traffic_generator_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian, "TG_EMPTY_S", 0)
    path = tmp_path / "reservation_dir"
    path.mkdir()
    with pytest.raises(guardian.Held, match="no file in it"):
        guardian.tg_hold(str(path), "run1", "sut1", "x", False)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(guardian.Held):
        guardian.tg_hold(str(link), "run1", "sut1", "x", False)
    assert list(path.iterdir()) == []


# The controller's side


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no-consent": ({"governor": "performance"}, {}, "expected tune_governor_ok: true beside tune_governor"),
    "half-consent": ({"turbo": "off"}, {"turbo": "yes"}, "expected tune_turbo_ok: true"),
    "other-consent": ({"turbo": "off"}, {"governor": True}, "expected tune_turbo_ok: true"),
    "word": ({"turbo": "maybe"}, {"turbo": True}, "tune_turbo must be on or off, not 'maybe'"),
    "shell": ({"governor": "x; reboot"}, {"governor": True}, "a word of lower-case letters"),
    "pages": ({"hugepages_2m": 512}, {"hugepages_2m": True}, "give each node the number"),
    "fewer": ({"hugepages_1g": {0: -1}}, {"hugepages_1g": True}, "give each node the number"),
    "unknown": ({"voltage": "9"}, {"voltage": True}, "unknown setting"),
}


@pytest.mark.parametrize(("settings", "consent", "message"), WRONG.values(), ids=WRONG)
def test_what_is_not_agreed_to_is_bad_input(settings: dict[str, Any], consent: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        wanted_settings(settings, consent)


def test_what_is_agreed_to_is_passed_on_and_empty_is_not_wanted() -> None:
    empty = {"hugepages_2m": {}, "hugepages_1g": {}, "governor": "", "turbo": "", "prefetchers": "", "irqbalance": ""}
    assert wanted_settings(empty, {}) == {}
    wanted = {"hugepages_2m": {0: 512}, "turbo": False, "irqbalance": "stopped"}
    agreed = dict.fromkeys(wanted, True)
    assert wanted_settings({**empty, **wanted}, agreed) == {
        "hugepages_2m": {"0": 512},
        "turbo": "off",
        "irqbalance": "stopped",
    }


@pytest.mark.parametrize(
    "raw", [[{"setting": "turbo"}], ["x"], [{}] * 20_001, [dict.fromkeys(guardian_fields := ("setting",), "x")]]
)
def test_invalid_changes_are_refused(raw: list[Any]) -> None:
    assert guardian_fields
    with pytest.raises(EnvironmentLacksError):
        read_changes(raw)


def test_a_text_of_a_sut_is_bounded(sut: Sut) -> None:
    holder, _ = sut.hold()
    (change,) = sut.tune(holder, {"turbo": "off"})
    assert read_changes([change])[0].after == "1"
    with pytest.raises(EnvironmentLacksError, match="more than 4096"):
        read_changes([{**change, "where": "x" * 5000}])


def test_the_suts_side_is_python_3_8() -> None:
    import ast

    for text in SOURCES.values():
        ast.parse(text, feature_version=(3, 8))
    assert sys.version_info >= (3, 8)
