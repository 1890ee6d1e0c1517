# SPDX-License-Identifier: Apache-2.0
"""The reservation of a SUT and its guardian, with real processes and a copy of a machine's files."""

import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from calibration.reservation import NOT_RESERVED, OUT_OF_MEMORY, RESTARTED, UNGUARDED, guarded
from tests.suts import (
    EVERYTHING,
    LONG_S,
    NO_TURBO,
    PAGES,
    PATIENCE_S,
    Sut,
    await_guardian,
    end_guardian,
    guardians,
    run_step,
    start_probe,
    sut_files,
    sut_guardian,
    sut_hold,
    sut_reservations,
    sut_settings,
    sut_tg,
    wait_until,
)
from tests.tools import require

# One run at a time


def test_hold_and_release_leave_nothing(sut: Sut) -> None:
    holder, taken_over = sut.hold()
    assert taken_over is None
    directory = Path(holder["directory"])
    assert directory.parent == sut.base
    assert directory.name.startswith("calibration-run1-sut1-")
    assert directory.stat().st_mode & 0o7777 == 0o700
    assert Path(sut.path).stat().st_mode & 0o7777 == 0o755
    assert sut_hold.read_state(sut.path, sut.machine)[1]
    answer = sut.release()
    assert answer == {"changes": [], "ended": [], "released": True, "changed": True}
    await_guardian(holder)
    assert sut.left() == []
    assert sut.release()["changed"] is False


def test_a_second_run_is_refused_with_the_holder_and_a_remedy(sut: Sut) -> None:
    holder, _ = sut.hold()
    with pytest.raises(sut_reservations.Held) as refused:
        sut.hold("run2")
    text = str(refused.value)
    assert "run run1 of somebody@there for SUT sut1, started at 2026-11-21T03:27:12Z" in text
    assert "playbooks/cleanup.yml -e calibration_run_id=run1 --limit sut1" in text
    assert sut.release("run2")["changed"] is False
    assert sut_hold.read_state(sut.path, sut.machine) == (holder, True)
    assert {path.name for path in sut.base.iterdir()} == {Path(sut.path).name, Path(holder["directory"]).name}


def test_one_of_simultaneous_runs_restores_and_takes_over_a_stale_reservation(sut: Sut) -> None:
    before = sut.settings()
    dead, _ = sut.hold()
    sut.tune(dead, EVERYTHING)
    end_guardian(dead)
    assert sut.settings() != before
    taken: list[Any] = []
    start = threading.Barrier(4)

    def reach(number: int) -> None:
        start.wait()
        try:
            taken.append(sut.hold(f"next{number}"))
        except sut_reservations.Held:
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


