# SPDX-License-Identifier: Apache-2.0
"""However a run ends, its SUT is as it was, settings, processes, files and lock, and what it measured is collected."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calibration.base.errors import ENVIRONMENT, INTERRUPTED, VERDICT_FAILED
from tests.ansible.support import SLOW
from tests.command import calibration
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Running, Testbed
from tests.testbed.test_faults import (
    LAST,
    LONG,
    STEPS,
    THREE,
    assert_nothing_is_left,
    measured,
    outcomes,
    reasons,
    undone,
)

PATIENCE_S = 900
"""What takes longer hangs: these SUTs are emulated, and may share the controller's CPUs with others."""

Scenario = Callable[[str, str, str, str], None]

WANTED = {"tune_hugepages_2m": {0: 8}, "tune_hugepages_2m_ok": True}
"""What a guest really has: huge pages. It has neither frequencies nor irqbalance."""

ROOT = {**WANTED, "ansible_become": True}

PAGES = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"

RUNNER = "[r]unner keep "
"""The run's processes: the keeper, and the worker, its child."""

NOW = f"""
while systemctl list-units --plain --no-legend --state=deactivating 'calibration-*' | grep -q .; do sleep 1; done
cat {PAGES}
ls -A /var/tmp | grep calibration
pgrep -af '{RUNNER}|^[^ ]*/sutprobe '
grep -o '@calibration.*' /proc/net/unix
systemctl list-units --plain --no-legend 'calibration-*'
true
"""
"""Prints the settings, the files, the processes, the lock and the units that a run changes or makes."""

EACH_ONCE = [(step, "ok") for step in STEPS]