def test_settings_are_not_restored_after_a_reboot(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"hugepages_2m": {"0": 64}})
    end_guardian(holder)
    sut.put("/proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
    sut.put(PAGES % 0, "7\n")  # what the machine came up with
    _, taken_over = sut.hold("run2")
    assert taken_over["why"] == "the SUT was restarted"
    assert sut.read(PAGES % 0) == "7"
    assert not Path(holder["directory"]).exists()


def test_a_run_is_resumed_while_its_guardian_lives(sut: Sut) -> None:
    before = sut.settings()
    old, _ = sut.hold()
    sut.tune(old, EVERYTHING)
    with pytest.raises(sut_reservations.Held):
        sut.hold()
    new, taken_over = sut.hold(resume=True)
    assert taken_over["why"] == "its run is resumed"
    assert sut.settings() == before
    await_guardian(old)
    assert new["token"] != old["token"]
    assert run_step(sut, old) == NOT_RESERVED
    assert run_step(sut, new) == 0


def test_check_mode_changes_nothing(sut: Sut) -> None:
    holder, _ = sut.hold(check_mode=True)
    assert not Path(holder["directory"]).exists()
    assert sut_hold.tune(sut.path, sut.machine, None, EVERYTHING, lease_s=1, check_mode=True)
    assert sut.left() == []


# What others may have put there


def test_a_link_at_the_path_is_refused(sut: Sut) -> None:
    target = sut.directory / "precious"
    target.mkdir()
    Path(sut.path).symlink_to(target)
    with pytest.raises(sut_files.Refused, match="is not a readable directory"):
        sut.hold()
    assert list(target.iterdir()) == []
    assert [path.name for path in sut.base.iterdir()] == [Path(sut.path).name]


def test_a_parent_that_others_may_write_to_is_refused(sut: Sut) -> None:
    sut.base.chmod(0o777)
    with pytest.raises(sut_files.Refused, match=r"writable by all; make each directory"):
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
def test_another_users_holder_is_printable_and_its_journal_ignored(sut: Sut, text: str) -> None:
    holder, _ = sut.hold()
    end_guardian(holder)
    sut.put(NO_TURBO, "0\n")
    journal = sut_settings.Entry("turbo", NO_TURBO, "1", "0").line()
    Path(sut.path, "journal").write_text(journal)
    Path(sut.path, "holder.json").write_text(text)
    with Path(sut.path, "alive").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in (Path(sut.path), *Path(sut.path).iterdir()):
            os.chown(path, 65534, 65534)
        with pytest.raises(sut_reservations.Held) as refused:
            sut.hold("run2")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1500
    sut.hold("run2")
    assert sut.read(NO_TURBO) == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_directory_named_by_another_user_is_not_removed(sut: Sut) -> None:
    holder, _ = sut.hold()
    end_guardian(holder)
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
def test_an_invalid_line_of_the_journal_is_refused(line: str) -> None:
    with pytest.raises(sut_files.Refused, match="invalid line in the journal"):
        sut_settings.Entry.of_line(line)


# However a run ends


def test_the_guardian_restores_everything_when_the_lease_expires(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, EVERYTHING)
    assert sut.settings() != before
    with start_probe(holder) as kernel:
        assert run_step(sut, holder, lease_s=0) == 0
        assert kernel.wait(PATIENCE_S) == -signal.SIGTERM
    await_guardian(holder)
    assert sut.left() == []
    assert sut.settings() == before
    answer = sut.release(changes=changes)
    assert not answer["released"]
    assert {change["restored_by"] for change in answer["changes"]} == {"guardian"}
    assert [(change["where"], change["restored"]) for change in answer["changes"]] == [
        (change["where"], change["before"]) for change in changes
    ]


def test_a_value_that_was_not_restored_is_reported(sut: Sut) -> None:
    holder, _ = sut.hold()
    changes = sut.tune(holder, {"turbo": "off"})
    end_guardian(holder, signal.SIGTERM)
    sut.put(NO_TURBO, "1\n")
    (change,) = sut.release(changes=changes)["changes"]
    assert (change["restored"], change["restored_by"]) == ("1", None)


def test_the_guardian_restores_everything_at_shutdown(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, EVERYTHING)
    os.kill(holder["guardian"], signal.SIGHUP)
    os.kill(holder["guardian"], signal.SIGINT)
    end_guardian(holder, signal.SIGTERM)
    assert sut.settings() == before
    assert sut.left() == []


def test_cleanup_restores_everything_after_the_guardian_was_killed(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    changes = sut.tune(holder, EVERYTHING)
    with start_probe(holder) as kernel:
        end_guardian(holder)
        assert run_step(sut, holder) == UNGUARDED
        answer = sut.release(who="cleanup")
        assert kernel.wait(PATIENCE_S) == -signal.SIGTERM
        assert answer["ended"] == [kernel.pid]
    assert sut.settings() == before
    assert sut.left() == []
    assert [change | {"restored": None, "restored_by": None} for change in answer["changes"]] == changes
    assert {change["restored_by"] for change in answer["changes"]} == {"cleanup"}


def test_a_lease_is_in_seconds_of_uptime_and_can_be_renewed(sut: Sut) -> None:
    sut.file("/proc/uptime").unlink()
    sut.put("/proc/uptime", "1000.00 1.0\n")
    until = 1000
    reader, writer = os.pipe()

    def awaited() -> bool:
        answer: bool = sut_guardian.await_end(sut.machine, reader, until)
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


def test_the_lease_ends_soon_after_the_step(sut: Sut) -> None:
    before = sut.settings()
    holder, _ = sut.hold()
    sut.tune(holder, EVERYTHING)
    command = guarded(["true"], sut.reservation(holder), lease_s=LONG_S, idle_s=1)
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0
    await_guardian(holder)
    assert sut.settings() == before
    assert sut.left() == []


def test_the_next_step_replaces_the_lease_of_the_last() -> None:
    reader, writer = os.pipe()
    machine = sut_settings.Machine()
    until = int(machine.uptime_s())
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        try:
            os.write(writer, b"%012d %d 0\n" % (until + 3600, first.pid))
            ended: list[bool] = []
            waiting = threading.Thread(target=lambda: ended.append(sut_guardian.await_end(machine, reader, until + 60)))
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


def test_a_step_is_refused_after_a_reboot_or_without_reservation(sut: Sut) -> None:
    holder, _ = sut.hold()
    assert run_step(sut, holder) == 0
    assert run_step(sut, {**holder, "boot_id": "11111111-2222-3333-4444-555555555555"}) == RESTARTED
    assert run_step(sut, {**holder, "token": "0" * 32}) == NOT_RESERVED
    sut.release()
    assert run_step(sut, holder) == NOT_RESERVED
    assert sut.left() == []


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Return a command line that runs its last argument."""
    require(request.param, request.param)
    return [request.param, *["sh"] * (request.param == "busybox"), "-c"]


def test_shell_of_a_step_starts_only_sutprobe(sut: Sut, shell: list[str]) -> None:
    require("strace", "strace")
    holder, _ = sut.hold()
    trace = sut.directory / "trace"
    command = guarded(["/bin/true"], sut.reservation(holder), lease_s=LONG_S)
    done = subprocess.run(["strace", "-f", "-o", str(trace), *shell, command], check=False)
    assert done.returncode == 0
    assert sum(trace.read_text().count(call) for call in ("fork(", "clone(", "clone3(")) == 1


def test_sutprobe_killed_by_a_signal_is_not_a_lost_connection(sut: Sut) -> None:
    # ssh ends with the same code for a command that a signal ended as for a connection that is gone.
    holder, _ = sut.hold()
    crashing = guarded(["/bin/sh", "-c", "kill -SEGV $$"], sut.reservation(holder), lease_s=LONG_S)
    assert subprocess.run(["/bin/sh", "-c", crashing], check=False).returncode == 128 + signal.SIGSEGV


def test_sutprobe_is_killed_first_when_memory_runs_out(sut: Sut, shell: list[str]) -> None:
    holder, _ = sut.hold()
    command = guarded(["/bin/cat", "/proc/self/oom_score_adj"], sut.reservation(holder), lease_s=LONG_S)
    done = subprocess.run([*shell, command], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1000\n", "")


@pytest.mark.parametrize(("counts", "reported"), [("3 4", True), ("3 3", False), ("", False)])
def test_killed_sutprobe_reports_whether_memory_ran_out(
    sut: Sut, shell: list[str], counts: str, reported: bool
) -> None:
    holder, _ = sut.hold()
    counters = sut.directory / "vmstat"
    before, _, after = counts.partition(" ")
    if before:
        counters.write_text(f"nr_free_pages 5\noom_kill {before}\n")
    kill = f"test -f {counters} && echo oom_kill {after} > {counters}; kill -KILL $$"
    command = guarded(["/bin/sh", "-c", kill], sut.reservation(holder), lease_s=LONG_S)
    command = command.replace("/proc/vmstat", str(counters))
    done = subprocess.run([*shell, command], check=False, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGKILL
    assert (OUT_OF_MEMORY in done.stderr) is reported, done.stderr


def test_the_guardian_sleeps_until_a_message(sut: Sut) -> None:
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


def test_a_journal_that_cannot_be_written_changes_nothing(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    holder, _ = sut.hold()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(sut_files.Refused, match="No space left on device; nothing was changed"):
            sut.tune(holder, EVERYTHING)
    assert sut.settings() == before
    assert Path(sut.path, "journal").read_text() == ""
    sut.release()
    assert sut.left() == []


@pytest.mark.parametrize(
    ("program", "said"),
    [("import sys; sys.exit('first\\nno luck')", "no luck"), ("raise OSError('no\\x1b luck')", "OSError: no? luck")],
)
def test_a_guardian_that_does_not_start_leaves_nothing(
    sut: Sut, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(sut_hold, "guardian_sources", lambda: {"guardian.py": program})
    with pytest.raises(sut_files.Refused, match=rf"does not start with .*: {re.escape(said)}; nothing was changed"):
        sut.hold()
    assert sut.left() == []


def test_the_guardian_leaves_isolated_cpus_if_permitted(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def refuse(_process: int, cpus: set[int]) -> None:
        asked.append(cpus)
        raise PermissionError

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    sut_guardian.keep_off_measured_cpus(sut.machine)
    assert asked == []
    sut.put("/sys/devices/system/cpu/isolated", "1\n")
    sut.put("/sys/devices/system/cpu/nohz_full", "2-3\n")
    sut_guardian.keep_off_measured_cpus(sut.machine)
    assert asked == [{0}]


def test_a_full_disk_leaves_no_partial_reservation(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sut_files, "write_synced", full)
    with pytest.raises(sut_files.Refused, match="No space left on device"):
        sut.hold()
    wait_until(lambda: guardians(sut.base) == [])
    assert sut.left() == []


# Traffic generators


def test_suts_of_a_run_share_a_traffic_generator(tmp_path: Path) -> None:
    path = str(tmp_path / "reservation_dir")
    assert sut_tg.hold(path, "run1", "sut1", "x", False)
    assert sut_tg.hold(path, "run1", "sut2", "x", False)
    assert not sut_tg.hold(path, "run1", "sut2", "x", False)
    assert sut_tg.release(path, "run1", "sut1", False)
    assert [item.name for item in Path(path).iterdir()] == ["calibration-run1-sut2"]
    assert sut_tg.release(path, "run1", "sut2", False)
    assert not Path(path).exists()
    assert not sut_tg.release(path, "run1", "sut2", False)


@pytest.mark.parametrize("name", ["csit-vpp-perf-verify-42", "calibration-run2-sut1", "\033[31m\n" + "x" * 200])
def test_a_reserved_traffic_generator_is_refused_with_its_holders(tmp_path: Path, name: str) -> None:
    path = tmp_path / "reservation_dir"
    path.mkdir()
    (path / name).touch()
    with pytest.raises(sut_reservations.Held) as refused:
        sut_tg.hold(str(path), "run1", "sut1", "x", False)
    assert str(refused.value).isprintable()
    assert sut_files.printable(name, 128) in str(refused.value)
    assert "rm -r" in str(refused.value)
    assert [item.name for item in Path(path).iterdir()] == [name]


def test_an_empty_or_linked_reservation_of_a_traffic_generator_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sut_tg, "EMPTY_S", 0)
    path = tmp_path / "reservation_dir"
    path.mkdir()
    with pytest.raises(sut_reservations.Held, match="by an empty directory"):
        sut_tg.hold(str(path), "run1", "sut1", "x", False)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(sut_reservations.Held):
        sut_tg.hold(str(link), "run1", "sut1", "x", False)
    assert list(path.iterdir()) == []