def now(sut: Sut) -> str:
    done = sut.ssh(NOW)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def until(sut: Sut, condition: str) -> None:
    """Wait in the guest until a shell command succeeds."""
    done = sut.ssh(f"until {condition}; do sleep 1; done", patience_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def until_restored(sut: Sut) -> None:
    until(sut, f"grep -qx 0 {PAGES}")


def until_complete(sut: Sut) -> None:
    """Wait until the run has ended on the SUT and is kept there."""
    until(sut, 'grep -q \'"record": "done"\' /var/tmp/calibration-*/records.jsonl')


@pytest.fixture
def sut(testbed: Testbed) -> Iterator[Sut]:
    found = testbed.sut("small", "fault-1")
    yield found
    if found.ssh("! ls -d /var/tmp/calibration-*").returncode:
        testbed.stop(found)  # the run of a test that failed would be in the way of the next


KILLED = {
    "sutprobe": ("kill -KILL $p", {"idle_latency", "latency_matrix"}, "killed by SIGKILL"),
    "worker": (f"kill -KILL $(pgrep -nf '{RUNNER}')", {"idle_latency"}, "the runner on the SUT was killed by signal 9"),
    "keeper": (f"kill -KILL $(pgrep -of '{RUNNER}')", {"idle_latency"}, "the run was ended on the SUT"),
    "every process": (f"kill -KILL $(pgrep -f '{RUNNER}') $p", {"idle_latency"}, "the runner on the SUT was killed"),
}
"""By process: how it is killed in the long step, what is measured then, and a reason for the rest."""


@pytest.mark.parametrize("name", KILLED)
def test_a_sut_restores_itself_whichever_process_is_killed(
    name: str, testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    command, kept, reason = KILLED[name]
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LAST)
        running.send(signal.SIGSTOP)  # nobody helps the SUT
        running.until_step(sut, LONG, f"grep -qx 8 {PAGES} && {command}")
        until_restored(sut)
        running.send(signal.SIGCONT)
        ended = running.end()
    document = lab.document(sut)
    assert measured(document) - {"jitter"} == kept, ended.text  # a step that is ended keeps what it has by then
    assert any(reason in item for item in reasons(document).values()), reasons(document)
    assert document.run.status == "incomplete"
    assert ended.rc == VERDICT_FAILED
    assert now(sut) == before
    scenario(
        f"{name} killed, huge pages reserved",
        f"SIGKILL to {name} of the run, its controller stopped",
        f"{', '.join(sorted(kept))}; settings restored by the SUT itself",
        f"{reason}; status incomplete",
    )


def clean_up(lab: Lab, inventory: Path, sut: Sut) -> None:
    run = ("-e", f"calibration_run_id={lab.newest(sut).name}")
    ended = lab.run("cleanup.yml", "-i", str(inventory), *run, profile=None)
    assert ended.rc == 0, ended.text


def resume(lab: Lab, inventory: Path, sut: Sut) -> None:
    ended = lab.resume(inventory, profile=THREE)
    assert lab.document(sut).run.status == "complete", ended.text
    assert [step for step, outcome in outcomes(lab, sut) if outcome == "ok"] == list(STEPS)


def run_again(lab: Lab, inventory: Path, sut: Sut) -> None:
    ended = lab.calibrate(inventory, "-e", "measure_keep_s=1")
    assert lab.document(sut).run.status == "complete", ended.text


NEXT = {"--resume": resume, "cleanup.yml": clean_up, "the next run": run_again}


@pytest.mark.parametrize("name", NEXT)
def test_a_killed_run_of_an_ordinary_user_is_restored_by_what_comes_next(
    name: str, testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    inventory = testbed.inventory({"suts": [sut]}, {**WANTED, "measure_keep_s": 1})
    sut.read(f"chmod 666 {PAGES}")  # as an administrator may permit
    with undone(sut, f"chmod 644 {PAGES}"):
        with lab.calibrating(inventory, profile=THREE) as running:
            running.until_step(sut, LAST)
            running.send(signal.SIGSTOP)
            running.until_step(sut, LONG, f"grep -qx 8 {PAGES} && {KILLED['every process'][0]}")
            running.kill()
        assert now(sut).splitlines()[0] == "8"
        NEXT[name](lab, inventory, sut)
    assert now(sut) == before
    scenario(
        f"all killed, then {name}",
        "SIGKILL to the controller and every process of an ordinary user's run, huge pages reserved",
        "nothing of that run" if name == "the next run" else "the step before",
        f"{name} restored the SUT",
    )


def killed_before_the_plan(testbed: Testbed, lab: Lab, sut: Sut, keep_s: int = 3600) -> Path:
    """Kill the controller while it reads what the plan needs; the SUT waits for it."""
    checker = lab.directory / "checker.sh"
    os.mkfifo(checker)
    variables = {**ROOT, "context_meltdown_checker": str(checker), "measure_keep_s": keep_s}
    inventory = testbed.inventory({"suts": [sut]}, variables)
    with lab.calibrating(inventory, profile=THREE) as running:
        running.until("the plan", lambda: "3 steps" in running.text)
        until(sut, f"grep -qx 8 {PAGES}")
        running.kill()
    return testbed.inventory({"suts": [sut]}, ROOT)


def killed_in_the_step(subcommand: str) -> Callable[[Testbed, Lab, Sut], Path]:
    def kill(testbed: Testbed, lab: Lab, sut: Sut) -> Path:
        inventory = testbed.inventory({"suts": [sut]}, ROOT)
        with lab.calibrating(inventory, profile=THREE) as running:
            running.until_step(sut, subcommand)
            running.kill()
        until_complete(sut)
        until_restored(sut)
        return inventory

    return kill


def killed_and_rebooted(testbed: Testbed, lab: Lab, sut: Sut) -> Path:
    inventory = testbed.inventory({"suts": [sut]}, ROOT)
    with lab.calibrating(inventory, profile=THREE) as running:
        running.until_step(sut, LONG)
        running.kill()
    sut.reboot()
    return inventory


def lost_for_good(testbed: Testbed, lab: Lab, sut: Sut) -> Path:
    inventory = testbed.inventory({"suts": [sut]}, {**ROOT, "measure_reconnect_s": 1})
    with lab.calibrating(inventory, profile=THREE) as running:
        running.until_step(sut, LONG)
        sut.link(up=False)
        ended = running.end()
        sut.link(up=True)
    assert ended.rc == ENVIRONMENT, ended.text
    assert f" --resume {lab.newest(sut).name}" in " ".join(ended.text.split())
    until_complete(sut)
    until_restored(sut)
    return inventory


MOMENTS: dict[str, tuple[Callable[[Testbed, Lab, Sut], Path], list[tuple[str, str]], str]] = {
    "controller killed before the plan is there": (killed_before_the_plan, [], "SIGKILL while the SUT waits for it"),
    "controller killed in the first step": (killed_in_the_step(LAST), EACH_ONCE, "SIGKILL in the first step"),
    "controller killed in a long step": (killed_in_the_step(LONG), EACH_ONCE, "SIGKILL in the long step"),
    "controller killed, SUT rebooted": (killed_and_rebooted, EACH_ONCE[:1], "SIGKILL, then the reset button"),
    "link dead": (lost_for_good, EACH_ONCE, "cable pulled in the long step for longer than measure_reconnect_s"),
}
"""By scenario: what happens, the steps that the SUT has kept, and what was injected."""


@pytest.mark.parametrize("name", MOMENTS)
def test_what_a_lost_controller_left_is_collected_by_resume(
    name: str, testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    happen, kept, injected = MOMENTS[name]
    inventory = happen(testbed, lab, sut)
    ended = lab.resume(inventory, profile=THREE)
    assert ended.rc == VERDICT_FAILED, ended.text
    assert outcomes(lab, sut) == EACH_ONCE
    assert lab.document(sut).run.status == "complete"
    assert now(sut) == before
    scenario(
        name,
        injected,
        f"{len(kept)} of 3 steps on the SUT, each once; settings restored",
        "--resume collected them" + ("" if kept == EACH_ONCE else " and measured the others") + "; status complete",
    )


def test_a_sut_whose_plan_never_comes_frees_itself(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    inventory = killed_before_the_plan(testbed, lab, sut, keep_s=1)
    clock = "cut -d' ' -f1 /proc/uptime"
    killed_s = float(sut.read(clock))
    until(sut, "! grep -q '@calibration' /proc/net/unix")
    free_s = float(sut.read(clock)) - killed_s
    until(sut, "! ls -d /var/tmp/calibration-*")
    assert now(sut) == before
    ended = lab.calibrate(inventory)
    assert lab.document(sut).run.status == "complete", ended.text
    scenario(
        "plan never comes",
        "SIGKILL to the controller between start and plan, huge pages reserved",
        "nothing of that run",
        f"SUT restored and free after {free_s:.0f} s; the next run is complete",
    )


def worker_of(process: int, controller: int) -> int:
    """Return the child of the controller that a process descends from."""
    parent = int(Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    return process if parent == controller else worker_of(parent, controller)


def watching_workers(running: Running) -> list[int]:
    """Return the worker of Ansible that watches the run over SSH, if one does."""
    controller = running.process.pid
    found = subprocess.run(["pgrep", "-f", "^ssh .* watch "], capture_output=True, check=False)
    workers = []
    for process in found.stdout.split():
        with contextlib.suppress(OSError):  # it has ended
            workers.append(worker_of(int(process), controller))
    return workers


def test_a_killed_worker_of_ansible_costs_nothing(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LONG)
        workers: list[int] = []

        def seen() -> bool:
            workers[:] = watching_workers(running)
            return bool(workers)

        running.until("a worker that watches", seen)
        os.kill(workers[0], signal.SIGKILL)
        ended = running.end()
    assert "a worker process of Ansible was killed by SIGKILL" in ended.text
    document = lab.document(sut)
    assert outcomes(lab, sut) == EACH_ONCE, ended.text
    assert document.run.status == "complete"
    assert len(document.attempts) == 1
    assert now(sut) == before
    scenario(
        "Ansible's worker killed",
        "SIGKILL to the worker that watches the SUT, in the long step",
        "every step, once: the SUT went on, a new worker collects",
        "the signal; status complete",
    )


def test_a_closed_laptop_costs_nothing(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LONG)
        running.send(signal.SIGSTOP)
        until_complete(sut)
        until_restored(sut)
        running.send(signal.SIGCONT)
        ended = running.end()
    assert outcomes(lab, sut) == EACH_ONCE, ended.text
    assert lab.document(sut).run.status == "complete"
    assert {change.restored_by for change in lab.document(sut).attempts[-1].changes} == {"run"}
    assert now(sut) == before
    scenario("laptop closed", "SIGSTOP to the controller until the SUT is done", "every step, once", "status complete")


def test_results_that_nobody_collects_go(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    with lab.calibrating(testbed.inventory({"suts": [sut]}, {**ROOT, "measure_keep_s": 1}), profile=THREE) as running:
        running.until_step(sut, LONG)
        running.kill()
    until(sut, "! ls -d /var/tmp/calibration-*")
    assert now(sut) == before
    ended = lab.resume(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE)
    assert lab.document(sut).run.status == "complete", ended.text
    scenario(
        "results not collected",
        "SIGKILL to the controller, measure_keep_s: 1",
        "what was collected before; nothing on the SUT",
        "--resume measured the rest; status complete",
    )


def test_a_reserved_sut_is_refused_with_its_holder_and_goes_on_after_ctrl_c_of_a_plain_playbook(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    inventory = testbed.inventory({"suts": [sut]}, ROOT)
    log = lab.directory / "log"
    with lab.started(log, "-i", str(inventory)) as process:
        Running(process, log).until_step(sut, "latency", f"grep -qx 8 {PAGES}")
        run = lab.newest(sut).name
        for become in (True, False):
            again = Lab(lab.directory / f"become-{become}").make()
            refused = again.calibrate(testbed.inventory({"suts": [sut]}, {"ansible_become": become}))
            assert refused.rc == ENVIRONMENT, refused.text
            (omitted,) = again.document(sut).not_measured
            for said in (f"reserved by run {run} of ", f" for {sut.name} since ", "of 2: ", "as user root (id 0), "):
                assert said in omitted.reason
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
    assert "sutprobe latency" in now(sut)
    clean_up(lab, inventory, sut)
    document = lab.document(sut)
    assert document.run.status == "interrupted"
    assert measured(document) == {"idle_latency"}
    assert now(sut) == before
    scenario(
        "second controller",
        "two more runs, as root and as an ordinary user, while the SUT is measured",
        "the run that is there",
        "refused with run, controller, since when, step, user and process, exit 3",
    )
    scenario(
        "ansible-playbook interrupted",
        "Ctrl-C in the middle of a step, huge pages reserved",
        "the step before; the SUT goes on until cleanup.yml",
        "status interrupted",
    )


def test_an_interrupted_run_is_ended_and_collected(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=SLOW) as running:
        running.until("the second step", lambda: ": measured" in running.text)
        running.send(signal.SIGINT)
        ended = running.end()
    assert ended.rc == INTERRUPTED, ended.text
    document = lab.document(sut)
    assert document.run.status == "interrupted"
    assert measured(document) == {"idle_latency"}
    assert now(sut) == before
    scenario(
        "calibration run interrupted",
        "Ctrl-C in the middle of a step, huge pages reserved",
        "the step before; settings restored",
        "status interrupted, exit 4",
    )


def test_the_run_sleeps_on_housekeeping_cpus_while_sutprobe_measures(
    testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    sut = testbed.sut("isolated", "expected-1")
    status = f"for r in $(pgrep -f '{RUNNER}'); do grep %s /proc/$r/status; done"
    # A watching controller wakes the worker when a step begins, and not again until it ends.
    look = (
        f"switches() {{ {status % 'ctxt_switches'}; }}; "
        'until before=$(switches); sleep 5; [ "$(switches)" = "$before" ]; do :; done; kill -0 $p'
    )
    with lab.calibrating(testbed.inventory({"suts": [sut]}, {"ansible_become": True}), profile=SLOW) as running:
        running.until("the first step's outcome", lambda: ": measured" in running.text)
        running.until_step(sut, "latency", look)
        cpus = sut.read(status % "Cpus_allowed_list").split()[1::2]
        running.send(signal.SIGINT)
        ended = running.end()
    assert cpus == ["0,2", "0,2"], ended.text
    assert_nothing_is_left(sut)
    scenario(
        "isolated CPUs",
        "none",
        "every step until Ctrl-C",
        "keeper and worker: on housekeeping CPUs, no context switch within a step",
    )


def test_a_setting_that_cannot_be_restored_is_told_until_it_is(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    inventory = testbed.inventory({"suts": [sut]}, ROOT)
    with undone(sut, f"! mountpoint -q {PAGES} || umount {PAGES}"):
        with lab.calibrating(inventory, profile=THREE) as running:
            running.until_step(sut, LONG, f"mount --bind {PAGES} {PAGES} && mount -o remount,bind,ro {PAGES}")
            ended = running.end()
        assert ended.rc == VERDICT_FAILED, ended.text
        document = lab.document(sut)
        assert outcomes(lab, sut) == EACH_ONCE
        (fault,) = document.attempts[-1].unrestored
        assert (fault.setting, fault.where, fault.wanted, fault.found) == ("hugepages_2m", PAGES, "0", "8")
        said = f"Not restored: hugepages_2m at {PAGES}: wanted 0, found 8: Read-only file system"
        assert [flag.reason for flag in document.flags if flag.code == "NOT_RESTORED"] == [said]
        for text in (ended.text, calibration("show", lab.newest(sut)).said):
            assert said in " ".join(text.split())
        again = Lab(lab.directory / "again").make()
        refused = again.calibrate(inventory)
        assert refused.rc == ENVIRONMENT, refused.text
        (omitted,) = again.document(sut).not_measured
        assert said in omitted.reason
    clean_up(lab, inventory, sut)
    assert lab.document(sut).attempts[-1].unrestored == ()
    assert now(sut) == before
    scenario(
        "setting cannot be restored",
        "nr_hugepages read-only from the long step on",
        "every step; the next run is refused, exit 3, until cleanup.yml has restored it",
        "NOT_RESTORED in document and show: setting, place, wanted 0, found 8, reason; exit 1",
    )


SITS = """
import mmap, os, sys
try:
    os.chdir(sys.argv[1])
except PermissionError:
    print("refused")
held = mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)  # MAP_HUGETLB
held[0] = 1
print("holds", flush=True)
sys.stdin.read()
"""
"""An ordinary user who wants to sit in the run's directory, and holds a huge page."""


def test_what_an_ordinary_user_holds_keeps_no_setting_changed(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LONG)
        directory = sut.read("ls -d /var/tmp/calibration-*").strip()
        login = sut.ssh_command(f"python3 -c '{SITS}' {directory}", user="withpassword")
        with subprocess.Popen(login, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
            assert user.stdout is not None
            assert [user.stdout.readline() for _ in range(2)] == ["refused\n", "holds\n"]
            ended = running.end()
            assert user.poll() is None
            assert sut.read(f"cat {PAGES} {PAGES.replace('/nr_', '/surplus_')}").split() == ["1", "1"]
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert document.attempts[-1].unrestored == ()
    assert {change.restored_by for change in document.attempts[-1].changes} == {"run"}
    until_restored(sut)
    assert now(sut) == before
    scenario(
        "another user in the way",
        "another login tries to sit in the run's directory, and holds a reserved huge page",
        "every step; settings restored, the page is freed with its user",
        "nothing: no entry to the directory; status complete",
    )


def test_a_run_by_another_locks_name_is_refused(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    before = now(sut)
    other = Lab(lab.directory / "other").make()
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=SLOW) as running:
        running.until("the second step", lambda: ": measured" in running.text)
        refused = other.calibrate(testbed.inventory({"suts": [sut]}, {**ROOT, "calibration_lock": "other"}))
        running.send(signal.SIGINT)
        ended = running.end()
    assert refused.rc == ENVIRONMENT, refused.text
    (omitted,) = other.document(sut).not_measured
    assert lab.newest(sut).name in omitted.reason
    assert ended.rc == INTERRUPTED, ended.text
    assert measured(lab.document(sut)) == {"idle_latency"}
    assert now(sut) == before
    scenario(
        "two names of the lock",
        "a second run with another calibration_lock while the first measures, both with huge pages",
        "the first run, measured on until Ctrl-C; settings restored",
        "the second refused with the first one's name, exit 3",
    )


def test_unchangeable_setting_is_refused_and_reported(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small", "fault-1")
    before = now(sut)
    wanted = {**WANTED, "tune_prefetchers": "off", "tune_prefetchers_ok": True, "ansible_become": True}
    ended = lab.calibrate(testbed.inventory({"testbed1": [sut]}, wanted))
    assert ended.rc != 0
    assert "remove tune_prefetchers and tune_prefetchers_ok" in ended.text
    assert now(sut) == before
    scenario(
        "prefetchers to be switched off on a processor without that register",
        "tune_prefetchers: off",
        "nothing was changed",
        "refused, with what was expected of the processor and what it is",
    )


def test_a_setting_without_consent_is_bad_input(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small", "fault-1")
    before = now(sut)
    ended = lab.calibrate(testbed.inventory({"testbed1": [sut]}, {**WANTED, "tune_hugepages_2m_ok": False}))
    assert ended.rc != 0
    assert "tune_hugepages_2m is set without tune_hugepages_2m_ok: true" in ended.text
    assert now(sut) == before
    scenario("a setting without its consent", "no tune_hugepages_2m_ok", "nothing was changed", "bad input")
